"""A store in memory, for tests, simulations and caches that may vanish. It can crash as a disk does.

What a crash keeps is exactly what the port promises, nothing more: the log and meta rows of the last `sync`, the state of the
last `flush_state`. Nothing here is fast; it is the port in the fewest words.
"""

import bisect
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from eventlog.errors import ClientClosed, DirectoryInUse, DiskFull, Misuse, StoreFenced, WrongCluster
from eventlog.limits import GIB
from eventlog.segment.port import Identity, Pair, Range, Snapshot, StoredRows, StoreEnds, StoreOptions


class Family:
    """Ordered byte keys with an undo list back to the last durable moment."""

    __slots__ = ("keys", "rows", "undo")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.rows: dict[bytes, bytes] = {}
        self.undo: list[tuple[bytes, bytes | None]] = []

    def put(self, key: bytes, value: bytes) -> None:
        """Set one row."""
        self.undo.append((key, self.rows.get(key)))
        self._set(key, value)

    def delete(self, key: bytes) -> None:
        """Remove one row if it is there."""
        if key in self.rows:
            self.undo.append((key, self.rows[key]))
            self._unset(key)

    def delete_range(self, lower: bytes, upper: bytes) -> None:
        """Remove all rows in `[lower, upper)`."""
        for key in self.keys[self.at(lower) : self.at(upper)]:
            self.delete(key)

    def at(self, key: bytes) -> int:
        """Return the place of the first key at or above `key`."""
        return bisect.bisect_left(self.keys, key)

    def pairs(self, lower: bytes, upper: bytes) -> list[Pair]:
        """Return all rows in `[lower, upper)`."""
        return [(key, self.rows[key]) for key in self.keys[self.at(lower) : self.at(upper)]]

    def keep(self) -> None:
        """Make what is here durable."""
        self.undo.clear()

    def fall_back(self) -> None:
        """Return to the last durable moment."""
        for key, value in reversed(self.undo):
            if value is not None:
                self._set(key, value)
            elif key in self.rows:
                self._unset(key)
        self.undo.clear()

    def _set(self, key: bytes, value: bytes) -> None:
        if key not in self.rows:
            bisect.insort(self.keys, key)
        self.rows[key] = value

    def _unset(self, key: bytes) -> None:
        del self.rows[key]
        del self.keys[self.at(key)]


class MemorySnapshot:
    """See `port.Snapshot`. It is a copy."""

    def __init__(self, store: "MemoryStore", state: Family) -> None:
        self._store: MemoryStore | None = store
        self._rows = Family()
        self._rows.keys, self._rows.rows = state.keys.copy(), state.rows.copy()

    def read(self, lower: bytes, upper: bytes, *, rows_max: int, bytes_max: int) -> StoredRows:
        if self._store is None:
            raise ClientClosed(what="snapshot")
        self._store.check_open()
        keys: list[bytes] = []
        values: list[bytes] = []
        pairs = self._rows.pairs(lower, upper)
        taken = 0
        for key, value in pairs:
            if len(keys) >= rows_max or taken >= bytes_max:
                break
            keys.append(key)
            values.append(value)
            taken += len(value)
        return StoredRows(keys, values, len(keys) == len(pairs), taken)

    def close(self) -> None:
        self._store = None
        self._rows = Family()


@dataclass(slots=True, kw_only=True)
class MemoryDisk:
    """What outlives a store: open it again with `MemoryStore(disk, options)`."""

    segments: int
    identity: Identity | None = None
    log: Family = field(default_factory=Family)
    state: Family = field(default_factory=Family)
    meta: Family = field(default_factory=Family)
    ends: StoreEnds
    is_open: bool = False
    stopped_cleanly: bool = True
    bytes_free: int = 1024 * GIB
    next_sync_fails: str | None = None

    def crash(self) -> None:
        """Lose what was not durable, as kill -9 with a power cut does. The store that was open is worth nothing any more."""
        for family in (self.log, self.meta, self.state):
            family.fall_back()
        self.is_open = False
        self.stopped_cleanly = False


class MemoryStore:
    """See `port.Store`."""

    def __init__(self, disk: MemoryDisk, options: StoreOptions | None = None) -> None:
        options = options or StoreOptions()
        if disk.is_open:
            raise DirectoryInUse(path="memory")
        if options.identity and disk.identity and options.identity != disk.identity:
            raise WrongCluster(where="memory", theirs=str(disk.identity), ours=str(options.identity))
        disk.identity = disk.identity or options.identity
        disk.is_open = True
        self.disk = disk
        self.ends = disk.ends
        self.stopped_cleanly = disk.stopped_cleanly
        self.unreadable = ""
        disk.stopped_cleanly = False
        self._lock = threading.Lock()  # readers in other threads see a write whole or not at all
        self._fenced: str | None = None
        self._closed = False

    @property
    def segments(self) -> int:
        return self.disk.segments

    @property
    def identity(self) -> Identity | None:
        return self.disk.identity

    def append(self, log: Sequence[Pair], meta: Sequence[Pair]) -> None:
        self._check_writable(sum(len(value) for _, value in log))
        with self._lock:
            for key, value in log:
                self.disk.log.put(key, value)
            for key, value in meta:
                self.disk.meta.put(key, value)

    def sync(self, ends: StoreEnds | None = None) -> None:
        self._check_writable()
        if ends is not None:
            self._check_ends(ends)
        if self.disk.next_sync_fails:
            self._fenced = self.disk.next_sync_fails
            self.disk.next_sync_fails = None
            raise StoreFenced(why=self._fenced)
        with self._lock:
            self.disk.log.keep()
            self.disk.meta.keep()
        if ends is not None:
            self._put_ends(ends)

    def write_ends(self, ends: StoreEnds) -> None:
        self._check_writable()
        self._check_ends(ends)
        self._put_ends(ends)

    @property
    def settled(self) -> npt.NDArray[np.int64]:
        return np.zeros(self.segments, np.int64)

    def settle(self, ends: StoreEnds | None = None) -> None:
        del ends  # looking through memory costs little

    def apply(self, puts: Sequence[tuple[bytes, bytes | None]]) -> None:
        self._check_writable()
        with self._lock:
            for key, value in puts:
                if value is None:
                    self.disk.state.delete(key)
                else:
                    self.disk.state.put(key, value)

    def flush_state(self) -> None:
        self._check_writable()
        with self._lock:
            self.disk.state.keep()

    def release_journal(self) -> None:
        self.flush_state()

    def trim(self, ranges: Sequence[Range], meta: Sequence[Pair], *, meta_ranges: Sequence[Range] = ()) -> None:
        self._check_writable()
        with self._lock:
            for lower, upper in ranges:
                self.disk.log.delete_range(lower, upper)
            for lower, upper in meta_ranges:
                self.disk.meta.delete_range(lower, upper)
            for key, value in meta:
                self.disk.meta.put(key, value)

    def drop(
        self,
        log_ranges: Sequence[Range],
        state_ranges: Sequence[Range],
        meta_ranges: Sequence[Range],
        *,
        meta: Sequence[Pair] = (),
        ends: StoreEnds | None = None,
    ) -> None:
        self._check_writable()
        if ends is not None:
            self._check_ends(ends)
            self._put_ends(ends)
        self.trim(log_ranges, meta, meta_ranges=meta_ranges)
        with self._lock:
            self.disk.log.keep()
            self.disk.meta.keep()
            for lower, upper in state_ranges:
                self.disk.state.delete_range(lower, upper)

    def compact(self, log_ranges: Sequence[Range], state_ranges: Sequence[Range] = ()) -> None:
        del log_ranges, state_ranges  # deleting gave the space back

    def read_log(self, lower: bytes, upper: bytes, *, bytes_max: int) -> list[Pair]:
        return self.read_logs(((lower, upper),), bytes_max=bytes_max)

    def read_logs(self, ranges: Sequence[Range], *, bytes_max: int) -> list[Pair]:
        self.check_open()
        found: list[Pair] = []
        taken = 0
        with self._lock:
            for lower, upper in ranges:
                for pair in self.disk.log.pairs(lower, upper):
                    found.append(pair)
                    taken += len(pair[1])
                    if taken >= bytes_max:
                        return found
            return found

    def read_logs_and_next(
        self, ranges: Sequence[Range], bounds: Sequence[bytes], *, bytes_max: int
    ) -> tuple[list[Pair], list[Pair | None]]:
        found: list[Pair] = []
        behind: list[Pair | None] = []
        for span, bound in zip(ranges, bounds, strict=True):
            pairs = self.read_log(*span, bytes_max=bytes_max)
            found += pairs
            bytes_max -= sum(len(value) for _, value in pairs)
            if bytes_max <= 0:
                break
            behind.append(next(iter(self.read_log(span[1], bound, bytes_max=1)), None))
        return found, behind

    def last_log(self, lower: bytes, upper: bytes) -> Pair | None:
        return self.last_logs(((lower, upper),))[0]

    def last_logs(self, ranges: Sequence[Range]) -> list[Pair | None]:
        self.check_open()
        with self._lock:
            log = self.disk.log
            ends = [(lower, log.at(upper) - 1) for lower, upper in ranges]
            return [(log.keys[at], log.rows[log.keys[at]]) if at >= 0 and log.keys[at] >= lower else None for lower, at in ends]

    def first_log_keys(self, ranges: Sequence[Range]) -> list[bytes | None]:
        self.check_open()
        with self._lock:
            log = self.disk.log
            begins = [(log.at(lower), upper) for lower, upper in ranges]
            return [log.keys[at] if at < len(log.keys) and log.keys[at] < upper else None for at, upper in begins]

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        self.check_open()
        with self._lock:
            return list(map(self.disk.state.rows.get, keys))

    def get_in_memory(self, keys: list[bytes]) -> list[bytes] | None:
        found = [value for value in self.get_many(keys) if value is not None]
        return found if len(found) == len(keys) else None

    def read_state(self, lower: bytes, upper: bytes, *, limit: int) -> list[Pair]:
        self.check_open()
        with self._lock:
            return self.disk.state.pairs(lower, upper)[:limit]

    def snapshot(self) -> Snapshot:
        self.check_open()
        with self._lock:
            return MemorySnapshot(self, self.disk.state)

    def pinned_bytes(self) -> int:
        self.check_open()
        return 0

    def read_meta(self, lower: bytes, upper: bytes) -> list[Pair]:
        self.check_open()
        with self._lock:
            return self.disk.meta.pairs(lower, upper)

    def free_bytes(self) -> int:
        return self.disk.bytes_free

    def replay_bytes(self) -> int:
        return 0

    def figures(self) -> dict[str, tuple[int, int]]:
        return {"rows": (len(self.disk.log.rows) + len(self.disk.state.rows) + len(self.disk.meta.rows), 0)}

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._fenced is not None:
            self.disk.crash()
            return
        for family in (self.disk.log, self.disk.meta, self.disk.state):
            family.keep()
        self.disk.is_open = False
        self.disk.stopped_cleanly = True

    def _check_ends(self, ends: StoreEnds) -> None:
        if len(ends.ids) != self.segments or len(ends.epochs) != self.segments:
            raise Misuse(why=f"ends of {len(ends.ids)} segments, the store has {self.segments}")

    def _put_ends(self, ends: StoreEnds) -> None:
        self.disk.ends = replace(ends, ids=ends.ids.copy(), epochs=ends.epochs.copy(), generation=self.disk.ends.generation + 1)

    def check_open(self) -> None:
        """Raise ClientClosed once the store is closed."""
        if self._closed:
            raise ClientClosed(what="store")

    def _check_writable(self, nbytes: int = 0) -> None:
        self.check_open()
        if self._fenced is not None:
            raise StoreFenced(why=self._fenced)
        if nbytes > self.disk.bytes_free:
            raise DiskFull(free_bytes=self.disk.bytes_free, reserve_bytes=0)


def open_store(path: str, *, segments: int, options: StoreOptions | None = None) -> MemoryStore:
    """Return an empty store; `path` is not looked at. What is written lasts as long as the store's `disk`."""
    del path
    return MemoryStore(MemoryDisk(segments=segments, ends=StoreEnds.empty(segments)), options)
