"""Requests about events: poll, watch, where a log begins and ends, and what members ask each other for readers."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from eventlog.errors import BadMessage, EventLogError, InvalidArgument, NoEvents, NotPrimary
from eventlog.limits import CLOSE_UP_MS_MAX
from eventlog.node.answering import see_through
from eventlog.node.cluster.leaders import Leaders
from eventlog.node.cluster.primaries import HowFar, time_to_ask
from eventlog.node.consumers.listener_lag import Counted, ListenerLag
from eventlog.node.consumers.listeners import KnownListener, Listeners
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.closing import Closing
from eventlog.node.reading.crowds import give as give_answer
from eventlog.node.reading.crowds import refuse as refuse_answer
from eventlog.node.reading.ends import limit_soon, when_seen
from eventlog.node.reading.filters import spec_of
from eventlog.node.reading.pulls import Delivered, Pull, is_state_read
from eventlog.node.reading.state_first import StateNode, answer_state, send_state
from eventlog.node.reading.watches import serve_watch
from eventlog.predicate.spec import CompiledFilter
from eventlog.read.steps import LastEvents
from eventlog.state.caches import Caches, CacheState
from eventlog.transport.connection import Exchange
from eventlog.wire.eventlog_pb2 import LastEventsAnswer, LogEndsAnswer, Message, PlanEventsAnswer, Poll


class ReadingNode(StateNode, Protocol):
    """What these handlers need of a node."""

    @property
    def reads(self) -> Reads: ...

    @property
    def listeners(self) -> Listeners: ...

    @property
    def how_far(self) -> HowFar: ...

    def own(self, task: "asyncio.Task[Any]") -> None:
        """Keep a task until it ends."""
        ...


def poll(node: ReadingNode, exchange: Exchange) -> None:
    """Answer with what follows a position, at once or when there is something."""
    request = exchange.message.poll
    has_room = exchange.has_room
    if has_room and request.wait_ms and node.reads.crowds.join(exchange):
        return
    if has_room and not (request.listener or request.HasField("filter") or is_state_read(request)):
        _poll(node, exchange, None)
    else:
        work = see_through(exchange, _poll_when_ready(node, exchange))
        node.own(asyncio.get_running_loop().create_task(work, name="poll"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listening:
    """The poll of a listener as it was asked, and what it goes by."""

    asked: Poll
    found: KnownListener


def _poll(node: ReadingNode, exchange: Exchange, matches: CompiledFilter | None, listening: _Listening | None = None) -> None:
    try:
        pull = node.reads.begin(exchange.message.poll, matches=matches)
    except EventLogError as error:
        exchange.fail(error)
        return
    if matches is None and listening is None and pull.wait_ms and node.reads.crowds.open(exchange, pull):
        return
    pull.owner = exchange.connection
    pull.done = partial(_answer, exchange) if listening is None else partial(_answer_listener, node, exchange, listening.asked.listener)
    exchange.on_end = partial(node.reads.cancel, pull)
    node.reads.pull(pull)
    if listening is not None:
        node.listeners.waits(listening.found, pull, begin_anew=partial(_poll_anew, node, exchange, pull, listening.asked))


def _poll_anew(node: ReadingNode, exchange: Exchange, pull: Pull, asked: Poll) -> None:
    """Have the poll of a listener go by what that is by now, from where it asked to begin."""
    node.reads.cancel(pull)
    exchange.message.poll.CopyFrom(asked)
    node.own(asyncio.get_running_loop().create_task(see_through(exchange, _poll_when_ready(node, exchange)), name="poll"))


async def _poll_when_ready(node: ReadingNode, exchange: Exchange) -> None:
    """Make an answer only when the connection can take it and the filter is compiled: a client that does not read costs nothing more."""
    request = exchange.message.poll
    listening: _Listening | None = None
    if request.listener:
        asked = Poll()
        asked.CopyFrom(request)
        listening = _Listening(asked=asked, found=await node.listeners.prepare(request))
    matches = await node.reads.filters.of_poll(node.caches.find(request.cache_id), request, owner=exchange.connection)
    try:
        if not exchange.has_room:
            await exchange.room()
    except EventLogError:
        return  # the connection is gone
    if exchange.is_over:
        return
    if is_state_read(request):
        await answer_state(node, exchange, matches)
    else:
        _poll(node, exchange, matches, listening)


def _answer_listener(node: ReadingNode, exchange: Exchange, listener: str, found: Delivered | EventLogError) -> None:
    """Answer a listener; one that is about to fall behind what retention leaves it is told so with the answer that all get."""
    if not isinstance(found, EventLogError) and (warning := node.listeners.warning(listener)):
        found = replace(found, message=found.message + warning, shared=None)  # fields of one message may come in two pieces
    _answer(exchange, found)


def _answer(exchange: Exchange, found: Delivered | EventLogError) -> None:
    if isinstance(found, EventLogError):
        refuse_answer(exchange, found)
    else:
        give_answer(exchange, *found.content)


async def watch(node: ReadingNode, exchange: Exchange) -> None:
    """Stream what follows a position, as fast as credits allow. Raises InvalidArgument: by a listener, which is polled."""
    if exchange.message.watch.poll.listener:
        raise InvalidArgument(why="a listener is polled, and not watched")
    if is_state_read(exchange.message.watch.poll) and not await send_state(node, exchange):
        return
    await serve_watch(node.reads, node.how_far, exchange)


class ClosingNode(Protocol):
    """What answering members about how far everything goes needs of a node."""

    how_far: HowFar
    closing: Closing

    def own(self, task: "asyncio.Task[Any]") -> None: ...


def close_up(node: ClosingNode, exchange: Exchange) -> None:
    """Promise a member that nothing with an id at or below one will be committed here any more; or tell how far named segments are."""
    if exchange.message.HasField("cover"):
        work = see_through(exchange, node.how_far.answer(exchange))
        node.own(asyncio.get_running_loop().create_task(work, name="how_far"))
    else:
        node.closing.asked(exchange)


def fetch(node: ReadingNode, exchange: Exchange) -> None:
    """Give a member stored values of segments that it does not hold, or what matches of them."""
    give(node, exchange)


def give(node: ReadingNode, exchange: Exchange) -> None:
    """Answer a member's `fetch`."""
    if exchange.message.fetch.HasField("filter"):
        work = see_through(exchange, _fetch_matches(node, exchange))
        node.own(asyncio.get_running_loop().create_task(work, name="fetch"))
    else:
        node.reads.fetching.asked(exchange)


async def _fetch_matches(node: ReadingNode, exchange: Exchange) -> None:
    request = exchange.message.fetch
    spec = spec_of(request.filter)
    if spec is None:
        raise BadMessage(why="a filter that says nothing")
    matches = await node.reads.filters.compile(node.caches.find(request.cache_id), spec, owner=exchange.connection)
    node.reads.fetching.asked(exchange, matches=matches)


def log_ends(node: ReadingNode, exchange: Exchange) -> None:
    """Answer with the first id kept, the id up to which everything is there, and how many events are kept.

    Segments that nobody leads hold that id; a node without a copy of one cannot say anything, and another may.
    """
    cache = node.caches.find(exchange.message.log_ends.cache_id)
    if not cache.options.events:
        raise NoEvents(cache=cache.name)
    node.reads.stalls.check_reached()  # rather than after having waited for it

    def say(first_id: int | EventLogError, *, last_id: int, is_behind: bool) -> None:
        if exchange.is_over:
            return
        if isinstance(first_id, EventLogError):
            exchange.fail(first_id)
            return
        try:
            stalled = node.reads.stalls.everywhere()
        except NotPrimary as error:
            exchange.fail(error)
            return
        answer = LogEndsAnswer(first_id=first_id, last_id=last_id, events=cache.events_kept, stalled=stalled, is_behind=is_behind)
        exchange.answer(Message(log_ends_answer=answer))

    owner = exchange.connection

    def seen(is_all: bool) -> None:  # noqa: FBT001 -- as `when_seen` has it
        last_id = node.reads.limit()  # first: what came since may be kept, and not be the first
        node.reads.kept.first_id(cache, partial(say, last_id=last_id, is_behind=not is_all), owner=owner)

    when_seen(node.reads, node.how_far.end, cache, seen, owner=owner, wait_ms=CLOSE_UP_MS_MAX)


class CountingNode(Protocol):
    """What counting events needs of a node."""

    reads: Reads
    leaders: Leaders
    caches: Caches
    segments: int
    listener_lag: ListenerLag


async def last_events(node: CountingNode, exchange: Exchange) -> None:
    """Say behind which id the last events of a cache lie: counted by the primaries of its segments, and not read."""
    request = exchange.message.last_events
    count = _counting(node, exchange, node.caches.find(request.cache_id), segments=list(request.segments))
    after = 0
    if request.upto:
        found = await count([0], upto=request.upto)
        if found.behind[0][0] > request.events:
            after = await _behind_which(count, found, request.events, low=0, upto=request.upto)
    exchange.answer(Message(last_events_answer=LastEventsAnswer(after=after)))


class Counting(Protocol):
    """What counts events, and about how many bytes they have, behind each of some ids and up to `upto`, 0 for any."""

    def __call__(self, ids: Sequence[int], *, upto: int) -> Awaitable[Counted]:
        """Raises PrimariesMissing."""


def _counting(node: CountingNode, exchange: Exchange, cache: CacheState, *, segments: list[int]) -> Counting:
    """Return what counts.

    Raises:
        NoEvents, InvalidArgument: there is nothing to count, or no such segment.
    """
    if not cache.options.events:
        raise NoEvents(cache=cache.name)
    if any(segment >= node.segments for segment in segments):
        raise InvalidArgument(why=f"segment {max(segments)} of {node.segments}")
    return partial(node.listener_lag.counted, cache, segments=segments, around=True, timeout_ms=time_to_ask(exchange))


async def _behind_which(count: Counting, found: Counted, events: int, *, low: int, upto: int) -> int:
    """Return an id between `low` and `upto` behind which so many events lie, fewer than `found`."""
    [(behind, _)], [(_, next_id)] = found.behind, found.around
    search = LastEvents(events, low=max(low, next_id - 1), high=found.last_id or upto, behind=behind)
    after = None
    while after is None:
        id_ = search.guess()
        found = await count([id_], upto=upto)
        [(last_id, next_id)] = found.around
        after = search.take(id_, found.behind[0][0], last_id=last_id, next_id=next_id)
    return after


async def plan_events(node: CountingNode, exchange: Exchange) -> None:
    """Say with which event about so many behind an id end, as the primaries count them; nothing is read."""
    request = exchange.message.plan_events
    cache, after, upto = node.caches.find(request.cache_id), request.after, request.upto
    count = _counting(node, exchange, cache, segments=list(request.segments))
    if upto > node.reads.limit():  # above it events may still come below those that are there
        upto = min(upto, await limit_soon(node.reads, cache, owner=exchange.connection, wait_ms=CLOSE_UP_MS_MAX))
    if after >= upto:
        exchange.answer(Message(plan_events_answer=PlanEventsAnswer(upto=after)))
        return
    found = await count([after], upto=upto)
    ((events, nbytes),) = found.behind
    limits = [request.max_events or events, max(request.max_bytes * events // nbytes, 1) if request.max_bytes and nbytes else events]
    wanted = min(events, *limits)
    if wanted < events:
        upto = await _behind_which(count, found, events - wanted, low=after, upto=upto)
        found = await count([after], upto=upto)
        ((events, nbytes),) = found.behind
    end = (found.last_id or upto) if events else after  # `upto` of nodes that do not tell: no event is above the last and below it
    answer = PlanEventsAnswer(upto=end, events=events, bytes=nbytes, trimmed=found.is_trimmed)
    if events:
        answer.first_id = found.around[0][1]
        parts = {segment: count for segment, count in sorted(found.parts.items()) if count}
        answer.segments.extend(parts)
        answer.segment_events.extend(parts.values())
        answer.primaries.extend(node.leaders.topology.primaries[segment] for segment in parts)
    exchange.answer(Message(plan_events_answer=answer))
