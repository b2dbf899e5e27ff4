"""Frames of one primary's segments on their way: out on the road to it, and back as answers, refusals or silence.

What must be numbered how, and sent again when, is decided by `routing.window`.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from eventlog.batch.marks import REFUSED
from eventlog.client.connections.nodes import Nodes
from eventlog.client.connections.requests import chance
from eventlog.client.options import ClientOptions
from eventlog.client.writing.calls import WriteCall
from eventlog.client.writing.contents import (
    Contents,
    Undecided,
    WriteFrame,
    drop_dead,
    is_forgettable,
    plain_request,
    read_answer,
    rest_of,
    split_by_call,
)
from eventlog.clock import LOOP_STEP_S
from eventlog.errors import ConnectionLost, EventLogError, NotPrimary, Outcome, OutcomeUnknown, Stopping, TimedOut
from eventlog.limits import FIRST_BLOCK_MS_MAX
from eventlog.routing.lanes import Lanes
from eventlog.routing.retry import MOVES, SEGMENTS_OWN, apart_ms, decide
from eventlog.routing.window import judge
from eventlog.transport.connection import Connection
from eventlog.wire.eventlog_pb2 import WriteAnswer
from eventlog.wire.kinds import read_error
from eventlog.wire.session import Reply


@dataclass(slots=True, kw_only=True)
class LaneShared:
    """What all lanes of a writer have in common.

    `send_soon` has every lane send what it may, in the next turn of the loop; `answered` has what waited for an answer to one sent at once.
    `set_apart` gives segments that were refused, with the reason, lanes of their own; `rejoin` ends that. `hold` asks for room for calls
    that wait for such segments.
    """

    nodes: Nodes
    options: ClientOptions
    lanes: Lanes[Contents]
    undecided: Undecided
    send_soon: Callable[[], None]
    answered: Callable[["Lane"], None]
    set_apart: Callable[[Mapping[int, EventLogError]], None]
    rejoin: Callable[[int], None]
    hold: Callable[[list[WriteCall]], bool]
    producer_id: int = 0


class Lane:
    """The window of a node's segments, and the connection on which its frames go: to that node, or to one that forwards.

    A segment that is set apart has a lane of its own, which asks its primary again and again; `refusal` is what that said last.
    """

    def __init__(self, number: int, shared: LaneShared) -> None:
        self.number = number
        self.segment = -1 - number  # negative: a node's lane
        self.refusal: EventLogError | None = None
        self._refusals = 0  # in turn
        self._refused_at = 0.0  # the first of them
        self._timer: asyncio.TimerHandle | None = None
        self.window = shared.lanes.windows[number]
        self.connection: Connection | None = None
        self.is_road_stale = False
        self.not_before = 0.0
        self._active_at = 0.0  # when it last got an answer, or began to owe one
        self._loop = asyncio.get_running_loop()
        self._shared = shared

    # ------------------------------------------------------------ sending

    def send(self, *, at_once: bool = False) -> None:
        """Send whatever may be sent; `at_once`: do not wait for company."""
        connection = self.connection
        if connection is None or self.is_road_stale:
            connection = self._find_road()
        if connection is None or (self.not_before and self._is_too_early()):
            return
        window = self.window
        if window.has_doubts and self._has_outlived():
            return
        if not window.has_unanswered:
            self._active_at = self._loop.time()
        while (frame := window.take()) is not None:
            if not frame.doubtful:
                frame.sent_at = self._active_at
            if frame.content.error is not None and is_forgettable(frame):
                routes = self._shared.nodes.routes
                assert routes is not None, "it was sent before"
                drop_dead(frame, routes)
            self._transmit(frame, connection)
            if self.not_before and self._is_too_early():
                break  # it was refused at once, and would be again
        if at_once:
            connection.flush()

    @property
    def is_full(self) -> bool:
        """Whether what comes had better wait: answers that are due soon let it go in one frame. A silent node holds up nobody else."""
        return self.window.is_full and self._loop.time() - self._active_at < STALLED_S

    def _find_road(self) -> Connection | None:
        """Return the connection to go on with; None if there is none, or while the old one owes answers."""
        road, window = self._road(), self.window
        if self.connection is None and window.has_unanswered and self._has_outlived():
            return None
        if self.connection is None:
            self.is_road_stale = False
            self.connection = road
            if road is not None:
                for frame in window.resume():
                    self._transmit(frame, road)
        elif road is None or road is self.connection:
            self.is_road_stale = False
        elif window.has_unanswered:
            return None  # two roads at once could change the order
        else:
            self.connection, self.is_road_stale = road, False
        return self.connection

    def _has_outlived(self) -> bool:
        """Give up frames in doubt where one of them may be taken for a new one by now, instead of for the one that was sent before."""
        if not self.window.is_outlived(self._loop.time() - FIRST_BLOCK_MS_MAX / 1000):
            return False
        for frame in self.window.in_doubt:
            frame.wanted = False
            why = f"an earlier try was not answered for {FIRST_BLOCK_MS_MAX // 1000} s, and could be written twice by another"
            self._fail(frame, OutcomeUnknown(outcome="unknown", why=why))
        return True

    def _road(self) -> Connection | None:
        nodes = self._shared.nodes
        if self.segment >= 0 and nodes.routes is not None:
            return nodes.road(nodes.routes.primary(self.segment))
        return nodes.road(self.number)

    @property
    def is_left_behind(self) -> bool:
        """Whether its segment's primary is another now and the one before owes an answer. Only of a segment that is set apart."""
        return self.is_road_stale and self.window.has_unanswered and self.connection is not None and self._road() is not self.connection

    def _is_too_early(self) -> bool:
        if self.not_before > self._loop.time() + LOOP_STEP_S:
            if self._timer is None:
                self._timer = self._loop.call_at(self.not_before, self._on_time)
            return True
        self.not_before = 0.0
        return False

    def _on_time(self) -> None:
        self._timer = None
        if self.segment < 0:
            self._shared.send_soon()
        else:
            self.send()

    def close(self) -> None:
        """Send nothing more by itself."""
        if self._timer is not None:
            self._timer.cancel()

    def _transmit(self, frame: WriteFrame, connection: Connection) -> None:
        contents, producer = frame.content, self._shared.producer_id
        if contents.calls[0].is_alone:
            message = contents.message(frame.cache, producer)
        else:
            message = plain_request(frame.cache, producer, len(contents.counts))
        try:
            connection.post(partial(self.answered, frame, connection), message, *contents.body.buffers(frame.segments, frame.sequences))
        except ConnectionLost:
            return  # `lost` deals with this frame, too
        except EventLogError as error:
            self.refused(frame, error)

    def lost(self) -> None:
        """Take note that the connection is gone: whatever it carried may be written or not."""
        self.connection = None
        self.window.lost()
        if not self._shared.options.idempotent:
            for frame in list(self.window.unanswered()):
                self.window.give_up(frame)
                self._fail(frame, OutcomeUnknown(outcome="unknown", why="the connection was lost before the answer came"))

    # ------------------------------------------------------------ answers

    def _is_well(self) -> None:
        """Take note that a frame of the segment was written, or refused for what it says."""
        self.refusal, self._refusals = None, 0
        self._shared.rejoin(self.segment)

    def answered(self, frame: WriteFrame, connection: Connection, outcome: Reply | EventLogError) -> None:
        """Take note of what came back on `connection`, an answer or an error, and send what waited for it."""
        if isinstance(outcome, EventLogError):
            if not connection.is_closed:  # else all frames are lost at once
                self.refused(frame, outcome)
                self._shared.answered(self)
            return
        self._active_at = self._loop.time()
        answer, contents = outcome.message.write_answer, frame.content
        ledger = contents.ledger
        if answer.has_previous:
            ledger.previous = answer.previous
        is_lone = len(ledger.calls) == 1 and len(ledger.calls[0].changes.keys) == 1  # one event of one call: nothing has to be made of rows
        if is_lone and answer.events == 1 and not answer.refusals and answer.kind != REFUSED:
            self.window.answered(frame)
            if self.segment >= 0:
                self._is_well()
            if self._shared.undecided.decided(frame):
                ledger.accept_one(answer.id, answer.kind)
        else:
            self._read(frame, answer, outcome.body)
        self._shared.answered(self)

    def _read(self, frame: WriteFrame, answer: WriteAnswer, body: memoryview) -> None:
        """Tell the calls of a frame what the answer says of each of its rows."""
        window, contents = self.window, frame.content
        ledger = contents.ledger
        try:
            ids, kinds = read_answer(answer, body, rows=len(contents.items))
        except EventLogError as error:
            self.refused(frame, type(error)(outcome="unknown", **error.facts()))
            return
        if not answer.refusals and not (kinds == REFUSED).any():
            window.answered(frame)
            if self.segment >= 0:
                self._is_well()
            if self._shared.undecided.decided(frame):
                ledger.accept(contents.items, ids, kinds)
            return
        refusals = {refusal.block: read_error(refusal.error) for refusal in answer.refusals}
        refusals |= contents.forgotten_refusals(kinds, known=refusals)
        self._on_refusals(frame, refusals, ids=ids, kinds=kinds)

    def _on_refusals(self, frame: WriteFrame, refusals: dict[int, EventLogError], *, ids: Any, kinds: Any) -> None:
        contents, is_numbered = frame.content, self._shared.options.idempotent
        doubts = [error for error in refusals.values() if error.outcome == "unknown" and error.retry]
        if doubts and is_numbered:
            self.refused(frame, doubts[0])  # sent again whole: what was written is answered with its first result
            return
        none = np.zeros(len(contents.counts), np.int64)
        answered = self.window.answered_before(frame) if is_numbered else none
        verdict = judge(refusals, sequences=frame.sequences if is_numbered else none, answered=answered, doubtful=frame.doubtful)
        is_open = self._shared.undecided.decided(frame)
        again = np.array(verdict.again, np.int64)
        rest = rest_of(frame, again)
        rest.doubtful = frame.doubtful
        rest.wanted = bool(len(again)) and contents.is_live and is_open
        if self.segment >= 0 and not len(again):
            self._is_well()
        if rest.wanted:
            error = refusals[verdict.again[0]]
            own = {int(frame.segments[block]): why for block in verdict.again if isinstance(why := refusals[block], SEGMENTS_OWN)}
            self._shared.undecided.add(rest)
            if verdict.is_behind or len(own) < len(again):
                self._wait_after(rest, NotPrimary(segment=int(rest.segments[0])) if verdict.is_behind else error)
            else:
                self._wait_apart(rest, error, own)
        elif len(again) and is_open:
            rest.content.fail(too_late(self._shared.options.timeout_ms, outcome="none"))
        if is_numbered:
            free = np.array(verdict.unnumbered, np.int64)
            self.window.refused_in_part(frame, rest, free=free, again=again, told=verdict.told, is_behind=verdict.is_behind)
        else:
            self.window.answered(frame)
            if rest.wanted:
                self.window.add(rest)
        if not is_open:
            return
        for block, error in verdict.failed.items():
            contents.fail(error, np.array([block]))
        written = np.setdiff1d(np.arange(len(contents.counts)), np.array(list(refusals), np.int64))
        rows = contents.rows_of(written)
        contents.ledger.accept(contents.items[rows], ids[rows], kinds[rows])

    def _wait_apart(self, frame: WriteFrame, error: EventLogError, refusals: Mapping[int, EventLogError]) -> None:
        """Have a frame wait whose segments were all refused for reasons of their own; without room for that its calls end now."""
        frame.content.error = error
        if any(isinstance(why, NotPrimary) for why in refusals.values()):
            self._shared.nodes.on_stale()
        if self.segment >= 0:
            now, policy = self._loop.time(), self._shared.options.retry
            if not self._refusals:
                self._refused_at = now
            wait_ms = apart_ms(policy, error, attempt=self._refusals, away_ms=(now - self._refused_at) * 1000, chance=chance())
            self.refusal, self.not_before = error, now + wait_ms / 1000
            self._refusals += 1
            return
        self._shared.set_apart(refusals)
        if not self._shared.hold(frame.content.calls) and not frame.doubtful:
            frame.wanted = False
            self._fail(frame, error)

    def _wait_after(self, frame: WriteFrame, error: EventLogError) -> None:
        """Have a frame that was refused for now wait a little; where it has no time left, its calls end in time by themselves."""
        contents, now = frame.content, self._loop.time()
        left_ms = int((contents.deadline - now) * 1000)
        decision = decide(self._shared.options.retry, error, attempt=contents.attempts, left_ms=left_ms, repeatable=True, chance=chance())
        if decision.again:
            contents.attempts += 1
            contents.error = error
            self.not_before = now + decision.wait_ms / 1000
            if isinstance(error, MOVES):
                self._shared.nodes.on_stale()

    def refused(self, frame: WriteFrame, error: EventLogError) -> None:
        """Take note of an error instead of an answer: nothing of a frame was written; or nobody knows, if it says so."""
        window, contents, shared = self.window, frame.content, self._shared
        is_numbered, is_unknown = shared.options.idempotent, error.outcome == "unknown"
        now = self._loop.time()
        left_ms = int((contents.deadline - now) * 1000)
        decision = decide(shared.options.retry, error, attempt=contents.attempts, left_ms=left_ms, repeatable=is_numbered, chance=chance())
        if decision.again and isinstance(error, SEGMENTS_OWN) and not is_unknown and error.segment in frame.segments:
            self._again(frame, is_unknown=False)
            self._wait_apart(frame, error, {error.segment: error})
        elif decision.again:
            contents.attempts += 1
            contents.error = error
            self.not_before = now + decision.wait_ms / 1000
            self._again(frame, is_unknown=is_unknown)
            if isinstance(error, MOVES):
                shared.nodes.on_stale()
            if isinstance(error, Stopping) and self.connection is not None:
                shared.nodes.drop(self.connection)
        elif is_unknown:
            window.answered(frame)  # appended, as far as numbers are concerned
            self._fail(frame, error)
        elif len(contents.calls) > 1 and is_numbered and frame.wanted and not frame.doubtful:
            self._split(frame)
        else:
            frame.wanted = False
            window.refused(frame)
            in_doubt = OutcomeUnknown(outcome="unknown", why=f"a second try failed: {error}")
            self._fail(frame, in_doubt if frame.doubtful else error)

    def _again(self, frame: WriteFrame, *, is_unknown: bool) -> None:
        if is_unknown:
            self.window.doubted(frame)
        else:
            self.window.refused(frame)
        if not self._shared.options.idempotent:
            rest = rest_of(frame, np.arange(len(frame.content.counts)))
            self._shared.undecided.replaced(frame, [rest])
            self.window.add(rest)

    def _split(self, frame: WriteFrame) -> None:
        """Give each call a frame of its own: the refusal may be about one of them alone."""
        routes, shared = self._shared.nodes.routes, self._shared
        assert routes is not None, "a frame was sent"
        parts = split_by_call(frame, routes)
        self.window.replaced(frame, parts)
        shared.undecided.replaced(frame, parts)

    def _fail(self, frame: WriteFrame, error: EventLogError) -> None:
        self._shared.undecided.fail(frame, error)


STALLED_S = 0.3  # a disk that is slow answers within that


def too_late(timeout_ms: int, *, outcome: Outcome) -> TimedOut:
    """Return the error of a write whose time is over."""
    return TimedOut(outcome=outcome, what="a write", timeout_ms=timeout_ms)
