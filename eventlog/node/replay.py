"""Bringing the state up to the log after a start: the log from the marks on, read value by value and applied.

Only what the new primary term has adopted is applied; the caller reads nothing above its watermark.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eventlog.batch.entries import encode_entry
from eventlog.batch.views import Block, StoredValue, decode_value
from eventlog.events import Kind
from eventlog.limits import MIB
from eventlog.node.caches import CacheState
from eventlog.segment.keys import entry_prefix, expiry_key, log_range, parse_log_key
from eventlog.segment.port import Store

Ints = npt.NDArray[np.int64]
_READ_BYTES = 8 * MIB


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
    prefix = entry_prefix(value.segment, cache.cache_id)
    puts: list[tuple[bytes, bytes | None]] = []
    ids = iter(value.ids.tolist())
    for block in value.blocks:
        cache.may_expire = cache.may_expire or block.expiry is not None
        puts += _block_puts(block, ids, prefix=prefix, place=(value.segment, cache.cache_id))
        created = int(np.count_nonzero(block.kinds == Kind.CREATED))
        cache.live[value.segment] += created - int(np.count_nonzero(block.kinds >= Kind.REMOVED))
    store.apply(puts)


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
