"""What one primary knows of a cache for the cut over all nodes: of the segments that it leads, and of the listeners that it keeps.

Events are exact: they are counted by offsets. Bytes are an estimate where a node holds more than it leads: its index of the log is
about all that it holds, and a share of it is taken.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

from eventlog.consume.steps import StepIndex
from eventlog.ids import ID_MAX
from eventlog.node.aside import aside
from eventlog.node.consumers.listener_lag import offsets_after
from eventlog.node.reading.tail import Tail
from eventlog.node.state.caches import CacheState
from eventlog.replication import Replication
from eventlog.segment.holds import Hold, fewer_heads
from eventlog.segment.port import Store
from eventlog.segment.retention import CacheLog, Head, Mark, Step
from eventlog.segment.trimming import heads_between
from eventlog.wire import eventlog_pb2 as pb


class RetentionStepsGround(Protocol):
    """What this module needs of the node."""

    store: Store
    core: Replication
    steps: StepIndex
    tail: Tail


class Exact(NamedTuple):
    """The stored values in a window, and what there was up to its end."""

    heads: list[Head]
    top: Mark


class RetentionSteps:
    """What this node knows of a cache for the cut."""

    def __init__(self, node: RetentionStepsGround) -> None:
        self._node = node

    def own_log(self, cache: CacheState, led: Sequence[int]) -> CacheLog:
        """Return the log of a cache over segments that are led here. Its numbers count from the first event ever written."""
        total = int(cache.next_offsets[led].sum())
        trimmed_events = int((cache.trimmed_offsets[led] + 1).sum())
        counted, counted_bytes = self._node.steps.now(cache.cache_id)
        # a start counts nothing of what was removed before the first step: all that was ever here counts, or a step would seem further back
        held = max(counted, int(cache.next_offsets.sum()))
        share = total / held if held else 0.0
        steps = self._node.steps.between(cache.cache_id, after=0, upto=ID_MAX)
        marks = [
            Mark(step.id, total - int((counted - step.events) * share), int(step.nbytes * share))
            for step in steps
            if step.events <= counted
        ]
        trimmed_id = int(cache.trimmed_ids[led].max(initial=0))
        below = self._node.steps.at_or_below(cache.cache_id, trimmed_id).nbytes
        # watermarks rise with the writes of other caches, too: no event of this one lies above the last in the tail
        committed_id = min(int(self._node.core.watermark[led].max(initial=0)), self._node.tail.last_id(cache.cache_id))
        last_id = max(committed_id, steps[-1].id if steps else 0)
        return CacheLog(
            trimmed=Mark(trimmed_id, trimmed_events, int(below * share)), steps=marks, now=Mark(last_id, total, int(counted_bytes * share))
        )

    async def own_window(self, cache: CacheState, led: Sequence[int], *, after: int, upto: int) -> Exact:
        """Return the values of segments that are led here in `(after, upto]`, and what there was up to and including `upto`."""
        heads = await aside(partial(heads_between, self._node.store, cache.cache_id, led, after=after, upto=upto))
        offsets = await aside(partial(offsets_after, self._node.store, cache.cache_id, led, upto))
        log = self.own_log(cache, led)
        nbytes = next((step.nbytes for step in log.steps if step.id >= upto), log.now.nbytes)
        events = sum(max(offset, int(cache.trimmed_offsets[segment]) + 1) for segment, offset in offsets)
        return Exact(fewer_heads(heads), Mark(upto, events, nbytes))


def answer_of(log: CacheLog, *, holds: Sequence[Hold], ceiling: int, exact: Exact | None = None) -> pb.RetentionStepsAnswer:
    """Return what a primary knows as a message."""
    answer = pb.RetentionStepsAnswer(trimmed=_step(log.trimmed), now=_step(log.now), ceiling=ceiling)
    answer.steps.extend(_step(step) for step in (log.steps if exact is None else map(_mark, exact.heads)))
    for hold in holds:
        answer.holds.add(listener=hold.listener, id=hold.id, hold_bytes=hold.nbytes, hold_ms=hold.time_ms, warned=hold.warned)
    if exact is not None:
        answer.top.CopyFrom(_step(exact.top))
    return answer


def log_in(answer: pb.RetentionStepsAnswer) -> CacheLog:
    """Return the log that a primary told of."""
    return CacheLog(trimmed=_read(answer.trimmed), steps=[_read(step) for step in answer.steps], now=_read(answer.now))


def holds_in(answer: pb.RetentionStepsAnswer) -> list[Hold]:
    """Return the holds that a primary told of."""
    return [Hold(one.listener, one.id, one.hold_bytes, one.hold_ms, one.warned) for one in answer.holds]


def exact_in(answer: pb.RetentionStepsAnswer) -> Exact:
    """Return the values in a window that a primary told of."""
    return Exact([Head(step.id, step.events, step.bytes) for step in answer.steps], _read(answer.top))


def _mark(head: Head) -> Mark:
    return Mark(head.last_id, head.events, head.nbytes)


def _step(step: Step) -> pb.RetentionStep:
    return pb.RetentionStep(id=step.id, events=step.events, bytes=step.nbytes)


def _read(step: pb.RetentionStep) -> Mark:
    return Mark(step.id, step.events, step.bytes)
