"""Rollups: what the events of each window come to, as a Delta table that is continued window by window (`eventlog[archive]`).

A window is a range of ids, because an id begins with its time; it is closed once nothing can come into it any more. `definition` says what
is counted, `gathering` counts in tasks, `sketches` tell about how many keys there are, `table` keeps the results and says how far they
are, and `rolling` goes from a cache or an archive to it. What is here is loaded when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from eventlog.integrations.rollup.rolling import RolledUp as RolledUp
    from eventlog.integrations.rollup.rolling import rollup as rollup
    from eventlog.integrations.rollup.sketches import distinct_keys as distinct_keys

_PLACES: Final = {"RolledUp": "rolling", "distinct_keys": "sketches", "rollup": "rolling"}
__all__ = ["RolledUp", "distinct_keys", "rollup"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = found
    return found
