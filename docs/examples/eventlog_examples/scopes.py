"""A scope: `cache.entries(scope="led-by", scope_parameters={"node": 2})` reads what one node leads."""

from collections.abc import Iterable, Mapping
from typing import Any


def led_by(topology: Any, parameters: Mapping[str, Any]) -> Iterable[int]:
    """Return segments, of the topology as the answering node knows it."""
    return [segment for segment, primary in enumerate(topology.primaries) if primary == parameters["node"]]
