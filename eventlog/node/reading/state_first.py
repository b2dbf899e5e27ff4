"""State, then tail: what polls and watches get before the events, entry by entry as of a moment of each segment.

The position in each answer is all that there is of such a read: this node forgets it with the answer, and any other goes on from it.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from eventlog.batch.marks import CONTENT
from eventlog.errors import ClientClosed, ConnectionLost, InvalidArgument, NoEvents, NoState
from eventlog.limits import ANSWER_BYTES_DEFAULT, ANSWER_BYTES_MAX, ITERATION_BATCH_ENTRIES_MAX
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.pulls import ReadContext, refuse_recreated, segments_of
from eventlog.node.state.state_reads import StateAsk, StateFound, StateReads
from eventlog.predicate.spec import CompiledFilter
from eventlog.read import token
from eventlog.read.position import Position
from eventlog.read.state import StateProgress, tail_of
from eventlog.state.caches import CacheState
from eventlog.transport.connection import Exchange
from eventlog.wire.eventlog_pb2 import Message, Poll, PollAnswer, StreamItem


class StateNode(ReadContext, Protocol):
    """What reading the state before the events needs of a node."""

    @property
    def reads(self) -> Reads: ...

    @property
    def state_reads(self) -> StateReads: ...


async def answer_state(node: StateNode, exchange: Exchange, matches: CompiledFilter | None) -> None:
    """Answer a poll with the next entries; the bare notification that there are some has the place before them."""
    poll = exchange.message.poll
    reading = _begin(node, poll, matches)
    if poll.notify and not poll.max_events:
        exchange.answer(Message(poll_answer=PollAnswer(position=token.encode(reading.position), state=True)))
        return
    answer, found = await reading.step(exchange)
    exchange.answer(Message(poll_answer=answer), *found.body)


async def send_state(node: StateNode, exchange: Exchange) -> bool:
    """Send all entries that a watch wants, as credits allow, and set it to the place at which the events after them begin.

    Return whether the reader still reads; if not, the stream is ended.
    """
    poll = exchange.message.watch.poll
    matches = await node.reads.filters.of_poll(node.caches.find(poll.cache_id), poll, owner=exchange.connection)
    reading = _begin(node, poll, matches)
    try:
        while not reading.progress.is_finished:
            await exchange.credit()
            answer, found = await reading.step(exchange)
            exchange.stream_send(Message(stream_item=StreamItem(poll_answer=answer)), *found.body)
    except ClientClosed:
        exchange.stream_end()
        return False
    except ConnectionLost:
        return False
    poll.state_first = False
    poll.position = token.encode(tail_of(reading.position))
    return True


@dataclass(slots=True, kw_only=True, eq=False)
class _StateReading:
    """A state read as long as one request lasts."""

    node: StateNode
    ask: StateAsk
    progress: StateProgress
    is_continuous: bool

    @property
    def position(self) -> Position:
        return self.progress.position(cluster=self.node.cluster, cache_id=self.ask.cache.cache_id, segments=self.node.segments)

    async def step(self, exchange: Exchange) -> tuple[PollAnswer, StateFound]:
        """Return the next answer."""
        wanted = self.progress.next
        ask = replace(self.ask, segments=wanted.segments, after=wanted.after, pin=wanted.pin, owner=exchange.connection)
        found = await self.node.state_reads.read(ask)
        self.ask = replace(self.ask, held=found.held)
        self.progress.took(found.cursors)
        answer = PollAnswer(parts=found.parts, position=token.encode(self.position), events=found.entries, state=True)
        if self.is_continuous:
            for part in answer.parts:
                part.changes = True
        return answer, found


def _begin(node: StateNode, poll: Poll, matches: CompiledFilter | None) -> _StateReading:
    cache = node.caches.find(poll.cache_id)
    if not cache.options.events:
        raise NoEvents(cache=cache.name)
    if not cache.options.state:
        raise NoState(cache=cache.name)
    ask = StateAsk(
        cache=cache,
        segments=(),
        filter=matches,
        entries_max=min(poll.max_events or ITERATION_BATCH_ENTRIES_MAX, ITERATION_BATCH_ENTRIES_MAX),
        bytes_max=min(poll.max_bytes or ANSWER_BYTES_DEFAULT, ANSWER_BYTES_MAX),
        without=CONTENT.intersection(poll.without),
        any_copy=True,
    )
    return _StateReading(node=node, ask=ask, progress=_progress_of(node, poll, cache), is_continuous=poll.filter.continuous)


def _progress_of(node: StateNode, poll: Poll, cache: CacheState) -> StateProgress:
    asked = segments_of(poll, node.segments)
    if poll.WhichOneof("from") != "position" or not token.is_unread(poll.position):
        if poll.WhichOneof("from") == "position" or poll.after or poll.from_time_ms or poll.latest:
            raise InvalidArgument(why="a read that begins with the state begins nowhere else")
        return StateProgress(range(node.segments) if asked is None else asked.tolist())
    position = token.decode(poll.position)
    if position.cache_id != cache.cache_id:
        refuse_recreated(node, position, cache)
    position.check(cluster=node.cluster, cache_id=cache.cache_id, segments=node.segments)
    if asked is not None and asked.tolist() != position.segments_held():
        raise InvalidArgument(why="a state read goes on with the segments that it began with")
    return StateProgress.of(position)
