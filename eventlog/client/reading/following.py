"""Answers to a reader, one after the other: streamed by credits, asked for again after a lost connection."""

import asyncio
import logging
import math
import random
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from eventlog.client.connections.requests import Patience, Requests, Roads
from eventlog.client.handle import Core
from eventlog.client.options import ClientOptions
from eventlog.client.reading.batches import EventBatch, Order
from eventlog.client.reading.columns import arrow_module
from eventlog.client.reading.pieces import NO_EVENTS, arrange, take_apart
from eventlog.client.reading.wanted import Reading
from eventlog.client.reports import LogEnds, Stalled, log_ends, stalled
from eventlog.errors import EventLogError, Stopping, TimedOut, Unavailable
from eventlog.events import Event, EventSource
from eventlog.routing.retry import NEEDS_CONNECTION
from eventlog.routing.routes import NOBODY
from eventlog.wire.eventlog_pb2 import GetTopology, Message, PollAnswer, Watch
from eventlog.wire.eventlog_pb2 import LogEnds as LogEndsMessage
from eventlog.wire.session import Reply

log = logging.getLogger("eventlog.client")
LISTENER_POLL_WAIT_MS = 30_000
_ENDS_AGAIN_S = 0.05  # the node itself has waited by then
EVENTS_BEFORE_ARROW = 200_000  # a read this long is worth loading pyarrow for: its objects then cost half

Answers = AsyncGenerator[tuple[PollAnswer, memoryview], None]
Unpack = Callable[[PollAnswer, memoryview], list[EventBatch]]


class ReadingCore(Core, Protocol):
    """What the caches of a client share that reads events."""

    follower: "Follower"

    @property
    def cluster(self) -> str:
        """The id of the cluster that answered."""
        ...

    @property
    def addresses(self) -> Mapping[int, str]:
        """Where nodes listen, by their numbers."""
        ...


class Follower:
    """Reads one cache's events. Every iterator resumes after the last answer that it has handed on whole."""

    def __init__(self, nodes: Roads[Any], requests: Requests, options: ClientOptions) -> None:
        self._nodes = nodes
        self._requests = requests
        self._options = options

    async def ends(self, cache_id: int, reading: Reading, *, whole: bool) -> LogEnds:
        """Return where a log begins and ends; with `whole`, once everything that was committed before the call is below its end.

        Raises:
            Unavailable: nobody has come to lead a segment in time, or a reading does not wait for one that stands still.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._options.timeout_ms / 1000
        held: Stalled | None = None
        while True:
            ends = log_ends((await self._requests.ask(Message(log_ends=LogEndsMessage(cache_id=cache_id)))).message.log_ends_answer)
            reading.check_stalled(ends.stalled)
            if not (whole and ends.is_behind):
                return ends
            held = say_held(ends.stalled, before=held)
            if loop.time() >= give_up_at:
                raise Unavailable(why=str(held or "a segment that nobody leads may have more events than can be read"))
            await asyncio.sleep(_ENDS_AGAIN_S)

    async def batches(
        self,
        reading: Reading,
        source: EventSource,
        *,
        follow: bool,
        order: Order = "id",
        poll_interval_ms: int | None = None,
        unpack: "Unpack | None" = None,
    ) -> AsyncGenerator[EventBatch, None]:
        """Yield batches; their events follow each other in the order of ids, and stand in it unless `order` is `segment`.

        `unpack` makes the batches of an answer, where it may have more than events in it.
        """
        answers = self._watch(reading, source.cache_id, follow=follow)
        if follow and poll_interval_ms is not None:
            answers = self._poll(reading, source.cache_id, interval_ms=poll_interval_ms)
        elif reading.listener:
            answers = self._poll(reading, source.cache_id, wait_ms=LISTENER_POLL_WAIT_MS if follow else 0)
        held: Stalled | None = None
        chooses = reading.filter is not None or bool(reading.listener)
        async with aclosing(answers):
            async for answer, body in answers:
                found = stalled(answer)
                reading.check_stalled(found)
                held = say_held(found, before=held)
                batches = unpack(answer, body) if unpack is not None else to_batches(answer, body, source, order=order)
                for batch in batches:
                    yield batch
                if not batches and chooses and not answer.state:  # nothing matched up to here: the place is news
                    yield EventBatch(NO_EVENTS, source, last_id=answer.last_id)

    async def events(self, batches: AsyncGenerator[EventBatch, None]) -> AsyncGenerator[Event, None]:
        """Yield the events of batches as objects."""
        seen = 0
        async with aclosing(batches):
            async for batch in batches:
                for event in batch.events():
                    yield event
                seen += len(batch)
                if seen > EVENTS_BEFORE_ARROW and "pyarrow" not in sys.modules:
                    await asyncio.to_thread(arrow_module)

    async def _watch(self, reading: Reading, cache_id: int, *, follow: bool) -> Answers:
        patience = self._patience()
        loop, stands_s = asyncio.get_running_loop(), self._options.retry.backoff_ms_max / 1000
        while True:
            began = math.inf
            try:
                connection = await patience.connection(await self._node_for(reading), is_long=True)
                began = loop.time()
                watch = Message(watch=Watch(poll=reading.poll(cache_id), follow=follow))
                stream = connection.stream(watch, credit_bytes=self._options.read_ahead_bytes)
                try:
                    async for item in stream:
                        answer = _answer_of(item)
                        yield answer, item.body
                        if reading.is_done(answer):
                            return
                        reading = reading.after_answer(answer)
                        patience.has_progress()
                finally:
                    stream.stop()
                if not follow:
                    return
                raise Stopping  # a node ends what follows only when it goes away
            except EventLogError as error:
                if isinstance(error, NEEDS_CONNECTION) and loop.time() - began > stands_s:
                    patience.has_progress()  # a reader to which nothing happened was not looking for a node meanwhile
                await patience.wait_after(error)

    def _patience(self) -> Patience[Any]:
        """Return how long a reader goes on: longer than one request may take, which the network has swallowed perhaps."""
        return Patience(self._nodes, self._options, timeout_ms=self._options.reconnect_ms_max, outlasts=(TimedOut,))

    async def _node_for(self, reading: Reading) -> int:
        """Return a node that has all segments of a read: it answers what it has itself, and any other one would ask it."""
        if reading.read_from == "owner":
            routes = self._nodes.routes
            primaries = set() if routes is None else {routes.primary(segment) for segment in reading.segments}
            return primaries.pop() if len(primaries) == 1 else NOBODY
        answer = (await self._requests.ask(Message(get_topology=GetTopology(copies=True)))).message.topology_answer
        copies = [set(one.nodes) for segment, one in enumerate(answer.copies) if not reading.segments or segment in reading.segments]
        having = set.intersection(*copies) if copies else set()
        return random.choice(sorted(having)) if having else NOBODY  # noqa: S311 -- to share the load, and not a secret

    async def _poll(self, reading: Reading, cache_id: int, *, interval_ms: int = 0, wait_ms: int = 0) -> Answers:
        held_percent = 0
        patience = self._patience()
        while True:
            request = reading.poll(cache_id)
            request.wait_ms = wait_ms
            try:
                await patience.connection()
                reply = await self._requests.ask(Message(poll=request), wait_ms=wait_ms)
            except EventLogError as error:
                await patience.wait_after(error)
                continue
            patience.has_progress()
            answer = reply.message.poll_answer
            if answer.held_percent > held_percent:
                log.warning("listener_falls_behind listener=%s held_percent=%d", reading.listener, answer.held_percent)
            held_percent = answer.held_percent
            yield answer, reply.body
            if reading.is_done(answer):
                return
            reading = reading.after_answer(answer)
            if answer.end and interval_ms:
                await asyncio.sleep(interval_ms / 1000)


def say_held(found: Sequence[Stalled], *, before: Stalled | None = None) -> Stalled | None:
    """Say which segment holds a reader, unless it is the same one as `before`; return it."""
    held = found[0] if found else None
    if held is not None and (before is None or held.segment != before.segment):
        log.warning("%s; what comes next waits for it", held)
    return held


def _answer_of(item: Reply) -> PollAnswer:
    return item.message.stream_item.poll_answer


def to_batches(answer: PollAnswer, body: memoryview, source: EventSource, *, order: Order = "id") -> list[EventBatch]:
    """Return the events of an answer. Only the last batch carries the position on past them."""
    pieces = arrange(take_apart(answer, body, cache_id=source.cache_id))
    last_ids = [piece.last_id for piece in pieces[:-1]] + [answer.last_id]
    return [EventBatch(piece, source, last_id=last_id, order=order) for piece, last_id in zip(pieces, last_ids, strict=False)]
