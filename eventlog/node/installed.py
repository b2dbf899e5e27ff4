"""What operators have installed for a node to call by name: entry points of Python packages."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points


@cache
def installed(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name, looked up once a process: reading what each package offers holds the loop."""
    return {point.name: point for point in reversed(tuple(entry_points(group=group)))}  # of two with one name, the first
