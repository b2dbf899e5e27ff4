"""Making what is left of a damaged store one that opens again, as the copy of somebody else than it was.

What was lost is lost: the caller has made sure that the directory comes back as a replica that is in no in-sync set. Nothing is
done to segments without a fault. Close the store afterwards: it still knows what the logs had reached when it was opened.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from eventlog.batch.layout import checked_head
from eventlog.errors import CorruptData
from eventlog.segment import keys
from eventlog.segment.cutting import delete_segments, drop_partial
from eventlog.segment.port import Range, Store, StoreEnds
from eventlog.segment.recovery import Gap, Recovery, plan_recovery, read_found, recover

CUT_MAX = 1_000  # damaged values at the end of a log; where there are more, nothing of it can be trusted


def drop_faulty(store: Store, *, keyed: Collection[int]) -> list[int]:
    """Delete all that is there of segments with a fault; return them. They are fetched from the replicas that have them whole."""
    recovery = recover(store, keyed=keyed)
    _drop(store, recovery.faulty, recovery, keyed)
    return recovery.faulty


def cut_faulty(store: Store, *, keyed: Collection[int]) -> list[int]:
    """Keep as much of segments with a fault as can be read: damaged values at the end of a log go, the state stays. Return the segments.

    Where events are missing in the middle, the log begins after them. The state may then have events that the log has lost, and lack some.
    What cannot even be kept so far is deleted.
    """
    recovery = recover(store, keyed=keyed)
    faulty = recovery.faulty
    _begin_after(store, recovery.gaps)
    damaged = [span for segment in faulty for span in _damaged_ends(store, segment)]
    if damaged:
        store.trim(damaged, [])
    recovery = _as_it_is(store, keyed)
    store.drop([], [], [], ends=recovery.ends)
    _move_marks(store, recovery, keyed)
    recovery = _as_it_is(store, keyed)
    _drop(store, recovery.faulty, recovery, keyed)
    return faulty


def _as_it_is(store: Store, keyed: Collection[int]) -> Recovery:
    """Return the recovery of what is there, whatever the logs had reached."""
    return plan_recovery(replace(read_found(store), beside=StoreEnds.empty(store.segments)), keyed=keyed)


def _damaged_ends(store: Store, segment: int) -> list[Range]:
    """Return the damaged values behind the last sound one of each cache."""
    found: list[Range] = []
    lower, upper = keys.segment_range(segment)
    while (pair := store.last_log(lower, upper)) is not None and len(found) < CUT_MAX:
        _, cache, base = keys.parse_log_key(pair[0])
        try:
            is_sound = checked_head(pair[1], segment=segment, cache=cache).base == base
        except CorruptData:
            is_sound = False
        if is_sound:
            upper, _ = keys.cache_range(segment, cache)
        else:
            found.append((pair[0], pair[0] + b"\0"))
            upper = pair[0]
    return found


def _begin_after(store: Store, gaps: Sequence[Gap]) -> None:
    """Have the log of a cache begin after its last gap, as if retention had removed what was before."""
    last = {(gap.segment, gap.cache): gap for gap in gaps}.values()
    if last:
        ranges = [(keys.cache_range(gap.segment, gap.cache)[0], keys.log_key(gap.segment, gap.cache, gap.base)) for gap in last]
        store.trim(ranges, [keys.encode_trim(gap.cache, gap.segment, gap.base - 1, gap.first_offset - 1) for gap in last])


def _move_marks(store: Store, recovery: Recovery, keyed: Collection[int]) -> None:
    """Let no mark say that the state is whole further than the log goes, nor less far than the log begins."""
    marks = np.minimum(recovery.marks, recovery.ends.ids)
    for cache in sorted(recovery.caches.keys() & set(keyed)):
        begins = recovery.caches[cache].trimmed_ids
        for segment in np.flatnonzero(begins > marks).tolist():
            others = [keys.log_range(segment, other, after=int(marks[segment]), upto=int(begins[segment])) for other in sorted(keyed)]
            if not store.read_logs([span for span in others if span[0] < span[1]], bytes_max=1):  # they would not be replayed
                marks[segment] = begins[segment]
    changed = np.flatnonzero(marks != recovery.marks)
    if len(changed):
        epochs = np.where(marks != recovery.marks, recovery.ends.epochs, recovery.mark_epochs).astype(np.uint32)
        store.apply([keys.encode_marks(page, marks, epochs) for page in sorted({int(at) // keys.MARKS_PER_PAGE for at in changed})])
        store.flush_state()


def _drop(store: Store, segments: Sequence[int], recovery: Recovery, keyed: Collection[int]) -> None:
    """Delete segments as one deletes what was copied half: the marks are durable before the row that asks for it goes."""
    if segments:
        ends = StoreEnds(ids=recovery.ends.ids.copy(), epochs=recovery.ends.epochs.copy())
        ends.ids[list(segments)] = ends.epochs[list(segments)] = 0
        caches = {*recovery.caches, *keyed}
        delete_segments(store, segments, caches, ends)
        drop_partial(store, caches, ends=ends)
