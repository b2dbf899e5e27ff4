"""Polling by the id of a listener, at any node: what it wants is fetched from its home once, and its positions go there.

What a node knows of listeners is a copy, dropped when the home says that it changed: to everybody at once when it was altered or
removed, and with every answer to a position. A position goes out with the poll that carries it, one message a home under way, those
of all listeners in it; a listener that waits for what matches is moved on past what does not in the same way.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

from eventlog.errors import BadMessage, EventLogError, InvalidArgument, NotPrimary, Unavailable
from eventlog.groups.listeners import FilterFrom, ListenerProgress, ListenerRecord, filter_after
from eventlog.ids import ID_MAX
from eventlog.limits import LISTENERS_PER_NODE_MAX
from eventlog.node.background import every
from eventlog.node.cluster.forward import Forwarding
from eventlog.node.cluster.peers import Peers
from eventlog.node.consumers.inner import Inner
from eventlog.node.consumers.listener_home import WARN_PERCENTS, KeptListener, ListenerHome
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.filters import message_of
from eventlog.node.reading.pulls import Pull, id_asked, is_state_read, segments_of
from eventlog.predicate.spec import FilterSpec
from eventlog.read import token
from eventlog.read.position import Position, SegmentPositions, place_in
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message, Poll
from eventlog.wire.session import Reply

_REPORT_PAUSE_S = 15.0  # an ephemeral listener says so often that it is used
_AGAIN_S = 0.1
_MOVED_ON_MS = 100
_TICK_MS = 1_000


class ListenersGround(Protocol):
    """What this module needs of the node."""

    cluster: str
    number: int
    segments: int
    peers: Peers
    failures: Counter[str]
    is_stopping: bool
    reads: Reads
    inner: Inner
    forwarding: Forwarding

    def own(self, task: "asyncio.Task[Any]") -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class KnownListener:
    """What this node knows of a listener that is polled here."""

    record: ListenerRecord
    version: int
    held_percent: int
    reported_at: float = 0.0


@dataclass(slots=True, kw_only=True, eq=False)
class _Waiting:
    """What a pull that waits goes by, where it stood when that was last told, and what begins its poll anew."""

    found: KnownListener
    key: tuple[bytes, int]
    begin_anew: Callable[[], None]


Due: TypeAlias = ListenerProgress | None
"""What a listener's home is to hear of: how far it has come, or only that it was used."""


class Listeners:
    """The listeners as one node serves them; those that are kept here are in `home`."""

    def __init__(self, node: ListenersGround, home: ListenerHome) -> None:
        self._node = node
        self.home = home
        self._known: OrderedDict[str, KnownListener] = OrderedDict()
        self._due: dict[str, Due] = {}
        self._under_way: set[int] = set()
        self._waiting: dict[Pull, _Waiting] = {}
        self._is_waited = asyncio.Event()  # set while there are any
        self._is_scheduled = False

    def start(self) -> None:
        """Begin to do what is due."""
        works = {"listeners": (_TICK_MS, self.home.tick), "listeners_moved_on": (_MOVED_ON_MS, self._move_on)}
        for name, (pause_ms, act) in works.items():
            self._node.own(asyncio.create_task(every(pause_ms, act, name=name, failures=self._node.failures), name=name))

    def figures(self) -> dict[str, int]:
        """Return how many listeners are served and kept here."""
        return {"served": len(self._known), "waiting": len(self._waiting), **self.home.figures()}

    # ------------------------------------------------------------ what a listener wants

    def forget(self, listener: str) -> None:
        """Ask anew for a listener that was altered or removed, with its next poll and for those that wait.

        One that waited on with the filter of before would pass over what only the new one lets through.
        """
        self._known.pop(listener, None)
        for pull, waiting in list(self._waiting.items()):
            if waiting.found.record.id == listener and not pull.is_over:
                del self._waiting[pull]
                waiting.begin_anew()

    async def known(self, listener: str) -> KnownListener:
        """Return a listener, asked of its home if need be.

        Raises:
            ListenerNotFound: there is none.
        """
        found = self._known.get(listener)
        if found is not None:
            self._known.move_to_end(listener)
            return found
        described_ = await self.describe(listener)
        found = KnownListener(record=record_of(described_), version=described_.version, held_percent=described_.held_percent)
        self._known[listener] = found
        if len(self._known) > LISTENERS_PER_NODE_MAX:
            self._known.popitem(last=False)
        return found

    async def describe(self, listener: str) -> pb.Listener:
        """Return a listener with its position, as its home has it.

        Raises:
            ListenerNotFound: there is none.
        """
        route = listener.encode()
        message = Message(list_listeners=pb.ListListeners(id=listener))
        for _ in range(3):  # its route may come here, or leave, meanwhile
            try:
                if self._node.inner.leads(route):
                    return described(await self.home.find(listener))
                answer = (await self._node.inner.ask(route, message)).message.list_listeners_answer
                return answer.listeners[0]
            except NotPrimary:
                await asyncio.sleep(_AGAIN_S)
        raise NotPrimary(segment=self._node.inner.segment(route))

    # ------------------------------------------------------------ polls

    async def prepare(self, poll: Poll) -> KnownListener:
        """Fill in what the listener that a poll names wants, and where it goes on unless the poll says so itself; return what it goes by.

        Raises:
            ListenerNotFound: there is no such listener.
            InvalidArgument: it is of another cache, or the poll has a filter of its own.
            PositionMismatch, BadMessage: the poll's position is another cluster's or cache's, or none.
        """
        listener = poll.listener
        found = await self.known(listener)
        record = found.record
        if poll.HasField("filter"):
            raise InvalidArgument(why="a poll names a listener or a filter, not both")
        if poll.cache_id != record.cache_id:
            raise InvalidArgument(why=f"listener {listener} is one of cache {record.cache}")
        if poll.WhichOneof("from") is None and not (poll.earliest or poll.latest or poll.state_first):
            await self._go_on(poll)
        is_state = is_state_read(poll)
        reach = filter_after(record, await self._node.reads.end_known(whole=False) if is_state or poll.latest else _place(poll))
        poll.filter.CopyFrom(message_of(reach.spec))
        if reach.until_id and not is_state:
            poll.until_id = min(poll.until_id or ID_MAX, reach.until_id)
        self._report(listener, found, await self._acknowledging(poll))
        poll.listener = ""
        return found

    async def _go_on(self, poll: Poll) -> None:
        found = await self.describe(poll.listener)
        if found.position:
            poll.position = found.position
        else:
            poll.after = found.last_id

    async def _acknowledging(self, poll: Poll) -> Position | None:
        """Return the place of a poll in the segments that it asks for, None where it says none, or one that no reader can have reached.

        A position never goes back: one that lies beyond the end would acknowledge whatever is written up to there, unread.
        """
        position = _position_of(poll, self._node)
        if position is None:
            return None
        position.check(cluster=self._node.cluster, cache_id=poll.cache_id, segments=self._node.segments)
        asked = segments_of(poll, self._node.segments)
        if asked is not None and len(asked) < self._node.segments and not position.unread:
            at = place_in(position.at, asked)  # the others are another reader's
            if not len(at.of):
                return None
            position = replace(position, at=at)
        return position if await self._are_reached([position]) else None

    async def acknowledge(self, request: pb.AcknowledgeListener) -> KeptListener:
        """Move a durable listener that is kept here on to where a request says; it is written down when this returns.

        Raises:
            ListenerNotFound: there is none.
            InvalidArgument: nobody keeps its position, or nothing is there yet.
            PositionMismatch, BadMessage: it is a position of something else, or none.
            Unavailable: it could not be written down.
        """
        record = (await self.home.find(request.id)).record
        if not record.durable:
            raise InvalidArgument(why=f"listener {record.id} is ephemeral: nobody keeps its position")
        if request.position:
            position = token.decode(request.position)
        else:
            at = min(request.upto, ID_MAX)
            position = Position(cluster=self._node.cluster, cache_id=record.cache_id, segments=self._node.segments, at=at)
        position.check(cluster=self._node.cluster, cache_id=record.cache_id, segments=self._node.segments)
        if position.unread:
            raise InvalidArgument(why="a place in the middle of the state acknowledges no event")
        if not await self._are_reached([position]):
            raise InvalidArgument(why=f"listener {record.id} is to have had id {_last_id(position)}, and the log ends before that")
        return await self.home.settle(request.id, token.encode(position))

    async def _are_reached(self, positions: Sequence[Position]) -> bool:
        """Return whether readers may be at all of these: those at another node may be a little ahead of this one, but not of all."""
        unseen = [_last_id(position) for position in positions if not self._is_seen(position)]
        return not unseen or max(unseen) <= await self._node.reads.end_known(whole=False)

    def _is_seen(self, position: Position) -> bool:
        """Return whether readers at this node see everything up to a position."""
        at = position.at
        return _last_id(position) <= self._node.reads.limit(at.of if isinstance(at, SegmentPositions) else None)

    def waits(self, found: KnownListener, pull: Pull, *, begin_anew: Callable[[], None]) -> None:
        """Move a durable listener on past what does not match, and keep one that would expire meanwhile, as long as its pull waits.

        If it is altered before that is over, or was since its poll was prepared, that begins anew.
        """
        if pull.is_over:
            return
        if self._known.get(found.record.id) is not found:
            begin_anew()
            return
        self._waiting[pull] = _Waiting(found=found, key=pull.cursor.key, begin_anew=begin_anew)
        self._is_waited.set()

    def warning(self, listener: str) -> bytes:
        """Return what an answer to a listener's poll ends with: that it falls behind, or nothing."""
        found = self._known.get(listener)
        if found is None or found.held_percent < WARN_PERCENTS[0]:
            return b""
        return Message(poll_answer=pb.PollAnswer(held_percent=found.held_percent)).SerializeToString()

    async def _move_on(self) -> None:
        await self._is_waited.wait()
        for pull, waiting in list(self._waiting.items()):
            found = waiting.found
            if pull.is_over:
                del self._waiting[pull]
            elif not found.record.durable:
                if 2 * (pull.wait_ms or 0) > found.record.expire_ms:
                    self._report(found.record.id, found, None)
            elif pull.cursor.key != waiting.key:
                place = pull.cursor.position(cluster=self._node.cluster, cache_id=pull.cache.cache_id)
                if not self._is_seen(place):
                    continue
                waiting.key = pull.cursor.key
                self._note_due(found.record.id, place)
                self._schedule()
        if not self._waiting:
            self._is_waited.clear()

    # ------------------------------------------------------------ positions on their way home

    def _report(self, listener: str, found: KnownListener, place: Position | None) -> None:
        now = asyncio.get_running_loop().time()
        pause_s = 0.0 if found.record.durable else min(_REPORT_PAUSE_S, found.record.expire_ms / 4000)
        if now - found.reported_at >= pause_s:
            found.reported_at = now
            self._note_due(listener, place if found.record.durable else None)
            self._schedule()

    def _note_due(self, listener: str, place: Position | None) -> None:
        """Have its home hear of a listener, and of a place where there is one: what several readers say of their segments adds up."""
        due = self._due.setdefault(listener, None)
        if place is not None:
            if due is None or due.cache_id != place.cache_id:  # else it was removed meanwhile, and another cache has one of its name
                due = self._due[listener] = ListenerProgress(self._node.cluster, place.cache_id, self._node.segments)
            due.move(place)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        """Send every home what is due to it, unless it has not answered the last time yet."""
        self._is_scheduled = False
        due, self._due = self._due, {}
        by_home: dict[int, dict[str, Due]] = {}
        for listener, progress in due.items():
            leader = self._node.forwarding.leader_of(self._node.inner.segment(listener.encode()))
            if leader == 0 or leader in self._under_way:
                self._due_again(listener, progress)
            else:
                by_home.setdefault(leader, {})[listener] = progress
        for number, own in by_home.items():
            self._under_way.add(number)
            if number == self._node.number:
                self._node.own(asyncio.create_task(self._use_here(own), name="use_listeners"))
            else:
                self._use_there(number, own)
        if self._due and not self._under_way:
            asyncio.get_running_loop().call_later(_AGAIN_S, self._schedule)

    async def _use_here(self, own: dict[str, Due]) -> None:
        for listener, progress in own.items():
            try:
                version, percent = await self.home.used(listener, _token_of(progress))
            except Unavailable:
                self._due_again(listener, progress)
            else:
                self._told(listener, version, percent)
        self._answered(self._node.number)

    def _use_there(self, number: int, own: dict[str, Due]) -> None:
        uses = pb.UseListeners(uses=[pb.ListenerUse(id=listener, position=_token_of(progress)) for listener, progress in own.items()])
        try:
            answer = self._node.peers.send(number, Message(use_listeners=uses), timeout_ms=1_000)
        except EventLogError:
            asyncio.get_running_loop().call_later(_AGAIN_S, self._failed, number, own)
            return
        answer.add_done_callback(partial(self._used_there, number, own))

    def _used_there(self, number: int, own: dict[str, Due], answer: "asyncio.Future[Reply]") -> None:
        if answer.cancelled():
            return
        if answer.exception() is not None:
            asyncio.get_running_loop().call_later(_AGAIN_S, self._failed, number, own)
            return
        for listener, used in zip(own, answer.result().message.use_listeners_answer.used, strict=False):
            self._told(listener, used.version, used.held_percent)
        self._answered(number)

    def _failed(self, number: int, own: dict[str, Due]) -> None:
        if self._node.is_stopping:
            return
        for listener, progress in own.items():
            if listener in self._known:
                self._due_again(listener, progress)
        self._answered(number)

    def _due_again(self, listener: str, progress: Due) -> None:
        self._note_due(listener, None if progress is None else progress.position())

    def _answered(self, number: int) -> None:
        self._under_way.discard(number)
        if self._due:
            self._schedule()

    def _told(self, listener: str, version: int, percent: int) -> None:
        found = self._known.get(listener)
        if found is None:
            return
        if version != found.version:
            self.forget(listener)
        found.held_percent = percent

    async def used(self, exchange: Exchange) -> None:
        """Answer a node that serves listeners which are kept here. Raises BadMessage for a position that no reader can have reached."""
        answer, uses = pb.UseListenersAnswer(), exchange.message.use_listeners.uses
        if not await self._are_reached([token.decode(use.position) for use in uses if use.position]):
            raise BadMessage(why="a listener is said to be where nothing is yet")
        for use in uses:
            version, percent = await self.home.used(use.id, use.position)
            answer.used.add(version=version, held_percent=percent)
        exchange.answer(Message(use_listeners_answer=answer))


def _token_of(progress: Due) -> bytes:
    return b"" if progress is None else token.encode(progress.position())


def _place(poll: Poll) -> int:
    """Return the id that a poll goes on after, as far as the choice of the filter goes."""
    if poll.WhichOneof("from") != "position":
        return id_asked(poll)
    at = token.decode(poll.position).at
    return at if isinstance(at, int) else int(at.ids.min())


def _position_of(poll: Poll, node: ListenersGround) -> Position | None:
    """Return the place of a poll, None where it says none. Raises BadMessage."""
    start = poll.WhichOneof("from")
    if start == "position":
        return token.decode(poll.position)
    if start != "after" or not poll.after:
        return None
    after = min(poll.after, ID_MAX)
    return Position(cluster=node.cluster, cache_id=poll.cache_id, segments=node.segments, at=after)


def _last_id(position: Position) -> int:
    """Return the highest id that a position has, in any segment."""
    at = position.at
    return int(at.ids.max()) if isinstance(at, SegmentPositions) else at


def spec_in(filter_: pb.Filter) -> FilterSpec:
    """Return what a message's filter says; one that says nothing wants everything."""
    return FilterSpec(
        where=filter_.where,
        parameters=filter_.parameters,
        select=tuple(filter_.select),
        name=filter_.name,
        version=filter_.version,
        arguments=filter_.arguments,
        continuous=filter_.continuous,
    )


def described(kept: KeptListener) -> pb.Listener:
    """Return a listener as the node that keeps it shows it; how far it lags is for others to count."""
    record = kept.record
    position = kept.progress.position()
    listener = pb.Listener(
        id=record.id,
        cache_id=record.cache_id,
        cache=record.cache,
        filter=message_of(record.newest.spec),
        from_id=record.newest.from_id,
        durable=record.durable,
        hold_bytes=record.hold_bytes,
        hold_ms=record.hold_ms,
        expire_ms=record.expire_ms,
        last_id=record.last_id,
        first_id=record.first_id,
        position=token.encode(position) if record.durable else b"",
        position_id=kept.progress.lowest if record.durable else 0,
        held_percent=kept.held_percent,
        version=kept.version,
    )
    for found in record.filters:
        listener.filters.add(from_id=found.from_id, filter=message_of(found.spec))
    return listener


def record_of(listener: pb.Listener) -> ListenerRecord:
    """Return the record of a listener that another node describes."""
    return ListenerRecord(
        id=listener.id,
        cache_id=listener.cache_id,
        cache=listener.cache,
        filters=tuple(FilterFrom(from_id=found.from_id, spec=spec_in(found.filter)) for found in listener.filters),
        durable=listener.durable,
        hold_bytes=listener.hold_bytes,
        hold_ms=listener.hold_ms,
        expire_ms=listener.expire_ms,
        last_id=listener.last_id,
        first_id=listener.first_id,
    )
