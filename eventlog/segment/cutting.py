"""Making a segment's log shorter: what of it lies above an id, and where it ends without that.

A replica cuts what its primary does not have. The caller writes the shorter ends beside the log before anything is deleted
(`Store.drop` with `ends`): a crash in between leaves a log that is longer than the ends say, which is legal, and is cut again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eventlog.batch.layout import read_head
from eventlog.ids import ID_MAX
from eventlog.segment import keys
from eventlog.segment.port import LogEnds, Pair, Range, Store


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


def plan_cuts(store: Store, cuts: Sequence[tuple[int, int]], *, ends: LogEnds) -> CutPlan:
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
