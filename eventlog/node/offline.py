"""Looking through the data directory of a stopped node: all that is stored in it, and what of its logs is gone."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eventlog.control.caches import CacheBook, read_book
from eventlog.control.metastore import Item, Listing
from eventlog.control.rebuilding import decode_kept
from eventlog.errors import CorruptData, InvalidArgument, LostDisk
from eventlog.node.entering import STORE
from eventlog.node.home import RECORDS
from eventlog.segment.check import Checked, check
from eventlog.segment.directory import read_label
from eventlog.segment.recovery import recover
from eventlog.segment.rocks.store import open_store

PROBLEMS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LostEnd:
    """Ids in `(after, upto]` of a segment are gone; `upto` is how far its log had certainly come."""

    segment: int
    after: int
    upto: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryReport:
    """What a data directory holds and what is wrong with it, at most `PROBLEMS_MAX` of that."""

    checked: Checked
    problems: Sequence[str] = ()
    lost: Sequence[LostEnd] = field(default_factory=tuple)


def check_directory(path: Path) -> DirectoryReport:
    """Read everything in the data directory of a node that does not run. Nothing is repaired.

    Opening a store has RocksDB begin another MANIFEST. Where nothing is missing the store notes that one, as a node does at its start;
    without it the next start would look through the whole log.

    Raises:
        DirectoryInUse: the node runs.
        InvalidArgument: there is no store in it.
    """
    checked, problems = Checked(), list[str]()
    try:
        label = read_label(path / STORE)
        if label is None:
            raise InvalidArgument(why=f"there is no store in {path}")
        store = open_store(path / STORE, segments=label.segments)
    except (CorruptData, LostDisk) as error:
        return DirectoryReport(checked=checked, problems=(str(error),))
    try:
        try:
            book = _book(path)
        except CorruptData as error:  # of all the rest it can be said how it is
            problems.append(f"{error}; entries are not compared")
            book = _NO_BOOK
        keyed = [found.record.id for found in book.caches.values() if found.record.options.state]
        for finding in check(store, keyed=keyed, checked=checked):
            if len(problems) < PROBLEMS_MAX and str(finding) not in problems:
                problems.append(str(finding))
        recovery, beside = recover(store, keyed=keyed), store.ends.ids
        ends = recovery.ends.ids
        lost = [LostEnd(segment=at, after=int(ends[at]), upto=max(int(ends[at]), int(beside[at]))) for at in recovery.faulty]
        if not recovery.faults:
            store.settle(recovery.ends)
    except CorruptData as error:
        return DirectoryReport(checked=checked, problems=(*problems, str(error)))
    finally:
        store.close()
    return DirectoryReport(checked=checked, problems=problems, lost=lost)


_NO_BOOK = CacheBook(caches={}, next_id=1, next_revision=0)


def _book(path: Path) -> CacheBook:
    """Return the caches as the directory remembers them; where it does not, no state is compared with its log.

    Raises:
        CorruptData: what it remembers is damaged.
    """
    try:
        kept = decode_kept((path / RECORDS).read_bytes(), where=str(path / RECORDS))
    except OSError:
        return _NO_BOOK
    items = tuple(Item(key=item.key, value=item.value, revision=item.revision) for item in kept.items)
    return read_book(Listing(items=items, revision=kept.revision))
