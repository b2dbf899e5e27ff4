"""Bringing the state up to the log after a start: the log from the marks on, read value by value and applied.

Only what the new primary term has adopted is applied; the caller reads nothing above its watermark.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from eventlog.arrays import Ints
from eventlog.batch.entries import encode_entry
from eventlog.batch.layout import read_head
from eventlog.batch.views import Block, StoredValue, decode_value
from eventlog.events import Kind
from eventlog.limits import MIB
from eventlog.segment.keys import cache_range, entry_prefix, expiry_key, log_key, log_range, parse_log_key
from eventlog.segment.port import Store
from eventlog.state.caches import CacheState

_READ_BYTES = 8 * MIB
MARKER_CACHE = 0  # holds the first value of each epoch, which has no events


@dataclass(slots=True)
class Replayed:
    """What a replay did."""

    values: int = 0
    events: int = 0


def replay(store: Store, caches: Iterable[CacheState], *, marks: Ints, watermark: Ints) -> Replayed:
    """Apply all events in `(marks, watermark]` of every cache to the state, counters and producers.

    Raises:
        CorruptData: a stored value is damaged.
    """
    done = Replayed()
    for cache in caches:
        for segment in np.flatnonzero(watermark > marks).tolist():
            for value in values_after(store, segment, cache.cache_id, after=int(marks[segment]), upto=int(watermark[segment])):
                _apply(store, cache, value)
                done.values += 1
                done.events += value.head.count
    return done


def rewind_offsets(store: Store, cache: CacheState, *, marks: Ints, segments: Iterable[int]) -> None:
    """Set the next offsets of `segments`, whose logs go on above their marks, to what they are at the marks."""
    for segment in segments:
        lower, _ = cache_range(segment, cache.cache_id)
        pair = store.last_log(lower, log_key(segment, cache.cache_id, int(marks[segment]) + 1))
        cache.next_offsets[segment] = cache.trimmed_offsets[segment] + 1
        if pair is not None:
            head = read_head(pair[1], where=f"segment {segment}, cache {cache.name}")
            cache.next_offsets[segment] = max(cache.next_offsets[segment], head.first_offset + head.count)


def trim_markers(store: Store, *, marks: Ints) -> None:
    """Remove the markers of earlier terms, below the last one that is certainly committed; the epochs have rows of their own."""
    older = []
    for segment, mark in enumerate(marks.tolist()):
        lower, _ = cache_range(segment, MARKER_CACHE)
        last = store.last_log(lower, log_key(segment, MARKER_CACHE, mark + 1))
        if last is not None and store.read_log(lower, last[0], bytes_max=1):
            older.append((lower, last[0]))
    if older:
        store.trim(older, [])


def values_after(store: Store, segment: int, cache_id: int, *, after: int, upto: int) -> Iterator[StoredValue]:
    """Yield the stored values with a base id in `(after, upto]`; values never straddle a mark."""
    lower, upper = log_range(segment, cache_id, after=after, upto=upto)
    while True:
        pairs = store.read_log(lower, upper, bytes_max=_READ_BYTES)
        for _, data in pairs:
            yield decode_value(segment, cache_id, data)
        if not pairs:
            return
        _, _, last = parse_log_key(pairs[-1][0])
        lower, _ = log_range(segment, cache_id, after=last, upto=upto)


def _apply(store: Store, cache: CacheState, value: StoredValue) -> None:
    cache.producers.learn(value)
    if not cache.options.state:
        return
    for block in value.blocks:
        cache.may_expire = cache.may_expire or block.expiry is not None
        created = int(np.count_nonzero(block.kinds == Kind.CREATED))
        cache.live[value.segment] += created - int(np.count_nonzero(block.kinds >= Kind.REMOVED))
    store.apply(state_puts(value))


def state_puts(value: StoredValue) -> list[tuple[bytes, bytes | None]]:
    """Return what the events of a stored value do to the state: keys to put or, with None, to delete."""
    prefix = entry_prefix(value.segment, value.cache)
    puts: list[tuple[bytes, bytes | None]] = []
    ids = iter(value.ids.tolist())
    for block in value.blocks:
        puts += _block_puts(block, ids, prefix=prefix, place=(value.segment, value.cache))
    return puts


def _block_puts(block: Block, ids: Iterator[int], *, prefix: bytes, place: tuple[int, int]) -> Iterator[tuple[bytes, bytes | None]]:
    expiries = [0] * block.count if block.expiry is None else block.expiry.tolist()
    rows = zip(ids, block.kinds.tolist(), block.keys.to_list(), block.values.to_list(), expiries, strict=False)
    for _, (id_, kind, key, value, expiry) in zip(range(block.count), rows, strict=False):
        if kind > Kind.MODIFIED:
            yield prefix + key, None
            continue
        yield prefix + key, encode_entry(id_, value, expiry=expiry)
        if expiry:
            yield expiry_key(*place, expiry, key), b""
