"""Archives: a cache's events as a Delta table of Parquet files, written round by round and read without a node (`eventlog[archive]`).

`table` alone imports deltalake. The table says how far it is, and nothing beside it does: `rounds` go on where it ends.
"""

from eventlog.integrations.archive.audit import Audit as Audit
from eventlog.integrations.archive.audit import audit as audit
from eventlog.integrations.archive.events import event_batches as event_batches
from eventlog.integrations.archive.merging import Merged as Merged
from eventlog.integrations.archive.merging import compact as compact
from eventlog.integrations.archive.reading import Archive as Archive
from eventlog.integrations.archive.reading import open_archive as open  # noqa: A004 -- archive.open(path)
from eventlog.integrations.archive.rebuilding import Rebuilt as Rebuilt
from eventlog.integrations.archive.rebuilding import rebuild as rebuild
from eventlog.integrations.archive.rounds import Written as Written
from eventlog.integrations.archive.rounds import archive as archive

__all__ = ["Archive", "Audit", "Merged", "Rebuilt", "Written", "archive", "audit", "compact", "event_batches", "open", "rebuild"]
