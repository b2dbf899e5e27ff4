"""What a shard reads: the events of its segments behind a place, as columns, asked of the node around it as any reader asks."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from eventlog.arrays import Ints, Mask
from eventlog.batch.columns import columns_of_joined, columns_of_values, join_events
from eventlog.batch.entries import read_state_part
from eventlog.batch.join import Joined, pack
from eventlog.batch.layout import RUN
from eventlog.batch.marks import CONTENT
from eventlog.errors import CorruptData, ListenerNotFound, Stopping
from eventlog.ids import ID_MAX
from eventlog.kafka.envelope import rows_without_before
from eventlog.kafka.shape import Shape
from eventlog.limits import MIB, POLL_WAIT_MS_MAX, PROCESS_BYTES_IN_FLIGHT_MAX, REQUEST_TIMEOUT_MS_DEFAULT
from eventlog.mirror.book import Mirror
from eventlog.read import token
from eventlog.read.position import OFFSET_UNKNOWN, Position, SegmentPositions
from eventlog.transport.connection import Connection, Dispatch
from eventlog.transport.greeting import GreetingOptions
from eventlog.transport.inside import connect_inside
from eventlog.transport.stream import Stream
from eventlog.wire.eventlog_pb2 import Filter, ListListeners, Message, Part, Poll, PollAnswer, Watch
from eventlog.wire.flow import Arena, ProcessBudget
from eventlog.wire.session import SessionOptions

_ANSWER_BYTES: Final = 1 * MIB
_NAME: Final = "mirror"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SegmentsAnswer:
    """Joined parts of one answer, and the id up to which it holds everything of the segments `of`, None: of all that are read.

    `still` are those of all segments that nobody leads at the moment. Entries have their versions for ids and no offsets; `position` is
    where a read that has them goes on.
    """

    parts: list[Joined]
    upto: int
    nbytes: int
    position: Position | None = None
    of: Ints | None = None
    still: frozenset[int] = frozenset()

    @property
    def events(self) -> int:
        """How many events there are."""
        return sum(part.events for part in self.parts)

    @property
    def oldest_id(self) -> int:
        """The lowest id among the events, 0 where there are none."""
        return min((int(part.runs["base"].min()) for part in self.parts), default=0)


class Inside:
    """The way of all shards of a node to that node. `open` gives each a connection of its own: one that is slow holds up nobody."""

    def __init__(self, dispatch: Dispatch, session: SessionOptions) -> None:
        self._dispatch = dispatch
        self._options = GreetingOptions(client=_NAME, session=session, bytes_in_flight_max=PROCESS_BYTES_IN_FLIGHT_MAX)
        self._process = ProcessBudget(PROCESS_BYTES_IN_FLIGHT_MAX)
        self._arena = Arena()  # one for each shard would keep megabytes for each that has nothing to do

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Connection]:
        """A connection, until the end of the block."""
        connection = await connect_inside(self._dispatch, self._options, process=self._process, arena=self._arena, name=_NAME)
        try:
            yield connection
        finally:
            connection.close()
            await connection.wait_closed()

    @asynccontextmanager
    async def source(self, mirror: Mirror, *, cluster: str, segments: int) -> AsyncIterator["Source"]:
        """A mirror's events by a connection of its own, until the end of the block."""
        async with self.open() as connection:
            yield Source(connection, mirror, cluster=cluster, segments=segments)

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what requests hold in the node."""
        return {"mirror_bytes_in_flight": (self._process.used, self._process.limit, self._process.peak)}


class Source:
    """The events of a shard's segments."""

    def __init__(self, connection: Connection, mirror: Mirror, *, cluster: str, segments: int) -> None:
        self._connection = connection
        self._mirror = mirror
        self._cluster = cluster
        self._segments = segments

    def token(self, at: SegmentPositions) -> bytes:
        """Return a place as every reader of the cache has it."""
        return token.encode(Position(cluster=self._cluster, cache_id=self._mirror.cache_id, segments=self._segments, at=at))

    def _poll(self, at: SegmentPositions) -> Poll:
        mirror = self._mirror
        poll = Poll(cache_id=mirror.cache_id, position=self.token(at), segments=at.of.tolist(), max_bytes=_ANSWER_BYTES)
        poll.accept_diverged = mirror.accepts == mirror.generation
        self._filter(poll)
        return poll

    async def answers(self, at: SegmentPositions) -> AsyncGenerator[SegmentsAnswer, None]:
        """Yield what follows a place, on and on.

        All segments are read together. Those of which the node says that they stand still are read apart until they go on: an answer
        ends where the first of its segments does.

        Raises:
            EventsTrimmed, PositionDiverged: the place is not there any more.
            CacheNotFound, CacheDropped, NoEvents: the cache is not, or keeps no events.
            Unavailable: the node stops.
        """
        still: frozenset[int] = frozenset()
        groups = [self._group(at)]
        try:
            while True:
                await asyncio.wait([group.next for group in groups], return_when=asyncio.FIRST_COMPLETED)
                found = still
                for group in groups:
                    if group.next.done():
                        answer = group.take()
                        found = found.difference(group.at.of.tolist()) | answer.still
                        yield replace(answer, of=group.at.of if len(groups) > 1 else None, still=found)
                if found != still:
                    still, at = found, _together([group.reached for group in groups])
                    for group in groups:
                        group.end()
                    is_still = np.isin(at.of, list(still))
                    groups = [self._group(_rows(at, rows)) for rows in (~is_still, is_still) if rows.any()]
        finally:
            for group in groups:
                group.end()

    def _group(self, at: SegmentPositions) -> "_SegmentStream":
        watch = Message(watch=Watch(poll=self._poll(at), follow=True, pace_ms=self._mirror.interval_ms))
        return _SegmentStream(at, self._connection.stream(watch, credit_bytes=_ANSWER_BYTES))

    async def entries(self, after: Position | None, of: Ints) -> SegmentsAnswer:
        """Return entries of segments behind a place among them, None: the first; they are all there once its position has none unread.

        Raises what `answers` does.
        """
        poll = Poll(cache_id=self._mirror.cache_id, segments=of.tolist(), max_bytes=_ANSWER_BYTES)
        if after is None:
            poll.state_first = True
        else:
            poll.position = token.encode(after)
        self._filter(poll)
        reply = await self._connection.request(Message(poll=poll), timeout_ms=0)
        return taken_apart(reply.message.poll_answer, reply.body)

    def _filter(self, poll: Poll) -> None:
        if self._mirror.filter:
            poll.filter.CopyFrom(Filter.FromString(self._mirror.filter))

    async def past(self, after: int, until: int) -> AsyncGenerator[SegmentsAnswer, None]:
        """Yield what is kept of all segments behind an id, up to another. Raises what `answers` does."""
        poll = Poll(cache_id=self._mirror.cache_id, after=after, until_id=until, earliest=True, max_bytes=_ANSWER_BYTES)
        poll.accept_diverged = True  # what is there now is asked for, not what follows something that was read
        self._filter(poll)
        stream = self._connection.stream(Message(watch=Watch(poll=poll)), credit_bytes=_ANSWER_BYTES)
        try:
            async for item in stream:
                yield taken_apart(item.message.stream_item.poll_answer, item.body)
        finally:
            stream.stop()

    async def last_without_before(self, shape: Shape, *, after: int, until: int) -> int:
        """Return the last event of a stretch that does not say what it replaced, 0 for none. Raises what `answers` does."""
        last = 0
        async for answer in self.past(after, until):
            if not answer.events:
                continue  # nothing of what was looked at matched
            events = columns_of_joined(answer.parts)
            if len(rows := rows_without_before(events, shape)):
                last = max(last, int(events.ids[rows].max()))
        return last

    async def end(self, at: SegmentPositions) -> SegmentsAnswer:
        """Return what follows a place now; without events, its `upto` is where to go on as well. Raises what `answers` does."""
        poll = self._poll(at)
        poll.max_events = 1
        reply = await self._connection.request(Message(poll=poll), timeout_ms=0)
        return taken_apart(reply.message.poll_answer, reply.body)

    async def comes(self, after: int) -> None:
        """Wait until there is an event behind an id, in any segment. Raises what `answers` does."""
        poll = Poll(
            cache_id=self._mirror.cache_id, after=after, earliest=True, max_events=1, without=sorted(CONTENT), wait_ms=POLL_WAIT_MS_MAX
        )
        while not (await self._connection.request(Message(poll=poll), timeout_ms=0)).message.poll_answer.parts:
            pass

    async def acknowledged(self) -> int:
        """Return the id up to which everything was acknowledged, 0 where nothing is held for the mirror any more."""
        return int((await self.acknowledged_ids()).min())

    async def acknowledged_ids(self) -> Ints:
        """Return the same for each segment."""
        ids = np.zeros(self._segments, np.int64)
        asked = Message(list_listeners=ListListeners(id=self._mirror.listener))
        try:
            reply = await self._connection.request(asked, timeout_ms=REQUEST_TIMEOUT_MS_DEFAULT)
        except ListenerNotFound:
            return ids
        [found] = reply.message.list_listeners_answer.listeners
        ids[:] = found.position_id
        if found.position and isinstance(at := token.decode(found.position).at, SegmentPositions):
            ids[at.of] = at.ids
        return ids

    async def acknowledge(self, at: SegmentPositions) -> None:
        """Let retention have what lies before a place, as far as the mirror's listener held it.

        Raises:
            ListenerNotFound: somebody removed it; nothing is held any more.
        """
        poll = Poll(
            cache_id=self._mirror.cache_id, position=self.token(at), segments=at.of.tolist(), listener=self._mirror.listener, max_events=1
        )
        await self._connection.request(Message(poll=poll), timeout_ms=0)


class _SegmentStream:
    """Segments that are read together, from a place on."""

    def __init__(self, at: SegmentPositions, stream: Stream) -> None:
        self.at = at
        self._stream = stream
        self._place = b""
        self.next = asyncio.create_task(anext(stream, None))

    def take(self) -> SegmentsAnswer:
        """Return the answer that has come, and ask for the next one. Raises what `Source.answers` does."""
        item = self.next.result()
        if item is None:
            raise Stopping
        answer = item.message.stream_item.poll_answer
        found = taken_apart(answer, item.body)
        self._place = answer.position
        self.next = asyncio.create_task(anext(self._stream, None))
        return replace(found, still=frozenset(row.segment for row in answer.stalled))

    @property
    def reached(self) -> SegmentPositions:
        """The place behind what was taken."""
        if not self._place:
            return self.at
        found = token.decode(self._place).at
        assert isinstance(found, SegmentPositions), "a place in each of the segments was asked for"
        return found

    def end(self) -> None:
        """Read no more of it; what has come and was not taken comes again."""
        if not self.next.cancel() and not self.next.cancelled():
            self.next.exception()  # of a connection that has ended, which somebody else is told
        self._stream.stop()


def _rows(at: SegmentPositions, rows: Mask) -> SegmentPositions:
    return SegmentPositions(of=at.of[rows], ids=at.ids[rows], offsets=at.offsets[rows], epochs=at.epochs[rows])


def _together(places: Sequence[SegmentPositions]) -> SegmentPositions:
    """Return one place of the segments of several."""
    columns = [np.concatenate(column) for column in zip(*((at.of, at.ids, at.offsets, at.epochs) for at in places), strict=True)]
    of, ids, offsets, epochs = (column[columns[0].argsort()] for column in columns)
    return SegmentPositions(of=of, ids=ids, offsets=offsets, epochs=epochs)


def taken_apart(answer: PollAnswer, body: memoryview) -> SegmentsAnswer:
    """Return an answer's events as joined parts.

    Raises:
        CorruptData: its lengths contradict each other.
    """
    parts: list[Joined] = []
    at = 0
    for part in answer.parts:
        data = body[at : at + part.length]
        if len(data) != part.length:
            raise CorruptData(where="answer", why=f"a part of {part.length} bytes passes its end")
        at += part.length
        if part.form == Part.STATE:
            parts.append(_entries(data, part))
        elif part.form == Part.STORED:
            stored = columns_of_values(pack([part.segment], [bytes(data)]), after=0, until=ID_MAX)
            parts.append(join_events(stored))
        else:
            size = part.runs * RUN.itemsize
            parts.append(Joined(runs=np.frombuffer(data[:size], RUN), block=bytes(data[size:]), events=part.events))
    position = token.decode(answer.position) if answer.state else None
    return SegmentsAnswer(parts=[part for part in parts if part.events], upto=answer.last_id, nbytes=len(body), position=position)


def _entries(data: memoryview, part: Part) -> Joined:
    """Return entries as events of kind STATE, each a run of its own: its id is its version, and it has no offset."""
    found = read_state_part(data, entries=part.events, runs=part.runs)
    runs = np.zeros(part.events, RUN)
    runs["segment"] = found.segments.repeat(found.counts)
    runs["base"], runs["count"], runs["first_offset"] = found.versions, 1, -1
    return Joined(runs=runs, block=bytes(data[part.events * 8 + part.runs * RUN.itemsize :]), events=part.events)


def lifted(at: SegmentPositions, upto: int, *, of: Ints | None = None, is_filtered: bool) -> SegmentPositions:
    """Return a place with everything up to an id read in the segments `of`, by default in all.

    With a filter there may have been events that did not match.
    """
    ids: Ints = np.maximum(at.ids, upto if of is None else np.where(np.isin(at.of, of), upto, 0))
    offsets = np.where(ids > at.ids, OFFSET_UNKNOWN, at.offsets) if is_filtered else at.offsets
    return SegmentPositions(of=at.of, ids=ids, offsets=offsets, epochs=at.epochs)
