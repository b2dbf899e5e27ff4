"""Closing up: primaries promise that nothing will come at or below an id any more, so that ordered readers can go on.

A node asks only while readers wait here for what others have not promised yet. To each peer one request is under way: a later one
with a higher id lets the earlier go. While somebody waits, the last request stays with the peer until it has committed something
(or for a while, so that limits rise with the clock), and the answer names what; a reader is a round trip behind any primary,
and nothing is sent for nobody. A peer that is given a copy of what another is about to commit answers at once, too, and promises up to
that: readers have its promise by the time of the commit. What is promised is heard by all that are told (`on_heard`), replicas among them.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from eventlog.arrays import NONE, Ints, Mask
from eventlog.errors import ConnectionLost, EventLogError, NotPrimary, Overloaded
from eventlog.ids import FlakeClock
from eventlog.limits import CLOSE_UP_MS_MAX
from eventlog.read.watermark import LowWatermark, Promise, Promises, decode_promises, encode_promises
from eventlog.replication import Replica
from eventlog.transport.connection import Exchange
from eventlog.wire.eventlog_pb2 import CloseUp, CloseUpAnswer, Message
from eventlog.wire.session import Reply

REFRESH_S = 1.4  # well below `STALLED_MS`, above which a low watermark counts as held up
UNSEEN_S = 0.05  # before a peer is asked again whose records were not seen here yet


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingTimes:
    """How long requests wait at the other members, and a member before it sends the next."""

    follow_ms: int = 500
    held_ms_max: int = CLOSE_UP_MS_MAX  # whatever the request says
    pause_s: float = 0.002  # between an answer and the next request that waits at the peer


CLOSING_TIMES = ClosingTimes()


class Members(Protocol):
    """The other members, as far as closing up needs them."""

    @property
    def incarnations(self) -> Mapping[int, str]:
        """Those that are connected."""
        ...

    def send(self, number: int, message: Message, *buffers: Any, timeout_ms: int = 0) -> "asyncio.Future[Reply]":
        """Ask a member."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class _AskedPeer:
    """What was asked of a peer. `wanted`: the id that it is to promise; `promised`: the lowest that it has, for what it leads."""

    incarnation: str
    wanted: int = 0
    promised: int = 0
    seen: int = 0  # of its commits
    last_id: int = 0
    leads: Mask | None = None  # what it promised for in its last answer
    requests: int = 0  # sent so far; the last of them:
    request: "asyncio.Future[Reply] | None" = None
    asked_id: int = 0
    is_waiting: bool = False  # it stays there until something is committed
    pause: asyncio.TimerHandle | None = None  # before it is asked again, or is asked although a request waits there

    @property
    def is_behind(self) -> bool:
        """Whether it has not been asked for all that is wanted, nor promised it by itself."""
        return max(self.asked_id, self.promised) < self.wanted


@dataclass(slots=True, kw_only=True, eq=False)
class _End:
    """A question: how far does everything go that is committed by now? `missing`: whose request is to be answered yet.

    `told` are the segments whose primaries have said so; the question is about those `asked` for, None: all. Unless it is `whole`, what
    those say that are reached is the answer.
    """

    missing: dict[int, int]
    last_id: int
    told: Mask
    asked: Ints | None
    whole: bool
    done: Callable[[int | EventLogError], None]

    def say(self) -> None:
        """Pass on what was found, or the first segment whose primary has not told."""
        untold = np.flatnonzero(~self.told) if self.whole else NONE
        if self.asked is not None:
            untold = np.intersect1d(untold, self.asked)
        self.done(NotPrimary(segment=untold.item(0)) if len(untold) else self.last_id)


class Closing:
    """Asks the other members to close up, and answers them. Everything happens on one event loop.

    `vouched` returns the highest ceiling of any member's lease, below which all ids were issued. `believed` gets a member, the last id
    that it says it knows, and its promises; it returns each for the segments that are that member's to promise for.
    """

    def __init__(
        self,
        *,
        clock: FlakeClock,
        promises: Promises,
        low: LowWatermark,
        believed: Callable[[Replica, int, Sequence[Promise]], list[Promise]],
        on_heard: Callable[[Replica, Sequence[Promise]], None],
        vouched: Callable[[], int] = lambda: 0,
        times: ClosingTimes = CLOSING_TIMES,
    ) -> None:
        self.times = times
        self._clock = clock
        self._vouched = vouched
        self._promises = promises
        self._low = low
        self._believed = believed
        self._on_heard = on_heard
        self._members: Members | None = None
        self._asked: dict[int, _AskedPeer] = {}
        self._ends: list[_End] = []
        self._is_following = False
        self._wanted = 0
        self._commits = 0
        self._foreseen = 0  # what others are about to commit, as far as copies of it are given here
        self._held: dict[object, tuple[Exchange, CloseUp, asyncio.TimerHandle]] = {}
        self._is_answering = False
        self._refresh_at = 0.0

    def join(self, members: Members) -> None:
        """Have others to ask from now on."""
        self._members = members

    def stop(self) -> None:
        """Let go of timers; nobody is asked or answered any more."""
        self._members = None
        for asked in self._asked.values():
            _cancel(asked)
        self._asked.clear()
        for _, _, timer in self._held.values():
            timer.cancel()
        self._held.clear()

    @property
    def is_alone(self) -> bool:
        """Whether there is nobody else whose promise could be needed: a node that is cut off is not alone."""
        return (self._members is None or not self._members.incarnations) and bool(self._promises.leads.all())

    @property
    def requests_due(self) -> int:
        """Return how many members are asked next when a moment has passed."""
        return sum(asked.pause is not None for asked in self._asked.values())

    def reaches(self, number: int) -> bool:
        """Return whether a member is connected."""
        return self._members is not None and number in self._members.incarnations

    def hears(self, asked: Ints | None) -> bool:
        """Return whether the primaries of `asked` (None: all) are this node and members that are connected, as they said last."""
        led = self._promises.leads.copy()
        for peer in self._peers().values():
            if peer.leads is not None:
                led |= peer.leads
        return bool((led if asked is None else led[asked]).all())

    # ------------------------------------------------------------ own promises

    def close_up(self, upto: int | None = None) -> list[Promise]:
        """Promise as much as the clock allows, `upto` at least if it may be, and hear it here."""
        made = self._promises.make(self._clock.close_up(upto, vouched=self._vouched))
        for promise in made:
            self._low.hear_own(promise)
        return made

    def answer_soon(self) -> None:
        """Answer the peers that wait here: this node has committed a group as its primary, or hears of one that others commit."""
        self._commits += 1
        if self._held and not self._is_answering:
            self._is_answering = True
            asyncio.get_running_loop().call_soon(self._answer_held)

    # ------------------------------------------------------------ being asked

    def asked(self, exchange: Exchange) -> None:
        """Answer a member now, or when something is committed. A request lets go an earlier one of the same connection."""
        request = exchange.message.close_up
        self._let_go(exchange.connection)
        if request.wait_ms and request.seen >= self._commits:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(min(request.wait_ms, self.times.held_ms_max) / 1000, self._let_go, exchange.connection)
            self._held[exchange.connection] = exchange, request, timer
            exchange.on_end = partial(self._forget, exchange.connection)
            return
        self._answer(exchange, request)

    def _answer(self, exchange: Exchange, request: CloseUp) -> None:
        if exchange.is_over:
            return
        made = self.close_up(max(request.id, self._foreseen) or None)
        answer = Message(close_up_answer=CloseUpAnswer(commits=self._commits, last_id=self._clock.last))
        exchange.answer(answer, encode_promises(made))

    def _answer_held(self) -> None:
        self._is_answering = False
        for connection in list(self._held):
            self._let_go(connection)

    def _let_go(self, connection: object) -> None:
        held = self._held.pop(connection, None)
        if held is not None:
            exchange, request, timer = held
            timer.cancel()
            self._answer(exchange, request)

    def _forget(self, connection: object) -> None:
        held = self._held.pop(connection, None)
        if held is not None:
            held[2].cancel()

    # ------------------------------------------------------------ asking

    def want(self, id_: int, *, is_told: bool = False) -> None:
        """Have the others promise up to `id_`, an id that a reader waits for, unless they have.

        `is_told`: the primary that commits it, or a copy, tells it to the readers there, so for a moment no primary is asked.
        """
        self._wanted = max(self._wanted, id_)
        self._want(id_, is_told=is_told)

    def foresee(self, id_: int, *, primary: int, copies: Callable[[], Collection[int]]) -> None:
        """Promise an id that `primary` is about to commit to the readers that wait here, so that readers there wait for the commit alone.

        Those with `copies` are told of it as this node is, and do the same; of the others readers here need a promise that is asked for.
        """
        self._foreseen = max(self._foreseen, id_)
        self.answer_soon()
        if self._is_following:
            self._want(id_, but=(primary, *copies()))

    def _want(self, id_: int, *, but: Collection[int] = (), is_told: bool = False) -> None:
        for number, asked in list(self._peers().items()):
            if number in but:
                continue
            asked.wanted = max(asked.wanted, id_)
            if not asked.is_behind:
                continue
            if is_told and asked.request is not None and asked.is_waiting:
                self._pause(number, asked, self.times.pause_s)
            else:
                self._ask(number, asked)

    @property
    def is_following(self) -> bool:
        """Whether readers wait here for what is committed anywhere."""
        return self._is_following

    def follow(self, *, on: bool) -> None:
        """Hear what the others commit as soon as they do, as long as this is on."""
        self._is_following = on
        if on:
            for number, asked in list(self._peers().items()):
                if asked.request is None and asked.pause is None:
                    self._ask(number, asked)

    def end(self, done: Callable[[int | EventLogError], None], asked: Ints | None = None, *, whole: bool = True) -> None:
        """Pass to `done` an id at or above everything of `asked` (None: all) that was committed anywhere before this call.

        `NotPrimary` where a segment has no primary that is reached, unless what is reached will do (not `whole`). A primary that was
        deposed without knowing it counts as one: what must not take less for all asks `HowFar`.
        """
        peers = self._peers()
        end = _End(missing={}, last_id=self._clock.last, told=self._promises.leads.copy(), asked=asked, whole=whole, done=done)
        if not peers:
            end.say()
            return
        self._ends.append(end)
        for number, peer in list(peers.items()):
            is_busy = peer.request is not None and not peer.is_waiting
            end.missing[number] = peer.requests + 1  # one that was sent before may be answered already
            if not is_busy:
                self._ask(number, peer, at_once=True)

    def refresh(self) -> None:
        """Ask for what can be promised now, unless that was a moment ago: also where nobody waits the low watermark goes on."""
        now = asyncio.get_running_loop().time()
        if now < self._refresh_at:
            return
        self._refresh_at = now + REFRESH_S
        for number, asked in list(self._peers().items()):
            if asked.request is None and asked.pause is None:
                self._ask(number, asked, at_once=True)

    def changed(self) -> None:
        """Take note that members were connected or lost."""
        self.follow(on=self._is_following)
        self._peers()

    def _peers(self) -> dict[int, _AskedPeer]:
        """Return what was asked of the members that are connected now; those of another incarnation are asked anew."""
        connected = self._members.incarnations if self._members is not None else {}
        for number in [number for number, asked in self._asked.items() if connected.get(number) != asked.incarnation]:
            _cancel(self._asked.pop(number))
            self._is_told(number, None)
        for number, incarnation in connected.items():
            if number not in self._asked:
                self._asked[number] = _AskedPeer(incarnation=incarnation, wanted=self._wanted)
        return self._asked

    def _ask(self, number: int, asked: _AskedPeer, *, at_once: bool = False) -> None:
        """Send a request unless one is under way that is answered at once; one that waits at the peer is overtaken."""
        if asked.request is not None and not asked.is_waiting:
            return  # `_go_on` asks for what came since
        _cancel(asked)
        asked.is_waiting = not at_once and not asked.is_behind
        asked.asked_id = asked.wanted
        asked.requests += 1
        request = CloseUp(id=asked.wanted, seen=asked.seen, wait_ms=self.times.follow_ms if asked.is_waiting else 0)
        assert self._members is not None, "peers are members"
        try:
            asked.request = self._members.send(number, Message(close_up=request), timeout_ms=self.times.follow_ms + self.times.held_ms_max)
        except (ConnectionLost, Overloaded):
            self._failed(number, asked)
            return
        asked.request.add_done_callback(partial(self._heard, number, asked, asked.requests))

    def _heard(self, number: int, asked: _AskedPeer, request: int, future: "asyncio.Future[Reply]") -> None:
        if self._asked.get(number) is not asked:
            if not future.cancelled():
                future.exception()  # looked at, so that nobody is warned of it: the member has left
            return
        is_last = request == asked.requests
        if is_last:
            asked.request = None
        sender = Replica(number, asked.incarnation)
        try:
            reply = future.result()
            answer = reply.message.close_up_answer
            found = decode_promises(reply.body, segments=len(self._low.limits))
            believed = self._believed(sender, answer.last_id, found)
        except (EventLogError, asyncio.CancelledError):
            if is_last:
                self._failed(number, asked)
            return
        asked.seen, asked.last_id = max(asked.seen, answer.commits), max(asked.last_id, answer.last_id)
        is_whole = all(kept is promise for kept, promise in zip(believed, found, strict=True))
        if is_whole:
            asked.promised = max(asked.promised, min((promise.id for promise in found), default=asked.asked_id))
        asked.leads = np.zeros(len(self._low.limits), bool)
        for promise in believed:
            asked.leads[promise.segments] = True
            self._low.hear(promise)
        self._is_told(number, request, believed)
        self._on_heard(sender, believed)
        if asked.request is None:
            self._go_on(number, asked, is_whole=is_whole)

    def _go_on(self, number: int, asked: _AskedPeer, *, is_whole: bool) -> None:
        """Ask for what has come since; or, after a moment, for what was in flight there or will be.

        Unless `is_whole`, it promised for segments that it leads by no record seen here: it is asked again when one may have come.
        """
        if not is_whole:
            asked.asked_id = 0
        if asked.is_behind and is_whole:
            self._ask(number, asked)
        elif any(number in end.missing for end in self._ends):
            self._ask(number, asked, at_once=True)
        else:
            self._pause(number, asked, self.times.pause_s if is_whole else UNSEEN_S)

    def _pause(self, number: int, asked: _AskedPeer, seconds: float) -> None:
        if self._is_following and asked.pause is None:
            asked.pause = asyncio.get_running_loop().call_later(seconds, self._again, number, asked)

    def _again(self, number: int, asked: _AskedPeer) -> None:
        asked.pause = None
        if self._is_following and self._peers().get(number) is asked and (asked.request is None or asked.is_behind):
            self._ask(number, asked)

    def _failed(self, number: int, asked: _AskedPeer) -> None:
        asked.request, asked.asked_id = None, 0
        self._is_told(number, None)
        self._pause(number, asked, self.times.follow_ms / 1000)

    def _is_told(self, number: int, request: int | None, promises: Sequence[Promise] = ()) -> None:
        """Count a peer as having said how far it is in what it leads, or (None) as one that cannot say."""
        asked = self._asked.get(number)
        for end in list(self._ends):
            wanted = end.missing.get(number)
            if wanted is None or (request is not None and request < wanted):
                continue
            del end.missing[number]
            end.last_id = max(end.last_id, asked.last_id if asked is not None else 0)
            for promise in promises:
                end.told[promise.segments] = True
            if not end.missing:
                self._ends.remove(end)
                end.say()


def _cancel(asked: _AskedPeer) -> None:
    if asked.pause is not None:
        asked.pause.cancel()
        asked.pause = None
