"""Reading the segments of a group's member: one lane for each node that leads some of them, an answer at a time.

A segment whose node is gone holds up its own lane and no other. An answer ends where the promise of any segment asked about does, so those
that stand still are read in a lane beside the one of their node. A lane is begun anew when its segments change, those of the other lanes
go on. `MemberLanes` owns the tasks; what has arrived waits in one short queue, and lanes wait while it is full.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import msgspec

from eventlog.client.connections.requests import chance
from eventlog.client.members.member import Outage
from eventlog.client.members.progress import MemberProgress, Places, places_of, position_of
from eventlog.client.reading.batches import EventBatch
from eventlog.client.reading.following import ReadingCore, to_batches
from eventlog.client.reading.wanted import Reading, Scope, position_after
from eventlog.errors import EventLogError, FilterNotFound, TimedOut
from eventlog.events import EventSource
from eventlog.read import token
from eventlog.read.position import OFFSET_UNKNOWN
from eventlog.routing.retry import CURABLE, MOVES, backoff_ms
from eventlog.wire.eventlog_pb2 import Message, PollAnswer

POLL_WAIT_MS = 2_000
POLL_SLACK_MS = 3_000  # then the node is taken for silent, and another asked
ANSWERS_WAITING_MAX = 4
AGAIN_MS_MAX = 200
FILTER_TRIES_MAX = 8  # a node that has not been given the filter yet: others may


class LaneId(NamedTuple):
    """What the segments of a lane have in common. `is_new`: they have not been begun, and start at the first event kept."""

    node: int
    is_new: bool
    is_still: bool


@dataclass(slots=True, kw_only=True, eq=False)
class LaneAnswer:
    """An answer: its events, and the places behind it. `is_stale`: hand out no more of it, what is left is fetched again."""

    segments: frozenset[int]
    batches: list[EventBatch]
    after: Places
    is_stale: bool = False


class _Lane:
    __slots__ = ("segments", "task")

    def __init__(self, segments: frozenset[int], task: "asyncio.Task[None]") -> None:
        self.segments = segments
        self.task = task


class MemberLanes:
    """All lanes of one member. `failed` is told of what no retry cures."""

    def __init__(self, core: ReadingCore, progress: MemberProgress, *, source: EventSource, reading: Reading, outage: Outage) -> None:
        self.is_started = False
        self.failed: Callable[[Exception], None] = lambda _: None
        self._core = core
        self._progress = progress
        self._source = source
        self._reading = reading
        self._outage = outage
        self._max_events = 0
        self._until_id: int | None = None
        self._once_ms: int | None = None
        self._lanes: dict[LaneId, _Lane] = {}
        self._still: frozenset[int] = frozenset()  # segments whose promises stand still, as their last answer has it
        self._waiting: list[LaneAnswer] = []
        self._open: LaneAnswer | None = None  # being handed out
        self._changed = asyncio.Event()  # something arrived, or there is room again
        self._scope = (core.cluster, source.cache_id, core.routes.segments)

    # ------------------------------------------------------------ what has arrived

    def take(self) -> LaneAnswer | None:
        """Return the oldest answer that waits, None when there is none."""
        self._open = self._waiting.pop(0) if self._waiting else None
        if self._open is not None:
            self._wake()
        return self._open

    async def wait(self) -> None:
        """Return when something may have changed."""
        changed = self._changed
        await changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def wake(self) -> None:
        """Have the waiters look again."""
        self._wake()

    # ------------------------------------------------------------ lanes

    def start(self, *, max_events: int, until_id: int | None, once_ms: int | None = None) -> None:
        """Begin to read up to an id, inclusive, or begin anew: what was broken off is fetched again from what was handed out of it.

        With another last id than before, all that was fetched and not handed out is. With `once_ms` each lane ends with its first answer
        that has events, or with the first of all where that is 0; a node keeps a request no longer than that.
        """
        self.is_started = True
        self._max_events = max_events
        self._once_ms = once_ms
        if until_id != self._until_id:
            self._until_id = until_id
            self.release(self._progress.owned)
        elif self._open is not None:
            self.release(self._open.segments)
        self._open = None
        self.arrange()

    def arrange(self) -> None:
        """Read every segment that the member has, and no other, each over the lane of the node that leads it now."""
        wanted: dict[LaneId, set[int]] = {}
        for segment, place in self._progress.fetch.items():
            is_new = place.id == 0 and place.next_offset == OFFSET_UNKNOWN
            lane_id = LaneId(self._core.routes.primary(segment), is_new, segment in self._still)
            wanted.setdefault(lane_id, set()).add(segment)
        for id_, lane in list(self._lanes.items()):
            if id_ not in wanted or lane.segments != wanted[id_]:
                self._end(id_)
        for id_, segments in wanted.items():
            if id_ not in self._lanes:
                own = frozenset(segments)
                task = asyncio.create_task(self._run(id_, own), name=f"eventlog-consumer {id_.node}")
                task.add_done_callback(self._ended)
                self._lanes[id_] = _Lane(own, task)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Tell what a lane did not expect, an answer of a kind that was not asked for: whoever waits for events would wait for ever."""
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.failed(error)

    def _end(self, id_: LaneId) -> None:
        lane = self._lanes.pop(id_)
        lane.task.cancel()
        self._outage.works(_name_of(lane.segments))  # nobody tries any more: it fails no longer

    def release(self, gone: frozenset[int]) -> None:
        """Forget what was fetched of segments that the member has dropped; what came in the same answers is fetched again."""
        affected = set(gone)
        answers = [*self._waiting, *([] if self._open is None else [self._open])]
        size = 0
        while len(affected) > size:
            size = len(affected)
            affected.update(*(fetched.segments for fetched in answers if fetched.segments & affected))
        for fetched in answers:
            fetched.is_stale = fetched.is_stale or bool(fetched.segments & affected)
        self._waiting = [fetched for fetched in self._waiting if not fetched.is_stale]
        for id_, lane in list(self._lanes.items()):
            if lane.segments & affected:
                self._end(id_)
        self._progress.rewind(affected & self._progress.owned)
        self._wake()

    async def close(self) -> None:
        """End everything."""
        tasks = [lane.task for lane in self._lanes.values()]
        self._lanes.clear()
        for task in tasks:
            task.cancel()
        self._waiting = []
        self._wake()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, id_: LaneId, segments: frozenset[int]) -> None:
        attempt = 0
        while places := self._unread(segments):
            try:
                answer, body = await self._poll(id_, places, attempt)
            except EventLogError as error:
                attempt += 1
                lacks_filter = isinstance(error, FilterNotFound) and attempt < FILTER_TRIES_MAX
                is_curable = lacks_filter or isinstance(error, (*CURABLE, TimedOut))
                if not is_curable or self._outage.failed(_name_of(segments), error):
                    self.failed(error)
                    return
                await self._pause(error, attempt)
            else:
                attempt = 0
                self._outage.works(_name_of(segments))
                self._still = self._still - segments | segments.intersection(row.segment for row in answer.stalled)
                has_events = await self._arrived(segments, places, answer, body)
                if self._once_ms is not None and (has_events or not self._once_ms):
                    return
            if self._is_elsewhere(id_, segments):
                asyncio.get_running_loop().call_soon(self.arrange)  # not from here: it cancels this task

    async def _arrived(self, segments: frozenset[int], before: Places, answer: PollAnswer, body: memoryview) -> bool:
        after = places_of(token.decode(answer.position))
        source = msgspec.structs.replace(self._source, position_at=partial(_position_in_lane, before, self._scope))
        batches = to_batches(answer, body, source)
        while batches and len(self._waiting) >= ANSWERS_WAITING_MAX:
            await self._changed.wait()
        self._progress.fetched(after)
        self._waiting.append(LaneAnswer(segments=segments, batches=batches, after=after))
        self._merge()
        self._wake()
        return bool(batches)

    def _merge(self) -> None:
        """Of answers without events only the last of a lane is kept."""
        *earlier, last = self._waiting
        if not last.batches:
            place = next((place for place in range(len(earlier) - 1, -1, -1) if earlier[place].segments & last.segments), None)
            if place is not None and earlier[place].segments == last.segments and not earlier[place].batches:
                del self._waiting[place]

    def _unread(self, segments: frozenset[int]) -> Places:
        """Return where to ask for more, of segments that are not read up to the last id."""
        places = {segment: self._progress.fetch[segment] for segment in segments}
        return {segment: place for segment, place in places.items() if self._until_id is None or place.id < self._until_id}

    async def _poll(self, id_: LaneId, places: Places, attempt: int) -> tuple[PollAnswer, memoryview]:
        at_start = all(place.id == 0 and place.next_offset == OFFSET_UNKNOWN for place in places.values())
        position = None if at_start else position_of(places, self._scope)
        reading = replace(self._reading, position=position, until_id=self._until_id or 0, segments=tuple(sorted(places)))
        request = reading.poll(self._source.cache_id)
        request.max_events = self._max_events
        request.wait_ms = POLL_WAIT_MS if self._once_ms is None else min(POLL_WAIT_MS, self._once_ms)
        loop = asyncio.get_running_loop()
        timeout_ms = POLL_WAIT_MS + POLL_SLACK_MS
        live = self._core.nodes.live()
        if attempt % 2 and live:
            connection = live[attempt % len(live)]
        else:
            connection = await self._core.nodes.connection(id_.node, loop.time() + timeout_ms / 1000)
        reply = await connection.request(Message(poll=request), timeout_ms=timeout_ms)
        return reply.message.poll_answer, reply.body

    async def _pause(self, error: EventLogError, attempt: int) -> None:
        if isinstance(error, MOVES):
            self._core.nodes.on_stale()
        wait_ms = backoff_ms(self._core.options.retry, attempt=attempt, chance=chance())
        await asyncio.sleep(min(AGAIN_MS_MAX, wait_ms) / 1000)

    def _is_elsewhere(self, id_: LaneId, segments: Iterable[int]) -> bool:
        """Whether some segments belong into other lanes by now."""
        fetch, routes = self._progress.fetch, self._core.routes
        begun = any(fetch[segment].id for segment in segments if segment in fetch)
        is_moved = any(routes.primary(segment) != id_.node or (segment in self._still) is not id_.is_still for segment in segments)
        return begun is id_.is_new or is_moved


def _name_of(segments: frozenset[int]) -> str:
    """Return by what an outage knows the reading of a lane."""
    return f"reading {min(segments)}"


def _position_in_lane(before: Places, scope: Scope, last_id: int) -> str:
    """Return the token of a lane that has everything up to an id from places on. It says nothing of other lanes, which may be behind."""
    return position_after(position_of(before, scope), scope, last_id)
