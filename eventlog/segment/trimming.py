"""Carrying retention out, over the port.

    marks = flush_marks(store)                                  # any thread but the writing one: flushes the state, seconds
    plan = plan_retention(..., ceiling=flushed_ceiling(marks, ends))
    if plan.window: plan = refine(plan, read_heads(store, plan))
    if plan.removes: trims = find_trims(store, plan, trimmed_ids)
    store.trim(*trim_write(trims), meta_ranges=...)             # the writing thread
    if is_compaction_due(...): store.compact(trim_ranges(trims))  # any other; not for every trim

Nothing may be removed above what `flush_marks` returned: those events would be in neither the log nor the state after a crash.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from eventlog.arrays import Ints
from eventlog.batch.layout import checked_head
from eventlog.errors import CorruptData
from eventlog.limits import MIB
from eventlog.segment import keys
from eventlog.segment.port import Pair, Range, Store
from eventlog.segment.retention import StoredHead, TrimPlan

_READ_BYTES = 4 * MIB


class Trim(NamedTuple):
    """What goes of a cache in one segment: everything up to and including `last_id`; `offset` as in `keys.encode_trim`."""

    segment: int
    cache: int
    last_id: int
    offset: int


def flush_marks(store: Store) -> Ints:
    """Return marks that are durable: those that were applied when the flush began."""
    marks, _ = keys.decode_marks(store.get_many(keys.applied_keys(store.segments)), store.segments)
    store.flush_state()
    return marks


def read_heads(store: Store, plan: TrimPlan, *, bytes_max: int = _READ_BYTES) -> list[StoredHead]:
    """Return the heads of the values in the plan's window and on to its top, read about `bytes_max` at a time."""
    if plan.window is None:
        return []
    return heads_between(store, plan.cache, range(store.segments), after=plan.window[0], upto=plan.top.id, bytes_max=bytes_max)


def heads_between(
    store: Store, cache: int, segments: Iterable[int], *, after: int, upto: int, bytes_max: int = _READ_BYTES
) -> list[StoredHead]:
    """Return the heads of the values of some segments with base ids in `(after, upto]`.

    Of one that is damaged nothing is believed, and nothing counted but its bytes: whoever reads it has it mended.

    Raises:
        UnsupportedFormat: one was written by a newer version, and is undamaged.
    """
    heads: list[StoredHead] = []
    ranges = [keys.log_range(segment, cache, after=after, upto=upto) for segment in segments]
    while ranges:
        pairs = store.read_logs(ranges, bytes_max=bytes_max)
        for key, value in pairs:
            segment, _, base = keys.parse_log_key(key)
            try:
                head = checked_head(value, segment=segment, cache=cache)
            except CorruptData:
                heads.append(StoredHead(base, 0, len(value)))
            else:
                heads.append(StoredHead(head.last_id, head.count, len(value)))
        ranges = _after(ranges, pairs, bytes_max)
    return heads


def find_trims(store: Store, plan: TrimPlan, trimmed_ids: Ints) -> list[Trim]:
    """Return what the plan's cut removes in each segment, none where it removes nothing new. One seek a segment."""
    return trims_to(store, plan.cache, range(store.segments), cut=plan.cut.id, trimmed_ids=trimmed_ids)


def trims_to(store: Store, cache: int, segments: Iterable[int], *, cut: int, trimmed_ids: Ints) -> list[Trim]:
    """Return what goes of some segments when all whole values at or below the id `cut` go.

    What is told of a value here stays behind when it is gone, on disk and at all copies.

    Raises:
        CorruptData, UnsupportedFormat: one of the values that say so is damaged.
    """
    trims: list[Trim] = []
    for segment in segments:
        lower, _ = keys.cache_range(segment, cache)
        _, upper = keys.log_range(segment, cache, after=0, upto=cut)
        pair = store.last_log(lower, upper)
        while pair is not None:
            head = checked_head(pair[1], segment=segment, cache=cache)
            if head.last_id <= cut:
                if head.last_id > trimmed_ids[segment]:
                    trims.append(Trim(segment, cache, head.last_id, head.first_offset + head.count - 1))
                break
            pair = store.last_log(lower, pair[0])  # a value on both sides of the cut stays
    return trims


def trim_write(trims: Sequence[Trim]) -> tuple[list[Range], list[Pair]]:
    """Return the log ranges to delete and the rows that say so, for one `Store.trim`."""
    return trim_ranges(trims), [keys.encode_trim(trim.cache, trim.segment, trim.last_id, trim.offset) for trim in trims]


def trim_ranges(trims: Sequence[Trim]) -> list[Range]:
    """Return the log ranges of `trims`."""
    return [
        (keys.cache_range(trim.segment, trim.cache)[0], keys.log_range(trim.segment, trim.cache, after=0, upto=trim.last_id)[1])
        for trim in trims
    ]


def _after(ranges: list[Range], pairs: list[Pair], bytes_max: int) -> list[Range]:
    """Return what is left of `ranges` once `pairs` were read; nothing when they ended by themselves."""
    if sum(len(value) for _, value in pairs) < bytes_max:
        return []
    last = pairs[-1][0]
    return [(max(lower, last + b"\0"), upper) for lower, upper in ranges if upper > last]
