"""Making a segment's log shorter: what of it lies above an id, and where it ends without that; or deleting all that is there of it.

A replica cuts what its primary does not have. The caller writes the shorter ends beside the log before anything is deleted
(`Store.drop` with `ends`): a crash in between leaves a log that is longer than the ends say, which is legal, and is cut again.
Deleting is for the storage thread.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from eventlog.batch.layout import read_head
from eventlog.ids import ID_MAX
from eventlog.segment import keys
from eventlog.segment.port import Pair, Range, Store, StoreEnds


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPlan:
    """What to delete and to put in one write; `ends` is (end, epoch) of each segment afterwards, in the order asked."""

    log_ranges: list[Range]
    meta_ranges: list[Range]
    meta: list[Pair]
    ends: list[tuple[int, int]]

    @property
    def is_empty(self) -> bool:
        """Whether nothing lies above any cut."""
        return not (self.log_ranges or self.meta_ranges or self.meta)


def plan_cuts(store: Store, cuts: Sequence[tuple[int, int]], *, ends: StoreEnds) -> CutPlan:
    """Return how to cut segments, given as (segment, upto), whose logs end at `ends` now.

    A stored value with ids on both sides of a cut goes whole: it cannot be in the primary's log, or it would not be cut.
    """
    plan = CutPlan(log_ranges=[], meta_ranges=[], meta=[], ends=[])
    gone = _gone_ids(store) if any(ends.ids[segment] > upto for segment, upto in cuts) else {}
    for segment, upto in cuts:
        if ends.ids[segment] <= upto:
            plan.ends.append((int(ends.ids[segment]), int(ends.epochs[segment])))
        else:
            known = max((id_ for id_ in gone.get(segment, ()) if id_ <= upto), default=0)
            plan.ends.append(_cut_segment(store, segment, upto, plan, known=known))
    return plan


def caches_in(store: Store, segment: int) -> Iterator[int]:
    """Yield the ids of the caches that have values in a segment's log, rising. One seek each."""
    lower, upper = keys.segment_range(segment)
    while pairs := store.read_log(lower, upper, bytes_max=1):
        _, cache, _ = keys.parse_log_key(pairs[0][0])
        yield cache
        _, lower = keys.cache_range(segment, cache)


def _cut_segment(store: Store, segment: int, upto: int, plan: CutPlan, *, known: int) -> tuple[int, int]:
    """Add the cut of one segment to the plan; its log reached the id `known`, whatever is left of it."""
    end = known
    for cache in list(caches_in(store, segment)):
        last = _last_within(store, segment, cache, upto)
        end = max(end, last)
        span = keys.log_range(segment, cache, after=max(last, 0), upto=ID_MAX - 1)
        if store.read_log(*span, bytes_max=1):
            plan.log_ranges.append(span)
    history = [keys.decode_epoch(pair) for pair in store.read_meta(*keys.epoch_range(segment))]
    for _, epoch, first_id, _ in history:
        if first_id > upto:
            key, _ = keys.encode_epoch(segment, epoch, first_id, previous=0)
            plan.meta_ranges.append((key, key + b"\0"))
    epoch = max((epoch for _, epoch, first_id, _ in history if first_id <= end), default=0)
    plan.meta.append(keys.encode_end(segment, end, epoch))
    return end, epoch


def _last_within(store: Store, segment: int, cache: int, upto: int) -> int:
    """Return the last id of the last value that ends at or below `upto`, 0 for none."""
    lower, upper = keys.cache_range(segment, cache)[0], keys.log_key(segment, cache, upto + 1)
    while (pair := store.last_log(lower, upper)) is not None:
        head = read_head(pair[1], where=f"segment {segment}, cache {cache}")
        if head.last_id <= upto:
            return head.last_id
        upper = pair[0]
    return 0


def _gone_ids(store: Store) -> dict[int, list[int]]:
    """Return, by segment, ids that were in the log though their values are gone: trimmed, or dropped with their cache."""
    found: dict[int, list[int]] = {}
    for pair in store.read_meta(*keys.trim_range()):
        _, segment, id_, _ = keys.decode_trim(pair)
        found.setdefault(segment, []).append(id_)
    for pair in store.read_meta(*keys.end_range()):
        segment, id_, _ = keys.decode_end(pair)
        found.setdefault(segment, []).append(id_)
    return found


def delete_segments(store: Store, segments: Sequence[int], caches: Iterable[int], ends: StoreEnds, *, reached: int = 0) -> None:
    """Delete log, state and rows of `segments`; `ends`, in which they are empty, are beside the log before anything goes.

    Their logs had got to `reached`, which is remembered: others know that this directory had it.
    """
    ranges = [keys.segment_range(segment) for segment in segments]
    meta: list[Range] = [keys.epoch_range(segment) for segment in segments]
    known = {cache for cache, *_ in (keys.decode_trim(pair) for pair in store.read_meta(*keys.trim_range()))} | set(caches)
    for segment in segments:
        meta.extend(_row(keys.encode_trim(cache, segment, 0, 0)[0]) for cache in known)
        meta.append(_row(keys.encode_end(segment, 0, 0)[0]))
    rows = [keys.encode_partial(segment) for segment in segments]
    left = max((keys.decode_left(pair) for pair in store.read_meta(*keys.left_range())), default=0)
    if reached > left:
        rows.append(keys.encode_left(reached))
    store.drop(ranges, ranges, meta, meta=rows, ends=ends)


def drop_partial(store: Store, caches: Iterable[int], *, ends: StoreEnds | None = None) -> list[int]:
    """Delete, at a start, what is there of segments that were being deleted or copied; return them. `ends`: if not those of the opening.

    Their marks go to 0 and the state to the disk, before the row goes that would have them deleted again.
    """
    segments = [keys.decode_partial(pair) for pair in store.read_meta(*keys.partial_range())]
    if segments:
        found = ends or store.ends
        ends = StoreEnds(ids=found.ids.copy(), epochs=found.epochs.copy())
        ends.ids[segments] = ends.epochs[segments] = 0
        delete_segments(store, segments, caches, ends)
        marks, epochs = keys.decode_marks(store.get_many(keys.applied_keys(store.segments)), store.segments)
        marks[segments] = epochs[segments] = 0
        store.apply([keys.encode_marks(page, marks, epochs) for page in sorted({segment // keys.MARKS_PER_PAGE for segment in segments})])
        store.flush_state()
        store.trim([], [], meta_ranges=[keys.partial_range(segment) for segment in segments])
        store.sync(ends)
    return segments


def _row(key: bytes) -> Range:
    return key, key + b"\0"
