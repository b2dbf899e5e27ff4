"""Retention: one cut id per cache, at or below which whole stored values go. Pure; `trimming.py` carries it out.

Planning is two steps because the log is known by steps only, about 1 MiB apart: `plan_retention` chooses among the steps, and names
the window above its cut where a finer one lies if the limit asks for it; `refine` chooses among the stored values of that window.

What is kept:
- everything above the ceiling, whatever the limits say: what the state on disk does not have yet, and what somebody holds back;
- with a limit on events, at least the newest N, and at most a tenth and one stored value a segment more;
- with a limit on bytes, the same of bytes; with a limit on time, everything younger.
Of several limits the one that removes most decides.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple, Protocol

from eventlog.arrays import Ints
from eventlog.ids import id_before, time_of
from eventlog.limits import MIB

_DEBT_BYTES_MIN = 64 * MIB
_DEBT_SHARE = 4
_NEVER = -(1 << 62)  # below whatever is counted: between steps, bytes are estimated, and counts may come out below nothing
_SLACK = 10  # a tenth more than the limit may stay, so that the window is not read again for every group


class Step(Protocol):
    """Up to and including `id`, a cache had `events` events of `nbytes` bytes over all its life."""

    @property
    def id(self) -> int: ...
    @property
    def events(self) -> int: ...
    @property
    def nbytes(self) -> int: ...


class OwnStep(NamedTuple):
    """A `Step` of our own."""

    id: int
    events: int
    nbytes: int


class StoredHead(NamedTuple):
    """What a stored value's header and size say."""

    last_id: int
    events: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    """What a cache keeps; 0 is no limit. `nothing`: no events at all, the log is only there to redo the state."""

    time_ms: int = 0
    nbytes: int = 0
    events: int = 0
    nothing: bool = False

    @property
    def are_none(self) -> bool:
        """Return whether everything is kept."""
        return not (self.time_ms or self.nbytes or self.events or self.nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLog:
    """The log of a cache over all segments. `trimmed`: what retention removed so far; `steps` rise; `now`: the last id and all so far."""

    trimmed: Step
    steps: Sequence[Step]
    now: Step


Look = tuple[
    RetentionLimits, int, int, int
]  # limits, events where there are too many, the highest id that may go, tenths of the limit on time


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What may go: a value at or below `ceiling` that is old enough, or that enough came after. `_NEVER` where nothing may."""

    ceiling: int
    id_max: int
    events_max: int
    nbytes_max: int

    def lets_go(self, step: Step) -> bool:
        """Return whether what lies up to and including `step` may go."""
        return step.id <= self.ceiling and (step.id <= self.id_max or step.events <= self.events_max or step.nbytes <= self.nbytes_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimPlan:
    """Remove what lies at or below `cut.id`, which is `trimmed.id` or less where nothing is to be done.

    `window` is `(above, upto]`: a better cut lies in there, `refine` finds it; None where this one will do.
    """

    cache: int
    rule: Rule
    trimmed: Step
    cut: Step
    now: Step
    window: tuple[int, int] | None = None
    top: Step

    @property
    def removes(self) -> bool:
        """Return whether anything goes."""
        return self.cut.id > self.trimmed.id

    @property
    def events(self) -> int:
        """Events that go."""
        return self.cut.events - self.trimmed.events if self.removes else 0

    @property
    def nbytes(self) -> int:
        """Bytes that go."""
        return self.cut.nbytes - self.trimmed.nbytes if self.removes else 0

    def __str__(self) -> str:
        left = max(self.cut, self.trimmed, key=attrgetter("id"))
        kept = f"{self.now.events - left.events} events ({self.now.nbytes - left.nbytes} bytes) stay"
        if not self.removes:
            return f"cache {self.cache}: nothing to remove, {kept}"
        finer = ", a little more when read closely" if self.window else ""
        return f"cache {self.cache}: remove {self.events} events ({self.nbytes} bytes) up to id {self.cut.id}{finer}; {kept}"


def plan_retention(cache: int, log: CacheLog, limits: RetentionLimits, *, physical_ms: int, ceiling: int) -> TrimPlan:
    """Return the coarse plan. `ceiling`: the highest id that may go at all, see `flushed_ceiling`; holds lower it further."""
    rule = Rule(
        ceiling=ceiling,
        id_max=log.now.id if limits.nothing else id_before(physical_ms - limits.time_ms) if limits.time_ms else _NEVER,
        events_max=log.now.events - limits.events if 0 < limits.events < log.now.events else _NEVER,
        nbytes_max=log.now.nbytes - limits.nbytes if 0 < limits.nbytes < log.now.nbytes else _NEVER,
    )
    if rule.lets_go(log.now):
        return TrimPlan(cache=cache, rule=rule, trimmed=log.trimmed, cut=log.now, now=log.now, top=log.now)
    cut, top = _around(log, rule)
    plan = TrimPlan(cache=cache, rule=rule, trimmed=log.trimmed, cut=cut, now=log.now, top=top)
    low = max(cut.id, log.trimmed.id)
    if low < top.id and low < ceiling and _leaves_too_much(plan, limits, physical_ms=physical_ms):
        return replace(plan, window=(low, min(top.id, ceiling)))
    return plan


def refine(plan: TrimPlan, heads: Iterable[StoredHead]) -> TrimPlan:
    """Return the plan with the best cut among the stored values above the coarse one.

    `heads` are those of all values that begin in `(plan.window[0], plan.top.id]`, in any order. What goes on above the top counts as none
    of what is up to there: so a little more may stay, and never too little.
    """
    events, nbytes = plan.top.events, plan.top.nbytes
    for head in sorted((head for head in heads if head.last_id <= plan.top.id), reverse=True):
        value = OwnStep(head.last_id, events, nbytes)
        if plan.rule.lets_go(value):
            return replace(plan, cut=value, window=None)
        events -= head.events
        nbytes -= head.nbytes
    return replace(plan, window=None)


def closer_look(plan: TrimPlan, limits: RetentionLimits, *, physical_ms: int) -> Look | None:
    """Return what the stored values in the plan's window are read for, None without a window.

    As long as it is the same, reading them again finds nothing: nothing was written to a cache that has too much, nothing that was held
    back is let go, and of a limit on time no tenth has passed.
    """
    if plan.window is None:
        return None
    events = plan.now.events if _counts_too_much(plan, limits) else 0
    return limits, events, min(plan.rule.ceiling, plan.now.id), physical_ms * _SLACK // limits.time_ms if limits.time_ms else 0


def flushed_ceiling(marks: Ints, ends: Ints) -> int:
    """Return the highest id at or below which every segment's state is on disk; `marks` as the flush made them durable.

    A segment whose mark stands at the end of its log holds nothing back.
    """
    behind = marks < ends
    return int(marks[behind].min()) if behind.any() else int(ends.max(initial=0))


def is_compaction_due(debt_bytes: int, *, kept_bytes: int, disk_is_short: bool) -> bool:
    """Return whether what was trimmed since the last compaction, `debt_bytes`, is worth one.

    Giving space back rewrites what is kept in the files concerned, nearly all of the cache: done for every trim it would cost
    thousands of times what was written. A quarter bounds it to four times; the engine's own merging gives back the rest.
    """
    return debt_bytes > 0 and (disk_is_short or debt_bytes >= max(_DEBT_BYTES_MIN, kept_bytes // _DEBT_SHARE))


def _around(log: CacheLog, rule: Rule) -> tuple[Step, Step]:
    """Return the last step that may go, and the one after it. What may go is a prefix, so each bound is a search."""
    steps = log.steps
    reach = max(
        bisect_right(steps, rule.id_max, key=attrgetter("id")),
        bisect_right(steps, rule.events_max, key=attrgetter("events")),
        bisect_right(steps, rule.nbytes_max, key=attrgetter("nbytes")),
    )
    reach = min(reach, bisect_right(steps, rule.ceiling, key=attrgetter("id")))
    cut: Step = steps[reach - 1] if reach else OwnStep(0, 0, 0)
    return cut, steps[reach] if reach < len(steps) else log.now


def _leaves_too_much(plan: TrimPlan, limits: RetentionLimits, *, physical_ms: int) -> bool:
    if limits.nothing or _counts_too_much(plan, limits):
        return True
    left = max(plan.cut, plan.trimmed, key=attrgetter("id"))
    return bool(limits.time_ms) and (physical_ms - time_of(left.id)) * _SLACK > limits.time_ms * (_SLACK + 1)


def _counts_too_much(plan: TrimPlan, limits: RetentionLimits) -> bool:
    left = max(plan.cut, plan.trimmed, key=attrgetter("id"))
    if limits.events and (plan.now.events - left.events) * _SLACK > limits.events * (_SLACK + 1):
        return True
    return bool(limits.nbytes) and (plan.now.nbytes - left.nbytes) * _SLACK > limits.nbytes * (_SLACK + 1)
