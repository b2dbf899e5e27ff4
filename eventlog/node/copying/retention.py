"""Retention at work: one cut per cache over all nodes, and what each node removes for it; one cache at a time.

The primary of segment 0 asks all primaries what they have, chooses the highest cut that keeps the cache's limits and what durable
listeners hold back, has every primary flush its state, and sends the cut. A primary removes whole stored values at or below it and
tells the backups where it trimmed (`trimmed_copies.py`). The trimmed marks move before anything is deleted, so a reader that finds a
hole finds the mark that explains it.

What a primary knows for the cut (`RetentionSteps`) is exact for events: they are counted by offsets. Bytes are an estimate where a node
holds more than it leads: its index of the log is about all that it holds, and a share of it is taken.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from eventlog.arrays import Ints
from eventlog.errors import CacheNotFound, EventLogError, PrimariesMissing
from eventlog.ids import ID_MAX, FlakeClock
from eventlog.node.background import aside
from eventlog.node.cluster.primaries import Answer, Led, Primaries
from eventlog.node.consumers.inner import LISTENERS
from eventlog.node.consumers.listener_lag import offsets_after
from eventlog.node.consumers.listeners import Listeners
from eventlog.node.copying.replicate import Replicas
from eventlog.node.copying.trimmed_copies import TrimmedCopies
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.ends import limit_soon
from eventlog.node.reclaiming import Reclaiming
from eventlog.node.writing.storage import StorageThread
from eventlog.read.steps import StepIndex
from eventlog.read.tail import Tail
from eventlog.segment.holds import STEPS_MAX, Hold, fewer, fewer_heads, held_percent, hold_ceiling, keeping_back, merged
from eventlog.segment.keys import log_range, parse_log_key, step_range
from eventlog.segment.port import Store
from eventlog.segment.retention import (
    CacheLog,
    Look,
    OwnStep,
    RetentionLimits,
    Step,
    StoredHead,
    TrimPlan,
    closer_look,
    flushed_ceiling,
    plan_retention,
    refine,
)
from eventlog.segment.trimming import Trim, flush_marks, heads_between, trim_ranges, trim_write, trims_to
from eventlog.state.caches import Caches, CacheState
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

log = logging.getLogger("eventlog.node")
_ASK_MS = 60_000  # flushing a state may take seconds
_MISSING_MS = 5_000  # for a takeover to be over
_SEEN_MS_MAX = 1_000  # for the others to promise what is committed
_CACHES_AT_ONCE = 64  # asked about with one question


class RetentionGround(Protocol):
    """What this module needs of the node."""

    replicas: Replicas
    primaries: Primaries
    store: Store
    clock: FlakeClock
    caches: Caches
    steps: StepIndex
    storage: StorageThread
    reclaiming: Reclaiming
    failures: Counter[str]
    reads: Reads
    listeners: Listeners
    tail: Tail
    trimmed_copies: TrimmedCopies


class Exact(NamedTuple):
    """The stored values in a window, and what there was up to its end."""

    heads: list[StoredHead]
    top: OwnStep


class _FirstLook(NamedTuple):
    """What would go by what primaries tell without flushing or reading anything."""

    plan: TrimPlan
    look: Look | None
    is_new: bool  # the window in the log that is to be read was not read before
    held: dict[str, int]  # how much of its hold each listener has used up, in percent


class RetentionSteps:
    """What this node knows of a cache for the cut."""

    def __init__(self, node: RetentionGround) -> None:
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
            OwnStep(step.id, total - int((counted - step.events) * share), int(step.nbytes * share))
            for step in steps
            if step.events <= counted
        ]
        trimmed_id = int(cache.trimmed_ids[led].max(initial=0))
        below = self._node.steps.at_or_below(cache.cache_id, trimmed_id).nbytes
        # watermarks rise with the writes of other caches, too: no event of this one lies above the last in the tail
        committed_id = min(int(self._node.replicas.core.watermark[led].max(initial=0)), self._node.tail.last_id(cache.cache_id))
        last_id = max(committed_id, steps[-1].id if steps else 0)
        return CacheLog(
            trimmed=OwnStep(trimmed_id, trimmed_events, int(below * share)),
            steps=marks,
            now=OwnStep(last_id, total, int(counted_bytes * share)),
        )

    async def own_window(self, cache: CacheState, led: Sequence[int], *, after: int, upto: int) -> Exact:
        """Return the values of segments that are led here in `(after, upto]`, and what there was up to and including `upto`."""
        heads = await aside(partial(heads_between, self._node.store, cache.cache_id, led, after=after, upto=upto))
        offsets = await aside(partial(offsets_after, self._node.store, cache.cache_id, led, upto))
        log = self.own_log(cache, led)
        nbytes = next((step.nbytes for step in log.steps if step.id >= upto), log.now.nbytes)
        events = int(np.maximum(offsets, cache.trimmed_offsets[np.array(led, np.int64)] + 1).sum())
        return Exact(fewer_heads(heads), OwnStep(upto, events, nbytes))


FindTrims = Callable[[Callable[[], list[Trim]]], Awaitable[list[Trim]]]


class Retention:
    """Removes what the caches' limits let go.

    `checkpoint` writes how far the state has come, so that its mark may be flushed. `read` calls what reads the log in a thread, and once
    more where what it met was damaged and is mended.
    """

    def __init__(self, node: RetentionGround, *, checkpoint: Callable[[], Awaitable[None]], read: FindTrims) -> None:
        self._node = node
        self._read = read
        self._steps = RetentionSteps(node)
        self._checkpoint = checkpoint
        self._one_at_a_time = asyncio.Lock()
        self._trimming = asyncio.Lock()
        self._marks: Ints = np.zeros(node.store.segments, np.int64)  # durable for sure
        self._looks: dict[int, Look | None] = {}  # what the last window of a cache was read for
        self._percents: dict[int, dict[str, int]] = {}  # of each cache, how much of its hold each listener was last seen to have used up
        self._caught_up: dict[int, Ints] = {}  # of each cache and segment led here, the cut that was made up for

    # ------------------------------------------------------------ for all nodes

    async def run_all(self) -> None:
        """Apply the limits of every cache that has any, if this node is the one to do so; trim the copies like the originals."""
        await self._node.trimmed_copies.spread()
        for cache in list(self._node.caches):
            await self._catch_up_one(cache)
        if not self._node.replicas.serving[0]:
            self._percents.clear()  # another node may tell listeners how near to falling out they are
            return
        limited = [cache for cache in self._node.caches if not cache.dropped and self._may_have_work(cache)]
        for first in range(0, len(limited), _CACHES_AT_ONCE):
            try:
                for cache in await self._due(limited[first : first + _CACHES_AT_ONCE]):
                    await self._run_one(cache)
            except PrimariesMissing as error:
                log.info("retention_waits why=%s", error)
                return  # the caches after this one have listeners in the same segments

    def _may_have_work(self, cache: CacheState) -> bool:
        return not limits_of(cache).are_none or (self._has_listeners() and self._has_to_tell(cache, {}))

    async def _run_one(self, cache: CacheState) -> None:
        try:
            await self.run(cache, dry_run=False, is_forced=False)
        except PrimariesMissing:
            raise
        except EventLogError as error:  # the limits of the caches after this one hold all the same
            log.warning("retention_failed cache=%s error=%s", cache.name, error)
            self._node.failures["retention"] += 1

    async def _catch_up_one(self, cache: CacheState) -> None:
        try:
            await self._catch_up(cache)
        except EventLogError as error:  # as above
            log.warning("retention_failed cache=%s error=%s", cache.name, error)
            self._node.failures["retention"] += 1

    async def _due(self, caches: Sequence[CacheState]) -> list[CacheState]:
        """Return those of some caches for which there is something to do. All primaries are asked once about all of them.

        Raises:
            PrimariesMissing: a segment had no primary that answered.
        """
        async with self._one_at_a_time:
            ids = [cache.cache_id for cache in caches]
            request = pb.RetentionSteps(cache_id=ids[0], cache_ids=ids, steps_max=STEPS_MAX)
            try:
                answers = await self._ask(Message(retention_steps=request), partial(self._told_of_each, ids))
            except PrimariesMissing:
                raise
            except EventLogError:
                return list(caches)  # the one that it is about says so when it is asked about alone
            told = defaultdict[int, list[pb.RetentionStepsAnswer]](list)
            for answer in answers:
                for one in answer.retention_steps_answer.caches:
                    told[one.cache_id].append(one)
            # a primary tells nothing of a cache that it does not know yet, or as a version that is asked about one at a time
            return [cache for cache in caches if len(told[cache.cache_id]) != len(answers) or self._is_due(cache, told[cache.cache_id])]

    def _is_due(self, cache: CacheState, answers: Sequence[pb.RetentionStepsAnswer]) -> bool:
        found = self._look_at(cache, merged([log_in(answer) for answer in answers]), [hold for one in answers for hold in holds_in(one)])
        if found.plan.removes or found.is_new or (found.held and self._has_to_tell(cache, found.held)):
            return True
        self._looks[cache.cache_id], self._percents[cache.cache_id] = found.look, found.held
        return False

    async def _catch_up(self, cache: CacheState) -> None:
        """Remove from segments that are led here what earlier cuts let go, and what nobody was here to remove then.

        A cut is one id over all segments. A primary that died before its backups heard how far it had trimmed leaves its successor more
        than they have; and a primary whose state was not on disk as far as the cut has left that segment alone.
        """
        due = cache.last_trimmed_id
        caught_up = self._caught_up.setdefault(cache.cache_id, np.zeros(self._node.store.segments, np.int64))
        behind = np.flatnonzero(self._node.replicas.serving & (caught_up < due))
        if cache.dropped or not len(behind):
            return
        find = partial(trims_to, self._node.store, cache.cache_id, behind.tolist(), cut=due, trimmed_ids=cache.removed_ids.copy())
        trims = await self._read(find)
        caught_up[behind] = due
        if trims:
            marks = await self.flush()
            await self.remove(cache, [trim for trim in trims if trim.last_id <= marks[trim.segment]])
            caught_up[[trim.segment for trim in trims if trim.last_id > marks[trim.segment]]] = 0

    def _has_to_tell(self, cache: CacheState, held: dict[str, int]) -> bool:
        """Whether listeners may think otherwise of how much of their holds is used up: nothing is what a home goes by untold."""
        before = self._percents.get(cache.cache_id)
        return before is None or any(before.values()) or any(held.values())

    def _has_listeners(self) -> bool:
        return any(cache.name == LISTENERS for cache in self._node.caches)

    async def run(self, cache: CacheState, *, dry_run: bool, is_forced: bool = True) -> pb.RunRetentionAnswer:
        """Apply a cache's limits now, or return what that would remove. Nothing is flushed where nothing would go, for all one knows.

        What listeners hold back is asked after an id was taken up to which everything is committed, and nothing goes above that:
        a listener registered after its home has answered begins there or later.

        Raises:
            PrimariesMissing: a segment had no primary that answered. What listeners whose home it is hold back is not known then.
        """
        async with self._one_at_a_time:
            logs, holds, ceiling = await self._ask_all(cache, flush=False)
            plan, look, is_new, _ = self._look_at(cache, merged(logs), holds)
            if plan.removes or is_new or (is_forced and not limits_of(cache).are_none):
                committed = await limit_soon(self._node.reads, cache, owner=self, wait_ms=_SEEN_MS_MAX)
                logs, holds, ceiling = await self._ask_all(cache, flush=True)
                ceiling = min(ceiling, committed)
                plan = self._plan(cache, merged(logs), holds, ceiling=ceiling)
                if plan.window:
                    plan = await self._refined(cache, plan)
                plan = await self._proved(cache, plan, merged(logs).steps)
                if ceiling < plan.now.id:
                    look = None  # not all of it is committed or on disk yet
            held = self._held(cache, merged(logs), holds)
            answer = pb.RunRetentionAnswer()
            if plan.removes or is_forced or (held and self._has_to_tell(cache, held)):
                answer = await self._cut_all(cache, plan, held=held, dry_run=dry_run)
            if is_forced:
                for hold in await self._keeping_back(cache, merged(logs), holds, ceiling=ceiling):
                    answer.kept_back.add(
                        listener=hold.listener, id=hold.id, hold_bytes=hold.nbytes, hold_ms=hold.time_ms, percent=held[hold.listener]
                    )
            if not dry_run:
                self._looks[cache.cache_id], self._percents[cache.cache_id] = look, held
            return answer

    def _look_at(self, cache: CacheState, whole: CacheLog, holds: Sequence[Hold]) -> "_FirstLook":
        plan = self._plan(cache, whole, holds, ceiling=ID_MAX)
        look = closer_look(plan, limits_of(cache), physical_ms=self._node.clock.physical_ms())
        is_new = look is not None and look != self._looks.get(cache.cache_id)
        return _FirstLook(plan, look, is_new, self._held(cache, whole, holds))

    def _plan(self, cache: CacheState, whole: CacheLog, holds: Sequence[Hold], *, ceiling: int) -> TrimPlan:
        now_ms = self._node.clock.physical_ms()
        ceiling = min(ceiling, hold_ceiling(whole, holds, physical_ms=now_ms))
        return plan_retention(cache.cache_id, whole, limits_of(cache), physical_ms=now_ms, ceiling=ceiling)

    async def _keeping_back(self, cache: CacheState, whole: CacheLog, holds: Sequence[Hold], *, ceiling: int) -> list[Hold]:
        """Return the holds but for which more of what lies at or below `ceiling` would go."""
        free = self._plan(cache, whole, (), ceiling=ceiling)
        if free.window and holds:
            free = await self._refined(cache, free)
        return keeping_back(whole, holds, upto=free.cut.id, physical_ms=self._node.clock.physical_ms()) if free.removes else []

    def _held(self, cache: CacheState, whole: CacheLog, holds: Sequence[Hold]) -> dict[str, int]:
        now_ms = self._node.clock.physical_ms()
        return {hold.listener: held_percent(whole, hold, limits_of(cache), physical_ms=now_ms) for hold in holds}

    async def _ask_all(self, cache: CacheState, *, flush: bool) -> tuple[list[CacheLog], list[Hold], int]:
        """Return the logs of all primaries, what is held back, and the lowest of their ceilings."""
        request = pb.RetentionSteps(cache_id=cache.cache_id, steps_max=STEPS_MAX, flush=flush)
        question = Message(retention_steps=request)
        answers = [one.retention_steps_answer for one in await self._ask(question, partial(self._told, cache, question))]
        holds = [hold for answer in answers for hold in holds_in(answer)]
        return [log_in(answer) for answer in answers], holds, min(answer.ceiling for answer in answers)

    async def _refined(self, cache: CacheState, plan: TrimPlan) -> TrimPlan:
        """Return the plan with the best cut in its window: the stored values in it are asked for."""
        assert plan.window is not None
        found = await self._asked_exactly(cache, after=plan.window[0], upto=plan.top.id)
        top = OwnStep(plan.top.id, sum(exact.top.events for exact in found), plan.top.nbytes)
        return refine(replace(plan, top=top), [head for exact in found for head in exact.heads])

    async def _proved(self, cache: CacheState, plan: TrimPlan, steps: Sequence[Step]) -> TrimPlan:
        """Return the plan with a cut that the limits let go by what lies at or below it, a lower one if need be.

        Groups of several primaries overlap: values that end below a step are counted with the step of their group, which lies above.
        """
        below = [step for step in steps if plan.trimmed.id < step.id < plan.cut.id]
        back = 1
        while plan.removes:
            answers = await self._asked_exactly(cache, after=plan.cut.id, upto=plan.cut.id)
            events = sum(exact.top.events for exact in answers)
            share = plan.now.nbytes * events // max(plan.now.events, 1)
            cut = OwnStep(plan.cut.id, events, max(plan.cut.nbytes, share))
            if plan.rule.lets_go(cut):
                return replace(plan, cut=cut)
            low: Step = below[-back] if back <= len(below) else plan.trimmed
            window = (max(low.id, plan.trimmed.id), cut.id)
            plan = await self._refined(cache, replace(plan, cut=low, top=cut, window=window))
            below, back = [step for step in below if step.id < plan.cut.id], 2 * back
        return plan

    async def _asked_exactly(self, cache: CacheState, *, after: int, upto: int) -> list[Exact]:
        """Return what each primary has in `(after, upto]`."""
        request = pb.RetentionSteps(cache_id=cache.cache_id, after=after, upto=upto)
        question = Message(retention_steps=request)
        answers = await self._ask(question, partial(self._told, cache, question))
        return [exact_in(one.retention_steps_answer) for one in answers]

    async def _cut_all(self, cache: CacheState, plan: TrimPlan, *, held: dict[str, int], dry_run: bool) -> pb.RunRetentionAnswer:
        """Have all primaries remove what the plan says, or say what that would be."""
        cut = pb.RetentionCut(cache_id=cache.cache_id, id=plan.cut.id if plan.removes else 0, dry_run=dry_run)
        cut.held.extend(pb.RetentionHeld(listener=listener, percent=percent) for listener, percent in held.items())
        question = Message(retention_cut=cut)
        answers = await self._ask(question, partial(self._cut, cache, question))
        rows = sorted((row for one in answers for row in one.run_retention_answer.rows), key=lambda row: row.segment)
        removed = sum(row.removed for row in rows)
        if removed and not dry_run:
            log.info("retained cache=%s removed=%d upto=%d", cache.name, removed, plan.cut.id)
        return pb.RunRetentionAnswer(rows=rows, removed=removed, cut_id=cut.id)

    async def _ask(self, question: Message, answer: Answer) -> list[Message]:
        return await self._node.primaries.ask(question, answer, timeout_ms=_MISSING_MS, answer_ms=_ASK_MS)

    # ------------------------------------------------------------ at every primary

    async def told(self, exchange: Exchange) -> None:
        """Answer the node that chooses the cut with what is known of the segments that are led here."""
        request = exchange.message.retention_steps
        if request.cache_ids:
            answer: Answer = partial(self._told_of_each, request.cache_ids, steps_max=request.steps_max)
        else:
            answer = partial(self._told, self._node.caches.find(request.cache_id), exchange.message, steps_max=request.steps_max)
        await self._node.primaries.answer(exchange, answer)

    async def _told_of_each(self, cache_ids: Sequence[int], led: Led, *, steps_max: int | None = None) -> Message:
        whole = pb.RetentionStepsAnswer()
        for cache_id in cache_ids:
            with suppress(CacheNotFound):
                cache = self._node.caches.find(cache_id)
                told = await self._told(cache, Message(), led, steps_max=steps_max)
                whole.caches.append(told.retention_steps_answer)
        return Message(retention_steps_answer=whole)

    async def _told(self, cache: CacheState, question: Message, led: Led, *, steps_max: int | None = None) -> Message:
        node, request = self._node, question.retention_steps
        exact: Exact | None = None
        ceiling = ID_MAX
        if request.flush:
            await node.listeners.home.write_positions_of(cache.cache_id)  # what is held back is what is written down
            await self.flush()
            marks, ends = self._marks[led.segments], node.replicas.core.ends[led.segments]
            ceiling = flushed_ceiling(marks, ends) if (marks < ends).any() else ID_MAX
        if request.upto:
            exact = await self._steps.own_window(cache, led.segments, after=request.after, upto=request.upto)
        holds = await node.listeners.home.holds(cache.cache_id, led.segments)
        log_ = self._steps.own_log(cache, led.segments)
        short = log_ if steps_max is None else replace(log_, steps=fewer(log_.steps, steps_max))
        answer = answer_of(short, holds=holds, ceiling=ceiling, exact=exact)
        answer.cache_id = cache.cache_id
        return Message(retention_steps_answer=answer)

    async def flush(self) -> Ints:
        """Return up to where the state of each segment is on disk, after it was flushed."""
        async with self._trimming:
            await self._checkpoint()
            self._marks = np.maximum(self._marks, await aside(partial(flush_marks, self._node.store)))
        return self._marks

    async def cut(self, exchange: Exchange) -> None:
        """Remove what a cut leaves nothing of from the segments that are led here."""
        cache = self._node.caches.find(exchange.message.retention_cut.cache_id)
        await self._node.primaries.answer(exchange, partial(self._cut, cache, exchange.message))

    async def _cut(self, cache: CacheState, question: Message, led: Led) -> Message:
        """Remove whole stored values at or below a cut, or return what that would remove."""
        node, cut = self._node, question.retention_cut
        if not cut.dry_run:
            node.listeners.home.note_held({held.listener: held.percent for held in cut.held})
        if not cut.id:
            return Message(run_retention_answer=pb.RunRetentionAnswer())
        ends, marks = node.replicas.core.ends, self._marks
        ready = [segment for segment in led.segments if marks[segment] >= min(cut.id, int(ends[segment]))]
        find = partial(trims_to, node.store, cache.cache_id, ready, cut=cut.id, trimmed_ids=cache.removed_ids.copy())
        trims = await self._read(find)
        answer = _describe(cache, trims, await aside(partial(_first_ids, node.store, trims)))
        if trims and not cut.dry_run:
            await self.remove(cache, trims)
            await self._node.trimmed_copies.spread()
        return Message(run_retention_answer=answer)

    async def remove(self, cache: CacheState, trims: list[Trim]) -> None:
        """Carry trims out, at the primary of their segments or at a backup."""
        node = self._node
        async with self._trimming:
            trims = [trim for trim in trims if trim.last_id > cache.removed_ids[trim.segment]]
            if cache.dropped or not trims:
                return
            events_before = cache.events_kept
            for trim in trims:
                cache.removed_ids[trim.segment] = trim.last_id
                cache.trimmed_ids[trim.segment] = max(cache.trimmed_ids[trim.segment], trim.last_id)
                cache.trimmed_offsets[trim.segment] = max(cache.trimmed_offsets[trim.segment], trim.offset)
            segments = np.array([trim.segment for trim in trims], np.int64)
            node.replicas.core.trimmed(segments, cache.trimmed_ids[segments])  # a backup that needs what goes gets a copy of the segment
            gone = node.steps.trim(cache.cache_id, max(trim.last_id for trim in trims))
            ranges, rows = trim_write(trims)
            meta_ranges = [step_range(cache.cache_id, upto=gone)] if gone else []
            await node.storage.run(partial(node.store.trim, ranges, rows, meta_ranges=meta_ranges))
        node.reads.trimmed(cache)
        node.reclaiming.trimmed(cache, trim_ranges(trims), removed=events_before - cache.events_kept)


def limits_of(cache: CacheState) -> RetentionLimits:
    """Return what a cache's options keep."""
    options = cache.options
    return RetentionLimits(
        time_ms=options.retain_time_ms, nbytes=options.retain_bytes, events=options.retain_events, nothing=not options.events
    )


def _describe(cache: CacheState, trims: list[Trim], first_ids: list[int]) -> pb.RunRetentionAnswer:
    rows = []
    for trim, first_id in zip(trims, first_ids, strict=True):
        removed = trim.offset - int(cache.trimmed_offsets[trim.segment])
        rows.append(pb.RetentionRow(cache=cache.name, segment=trim.segment, removed=max(removed, 0), first_id=first_id))
    return pb.RunRetentionAnswer(rows=rows, removed=sum(row.removed for row in rows))


def _first_ids(store: Store, trims: list[Trim]) -> list[int]:
    """Return the first id that each trim leaves in its segment, 0 where it leaves nothing."""
    found = []
    for trim in trims:
        pairs = store.read_log(*log_range(trim.segment, trim.cache, after=trim.last_id, upto=ID_MAX - 1), bytes_max=1)
        found.append(parse_log_key(pairs[0][0])[2] if pairs else 0)
    return found


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
    return Exact([StoredHead(step.id, step.events, step.bytes) for step in answer.steps], _read(answer.top))


def _mark(head: StoredHead) -> OwnStep:
    return OwnStep(head.last_id, head.events, head.nbytes)


def _step(step: Step) -> pb.RetentionStep:
    return pb.RetentionStep(id=step.id, events=step.events, bytes=step.nbytes)


def _read(step: pb.RetentionStep) -> OwnStep:
    return OwnStep(step.id, step.events, step.bytes)
