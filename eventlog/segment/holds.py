"""Retention over all nodes: what the primaries know made into one log, and what durable listeners hold back of it. Pure.

A hold keeps what its listener has not acknowledged, as long as that is not more than its cap allows. Numbers of a log that lie between
two of its steps are taken from the later one: so a cut never removes more than it seems to, and keeps a step more at most.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from eventlog.ids import ID_MAX, id_before, time_of
from eventlog.segment.retention import CacheLog, OwnStep, RetentionLimits, Step, StoredHead

_BY_ID = attrgetter("id")
STEPS_MAX = 64
HEADS_MAX = 4_096


class Hold(NamedTuple):
    """What one listener has acknowledged, and how much it may hold back: bytes, milliseconds, 0 for not by this; both 0: nothing.

    Where both are given, the one used up first ends it. Either ends it only once the listener has been `warned`: a burst between two
    runs of retention may use up all of a hold.
    """

    listener: str
    id: int
    nbytes: int
    time_ms: int
    warned: bool = False


def merged(logs: Sequence[CacheLog]) -> CacheLog:
    """Return the log of a cache from those that its primaries have of their segments."""
    ids = sorted({step.id for log in logs for step in log.steps})
    now = _sum([log.now for log in logs])
    return CacheLog(
        trimmed=_sum([log.trimmed for log in logs]), steps=[_sum([_up_to(log, id_) for log in logs], id_) for id_ in ids], now=now
    )


def _up_to(log: CacheLog, id_: int) -> Step:
    """Return what a log had up to an id, or more."""
    at = bisect_left(log.steps, id_, key=_BY_ID)
    return log.steps[at] if at < len(log.steps) else log.now


def _sum(steps: Sequence[Step], id_: int | None = None) -> OwnStep:
    highest = max((step.id for step in steps), default=0) if id_ is None else id_
    return OwnStep(highest, sum(step.events for step in steps), sum(step.nbytes for step in steps))


def fewer(steps: Sequence[Step], count: int = STEPS_MAX) -> list[Step]:
    """Return at most `count` of the steps, the last among them."""
    if len(steps) <= count:
        return list(steps)
    return [steps[(number + 1) * len(steps) // count - 1] for number in range(count)]


def fewer_heads(heads: Iterable[StoredHead], count: int = HEADS_MAX) -> list[StoredHead]:
    """Return at most `count` heads in the order of their ids, each for several stored values that end at or below it."""
    ordered = sorted(heads)
    each = -(-len(ordered) // count) or 1
    groups = [ordered[low : low + each] for low in range(0, len(ordered), each)]
    return [StoredHead(own[-1].last_id, sum(head.events for head in own), sum(head.nbytes for head in own)) for own in groups]


def hold_ceiling(log: CacheLog, holds: Iterable[Hold], *, physical_ms: int) -> int:
    """Return the highest id that may go for all that listeners hold back."""
    return min((_ceiling(log, hold, physical_ms=physical_ms) for hold in holds), default=ID_MAX)


def keeping_back(log: CacheLog, holds: Iterable[Hold], *, upto: int, physical_ms: int) -> list[Hold]:
    """Return the holds because of which not everything up to and including `upto` may go."""
    return [hold for hold in holds if _ceiling(log, hold, physical_ms=physical_ms) < upto]


def _ceiling(log: CacheLog, hold: Hold, *, physical_ms: int) -> int:
    if not (hold.nbytes or hold.time_ms):
        return ID_MAX
    return max(hold.id, _cap(log, hold, physical_ms=physical_ms)) if hold.warned else hold.id


def _cap(log: CacheLog, hold: Hold, *, physical_ms: int) -> int:
    """Return the id up to which a hold's cap has passed."""
    by_time = id_before(physical_ms - hold.time_ms) if hold.time_ms else 0
    if not hold.nbytes:
        return by_time
    at = bisect_right(log.steps, log.now.nbytes - hold.nbytes, key=attrgetter("nbytes"))
    return max(by_time, log.steps[at - 1].id if at else 0)


def held_percent(log: CacheLog, hold: Hold, limits: RetentionLimits, *, physical_ms: int) -> int:
    """Return how much of its window a listener has used up; at 100 and above it may fall out.

    Its window is what it may hold back, or what the cache keeps anyway, whichever leaves it more.
    """
    if hold.id >= log.now.id:
        return 0
    at = bisect_right(log.steps, hold.id, key=_BY_ID)
    read = log.steps[at - 1] if at else log.trimmed
    nbytes, events = log.now.nbytes - read.nbytes, log.now.events - read.events
    if not events:
        return 0
    age_ms = max(physical_ms - time_of(hold.id), 0)
    kept = [_percent(nbytes, limits.nbytes), _percent(events, limits.events), _percent(age_ms, limits.time_ms)]
    of_cache = 1_000 if limits.nothing else max(kept)
    own = max(_percent(nbytes, hold.nbytes), _percent(age_ms, hold.time_ms)) if hold.nbytes or hold.time_ms else 1_000
    return min(of_cache, own)


def _percent(used: int, limit: int) -> int:
    return min(used * 100 // limit, 1_000) if limit else 0
