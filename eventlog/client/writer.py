"""Writes on their way: calls become frames, frames go out numbered, answers and errors find their calls again.

What must be numbered how, and sent again when, is decided by `routing.window`. Here is what surrounds it: calls of one moment share a
frame, calls run out of time, connections go and come back.
"""

import asyncio
from functools import partial
from typing import Any

import numpy as np

from eventlog.batch.layout import REFUSED
from eventlog.client.backlog import Backlog
from eventlog.client.changes import Call, Changes
from eventlog.client.contents import Contents, pack, read_answer, rest_of, split_by_call
from eventlog.client.options import ClientOptions
from eventlog.client.uplink import Uplink, chance
from eventlog.errors import ClientClosed, ConnectionLost, EventLogError, Outcome, OutcomeUnknown, Stopping, TimedOut
from eventlog.routing.retry import backoff_ms, decide
from eventlog.routing.verdict import judge
from eventlog.routing.window import Frame, State, Window
from eventlog.transport.connection import Connection
from eventlog.transport.reply import Reply
from eventlog.wire.eventlog_pb2 import WriteAnswer
from eventlog.wire.kinds import read_error

WriteFrame = Frame[Contents]
TIMER_SLACK_S = 0.002  # loops round times to milliseconds, and may be early


class Writer:
    """The writing side of one client. `keep_connected` is to be run by whoever owns it."""

    def __init__(self, uplink: Uplink, options: ClientOptions) -> None:
        self._uplink = uplink
        self._options = options
        self._backlog = Backlog(bytes_max=options.bytes_unanswered_max)
        self._window: Window[Contents] | None = None
        self._frames: dict[int, WriteFrame] = {}  # all that are not decided yet
        self._connection: Connection | None = None
        self._producer_id = 0
        self._is_pump_due = False
        self._not_before = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._needs_connection = asyncio.Event()
        self._is_closed = False
        uplink.choose_producer = self._choose_producer
        uplink.on_open = self._on_open

    @property
    def bytes_unanswered(self) -> int:
        """Bytes of writes that wait or are on their way."""
        return self._backlog.nbytes

    async def write(self, changes: Changes, *, is_many: bool, timeout_ms: int | None = None) -> "asyncio.Future[Any]":
        """Take changes in as soon as there is room; return the future of what became of them (Stored, or StoredMany).

        Changes take effect in the order in which they were taken in. Cancelling the future leaves open whether they do.

        Raises:
            TimedOut: no room in time.
            ClientClosed: the client is closed.
        """
        loop = asyncio.get_running_loop()
        timeout_ms = timeout_ms or self._options.timeout_ms
        call = Call(changes, timeout_ms=timeout_ms, is_many=is_many)
        await self._backlog.admit(call.nbytes, deadline=call.deadline, timeout_ms=timeout_ms)
        if self._is_closed:
            raise ClientClosed(what="client")
        self._backlog.add(call)
        self._watch(call.deadline)
        if not self._is_pump_due:
            self._is_pump_due = True
            loop.call_soon(self._pump)
        return call.future

    # ------------------------------------------------------------ sending

    def _pump(self) -> None:
        """Send whatever may be sent."""
        self._is_pump_due = False
        connection, window, routes = self._connection, self._window, self._uplink.routes
        if connection is None or window is None or routes is None:
            if self._has_work:
                self._needs_connection.set()
            return
        while self._connection is connection and not self._is_too_early():
            frame = window.take()
            if frame is not None:
                self._transmit(frame, connection)
            elif window.wants_anew:
                if not any(window.unanswered()):
                    self._uplink.drop(connection)
                return
            elif window.has_queued or not (calls := self._backlog.take(bytes_target=self._options.frame_bytes_target)):
                return
            else:
                self._add(pack(calls, routes))

    def _add(self, frame: WriteFrame) -> None:
        frame.content.ledger.on_close = self._backlog.release
        self._frames[id(frame)] = frame
        self._the_window.add(frame)

    def _is_too_early(self) -> bool:
        loop = asyncio.get_running_loop()
        wait = self._not_before - loop.time()
        if wait > 0 and not self._is_pump_due:
            self._is_pump_due = True
            loop.call_later(wait, self._pump)
        return wait > 0

    def _transmit(self, frame: WriteFrame, connection: Connection) -> None:
        message = frame.content.message(frame.cache, self._producer_id)
        try:
            future = connection.send(message, *frame.content.body(frame.sequences))
        except ConnectionLost:
            return  # `_on_lost` follows, and deals with this frame, too
        except EventLogError as error:
            self._on_error(frame, error)
            return
        future.add_done_callback(partial(self._on_answer, frame, connection))

    # ------------------------------------------------------------ answers

    def _on_answer(self, frame: WriteFrame, connection: Connection, future: "asyncio.Future[Reply]") -> None:
        error = future.exception()
        if error is None:
            reply = future.result()
            self._on_written(frame, reply.message.write_answer, reply.body)
        elif connection is not self._connection or not isinstance(error, EventLogError):
            return  # `_on_lost` deals with all frames of the connection at once
        else:
            self._on_error(frame, error)
        self._pump()

    def _on_written(self, frame: WriteFrame, answer: WriteAnswer, body: memoryview) -> None:
        window, contents = self._the_window, frame.content
        try:
            ids, kinds = read_answer(answer, body, rows=len(contents.items))
        except EventLogError as error:
            self._on_error(frame, type(error)(outcome="unknown", **error.facts()))
            return
        if answer.has_previous:
            contents.ledger.previous = answer.previous
        if not answer.refusals and not (kinds == REFUSED).any():
            window.answered(frame)
            self._decided(frame)
            contents.ledger.accept(contents.items, ids, kinds)
            return
        refusals = {refusal.block: read_error(refusal.error) for refusal in answer.refusals}
        refusals |= contents.forgotten_refusals(kinds, known=refusals)
        self._on_refusals(frame, refusals, ids=ids, kinds=kinds)

    def _on_refusals(self, frame: WriteFrame, refusals: dict[int, EventLogError], *, ids: Any, kinds: Any) -> None:
        contents, is_numbered = frame.content, self._options.idempotent
        none = np.zeros(len(contents.counts), np.int64)
        answered = self._the_window.answered_before(frame) if is_numbered else none
        verdict = judge(refusals, sequences=frame.sequences if is_numbered else none, answered=answered, doubtful=frame.doubtful)
        self._decided(frame)
        if is_numbered:
            again = np.array(verdict.again, np.int64)
            rest = rest_of(frame, again)
            rest.wanted = bool(len(again)) and contents.is_live
            if rest.wanted:
                self._frames[id(rest)] = rest
            elif len(again):
                rest.content.fail(_too_late(self._options.timeout_ms, outcome="none"))
            self._the_window.refused_in_part(frame, rest, free=np.array(verdict.unnumbered, np.int64), again=again, told=verdict.told)
        else:
            self._the_window.answered(frame)
            verdict.failed |= {block: refusals[block] for block in verdict.again}
        for block, error in verdict.failed.items():
            contents.fail(error, np.array([block]))
        written = np.setdiff1d(np.arange(len(contents.counts)), np.array(list(refusals), np.int64))
        rows = contents.rows_of(written)
        contents.ledger.accept(contents.items[rows], ids[rows], kinds[rows])

    def _on_error(self, frame: WriteFrame, error: EventLogError) -> None:
        """Nothing of a frame was written; or nobody knows, if the error says so."""
        window, contents, is_numbered = self._the_window, frame.content, self._options.idempotent
        now = asyncio.get_running_loop().time()
        if error.outcome == "unknown":
            window.answered(frame)  # appended, as far as numbers are concerned
            self._fail(frame, error)
            return
        left_ms = int((contents.deadline - now) * 1000)
        decision = decide(self._options.retry, error, attempt=contents.attempts, left_ms=left_ms, repeatable=True, chance=chance())
        if decision.again and is_numbered:
            contents.attempts += 1
            self._not_before = now + decision.wait_ms / 1000
            window.refused(frame)
            if isinstance(error, Stopping) and self._connection is not None:
                self._uplink.drop(self._connection)
        elif len(contents.calls) > 1 and is_numbered and not frame.doubtful:
            self._split(frame)
        else:
            frame.wanted = False
            window.refused(frame)
            in_doubt = OutcomeUnknown(outcome="unknown", why=f"a second try failed: {error}")
            self._fail(frame, in_doubt if frame.doubtful else error)

    def _split(self, frame: WriteFrame) -> None:
        """Give each call a frame of its own: the refusal may be about one of them alone."""
        assert self._uplink.routes is not None, "a frame was sent"
        parts = split_by_call(frame, self._uplink.routes)
        for part in parts:
            part.content.ledger.on_close = self._backlog.release
            self._frames[id(part)] = part
        self._the_window.replaced(frame, parts)
        self._decided(frame)
        self._backlog.release(sum(call.nbytes for call in frame.content.calls if not call.is_live))

    @property
    def _the_window(self) -> Window[Contents]:
        assert self._window is not None, "frames are only sent through a window"
        return self._window

    def _fail(self, frame: WriteFrame, error: EventLogError) -> None:
        if self._frames.pop(id(frame), None) is not None:
            frame.content.fail(error)

    def _decided(self, frame: WriteFrame) -> None:
        self._frames.pop(id(frame), None)

    # ------------------------------------------------------------ connections

    def _choose_producer(self) -> int | None:
        if not self._options.idempotent:
            return None
        self._drop_unwanted()
        window = self._window
        return 0 if window is None or window.wants_anew or window.is_pointless else self._producer_id

    def _drop_unwanted(self) -> None:
        """Take note of frames that nobody waits for any more: cancelled, or out of time."""
        for frame in list(self._frames.values()):
            if not frame.content.is_live:
                frame.wanted = False
                if frame.state in (State.QUEUED, State.HELD) and not frame.doubtful:
                    self._fail(frame, ClientClosed(what="call"))

    def _on_open(self, connection: Connection) -> None:
        """Begin on a new connection: first what the last one left unanswered."""
        assert self._uplink.routes is not None, "an open connection has said how many segments there are"
        if self._window is None:
            self._window = Window(segments=self._uplink.routes.segments, numbered=self._options.idempotent)
        elif self._options.idempotent and connection.producer_id != self._producer_id:
            for frame in self._window.begin_anew():
                self._fail(frame, OutcomeUnknown(outcome="unknown", why="the connection was lost before the answer came"))
        self._producer_id = connection.producer_id
        self._connection = connection
        connection.on_close = self._on_close
        for frame in self._window.resume():
            self._transmit(frame, connection)
        self._pump()

    def _on_close(self, connection: Connection) -> None:
        if connection is self._connection:
            self._connection = None
            # Answers that came before the end are in the loop's queue already; they count.
            asyncio.get_running_loop().call_soon(self._on_lost)

    def _on_lost(self) -> None:
        window = self._the_window
        window.lost()
        if not self._options.idempotent:
            for frame in list(window.unanswered()):
                window.give_up(frame)
                self._fail(frame, OutcomeUnknown(outcome="unknown", why="the connection was lost before the answer came"))
        if self._has_work:
            self._needs_connection.set()

    @property
    def _has_work(self) -> bool:
        return not self._is_closed and (bool(self._backlog) or any(frame.content.is_live for frame in self._frames.values()))

    async def keep_connected(self) -> None:
        """Open connections whenever writes need one. Runs until cancelled."""
        loop = asyncio.get_running_loop()
        attempt = 0
        while True:
            await self._needs_connection.wait()
            self._needs_connection.clear()
            try:
                await self._uplink.connection(loop.time() + self._options.timeout_ms / 1000)
                attempt = 0
            except EventLogError as error:
                if not error.retry:
                    self._fail_all(error)
                await asyncio.sleep(backoff_ms(self._options.retry, attempt=attempt, chance=chance()) / 1000)
                attempt += 1
            if self._has_work and self._connection is None:
                self._needs_connection.set()

    # ------------------------------------------------------------ deadlines and the end

    def _watch(self, deadline: float) -> None:
        if self._timer is None or deadline + TIMER_SLACK_S < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(deadline + TIMER_SLACK_S, self._on_timer)

    def _on_timer(self) -> None:
        """Fail what is out of time, and wait for what runs out of it next."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        for call in self._backlog.waiting():
            if call.deadline <= now:
                call.fail(_too_late(call.timeout_ms, outcome="none"))
        for frame in list(self._frames.values()):
            late = [call for call in frame.content.calls if call.deadline <= now]
            has_left = frame.state in (State.SENT, State.LOST) or frame.doubtful or len(late) < len(frame.content.calls)
            for call in late:
                call.fail(_too_late(call.timeout_ms, outcome="unknown" if has_left else "none"))
        self._backlog.forget_dead()
        self._drop_unwanted()
        deadlines = [call.deadline for call in self._live_calls()]
        if deadlines:
            self._watch(min(deadlines))

    def _live_calls(self) -> list[Call]:
        in_frames = [call for frame in self._frames.values() for call in frame.content.calls]
        return [call for call in (*self._backlog.waiting(), *in_frames) if call.is_live]

    async def flush(self) -> None:
        """Wait until everything that was taken in is decided."""
        waiting = [call.future for call in self._live_calls()]
        if waiting:
            await asyncio.wait(waiting)

    def close(self) -> None:
        """Fail whatever is not decided."""
        self._is_closed = True
        self._fail_all(ClientClosed(what="client"))
        if self._timer is not None:
            self._timer.cancel()

    def _fail_all(self, error: EventLogError) -> None:
        for call in self._backlog.waiting():
            call.fail(error)
        self._backlog.forget_dead()
        for frame in list(self._frames.values()):
            has_left = frame.state in (State.SENT, State.LOST) or frame.doubtful
            self._fail(frame, type(error)(outcome="unknown" if has_left else "none", **error.facts()))
            frame.wanted = False


def _too_late(timeout_ms: int, *, outcome: Outcome) -> TimedOut:
    return TimedOut(outcome=outcome, what="a write", timeout_ms=timeout_ms)
