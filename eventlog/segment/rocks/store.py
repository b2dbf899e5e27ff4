"""The port on RocksDB. What a caller may rely on stands in `segment/port.py`; here is how it is kept.

- `write` of rocksdict holds the GIL even while it syncs, `flush_wal` does not: so groups are written without a sync, and the sync
  is a call of its own.
- A WriteBatch is consumed by `write`, by a failed one too: waiting for a stalled engine rebuilds it.
- After a failed sync nobody knows what the disk holds: the store refuses to write until it is opened again, and so does RocksDB.
  The sync is never tried again in place.
- A write that finds no space leaves a torn record, which every replay drops; RocksDB refuses to write until it has found space
  again, which it looks for itself every five seconds, and then goes on in a new journal file. So a full disk fences nothing.
- What a torn MANIFEST or a lost journal makes it forget, it forgets without a word. So each family is compared with what stands beside
  the database: the log with its ends and with what has settled, the meta rows with their sum, the state with the number of its last flush.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import starmap
from typing import TypeVar
from weakref import WeakSet

import numpy as np
import numpy.typing as npt
from rocksdict import CompactOptions, Rdict, WriteBatch, WriteOptions

from eventlog.errors import (
    ClientClosed,
    DiskFull,
    EventLogError,
    LostDisk,
    Misuse,
    Overloaded,
    StoreFenced,
    WrongCluster,
)
from eventlog.segment import keys
from eventlog.segment.directory import Directory, Label, check_owner, decode_label, describe
from eventlog.segment.port import Identity, Pair, Range, Snapshot, StoreEnds, StoreOptions
from eventlog.segment.rocks.ends import SUM_KEY, DurableCounts, EndsFile, RowSum, changed, create_ends, decode_sum, open_ends, total_of
from eventlog.segment.rocks.failing import NO_SPACE, STALL, Judge, calling, closing_error, compacting_error, is_damage, reading_error
from eventlog.segment.rocks.opening import Database, close_database, create_database, open_database
from eventlog.segment.rocks.reading import (
    RocksSnapshot,
    first_keys,
    get_values,
    last_pairs,
    peek_values,
    read_pairs,
    read_values,
    read_values_and_next,
)
from eventlog.segment.rocks.settled import Settling, read_settled

T = TypeVar("T")

_STALL_WAIT_FIRST = 0.001
_STALL_WAIT_MAX = 0.050


class RocksStore:
    """See `port.Store`. Made by `open_store`."""

    def __init__(
        self, directory: Directory, *, label: Label, database: Database, ends_file: EndsFile, rows: RowSum, options: StoreOptions
    ) -> None:
        self._directory = directory
        self._where = str(directory.database)
        self._label = label
        self._database: Database | None = database
        self._ends_file = ends_file
        self._options = options
        self._journalled = _write_options(journalled=True)
        self._unjournalled = _write_options(journalled=False)
        self._log_handle = database.root.get_column_family_handle("log")
        self._state_handle = database.root.get_column_family_handle("state")
        self._meta_handle = database.root.get_column_family_handle("meta")
        self._rows = rows
        self._rows_synced = ends_file.reached.rows
        self._flushing = threading.Lock()
        self._flush = ends_file.reached.flush  # the last of the state that has a number: it is durable, and whatever was applied before
        self._applies = self._applies_flushed = 0
        self._settling = Settling(directory.settled_file, directory.database, segments=label.segments, token=label.token)
        self._failure: str | None = None
        self._snapshots: WeakSet[RocksSnapshot] = WeakSet()
        self.ends = StoreEnds.empty(label.segments)
        self.settled = np.zeros(label.segments, np.int64)
        self.stopped_cleanly = False
        self.unreadable = ""

    @property
    def segments(self) -> int:
        return self._label.segments

    @property
    def identity(self) -> Identity | None:
        return self._label.owner

    # ------------------------------------------------------------ writing

    def append(self, log: Sequence[Pair], meta: Sequence[Pair]) -> None:
        rows = self._changed(meta) if meta else self._rows

        def build() -> WriteBatch:
            batch = WriteBatch(raw_mode=True)
            if meta:  # first: a row behind a large value would have the batch move to twice its room
                batch.set_default_column_family(self._meta_handle)
                deque(starmap(batch.put, (*meta, rows.row)), 0)
            batch.set_default_column_family(self._log_handle)
            deque(starmap(batch.put, log), 0)
            return batch

        self._write(build, self._journalled)
        self._rows = rows

    def sync(self, ends: StoreEnds | None = None) -> None:
        if ends is not None:
            self._check_ends(ends)
        self._sync_journal()
        if ends is not None:
            self.write_ends(ends)

    def write_ends(self, ends: StoreEnds) -> None:
        self._check_ends(ends)
        self._writable()
        self._calling(lambda: self._ends_file.write(ends, self._reached))
        self._settling.reach(ends.ids)

    def settle(self, ends: StoreEnds | None = None) -> None:
        self._open()
        with suppress(OSError):  # what was noted before only makes the next opening look through more
            if ends is None:
                self._settling.settle()
            else:
                self._settling.begin(ends.ids)

    def apply(self, puts: Sequence[tuple[bytes, bytes | None]]) -> None:
        def build() -> WriteBatch:
            batch = WriteBatch(raw_mode=True)
            batch.set_default_column_family(self._state_handle)
            put, delete = batch.put, batch.delete
            for key, value in puts:
                if value is None:
                    delete(key)
                else:
                    put(key, value)
            return batch

        self._write(build, self._unjournalled)
        self._applies += 1

    def flush_state(self) -> None:
        database = self._writable()
        with self._flushing:
            applies, number = self._applies, self._flush
            if applies != self._applies_flushed:
                number += 1
                self._write(partial(self._numbered, number), self._unjournalled)
            self._calling(lambda: database.state.flush(wait=True))
            self._flush, self._applies_flushed = number, applies

    def release_journal(self) -> None:
        database = self._writable()
        for family in (database.log, database.meta, database.state):
            self._calling(partial(family.flush, wait=True))

    def trim(self, ranges: Sequence[Range], meta: Sequence[Pair], *, meta_ranges: Sequence[Range] = ()) -> None:
        rows = self._changed(meta, meta_ranges) if meta or meta_ranges else self._rows
        self._write(lambda: self._deletion(ranges, meta_ranges, (*meta, rows.row) if rows.change else ()), self._journalled)
        self._rows = rows

    def drop(
        self,
        log_ranges: Sequence[Range],
        state_ranges: Sequence[Range],
        meta_ranges: Sequence[Range],
        *,
        meta: Sequence[Pair] = (),
        ends: StoreEnds | None = None,
    ) -> None:
        if ends is not None:
            self._check_ends(ends)
            self._writable()
            self._calling(lambda: self._ends_file.write_both(ends, self._reached))
            self._calling(lambda: self._settling.lower(ends.ids))
        self.trim(log_ranges, meta, meta_ranges=meta_ranges)
        self._sync_journal()
        self._write(lambda: self._state_deletion(state_ranges), self._unjournalled)
        self._applies += 1

    def compact(self, log_ranges: Sequence[Range], state_ranges: Sequence[Range] = ()) -> None:
        database = self._open()
        options = CompactOptions()
        options.set_exclusive_manual_compaction(False)  # merging goes on meanwhile, or writers would stall behind it
        for name, family, ranges in (("log", database.log, log_ranges), ("state", database.state, state_ranges)):
            for lower, upper in ranges:
                calling(partial(family.compact_range, lower, upper, options), compacting_error(self._judging(name), self.free_bytes))

    # ------------------------------------------------------------ reading

    def read_log(self, lower: bytes, upper: bytes, *, bytes_max: int) -> list[Pair]:
        return read_values(self._open().log, ((lower, upper),), bytes_max=bytes_max, judge=self._judging("log"))

    def read_logs(self, ranges: Sequence[Range], *, bytes_max: int) -> list[Pair]:
        return read_values(self._open().log, ranges, bytes_max=bytes_max, judge=self._judging("log"))

    def read_logs_and_next(
        self, ranges: Sequence[Range], bounds: Sequence[bytes], *, bytes_max: int
    ) -> tuple[list[Pair], list[Pair | None]]:
        return read_values_and_next(self._open().log, ranges, bounds, bytes_max=bytes_max, judge=self._judging("log"))

    def last_log(self, lower: bytes, upper: bytes) -> Pair | None:
        return self.last_logs(((lower, upper),))[0]

    def last_logs(self, ranges: Sequence[Range]) -> list[Pair | None]:
        return last_pairs(self._open().log, ranges, judge=self._judging("log"))

    def first_log_keys(self, ranges: Sequence[Range]) -> list[bytes | None]:
        return first_keys(self._open().log, ranges, judge=self._judging("log"))

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return get_values(self._open().state, keys, judge=self._judging("state"))

    def get_in_memory(self, keys: list[bytes]) -> list[bytes] | None:
        return peek_values(self._open().state, keys)

    def read_state(self, lower: bytes, upper: bytes, *, limit: int) -> list[Pair]:
        return read_pairs(self._open().state, (lower, upper), limit=limit, judge=self._judging("state"))

    def snapshot(self) -> Snapshot:
        found = RocksSnapshot(self._open().state, judge=self._judging("state"))
        self._snapshots.add(found)
        return found

    def pinned_bytes(self) -> int:
        state = self._open().state
        every = state.property_int_value("rocksdb.size-all-mem-tables") or 0
        return max(every - (state.property_int_value("rocksdb.cur-size-all-mem-tables") or 0), 0)

    def read_meta(self, lower: bytes, upper: bytes) -> list[Pair]:
        return read_pairs(self._open().meta, (lower, upper), limit=None, judge=self._judging("meta"))

    # ------------------------------------------------------------ the rest

    def free_bytes(self) -> int:
        disk = os.statvfs(self._directory.path)
        return disk.f_bavail * disk.f_frsize

    def replay_bytes(self) -> int:
        return self._journal_bytes() + (self._open().state.property_int_value("rocksdb.cur-size-all-mem-tables") or 0)

    def _journal_bytes(self) -> int:
        found = 0
        for file in self._directory.database.glob("*.log"):
            with suppress(FileNotFoundError):  # written out meanwhile, and removed
                found += file.stat().st_size
        return found

    def figures(self) -> dict[str, tuple[int, int]]:
        database, options = self._open(), self._options

        def total(name: str) -> int:
            return sum(family.property_int_value(name) or 0 for family in (database.log, database.state, database.meta))

        return {
            "buffers_bytes": (total("rocksdb.cur-size-all-mem-tables"), options.buffers_bytes_max),
            "log_cache_bytes": (database.log_cache.get_usage(), options.cache_bytes // 4),
            "state_cache_bytes": (database.state_cache.get_usage(), options.cache_bytes - options.cache_bytes // 4),
            "journal_bytes": (self._journal_bytes(), options.journal_bytes_max),
            "table_bytes": (total("rocksdb.total-sst-files-size"), 0),
            "unmerged_log_files": (int(database.log.property_value("rocksdb.num-files-at-level0") or 0), 1_000),
        }

    def close(self) -> None:
        if self._database is None:
            return
        database, self._database = self._database, None
        for snapshot in list(self._snapshots):
            snapshot.close()  # RocksDB lets no directory go that is looked at
            snapshot.wait()
        del self._log_handle, self._state_handle, self._meta_handle
        why = close_database(database)
        del database
        self._ends_file.close()
        if why is None and self._failure is None:
            with suppress(OSError):
                self._settling.settle(is_closed=True)
            self._directory.mark_clean()
        self._directory.unlock()
        if why is not None and self._failure is None:
            if is_damage(why):
                self._note(why)
            raise closing_error(self._where)(why)

    def take_as_it_is(self) -> None:
        """Have meta rows and state be those that there are, however old."""
        self.trim([], [])
        self._applies += 1
        self.flush_state()

    # ------------------------------------------------------------ inside

    def _open(self) -> Database:
        if self._database is None:
            raise ClientClosed(what="store")
        return self._database

    def _writable(self) -> Database:
        if self._failure is not None:
            raise StoreFenced(why=self._failure)
        return self._open()

    def _judging(self, family: str) -> Judge:
        return reading_error(f"{family} in {self._where}", self._note)

    def _note(self, why: str) -> None:
        self.unreadable = self.unreadable or why

    def _write(self, build: Callable[[], WriteBatch], options: WriteOptions) -> None:
        """Write a batch; while the engine stalls, wait and build it anew."""
        root = self._writable().root
        wait, stalled_since = _STALL_WAIT_FIRST, 0.0
        while not self._calling(lambda: _is_written(root, build(), options)):
            now = time.monotonic()
            stalled_since = stalled_since or now
            if (now - stalled_since) * 1_000 >= self._options.stall_ms_max:
                raise Overloaded(what="storage engine", limit=self._options.stall_ms_max)
            time.sleep(wait)
            wait = min(2 * wait, _STALL_WAIT_MAX)

    @property
    def _reached(self) -> DurableCounts:
        return DurableCounts(self._rows_synced, self._flush)

    def _changed(self, meta: Sequence[Pair], ranges: Sequence[Range] = ()) -> RowSum:
        """Return the sum of the meta rows after a change that is not made yet."""
        family, judge = self._writable().meta, self._judging("meta")
        get, read = partial(get_values, family, judge=judge), partial(read_pairs, family, limit=None, judge=judge)
        return changed(self._rows, puts=meta, ranges=ranges, get=get, read=read)

    def _sync_journal(self) -> None:
        database, change = self._writable(), self._rows.change
        calling(lambda: database.root.flush_wal(sync=True), self._fence)
        self._rows_synced = change

    def _calling(self, call: Callable[[], T]) -> T:
        """Return what a writing call returns; where it fails for anything but space, fence the store."""
        return calling(call, self._judge)

    def _check_ends(self, ends: StoreEnds) -> None:
        if len(ends.ids) != self.segments or len(ends.epochs) != self.segments:
            raise Misuse(why=f"ends of {len(ends.ids)} segments, the store has {self.segments}")

    def _judge(self, why: str) -> EventLogError:
        if NO_SPACE in why:
            return DiskFull(free_bytes=self.free_bytes(), reserve_bytes=0, outcome="unknown")
        return self._fence(why)

    def _fence(self, why: str) -> EventLogError:
        """Refuse to write from now on; return the error of the call that failed, whose outcome nobody knows."""
        self._failure = self._failure or why
        if is_damage(why):  # a merge met it
            self._note(why)
        return StoreFenced(why=why, outcome="unknown")

    def _deletion(self, log: Sequence[Range], meta: Sequence[Range], rows: Sequence[Pair]) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        for lower, upper in log:
            batch.delete_range(lower, upper, self._log_handle)  # the batch's default family does not count here
        for lower, upper in meta:
            batch.delete_range(lower, upper, self._meta_handle)
        for key, value in rows:
            batch.put(key, value, self._meta_handle)
        return batch

    def _numbered(self, number: int) -> WriteBatch:
        """Return what says in the state of which flush it is: where that is missing, so is what was flushed with it."""
        batch = WriteBatch(raw_mode=True)
        batch.put(keys.FLUSH_KEY, number.to_bytes(8, "little"), self._state_handle)
        return batch

    def _state_deletion(self, ranges: Sequence[Range]) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        for lower, upper in ranges:
            batch.delete_range(lower, upper, self._state_handle)
        return batch


def open_store(path: str | os.PathLike[str], *, segments: int, options: StoreOptions | None = None) -> RocksStore:
    """Open the data directory `path`, making it if there is none.

    Opening replays the journal and holds the GIL meanwhile, seconds after a crash.

    Raises:
        DirectoryInUse: another process has it.
        WrongCluster: it belongs to another cluster, node or incarnation, or has another number of segments.
        UnsupportedFormat: written by another version.
        CorruptData: something is damaged or missing; says what.
        LostDisk: it cannot be said how long the log was, or there is no store where one must be.
    """
    options = options or StoreOptions()
    directory = Directory(path)
    directory.lock()
    try:
        label = directory.label()
        if label is None and options.must_exist:
            raise LostDisk(where=str(directory.store), why="the store is missing")
        if label is None:
            label = _create(directory, Label.new(options.identity, segments))
        check_owner(label, owner=options.identity, segments=segments, where=str(directory.path))
        return _open(directory, label, options)
    except BaseException:
        directory.unlock()
        raise


def _create(directory: Directory, label: Label) -> Label:
    building = directory.begin_creation()
    create_database(building.database, [(keys.IDENTITY_KEY, label.encode())])
    create_ends(building.ends_file, segments=label.segments, token=label.token)
    directory.finish_creation(building, label)
    return label


def _open(directory: Directory, label: Label, options: StoreOptions) -> RocksStore:
    ends_file, ends = open_ends(directory.ends_file, segments=label.segments, token=label.token)
    try:
        settled = _read_settled(directory, label, options)
        stopped_cleanly = directory.take_clean_mark()
        database = open_database(directory.database, options)
    except BaseException:
        ends_file.close()
        raise
    try:
        _check_own(database, label, str(directory.database))
        rows = _check_families(database, ends_file.reached, options, where=str(directory.database))
    except BaseException:
        close_database(database)
        ends_file.close()
        raise
    store = RocksStore(directory, label=label, database=database, ends_file=ends_file, rows=rows, options=options)
    store.ends, store.settled = ends, settled
    store.stopped_cleanly = stopped_cleanly
    if options.accepts_loss:
        store.take_as_it_is()
    return store


def _read_settled(directory: Directory, label: Label, options: StoreOptions) -> npt.NDArray[np.int64]:
    """Return what has settled of the log, before RocksDB opens the database and deletes what its MANIFEST has forgotten."""
    try:
        return read_settled(directory.settled_file, directory.database, segments=label.segments, token=label.token)
    except LostDisk:
        if not options.accepts_loss:
            raise
        directory.settled_file.unlink(missing_ok=True)
    return np.zeros(label.segments, np.int64)


def _check_families(database: Database, reached: DurableCounts, options: StoreOptions, *, where: str) -> RowSum:
    """Return the sum of the meta rows as they are; refuse rows that were lost or are older than they were, and an older state."""
    rows = read_pairs(database.meta, keys.EVERY_ROW, limit=None, judge=reading_error(f"meta in {where}"))
    found = next((decode_sum(value, where=f"meta in {where}") for key, value in rows if key == SUM_KEY), RowSum(0, total_of(rows)))
    state = get_values(database.state, [keys.FLUSH_KEY], judge=reading_error(f"state in {where}"))[0]
    flush = int.from_bytes(state or b"", "little")
    why = ""
    if found.total != total_of(rows):
        why = f"some of its meta rows are missing or older than their change {found.change}"
    elif found.change < reached.rows:
        why = f"its meta rows are those of change {found.change}, and change {reached.rows} was durable"
    elif flush < reached.flush:
        why = f"its state is that of flush {flush}, and flush {reached.flush} was durable"
    if why and not options.accepts_loss:
        raise LostDisk(where=where, why=why)
    return RowSum(max(found.change, reached.rows), total_of(rows))


def _check_own(database: Database, label: Label, where: str) -> None:
    """Refuse a database that is empty, or another's, in a directory whose label is right."""
    found = get_values(database.meta, [keys.IDENTITY_KEY], judge=reading_error(where))[0]
    if found is None:
        raise LostDisk(where=where, why="it opened empty")
    theirs = decode_label(found, where=f"{where}, identity")
    if theirs != label:
        raise WrongCluster(where=where, theirs=describe(theirs), ours=describe(label))


def _is_written(root: Rdict, batch: WriteBatch, options: WriteOptions) -> bool:
    """Write a batch; return False where the engine stalls and nothing was written."""
    try:
        root.write(batch, options)
    except Exception as error:
        if STALL in str(error):
            return False
        raise
    return True


def _write_options(*, journalled: bool) -> WriteOptions:
    options = WriteOptions()
    options.no_slowdown = True
    options.disable_wal = not journalled  # type: ignore[assignment, method-assign]  # an attribute; the stub says method
    return options
