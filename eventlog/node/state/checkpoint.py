"""How far the state has come: marks, counters and producers, written beside the entries about once a second.

A mark says: everything at or below it is in the state. Entries may be ahead of it, never behind, so replaying the log from the mark
ends in the same state. Counters stand for exactly the mark; replay moves both.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_128_digest

from eventlog.arrays import Ints
from eventlog.errors import CorruptData
from eventlog.limits import CACHES_MAX, MIB
from eventlog.node.writing.storage import StorageThread
from eventlog.replication import Replication
from eventlog.segment.keys import (
    MARKS_PER_PAGE,
    TAG_PRODUCER,
    applied_keys,
    decode_marks,
    encode_marks,
    parse_state_key,
    producer_key,
    tag_range,
)
from eventlog.segment.port import Snapshot, Store
from eventlog.state.caches import Caches, CacheState

Puts = list[tuple[bytes, bytes | None]]
Result = TypeVar("Result")
_COUNTS = b"\xff\xffcounts"
_ROWS = 5_000
_BYTES = 4 * MIB


class Checkpoints:
    """Writes checkpoints; what was committed before `write` is called is in the storage thread's queue already."""

    def __init__(self, *, store: Store, storage: StorageThread, core: Replication, applied: Ints, caches: Caches) -> None:
        self._store = store
        self._storage = storage
        self._core = core
        self._applied = applied
        self._caches = caches
        self._written, _ = load_marks(store)
        self._counted: dict[int, bytes] = {}  # digests of the counters that this process wrote, by cache
        self._turn = asyncio.Lock()

    async def write(self) -> None:
        """Write how far the state has come, if it moved. On return the store has it, even where another call wrote it."""
        async with self._turn:
            await self._begin()

    async def taken(self, look: Callable[[], Result]) -> tuple[Result, Snapshot]:
        """Return what `look` returns, and the state as of the very step in which it is called: entries, marks, counters and producers."""
        async with self._turn:
            writing = self._begin()
            found = look()
            _, snapshot = await asyncio.gather(writing, self._storage.run(self._store.snapshot))
            return found, snapshot

    def _begin(self) -> Awaitable[None]:
        """Have the storage thread write how far the state has come in this step."""
        marks = self._applied.copy()
        rows = checkpoint_rows(self._caches, marks=marks, epochs=self._core.end_epochs, written=self._written)
        if rows:
            rows += self._count_rows()
            self._written = marks
            return self._storage.run(partial(self._store.apply, rows), is_vital=True)  # what it says is not said again
        return asyncio.sleep(0)

    def _count_rows(self) -> Puts:
        """Return the counters of caches that are others than were written last: of thousands of caches few are written to in a second."""
        rows = {cache.cache_id: count_row(cache) for cache in self._caches}
        digests = {cache_id: xxh3_128_digest(row) for cache_id, (_, row) in rows.items()}
        before, self._counted = self._counted, digests
        return [row for cache_id, row in rows.items() if digests[cache_id] != before.get(cache_id)]


def checkpoint_rows(caches: Iterable[CacheState], *, marks: Ints, epochs: npt.NDArray[np.uint32], written: Ints) -> Puts:
    """Return the marks and producers that bring what is stored from `written` to `marks`; nothing where nothing moved."""
    moved = np.unique(np.flatnonzero(marks != written) // MARKS_PER_PAGE).tolist()
    if not moved:
        return []
    rows: Puts = [encode_marks(page, marks, epochs) for page in moved]
    for cache in caches:
        cache.producers.forget_silent(int(marks.max()))
        rows += [(producer_key(segment, cache.cache_id, producer), data) for segment, producer, data in cache.producers.take_dirty()]
    return rows


def count_row(cache: CacheState) -> tuple[bytes, bytes]:
    """Return the row of a cache's counters."""
    return _counts_key(cache.cache_id), bytes([cache.may_expire]) + cache.live.tobytes()


def load_marks(store: Store) -> tuple[Ints, npt.NDArray[np.uint32]]:
    """Return the stored marks of all segments: ids and their epochs."""
    return decode_marks(store.get_many(applied_keys(store.segments)), store.segments)


def load_counts(store: Store, cache: CacheState, *, marks: Ints) -> None:
    """Set a cache's counters and producers to what was stored with the marks.

    Where a mark is 0 nothing is in the state: what a start deletes of a segment that is not whole was counted when it was.
    """
    row = store.get_many([_counts_key(cache.cache_id)])[0]
    if row is not None:
        if len(row) != 1 + 8 * cache.segments:
            raise CorruptData(where=f"counters of cache {cache.name}", why=f"{len(row)} bytes instead of {1 + 8 * cache.segments}")
        cache.may_expire = cache.may_expire or row[0] != 0
        cache.live[:] = np.where(marks > 0, np.frombuffer(row[1:], np.int64), 0)
    with closing(store.snapshot()) as snapshot:  # one iterator: to make one costs several times what a seek does
        cache.producers.load(_producer_rows(snapshot, cache))


def _producer_rows(snapshot: Snapshot, cache: CacheState) -> Iterator[tuple[int, int, bytes]]:
    for segment in range(cache.segments):
        lower, upper = tag_range(segment, cache.cache_id, TAG_PRODUCER)
        is_end = False
        while not is_end:
            keys, values, is_end, _ = snapshot.read(lower, upper, rows_max=_ROWS, bytes_max=_BYTES)
            for key, data in zip(keys, values, strict=True):
                lower = key + b"\0"
                yield segment, int.from_bytes(parse_state_key(key)[3]), data


def counts_range(cache_id: int) -> tuple[bytes, bytes]:
    """Return the state range that holds a cache's counters."""
    return _counts_key(cache_id), _counts_key(cache_id) + b"\0"


def counted_caches(store: Store) -> set[int]:
    """Return the ids of the caches that have counters; one that was dropped has, where its state was not deleted before a crash."""
    lower, upper = _counts_key(0), _counts_key((1 << 32) - 1) + b"\0"
    return {int.from_bytes(key[len(_COUNTS) :]) for key, _ in store.read_state(lower, upper, limit=2 * CACHES_MAX)}


def _counts_key(cache_id: int) -> bytes:
    return _COUNTS + cache_id.to_bytes(4)
