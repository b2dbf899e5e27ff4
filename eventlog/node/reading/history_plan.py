"""How much of the history one read takes, and where its answer ends, by the steps of the log."""

from eventlog.consume.steps import StepIndex
from eventlog.limits import FILTER_SCAN_STEP_BYTES, HISTORY_READ_BYTES_MAX
from eventlog.node.reading.history import Bounds, ChunkEnd, HistoryRead
from eventlog.node.reading.pulls import Pull

_CHUNK_ENDS_MAX = 64


def plan_read(steps: StepIndex, pull: Pull, *, between: tuple[int, int], ahead: int) -> HistoryRead:
    """Return what to read for a pull whose cursor is below the tail, about `ahead` bytes of it.

    `between` is (the id at which all history ends, the id at which its answer ends at the latest). Who has a filter looks at far more
    than it is answered.
    """
    floor, top = between
    cache, cursor, limits = pull.cache, pull.cursor, pull.limits
    wanted = limits.nbytes if pull.matches is None else max(limits.nbytes, FILTER_SCAN_STEP_BYTES)
    only = pull.only
    share = cursor.share if only is None else cursor.segments // len(only)
    lowest = cursor.lowest

    def cut(nbytes: int) -> int:
        chosen = steps.choose_cut(cache.cache_id, after=lowest, nbytes_max=nbytes * share)
        return floor if chosen is None else min(chosen, floor)

    start, end = steps.at_or_below(cache.cache_id, lowest), cut(max(ahead, wanted))
    chunk_after = min(start.id, lowest)
    steps_between = steps.between(cache.cache_id, after=lowest, upto=end)
    is_exact = steps.is_exact(cache.cache_id)
    is_known = is_exact and cursor.asked is None and only is None and cache.last_trimmed_id <= chunk_after == start.id
    ends = [
        ChunkEnd(
            id=step.id,
            nbytes=(step.nbytes - start.nbytes) // share,
            events=step.events - start.events if is_known else None,
        )
        for step in steps_between[:: len(steps_between) // _CHUNK_ENDS_MAX + 1]
    ]
    if not ends or ends[-1].id < end:
        ends.append(ChunkEnd(id=end, nbytes=ends[-1].nbytes if ends else 0, events=None))
    return HistoryRead(
        cache_id=cache.cache_id,
        cursor=cursor.copy(),
        top=min(top, cut(wanted)),
        limits=limits,
        chunk_after=chunk_after,
        ends=tuple(ends),
        nbytes_max=2 * HISTORY_READ_BYTES_MAX,
        is_clean=is_exact,
        bounds=Bounds.of(cache),
        matches=pull.matches,
        only=only,
    )
