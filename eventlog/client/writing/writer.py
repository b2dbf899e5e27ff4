"""Writes of one client: calls of one moment share a frame, frames go to the lanes of their segments, calls run out of time."""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from eventlog.client.connections.nodes import Nodes
from eventlog.client.connections.requests import chance
from eventlog.client.options import ClientOptions
from eventlog.client.writing.calls import Backlog, Changes, WriteCall
from eventlog.client.writing.contents import Undecided, WriteFrame, is_forgettable, may_be_written, pack, rest_of
from eventlog.client.writing.lane import STALLED_S, Lane, LaneShared, too_late
from eventlog.clock import now_s
from eventlog.errors import ClientClosed, EventLogError, InvalidArgument, NotEnoughReplicas, Outcome, OutcomeUnknown
from eventlog.routing.lanes import Lanes, lane_apart
from eventlog.routing.retry import backoff_ms
from eventlog.routing.window import Numbering, State
from eventlog.transport.connection import Connection

TIMER_SLACK_S = 0.002  # loops round times to milliseconds, and may be early
TIMER_PAUSE_S_MIN = 0.02  # between two looks at all that waits for what is out of time; at least as long as the last one took ...
TIMER_PAUSE_S_MAX = 1.0  # ... unless the machine slept meanwhile
HAND_OVER_S = 0.1  # how long a primary that lost segments may take to answer what it owes before its connection is given up


class Writer:
    """The writing side of one client. `keep_connected` is to be run by its owner."""

    def __init__(self, nodes: Nodes, options: ClientOptions) -> None:
        self._nodes = nodes
        self._options = options
        self._backlog = Backlog(bytes_max=options.bytes_unanswered_max)
        self._undecided = Undecided()
        self._shared: LaneShared | None = None  # from the first connection on
        self._producers: set[int] = set()  # every id that was written under
        self._lanes: dict[int, Lane] = {}  # of nodes
        self._apart: dict[int, Lane] = {}  # of segments that are set apart, or were; they send by themselves
        self._is_apart_due = False
        self._is_send_due = False
        self._was_alone = True  # the last frame had one call
        self._is_unsettled = False
        self._hand_over: asyncio.TimerHandle | None = None
        self._look_again: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_not_before = 0.0
        self._needs_connection = asyncio.Event()
        self._is_closed = False
        nodes.choose_producer = self._choose_producer
        nodes.on_connection = self._on_connection
        nodes.on_lost = self._on_lost
        nodes.on_routes = self._on_routes

    @property
    def bytes_unanswered(self) -> int:
        """Bytes of writes that wait or are on their way."""
        return self._backlog.nbytes

    @property
    def frames_undecided(self) -> int:
        """Frames that are kept until it is known what became of them, here or in windows."""
        windows = self._shared.lanes.windows.values() if self._shared is not None else ()
        return max(len(list(self._undecided)), sum(map(len, windows)))

    async def write(
        self, changes: Changes, *, is_many: bool, timeout_ms: int | None = None, deadline: float = 0.0
    ) -> "asyncio.Future[Any]":
        """Take changes in as soon as there is room; return the future of what became of them (Stored or Removed, or StoredMany).

        `deadline` is for the parts of one call, in the loop's time: `timeout_ms` after it began.

        Changes take effect in the order in which they were taken in, those of one segment. Cancelling the future leaves open whether
        they do.

        Raises:
            TimedOut: no room in time.
            InvalidArgument: `timeout_ms` is not above 0.
            ClientClosed: the client is closed.
        """
        timeout_ms = self._options.limit_ms(timeout_ms)
        call = WriteCall(changes, timeout_ms=timeout_ms, is_many=is_many, deadline=deadline)
        await self._backlog.admit(call.nbytes, deadline=call.deadline, timeout_ms=timeout_ms)
        if self._is_closed:
            self._backlog.release(call.nbytes)
            raise ClientClosed(what="client")
        self._watch(call.deadline)
        is_alone = self._was_alone and not (self._undecided.frames or is_many)  # nobody else is writing: there is nothing to wait for
        is_more_due = self._is_send_due or self._is_unsettled or self._is_apart_due or bool(self._backlog.calls)
        if is_alone and self._shared is not None and not is_more_due:
            for lane in self._add([call], self._shared):
                lane.send(at_once=True)
            self._see_to_connections(self._shared)
            return call.future
        self._backlog.calls.append(call)
        if not is_alone:
            self._send_soon()
        elif not self._is_send_due:
            self._send(at_once=True)
        return call.future

    # ------------------------------------------------------------ sending

    def _send_soon(self) -> None:
        if not self._is_send_due:
            self._is_send_due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self, *, at_once: bool = False) -> None:
        """Put waiting calls into frames, and have lanes send."""
        self._is_send_due = False
        shared = self._shared
        if shared is None:
            self._want_connection()
            return
        if self._is_unsettled:
            self._settle(shared)
        if self._undecided.frames:
            for lane in tuple(self._lanes.values()):
                lane.send()
        self._send_apart()
        while self._backlog.calls and not (self._undecided.frames and self._has_full_lane()):
            calls = self._backlog.take(bytes_target=self._options.frame_bytes_target)
            for lane in self._add(calls, shared) if calls else ():
                lane.send(at_once=at_once)
        if self._backlog.calls and self._look_again is None:
            self._look_again = asyncio.get_running_loop().call_later(STALLED_S, self._on_look_again)
        self._see_to_connections(shared)

    def _see_to_connections(self, shared: LaneShared) -> None:
        """Have one opened where lanes lack theirs, or another producer id is wanted."""
        if any(lane.connection is None for lane in self._lanes.values()):
            self._want_connection()
        if shared.lanes.numbering.wants_anew:
            self._begin_anew()

    def _send_apart(self) -> None:
        """Have segments that are set apart send after connections or the topology have changed; else they do it by themselves."""
        if not self._is_apart_due:
            return
        self._is_apart_due = False
        for lane in tuple(self._apart.values()):
            lane.send()
        if any(lane.connection is None and len(lane.window) for lane in self._apart.values()):
            self._want_connection()

    def _on_look_again(self) -> None:
        """Go on where calls wait for the answers of a node that has fallen silent meanwhile."""
        self._look_again = None
        self._send_soon()

    def _add(self, calls: list[WriteCall], shared: LaneShared) -> list[Lane]:
        """Put calls into a frame, and that into lanes; return those. What cannot be packed fails by itself."""
        assert self._nodes.routes is not None, "a connection has said how many segments there are"
        self._was_alone = len(calls) == 1
        try:
            frame = pack(calls, self._nodes.routes)
        except Exception as error:  # noqa: BLE001 -- columns that nobody checked: their call is told, the others go on
            if len(calls) > 1:
                return [lane for call in calls for lane in self._add([call], shared)]
            calls[0].fail(InvalidArgument(why=f"it cannot be written: {error}"))
            self._backlog.release(calls[0].nbytes)
            return []
        frame.content.ledger.on_close = self._backlog.closed
        found = []
        for number, part in shared.lanes.add(frame):
            self._undecided.add(part)
            lane = self._lane(number, shared)
            if number < 0 and lane.refusal is not None:
                part.content.error = lane.refusal
                if not self._backlog.hold(part.content.calls):
                    part.wanted = False
                    self._undecided.fail(part, lane.refusal)
            found.append(lane)
        return found

    def _lane(self, number: int, shared: LaneShared) -> Lane:
        lanes = self._lanes if number >= 0 else self._apart
        lane = lanes.get(number)
        if lane is None:
            lane = lanes[number] = Lane(number, shared)
        return lane

    def _every_lane(self) -> tuple[Lane, ...]:
        return (*self._lanes.values(), *self._apart.values())

    def _has_full_lane(self) -> bool:
        """Whether calls had better wait and share frames later: for answers that are on their way, not for what may take long."""
        return any(lane.is_full for lane in self._lanes.values())

    def _answered(self, lane: Lane) -> None:
        """Send what waited for an answer; a segment that is set apart sends by itself."""
        assert self._shared is not None, "a frame was sent"
        wants_anew = self._shared.lanes.numbering.wants_anew
        if not self._is_send_due and (self._backlog.calls or self._undecided.frames or self._is_unsettled or wants_anew):
            self._send()
        if lane.segment >= 0:
            lane.send()

    # ------------------------------------------------------------ which lane

    def _on_routes(self) -> None:
        shared, topology = self._shared, self._nodes.topology
        if shared is None:
            return
        if topology is not None:
            shared.lanes.aim(topology.primaries)
            self._is_unsettled = True
        for lane in self._every_lane():
            lane.is_road_stale = True
            lane.not_before = 0.0
        self._is_apart_due = True
        self._send_soon()

    def _set_apart(self, refusals: Mapping[int, EventLogError]) -> None:
        """Have segments that were refused wait by themselves."""
        assert self._shared is not None, "a frame was sent"
        self._shared.lanes.set_apart(refusals)
        for segment, error in refusals.items():
            self._lane(lane_apart(segment), self._shared).refusal = error
        self._is_unsettled = True

    def _rejoin(self, segment: int) -> None:
        """Have a segment that is written again go with the others of its primary."""
        assert self._shared is not None, "a frame was sent"
        self._shared.lanes.rejoin(segment)
        self._is_unsettled = True

    def _settle(self, shared: LaneShared) -> None:
        self._is_unsettled = not shared.lanes.settle(self._undecided.replaced)
        self._is_apart_due = True
        for number in tuple(shared.lanes.windows):
            self._lane(number, shared)
        self._is_unsettled |= any(lane.is_left_behind for lane in self._apart.values())
        if self._is_unsettled and self._hand_over is None:
            self._hand_over = asyncio.get_running_loop().call_later(HAND_OVER_S, self._on_hand_over)

    def _on_hand_over(self) -> None:
        """Give up connections whose node owes answers about segments that are another's now: their primaries know what was written."""
        self._hand_over = None
        if self._shared is None or self._is_closed:
            return
        late = [self._lanes[number] for number in self._shared.lanes.unsettled()]
        late += [lane for lane in self._apart.values() if lane.is_left_behind]
        for connection in dict.fromkeys(lane.connection for lane in late if lane.connection is not None):
            self._nodes.drop(connection)
        self._send_soon()

    # ------------------------------------------------------------ connections

    def _choose_producer(self) -> int | None:
        if not self._options.idempotent:
            return None
        if self._shared is None:
            return 0
        return 0 if self._may_begin_anew(self._shared) else self._shared.producer_id

    def _may_begin_anew(self, shared: LaneShared) -> bool:
        """Whether another producer id is wanted, and nothing that somebody waits for needs the old one first."""
        self._undecided.drop_unwanted()
        is_waited_for = any(frame.wanted and frame.state is State.LOST for frame in self._undecided)
        return self._is_quiet and not is_waited_for and (shared.lanes.numbering.wants_anew or self._is_pointless)

    @property
    def _is_quiet(self) -> bool:
        """Whether no connection owes an answer to a write."""
        return not any(lane.connection is not None and lane.window.has_unanswered for lane in self._every_lane())

    @property
    def _is_pointless(self) -> bool:
        """Whether all that would be sent again is wanted by nobody any more: better begin anew and never write it."""
        waiting = [lane.window for lane in self._every_lane() if lane.window.has_unanswered]
        return bool(waiting) and all(window.is_pointless for window in waiting)

    def _on_connection(self, connection: Connection) -> None:
        """Begin on a new connection: lanes without one send on it first what the last one left unanswered."""
        routes = self._nodes.routes
        assert routes is not None, "an open connection has said how many segments there are"
        if self._shared is None:
            self._shared = LaneShared(
                nodes=self._nodes,
                options=self._options,
                lanes=Lanes(Numbering(routes.segments), split=rest_of, numbered=self._options.idempotent),
                undecided=self._undecided,
                send_soon=self._send_soon,
                answered=self._answered,
                set_apart=self._set_apart,
                rejoin=self._rejoin,
                hold=self._backlog.hold,
                producer_id=connection.producer_id,
            )
        elif connection.producer_id not in self._producers and self._may_begin_anew(self._shared):
            for window in self._shared.lanes.windows.values():
                for frame in window.begin_anew():
                    why = "an earlier try was never answered, and cannot be repeated under its number"
                    self._undecided.fail(frame, OutcomeUnknown(outcome="unknown", why=why))
            self._shared.producer_id = connection.producer_id
        self._producers.add(self._shared.producer_id)
        self._is_apart_due = True
        self._send_soon()

    def _begin_anew(self) -> None:
        """Once nothing is on its way, open another connection for another producer id."""
        home = self._nodes.home.live
        if self._is_quiet and home is not None:
            self._nodes.drop(home)
        elif home is None:
            self._want_connection()

    def _on_lost(self, connection: Connection) -> None:
        for lane in self._every_lane():
            if lane.connection is connection:
                lane.lost()
        self._is_unsettled = self._shared is not None
        self._is_apart_due = True
        self._send_soon()

    def _want_connection(self) -> None:
        if self._has_work:
            self._needs_connection.set()

    @property
    def _has_work(self) -> bool:
        return not self._is_closed and (bool(self._backlog.calls) or any(frame.content.is_live for frame in self._undecided))

    async def keep_connected(self) -> None:
        """Open connections whenever writes need one. Runs until cancelled."""
        loop = asyncio.get_running_loop()
        attempt = 0
        while True:
            await self._needs_connection.wait()
            self._needs_connection.clear()
            try:
                await self._nodes.home.connection(loop.time() + self._options.timeout_ms / 1000)
                attempt = 0
            except EventLogError as error:
                if not error.retry:
                    self._fail_all(error)
                await asyncio.sleep(backoff_ms(self._options.retry, attempt=attempt, chance=chance()) / 1000)
                attempt += 1
            self._send_soon()

    # ------------------------------------------------------------ deadlines and the end

    def _watch(self, deadline: float) -> None:
        when = max(deadline + TIMER_SLACK_S, self._timer_not_before)
        if self._timer is None or when < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        """Fail what is out of time, and wait for what runs out of it next: not at once, for in an outage that may be 100,000 calls."""
        self._timer = None
        began_s = now_s()
        now = asyncio.get_running_loop().time()
        for call in self._backlog.waiting():
            if call.deadline <= now:
                call.fail(too_late(call.timeout_ms, outcome="none"))
        for call, waiting in self._late(now):
            call.fail(_late_error(call, waiting))
        self._backlog.forget_dead()
        self._undecided.drop_unwanted()
        deadlines = [call.deadline for call in self._live_calls()]
        took_s = now_s() - began_s
        self._timer_not_before = now + took_s + min(max(took_s, TIMER_PAUSE_S_MIN), TIMER_PAUSE_S_MAX)
        if deadlines:
            self._watch(min(deadlines))

    def _late(self, now: float) -> "list[tuple[WriteCall, list[_Overdue]]]":
        """Return the calls that are out of time, each with the frames that its undecided items are in."""
        found: dict[int, tuple[WriteCall, list[_Overdue]]] = {}
        for frame in self._undecided:
            live = [call for call in frame.content.calls if call.is_live]
            late = [call for call in live if call.deadline <= now]
            may_leave = len(late) < len(live) and not is_forgettable(frame)
            for call in late:
                found.setdefault(id(call), (call, []))[1].append(_Overdue(frame, may_leave))
        return list(found.values())

    def _live_calls(self) -> list[WriteCall]:
        return [call for call in (*self._backlog.waiting(), *self._undecided.calls()) if call.is_live]

    async def flush(self) -> None:
        """Wait until everything that was taken in is decided."""
        waiting = {call.future for call in self._live_calls()}
        if waiting:
            await asyncio.wait(waiting)

    def close(self) -> None:
        """Fail whatever is not decided."""
        self._is_closed = True
        self._backlog.close()
        self._fail_all(ClientClosed(what="client"))
        for timer in (self._timer, self._hand_over, self._look_again):
            if timer is not None:
                timer.cancel()
        for lane in self._every_lane():
            lane.close()

    def _fail_all(self, error: EventLogError) -> None:
        for call in self._backlog.waiting():
            call.fail(error)
        self._backlog.forget_dead()
        for frame in self._undecided:
            outcome: Outcome = "unknown" if may_be_written(frame) else "none"
            self._undecided.fail(frame, type(error)(outcome=outcome, **error.facts()))
            frame.wanted = False


class _Overdue(NamedTuple):
    """A frame that is not decided; it `may_leave` yet, or again, for others of its calls."""

    frame: WriteFrame
    may_leave: bool


def _late_error(call: WriteCall, waiting: list[_Overdue]) -> EventLogError:
    """Return the error of a call that is out of time, whose undecided items are in what is waiting."""
    errors = [(frame.content.items, _why_late(call, frame, may_leave=may_leave)) for frame, may_leave in waiting]
    return waiting[0].frame.content.ledger.so_far(call, errors)


def _why_late(call: WriteCall, frame: WriteFrame, *, may_leave: bool) -> EventLogError:
    """Return why the last try of a frame failed; whether it can have been written, or can be yet."""
    error = frame.content.error
    outcome: Outcome = "unknown" if may_leave or may_be_written(frame) else "none"
    if error is None or (outcome == "unknown" and not isinstance(error, NotEnoughReplicas)):
        return too_late(call.timeout_ms, outcome=outcome)
    return type(error)(outcome=outcome, **error.facts())
