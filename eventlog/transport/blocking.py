"""A wire session on a blocking socket, for one question at a time: without an event loop, which takes longer to load than to ask.

The coroutines here never suspend: they wait where they stand. So whatever is written for a `connection.Connection` runs on a
`BlockingConnection` too, driven by `finished`. Bytes are taken in only while somebody waits; nothing is answered meanwhile.
"""

import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from math import inf
from threading import Thread
from time import monotonic
from typing import Any, TypeVar

from eventlog.errors import ConnectionLost, EventLogError, PeerViolation, TimedOut
from eventlog.limits import KIB
from eventlog.transport.greeting import (
    ASK_MS_MAX,
    LOOK_EVERY_MS,
    NOT_REACHED,
    GreetingOptions,
    hello_of,
    silent_looks_max,
    telling,
    unreached,
)
from eventlog.transport.stream import Stream, end_of, failure_of
from eventlog.wire.eventlog_pb2 import HelloAnswer, Message, Ping
from eventlog.wire.flow import Arena
from eventlog.wire.frames import Buffers
from eventlog.wire.reader import Reader
from eventlog.wire.session import ConnectionStage, Ended, Event, Failed, Incoming, Reply, Session, StreamItem

JOINED_BYTES_MAX = 256 * KIB  # what is sent as one buffer; above, large buffers go as they are
WAIT_S_MIN = 0.001  # 0 would have the socket not wait at all

Dispatch = Callable[[Incoming], Message]
T = TypeVar("T")


def finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waits for an event loop")


class BlockingConnection:
    """An open connection, made by `connect`. One thread's."""

    def __init__(self, link: socket.socket, session: Session, *, address: str, dispatch: Dispatch) -> None:
        self.session = session
        self.peer = address
        self.hello = HelloAnswer()
        self.is_closed = False
        self._link = link
        self._reader = Reader(frame_bytes_max=session.frame_bytes_in_max, arena=_Heap())
        self._dispatch = dispatch
        self._ended_by: EventLogError | None = None
        self._heard_at = 0.0  # or when something was sent after that
        self._has_pinged = False  # since then

    @property
    def producer_id(self) -> int:
        """The producer that the node gave, 0 if none was asked for."""
        return self.hello.producer_id

    # ------------------------------------------------------------ asking

    def greet(self, options: GreetingOptions, *, deadline: float) -> None:
        """Say Hello, and take the answer. Raises TimeoutError, and what the peer says or does wrong."""
        self.hello = self._asked(hello_of(options), (), deadline=deadline).message.hello_answer

    async def request(self, message: Message, *buffers: object, timeout_ms: int = 0) -> Reply:
        """Ask, and wait for the answer. `timeout_ms` goes to the peer and, unless 0, ends the waiting here.

        Raises:
            TimedOut, ConnectionLost: no answer; `outcome` says whether one may be due.
            EventLogError: the peer's refusal, or why nothing was sent.
        """
        if self.is_closed:
            raise self.lost()
        deadline = monotonic() + timeout_ms / 1000 if timeout_ms else inf
        try:
            return self._asked(message, buffers, deadline=deadline, timeout_ms=timeout_ms)
        except TimeoutError:
            kind = message.WhichOneof("kind") or ""
            raise failure_of(kind, TimedOut(what=kind, timeout_ms=timeout_ms)) from None

    def _asked(self, message: Message, buffers: tuple[object, ...], *, deadline: float, timeout_ms: int = 0) -> Reply:
        asked = _OpenRequest()
        outgoing, frame = self.session.ask(message, buffers, token=asked, timeout_ms=timeout_ms)
        self._send(frame, deadline)
        try:
            while asked.reply is None and asked.error is None:
                self._take(deadline)
        except EventLogError as error:
            raise failure_of(outgoing.kind, end_of(outgoing.kind, error, peer=self.peer)) from error
        if asked.reply is None:
            assert asked.error is not None, "one of the two ended the loop"
            raise failure_of(outgoing.kind, asked.error)
        return asked.reply

    def stream(self, message: Message, *buffers: object, credit_bytes: int = 0) -> Stream:
        """Open a stream. The peer may be `credit_bytes` ahead of what was taken from it; 0 stands for the default."""
        if self.is_closed:
            raise self.lost()
        credit_bytes = credit_bytes or self.session.options.credit_bytes
        getattr(message, message.WhichOneof("kind") or "").credit = credit_bytes
        stream = Stream(self, credit_bytes, self)
        outgoing, frame = self.session.ask(message, buffers, token=stream)
        stream.opened(outgoing)
        self._send(frame, inf)
        return stream

    async def wait(self) -> None:
        """Take in what comes next, for a stream."""
        try:
            self._take(inf)
        except EventLogError as error:
            raise end_of("", error, peer=self.peer) from error

    def wake(self) -> None:
        """Nothing waits but what has taken it in."""

    # ------------------------------------------------------------ receiving

    def _take(self, deadline: float) -> None:
        """Act on what arrives next; on silence ask whether the peer lives.

        Raises:
            TimeoutError: nothing came until `deadline`.
            EventLogError: what ended the connection.
        """
        if self._ended_by is not None:
            raise self._ended_by
        suspect_at = self._suspect_at()
        if not self._receive(min(deadline, suspect_at)):
            if monotonic() >= deadline:
                raise TimeoutError
            if monotonic() >= suspect_at:
                self._demand_life()
            return
        self._heard_at, self._has_pinged = monotonic(), False
        try:
            while (frame := self._reader.next_frame()) is not None and not self.is_closed:
                event = self.session.receive(*frame)
                for answer in self.session.take_outgoing():
                    self.write(answer)
                if event is not None:
                    self._handle(event)
        except PeerViolation as error:
            self._ended_by = error  # even if the peer is not there any more to be told
            self.write(self.session.farewell(error))
            self._end(error)
        self._reader.keep()

    def _receive(self, until: float) -> bool:
        """Wait for bytes until then; return whether there are any, or the connection is lost."""
        self._link.settimeout(max(until - monotonic(), WAIT_S_MIN) if until < inf else None)
        try:
            size = self._link.recv_into(self._reader.get_buffer())
        except TimeoutError:
            return False
        except OSError as error:
            self._lose(str(error))
            return True
        if not size:
            self._lose("the peer closed it")
        self._reader.received(size)
        return True

    def _suspect_at(self) -> float:
        """Return when the peer has been silent for too long."""
        if self.session.stage is not ConnectionStage.OPEN:
            return inf
        looks = silent_looks_max(asked.kind for asked in self.session.outgoing.values())
        return self._heard_at + (ASK_MS_MAX if self._has_pinged else looks * LOOK_EVERY_MS) / 1000

    def _demand_life(self) -> None:
        if self._has_pinged:
            self._lose("it has fallen silent")
            return
        _, frame = self.session.ask(Message(ping=Ping()), token=_OpenRequest())
        self._send(frame, inf)
        self._has_pinged = True

    def _handle(self, event: Event) -> None:
        if isinstance(event, StreamItem):
            event.outgoing.token.deliver(event)
        elif isinstance(event, Reply):
            self._reader.frame_bytes_max = self.session.frame_bytes_in_max  # which the answer to Hello has changed
            asked, event.outgoing.token = event.outgoing.token, None  # no cycle for the collector to find
            asked.reply = event
        elif isinstance(event, Ended):
            event.outgoing.token.ended()
        elif isinstance(event, Incoming):
            self._answer(event)
        elif isinstance(event, Failed):
            if event.outgoing is None:
                self._end(event.error)
            else:
                event.outgoing.token.failed(event.error)

    def _answer(self, incoming: Incoming) -> None:
        try:
            frame = self.session.answer(incoming, self._dispatch(incoming))
        except EventLogError as error:
            frame = [self.session.fail(incoming, error)]
        with suppress(EventLogError):  # the next taker hears of it
            self._send(frame, inf)

    # ------------------------------------------------------------ sending

    def write(self, frame: bytes) -> None:
        """Have one frame leave. That the connection is lost, the next taker hears."""
        if not self.is_closed:
            with suppress(EventLogError):
                self._send([frame], inf)

    def _send(self, frame: Buffers, deadline: float) -> None:
        """Have a frame leave whole. What is left of one that did not ends the connection: nobody reads on behind it.

        Raises:
            TimedOut, ConnectionLost: it has not, and so nothing was done.
        """
        size = sum(map(len, frame))
        began_at = monotonic()
        for buffer in frame if size > JOINED_BYTES_MAX else [b"".join(frame)]:
            left = memoryview(buffer)
            while left:
                patience_s = (LOOK_EVERY_MS + ASK_MS_MAX) / 1000
                try:
                    self._link.settimeout(max(min(deadline - monotonic(), patience_s), WAIT_S_MIN))
                    left = left[self._link.send(left) :]
                except TimeoutError:
                    is_late = monotonic() >= deadline
                    lost = self._lose("it takes nothing of what is sent")
                    if is_late:
                        raise TimedOut(what="a request", timeout_ms=round(1000 * (deadline - began_at))) from None
                    raise lost from None
                except OSError as error:
                    raise self._lose(str(error)) from error
        self._heard_at, self._has_pinged = monotonic(), False

    # ------------------------------------------------------------ the end

    def lost(self) -> ConnectionLost:
        """Return the error for a caller that still wants something of a connection that is closed."""
        error = self._ended_by
        return ConnectionLost(address=self.peer, why=error.why if isinstance(error, ConnectionLost) else str(error or "it is not open"))

    def close(self) -> None:
        """Close at once. All that was sent has left."""
        self._lose("it was closed here")

    def _lose(self, why: str) -> ConnectionLost:
        error = ConnectionLost(address=self.peer, why=why)
        self._end(error)
        return error

    def _end(self, error: EventLogError) -> None:
        if not self.is_closed:
            self.is_closed, self._ended_by = True, self._ended_by or error
            self.session.close()
            self._reader.close()
            self._link.close()


class _OpenRequest:
    """A request that waits for its answer."""

    __slots__ = ("error", "reply")

    def __init__(self) -> None:
        self.reply: Reply | None = None
        self.error: EventLogError | None = None

    def failed(self, error: EventLogError) -> None:
        self.error = error


class _Heap(Arena):
    """Large frames in memory from the heap: what zeroing costs is little beside numpy, of which one process sees few."""

    __slots__ = ()

    def reserve(self, size: int) -> memoryview:
        return memoryview(bytearray(size))


# ---------------------------------------------------------------- opening


def connect(host: str, port: int, *, options: GreetingOptions, dispatch: Dispatch) -> BlockingConnection:
    """Return an open connection that has been greeted. `dispatch` returns the answer to what the peer asks, or raises a refusal.

    Raises as `eventlog.transport.connect.connect`. There is no TLS here.
    """
    deadline = monotonic() + options.connect_timeout_ms / 1000
    address = f"{host}:{port}"
    try:
        link = _reached(host, port, deadline)
        connection = BlockingConnection(link, Session("client", options.session), address=address, dispatch=dispatch)
        try:
            connection.greet(options, deadline=deadline)
        except BaseException:
            connection.close()
            raise
    except NOT_REACHED as error:
        raise unreached(error, address=address, timeout_ms=options.connect_timeout_ms) from error
    return connection


def _reached(host: str, port: int, deadline: float) -> socket.socket:
    """Return a socket at the first address of a name that takes one; none may use up the time of those after it.

    Raises:
        OSError: no address takes one. A TimeoutError, if one of them said nothing at all.
    """
    found = list(dict.fromkeys(_looked_up(host, port, deadline)))
    errors: list[OSError] = []
    for index, (family, address) in enumerate(found):
        link = socket.socket(family, socket.SOCK_STREAM)
        try:
            link.settimeout(max((deadline - monotonic()) / (len(found) - index), WAIT_S_MIN))
            link.connect(address)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            link.close()
            errors.append(error)
        except BaseException:
            link.close()
            raise
        else:
            return link
    raise telling(errors)


def _looked_up(host: str, port: int, deadline: float) -> list[tuple[socket.AddressFamily, Any]]:
    """Return the addresses of a name. A name service may say nothing for longer than `deadline`, and Ctrl-C does not end a look-up."""
    with suppress(socket.gaierror):
        return _addresses(host.encode(), port, socket.AI_NUMERICHOST)  # as bytes: text takes the codec of names, which takes long to load
    found: list[Any] = []

    def look_up() -> None:
        try:
            found.append(_addresses(host, port))
        except (OSError, UnicodeError) as error:
            found.append(error)

    thread = Thread(target=look_up, name="eventlog name look-up", daemon=True)
    thread.start()
    thread.join(max(deadline - monotonic(), 0))
    if not found:
        raise TimeoutError
    if isinstance(found[0], Exception):
        raise found[0]
    addresses: list[tuple[socket.AddressFamily, Any]] = found[0]
    return addresses


def _addresses(host: str | bytes, port: int, flags: int = 0) -> list[tuple[socket.AddressFamily, Any]]:
    return [(family, address) for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)]
