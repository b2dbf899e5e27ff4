"""One connection as code above sees it: ask and get futures or streams, be asked and get exchanges. The same at both ends."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from eventlog.errors import EventLogError, TimedOut, tellable
from eventlog.transport.exchange import Exchange
from eventlog.transport.link import Link
from eventlog.transport.reply import Reply, failure_of
from eventlog.transport.stream import Stream
from eventlog.transport.timeouts import Timeouts
from eventlog.wire.eventlog_pb2 import HelloAnswer, Message
from eventlog.wire.flow import REQUEST_WEIGHT_BYTES, ByteBudget
from eventlog.wire.reader import Reader
from eventlog.wire.session import Answer, Answered, CreditGiven, Ended, Event, Failed, Incoming, Item, Outgoing, ReaderEnded, Session

Dispatch = Callable[[Exchange], None]


class Receiver(Protocol):
    """Who is told of an answer at once, while it is being received: no future, no turn of the loop."""

    def answered(self, reply: Reply) -> None:
        """Take the answer."""
        ...

    def failed(self, error: EventLogError) -> None:
        """Take note that there is none."""
        ...


class _Arrival:
    """Who waits for what a stream brings."""

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
        self.state: dict[str, Any] = {}  # for whoever serves this peer
        self.on_open: Callable[[Connection], None] | None = None
        self.on_close: Callable[[Connection], None] | None = None
        self._dispatch = dispatch
        self._timeouts = Timeouts(session.outgoing)
        self._timer: asyncio.TimerHandle | None = None
        self._handlers: dict[type, Callable[[Any], None]] = {
            Answered: self._on_answered,
            Item: self._on_item,
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
        if timeout_ms:
            self._limit(outgoing, timeout_ms)
        return future

    def post(self, receiver: Receiver, message: Message, *buffers: object) -> None:
        """Ask, and have `receiver` told, once. Raises as `send`."""
        if self.is_closed:
            raise self.lost()
        _, frame = self.session.ask(message, buffers, token=receiver)
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

    def _limit(self, outgoing: Outgoing, timeout_ms: int) -> None:
        self._timeouts.compact(len(self.session.outgoing))
        now = self._loop.time()
        if self._timeouts.add(outgoing.opaque, int(now * 1000) + timeout_ms):
            self._start_timer()

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

    def handle(self, event: Event) -> None:
        if type(event) is Incoming:
            self._on_incoming(event)
        else:
            self._handlers[type(event)](event)

    def _on_incoming(self, incoming: Incoming) -> None:
        self.budget.used += incoming.size + REQUEST_WEIGHT_BYTES
        exchange = incoming.token = Exchange(self, incoming)
        try:
            self._dispatch(exchange)
        except EventLogError as error:
            exchange.fail(error)
        except Exception as error:  # the edge of the shell: a bug in one handler must not cost the connection
            log.exception("dispatch_failed kind=%s peer=%s", exchange.kind, self.peer)
            if not exchange.is_over:
                exchange.fail(tellable(error))

    def _on_answered(self, event: Answered) -> None:
        token, reply = event.outgoing.token, Reply(event.message, event.body, event.size)
        if not isinstance(token, asyncio.Future):
            token.answered(reply)
            return
        if event.outgoing.kind == "hello":
            self.on_welcomed(event.message)
        if not token.done():
            token.set_result(reply)

    def _on_item(self, event: Item) -> None:
        event.outgoing.token.deliver(Reply(event.message, event.body, event.size))

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
            _fail(asked, error)
            if isinstance(asked.token, Stream):
                asked.token.ended()
        for request in incoming:
            exchange, request.token = request.token, None
            if exchange is not None:
                exchange.wake(has_ended=True)
        if self.on_close is not None:
            self.on_close(self)


def _fail(outgoing: Outgoing, error: EventLogError) -> None:
    own = failure_of(outgoing.kind, error)
    if not isinstance(outgoing.token, asyncio.Future):
        outgoing.token.failed(own)
    elif not outgoing.token.done():
        outgoing.token.set_exception(own)
        outgoing.token.exception()  # whoever dropped the future does not want to hear of it
