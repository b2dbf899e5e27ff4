"""One connection as code above sees it: ask and get futures or streams, be asked and get exchanges. The same at both ends."""

import asyncio
import logging
from collections.abc import Callable, Collection
from heapq import heapify, heappop, heappush
from typing import Any, Final

from eventlog.errors import ClientClosed, EventLogError, TimedOut, tellable
from eventlog.transport.link import Link
from eventlog.transport.stream import Stream, end_of, failure_of
from eventlog.wire.eventlog_pb2 import HelloAnswer, Message
from eventlog.wire.flow import REQUEST_WEIGHT_BYTES, ByteBudget
from eventlog.wire.reader import Reader
from eventlog.wire.session import (
    Answer,
    CreditGiven,
    Ended,
    Failed,
    Incoming,
    Outgoing,
    Phase,
    ReaderEnded,
    Reply,
    Session,
    StreamItem,
    payload_bytes,
)

Dispatch = Callable[["Exchange"], None]
Told = Callable[[Reply | EventLogError], None]
"""Is told of an answer, or why there is none, while that is being received: no future, no turn of the loop."""


class _Arrival:
    """What waits for what a stream brings."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


log = logging.getLogger(__name__)


class Connection(Link):
    """An open connection. Made by `connect`, or by a `Server` for each peer."""

    def __init__(self, session: Session, reader: Reader, budget: ByteBudget, *, dispatch: Dispatch) -> None:
        super().__init__(session, reader, budget)
        self.hello = HelloAnswer()  # as answered, once the connection is open
        self.producer_id = 0
        self.is_inside = False  # both ends are of one process: it closes with that, and says nothing about nodes that are asked for over it
        self.state: dict[str, Any] = {}  # for what serves this peer
        self.on_open: Callable[[Connection], None] | None = None
        self.on_close: Callable[[Connection], None] | None = None
        self.dispatch = dispatch  # what a request of the peer is given to
        self._timeouts = Timeouts(session.outgoing)
        self._timer: asyncio.TimerHandle | None = None
        self._handlers = {
            Incoming: self._on_incoming,
            Reply: self._on_answered,
            StreamItem: self._on_item,
            Failed: self._on_failed,
            Ended: self._on_ended,
            CreditGiven: self._on_credit,
            ReaderEnded: self._on_reader_ended,
        }

    # ------------------------------------------------------------ asking

    def send(self, message: Message, *buffers: object, timeout_ms: int = 0) -> asyncio.Future[Reply]:
        """Ask, and return the future of the answer; no task is made. `buffers` are the body; they must not change any more.

        `timeout_ms` goes to the peer and, unless 0, ends the waiting here with TimedOut. Cancelling the future ends the waiting
        alone: the request stays in flight, and counts, until the peer answers it. An Error becomes its exception.

        Raises:
            ConnectionLost: the connection is closed. Nothing was sent.
            Overloaded: as many requests as allowed are in flight. Nothing was sent.
            TooLarge: the frame is above what the peer takes. Nothing was sent.
        """
        if self.is_closed:
            raise self.lost()
        future: asyncio.Future[Reply] = self._loop.create_future()
        outgoing, frame = self.session.ask(message, buffers, token=future, timeout_ms=timeout_ms)
        self.write_frame(frame)
        if timeout_ms and self._timeouts.add(outgoing.opaque, int(self._loop.time() * 1000) + timeout_ms):
            self._start_timer()
        return future

    def post(self, told: Told, message: Message, *buffers: object) -> None:
        """Ask, and have `told` called once. Raises as `send`."""
        if self.is_closed:
            raise self.lost()
        _, frame = self.session.ask(message, buffers, token=told)
        self.write_frame(frame)

    async def request(self, message: Message, *buffers: object, timeout_ms: int = 0) -> Reply:
        """Ask when the socket takes more, and wait for the answer. Raises as `send` and the peer do; `timeout_ms` counts for both waits."""
        if not self.has_room:
            timeout_ms = await self._room_within(timeout_ms, what=message.WhichOneof("kind") or "")
        return await self.send(message, *buffers, timeout_ms=timeout_ms)

    async def _room_within(self, timeout_ms: int, *, what: str) -> int:
        """Wait until there is room, and return what is left of the time (0: no end). Raises TimedOut, ConnectionLost."""
        end = self._loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(end if timeout_ms else None):
                await self.room()
        except TimeoutError:
            raise TimedOut(what=what, timeout_ms=timeout_ms) from None
        return max(round(1000 * (end - self._loop.time())), 1) if timeout_ms else 0

    def stream(self, message: Message, *buffers: object, credit_bytes: int = 0) -> Stream:
        """Open a stream. The peer may be `credit_bytes` ahead of what was taken from it; 0 stands for the default."""
        if self.is_closed:
            raise self.lost()
        credit_bytes = credit_bytes or self.session.options.credit_bytes
        kind = message.WhichOneof("kind")
        getattr(message, kind or "").credit = credit_bytes
        stream = Stream(self, credit_bytes, _Arrival())
        outgoing, frame = self.session.ask(message, buffers, token=stream)
        stream.opened(outgoing)
        self.write_frame(frame)
        return stream

    def _start_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        earliest = self._timeouts.earliest_ms()
        self._timer = None if earliest is None else self._loop.call_at((earliest + 1) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        now_ms = int(self._loop.time() * 1000)
        self._timeouts.expire(now_ms, self._expire)
        self._start_timer()

    def _expire(self, opaque: int) -> None:
        outgoing = self.session.outgoing[opaque]
        _fail(outgoing, TimedOut(what=outgoing.kind, timeout_ms=outgoing.timeout_ms))

    # ------------------------------------------------------------ events of the session

    def _on_incoming(self, incoming: Incoming) -> None:
        self.budget.used += incoming.size + REQUEST_WEIGHT_BYTES
        exchange = incoming.token = Exchange(self, incoming)
        try:
            self.dispatch(exchange)
        except EventLogError as error:
            exchange.fail(error)
        except Exception as error:  # the edge of the shell: a bug in one handler must not cost the connection
            log.exception("dispatch_failed kind=%s peer=%s", exchange.kind, self.peer)
            if not exchange.is_over:
                exchange.fail(tellable(error))

    def _on_answered(self, reply: Reply) -> None:
        outgoing = reply.outgoing
        token, outgoing.token = outgoing.token, None  # no cycle for the collector to find
        if not isinstance(token, asyncio.Future):
            token(reply)
            return
        if outgoing.kind == "hello":
            self.on_welcomed(reply.message)
        if not token.done():
            token.set_result(reply)

    def _on_item(self, item: StreamItem) -> None:
        item.outgoing.token.deliver(item)

    def _on_failed(self, event: Failed) -> None:
        if event.outgoing is None:
            self._end(event.error)
        else:
            _fail(event.outgoing, event.error)

    def _on_ended(self, event: Ended) -> None:
        event.outgoing.token.ended()

    def _on_credit(self, event: CreditGiven) -> None:
        event.incoming.token.wake()

    def _on_reader_ended(self, event: ReaderEnded) -> None:
        event.incoming.token.wake(has_ended=True)

    def on_welcomed(self, message: Answer) -> None:
        """Take note that the handshake is over."""
        assert isinstance(message, Message), "the session has checked it"
        self.hello = message.hello_answer
        self.producer_id = self.hello.producer_id
        self.reader.frame_bytes_max = self.session.frame_bytes_in_max

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.on_open is not None:
            self.on_open(self)

    @property
    def is_busy(self) -> bool:
        """Whether answers are due or on their way."""
        return bool(self.session.incoming) or self.unsent_bytes > 0

    def refuse_streams(self, error: EventLogError) -> None:
        """End every stream that the peer reads."""
        for incoming in list(self.session.incoming.values()):
            exchange = incoming.token
            if incoming.credit is not None and exchange is not None:
                exchange.cut(error)

    def on_lost(self, error: EventLogError, outgoing: list[Outgoing], incoming: list[Incoming]) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for asked in outgoing:
            _fail(asked, end_of(asked.kind, error, peer=self.peer))
            if isinstance(asked.token, Stream):
                asked.token.ended()
        for request in incoming:
            exchange, request.token = request.token, None
            if exchange is not None:
                exchange.wake(has_ended=True)
        if self.on_close is not None:
            self.on_close(self)


def _fail(outgoing: Outgoing, error: EventLogError) -> None:
    own, token = failure_of(outgoing.kind, error), outgoing.token
    if isinstance(token, Stream):
        token.failed(own)
    elif not isinstance(token, asyncio.Future):
        token(own)
    elif not token.done():
        token.set_exception(own)
        token.exception()  # a caller that dropped the future does not want to hear of it


class Exchange:
    """One request of a peer, to be answered once.

    That is `answer` or `fail`; of a stream, `stream_send` as often as `credit` allows and then `stream_end` or `fail`. Once the
    connection is gone all of these do nothing.

    `on_end`, if set, is called once when nobody waits for more: the reader of the stream ended it, or the connection is gone.
    """

    __slots__ = ("_incoming", "_is_cut", "_waiter", "body", "connection", "kind", "message", "on_end")

    def __init__(self, connection: "Connection", incoming: Incoming) -> None:
        self.connection = connection
        self.kind = incoming.kind
        self.message: Message = incoming.message
        self.body = incoming.body
        self.on_end: Callable[[], None] | None = None
        self._incoming = incoming
        self._is_cut = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def request(self) -> Any:
        """The message of this kind inside `message`."""
        return getattr(self.message, self.kind)

    @property
    def is_over(self) -> bool:
        """Whether no answer is due any more, or could be delivered."""
        return self._incoming.phase is Phase.OVER

    @property
    def is_stream(self) -> bool:
        """Whether the request opened a stream."""
        return self._incoming.credit is not None

    @property
    def is_ending(self) -> bool:
        """Whether the reader of the stream wants no more."""
        return self._incoming.phase is Phase.ENDING

    @property
    def has_room(self) -> bool:
        """Whether an answer made now leaves soon. If not, and it is large, make it later: see `room`."""
        return self.connection.has_room

    async def room(self) -> None:
        """Wait until `has_room`. Raises ConnectionLost."""
        await self.connection.room()

    def answer(self, message: Answer, *buffers: object) -> None:
        """Answer a request that opened no stream. `buffers` are the body; they must not change any more.

        Raises:
            TooLarge: the frame would be; the request is still unanswered.
        """
        connection, incoming = self.connection, self._incoming
        if connection.is_closed:
            return
        connection.write_frame(connection.session.answer(incoming, message, buffers))
        incoming.token = None  # no cycle for the collector to find
        connection.release(incoming.size + REQUEST_WEIGHT_BYTES)
        if incoming.kind == "hello":
            connection.on_welcomed(message)

    def fail(self, error: EventLogError) -> None:
        """Refuse the request; a stream is ended with it."""
        if self.connection.is_closed or self._is_cut:
            return
        frame = self.connection.session.fail(self._incoming, error)
        self.connection.write(frame)
        self._release()

    async def credit(self) -> None:
        """Wait until the reader takes a further item.

        Raises:
            ClientClosed: the reader ended the stream, or we are stopping. `stream_end` is still due, and harmless if not.
            ConnectionLost: the connection is gone.
        """
        credit = self._incoming.credit
        assert credit is not None, "credit is a stream's"
        while True:
            if self.connection.is_closed:
                raise self.connection.lost()
            if self._incoming.phase is not Phase.STREAMING:
                raise ClientClosed(what="stream")
            if credit.balance <= 0:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
            elif not self.connection.has_room:
                await self.connection.room()
            else:
                return

    def stream_send(self, message: Answer, *buffers: object) -> int:
        """Send one item; return the bytes it took of the credit. Raises TooLarge."""
        if self.connection.is_closed or self._is_cut:
            return 0
        frame = self.connection.session.item(self._incoming, message, buffers)
        self.connection.write_frame(frame)
        return payload_bytes(frame)

    def stream_end(self) -> None:
        """End the stream."""
        if self.connection.is_closed or self._is_cut:
            return
        frame = self.connection.session.end(self._incoming)
        self.connection.write(frame)
        self._release()

    def cut(self, error: EventLogError) -> None:
        """Refuse the request on behalf of its handler, which may go on as if nothing had happened."""
        self.fail(error)
        self._is_cut = True
        self.wake(has_ended=True)

    def wake(self, *, has_ended: bool = False) -> None:
        """Called by the connection: there is credit again, or nobody waits for more."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if has_ended and self.on_end is not None:
            on_end, self.on_end = self.on_end, None
            on_end()

    def _release(self) -> None:
        self._incoming.token = None
        self.connection.release(self._incoming.size + REQUEST_WEIGHT_BYTES)


OPAQUE_BITS: Final = 32
DEAD_ENTRIES_MAX: Final = 1_024


class Timeouts:
    """Deadlines of opaques. Answered ones stay in the heap until their time, or until they are the larger part of it."""

    __slots__ = ("_heap", "_live")

    def __init__(self, live: Collection[int]) -> None:
        self._heap: list[int] = []  # deadline_ms << 32 | opaque: numbers compare faster than tuples
        self._live = live

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, opaque: int, deadline_ms: int) -> bool:
        """Note a deadline; True if it is now the earliest. Answered ones are dropped where they are most of the heap."""
        if len(self._heap) > 2 * len(self._live) + DEAD_ENTRIES_MAX:
            self._heap = [entry for entry in self._heap if entry & ((1 << OPAQUE_BITS) - 1) in self._live]
            heapify(self._heap)
        entry = deadline_ms << OPAQUE_BITS | opaque
        heappush(self._heap, entry)
        return self._heap[0] == entry

    def earliest_ms(self) -> int | None:
        """Return the earliest deadline that is left."""
        return self._heap[0] >> OPAQUE_BITS if self._heap else None

    def expire(self, now_ms: int, expired: Callable[[int], None]) -> None:
        """Call `expired(opaque)` for each that is live and due."""
        heap = self._heap
        while heap and heap[0] >> OPAQUE_BITS <= now_ms:
            entry = heappop(heap)
            opaque = entry & ((1 << OPAQUE_BITS) - 1)
            if opaque in self._live:
                expired(opaque)
