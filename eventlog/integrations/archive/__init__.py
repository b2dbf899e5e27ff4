"""Archives: a cache's events as a Delta table of Parquet files, written round by round and read without a node (`eventlog[archive]`).

The table says how far it is, and nothing beside it does: `rounds` go on where it ends.
What is here is loaded when it is first asked for: columns and ranges serve those who have no archive, too.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from eventlog.integrations.archive.auditing import Audit as Audit
    from eventlog.integrations.archive.auditing import audit as audit
    from eventlog.integrations.archive.events import event_batches as event_batches
    from eventlog.integrations.archive.events import event_batches_async as event_batches_async
    from eventlog.integrations.archive.folding import state as state
    from eventlog.integrations.archive.merging import Merged as Merged
    from eventlog.integrations.archive.merging import compact as compact
    from eventlog.integrations.archive.reading import Archive as Archive
    from eventlog.integrations.archive.reading import noted as noted
    from eventlog.integrations.archive.reading import open_archive as open  # noqa: A004 -- archive.open(path)
    from eventlog.integrations.archive.rebuilding import Rebuilt as Rebuilt
    from eventlog.integrations.archive.rebuilding import rebuild as rebuild
    from eventlog.integrations.archive.rounds import Written as Written
    from eventlog.integrations.archive.rounds import archive as archive

_PLACES: Final = {
    "Archive": "reading",
    "Audit": "auditing",
    "Merged": "merging",
    "Rebuilt": "rebuilding",
    "Written": "rounds",
    "archive": "rounds",
    "audit": "auditing",
    "compact": "merging",
    "event_batches": "events",
    "event_batches_async": "events",
    "noted": "reading",
    "open": "reading",
    "rebuild": "rebuilding",
    "state": "folding",
}
__all__ = [
    "Archive",
    "Audit",
    "Merged",
    "Rebuilt",
    "Written",
    "archive",
    "audit",
    "compact",
    "event_batches",
    "event_batches_async",
    "noted",
    "open",
    "rebuild",
    "state",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_PLACES[name]}")
    found = getattr(module, {"open": "open_archive"}.get(name, name))
    globals()[name] = found
    return found
