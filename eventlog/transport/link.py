"""One connection's bytes: in through a `Reader` to the session, out in one write a tick, and the pauses in between.

Reading pauses while requests unanswered and answers unsent are above the connection's budget, or above its share of a process that
is full. A peer that stops reading fills its own budget and no other.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, Final, cast

from eventlog.errors import ConnectionLost, EventLogError, PeerViolation
from eventlog.limits import KIB
from eventlog.wire.flow import ByteBudget
from eventlog.wire.frames import CODEC_BITS, Buffers
from eventlog.wire.reader import Reader
from eventlog.wire.session import Incoming, Outgoing, Session

JOINED_BYTES_MAX: Final = 256 * KIB  # what is written as one buffer; above, large buffers go as they are
SMALL_BUFFER_BYTES_MAX: Final = 16 * KIB
FRAMES_PER_TURN_MAX: Final = 512  # then other connections get their turn
WRITE_HIGH_BYTES: Final = 256 * KIB  # in the socket's queue; above, answers wait here and count
WRITE_LOW_BYTES: Final = 64 * KIB
KERNEL_UNSENT_BYTES: Final = 512 * KIB  # of a connection that was accepted: half an answer of the usual size
LINGER_MS_MAX: Final = 2_000  # for a peer to read what was sent before the end
UNSENT_LIMITS_MAX: Final = 4  # times the budget: a peer with that much unread is cut off

log = logging.getLogger(__name__)


class Link(asyncio.BufferedProtocol):
    """The asyncio side of a session. Subclasses act on its events and on its end."""

    def __init__(self, session: Session, reader: Reader, budget: ByteBudget) -> None:
        self.session = session
        self.peer = ""
        self.is_closed = True  # nothing goes out: not yet, or not any more
        self.is_reading = True
        self._queued_max = WRITE_HIGH_BYTES
        self.ends_turn = False  # set by a handler of what took long: the next frame is taken after others had their turn
        self.is_heard = False  # something came; the watch for idleness sets it back
        self.budget = budget
        self.reader = reader
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._out: Buffers = []
        self._out_bytes = 0
        self._flushed_bytes = 0
        self._charged = 0  # of answers: counted in the budget while the peer does not take them
        self._is_flush_due = False
        self._is_pumping = False
        self._is_pump_due = False
        self.is_congested = False  # the peer does not take what is sent
        self._room_waiters: list[asyncio.Future[None]] = []
        self._ended_by: EventLogError | None = None
        self.linger_ms_max = LINGER_MS_MAX
        self._linger: asyncio.TimerHandle | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._handlers: dict[type, Callable[[Any], None]] = {}  # what acts on each kind of event; a subclass fills it

    # ------------------------------------------------------------ what subclasses add

    def on_lost(self, error: EventLogError, outgoing: list[Outgoing], incoming: list[Incoming]) -> None:
        """Act on the end of the connection: what we asked and were asked is no more."""
        raise NotImplementedError

    # ------------------------------------------------------------ state

    @property
    def is_between_frames(self) -> bool:
        """Whether no part of a further frame has arrived."""
        return self.reader.is_between_frames

    @property
    def has_room(self) -> bool:
        """Whether what is sent now leaves soon: the socket has taken most of what was sent before."""
        return not self.is_congested and self._out_bytes <= JOINED_BYTES_MAX

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait for the peer to read."""
        queued = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return self._out_bytes + queued

    @property
    def taken_bytes(self) -> int:
        """Bytes that the socket has taken so far: they rise while its other end reads."""
        queued = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return self._flushed_bytes - queued

    async def room(self) -> None:
        """Wait until `has_room`. Raises ConnectionLost when the connection is."""
        while not self.has_room and not self.is_closed:
            if not self.is_congested:
                self.flush()
                continue
            waiter = self._loop.create_future()
            self._room_waiters.append(waiter)
            await waiter
        if self.is_closed:
            raise self.lost()

    @property
    def ended_by(self) -> EventLogError | None:
        """What ended the connection, in the words of the end that did."""
        return self._ended_by

    def lost(self) -> ConnectionLost:
        """Return the error for a caller that still wants something of a connection that is closed."""
        error = self._ended_by
        return ConnectionLost(address=self.peer, why=error.why if isinstance(error, ConnectionLost) else str(error or "it is not open"))

    def bound_unsent(self) -> None:
        """Queue little of what the peer does not read, here and in the kernel, which by itself keeps megabytes for each connection."""
        if self._transport is not None:
            self._limit_queue(self._transport, WRITE_LOW_BYTES)
        limit_kernel_queue(self._transport, KERNEL_UNSENT_BYTES)

    def _limit_queue(self, transport: asyncio.Transport, size: int) -> None:
        """Be told when more than `size` bytes are in the socket's queue, at once if they are."""
        self._queued_max = size
        transport.set_write_buffer_limits(high=size, low=size // 4)

    # ------------------------------------------------------------ asyncio's calls: receiving

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._limit_queue(self._transport, WRITE_HIGH_BYTES)
        self.peer = _name_of(transport)
        self.is_closed = False
        self.budget.open()
        _keep_alive(transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # asyncio's signature
        return self.reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if not self.is_closed:
            self.is_heard = True
            self.reader.received(nbytes)
            self._pump()

    def eof_received(self) -> bool:
        return False  # close: a peer that will not ask further does not wait for answers

    def _pump(self) -> None:
        """Pass on what has arrived, as far as budget and fairness allow."""
        self._is_pump_due = self.ends_turn = False
        if self.is_closed:
            return
        self._is_pumping = True
        try:
            is_done = self._take_frames()
        except PeerViolation as error:
            self.give_up(error)
            return
        finally:
            self._is_pumping = False
            self.reader.keep()
            self.budget.settle()
            if self._out:
                self.flush()
        if is_done is not self.is_reading:
            self._switch_reading(on=is_done)

    def _take_frames(self) -> bool:
        """Return whether everything whole was taken, so that more may be read."""
        reader, session, budget, handlers = self.reader, self.session, self.budget, self._handlers
        for _ in range(FRAMES_PER_TURN_MAX):
            if budget.is_full:
                budget.process.wait(self.pump_soon)
                return False
            frame = reader.next_frame()
            if frame is None:
                if reader.is_waiting:
                    reader.claims.wait(self.pump_soon)
                return not reader.is_waiting
            event = session.receive(*frame)
            if event is None:
                for answer in session.take_outgoing():
                    self.write(answer)
            else:
                handlers[type(event)](event)
            self.flush()
            if self.ends_turn or frame[0] & CODEC_BITS:
                break  # one a turn: compressed, half a kilobyte may take milliseconds to become all that a frame may hold
        self.pump_soon()
        return False

    def pump_soon(self) -> None:
        """Have the pump run again in the next tick."""
        if not self._is_pump_due and not self.is_closed:
            self._is_pump_due = True
            self._loop.call_soon(self._pump)

    def release(self, size: int) -> None:
        """Give `size` bytes back to the budget; go on reading if it was full."""
        if not self.is_closed:  # the end gave everything back
            self.budget.used -= size
            if self._is_pumping:
                return
            if not self._is_flush_due:  # else the process is told with the flush, which an answer has made due
                self.budget.settle()
            if not self.is_reading:
                self.pump_soon()

    def _switch_reading(self, *, on: bool) -> None:
        self.is_reading = on
        if self._transport is not None and not self._transport.is_closing():
            if on:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    # ------------------------------------------------------------ sending

    def write(self, frame: bytes) -> None:
        """Have one frame leave with everything else of this tick."""
        self.write_frame([frame])

    def write_frame(self, buffers: Buffers) -> None:
        """Have a frame leave, uncopied if it is large: its buffers must not change any more."""
        if self.is_closed:
            return
        self._out += buffers
        size = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        self._out_bytes += size
        if self.is_congested:
            self._charge(size)
        elif not self._is_flush_due and not self._is_pumping:
            self._is_flush_due = True
            self._loop.call_soon(self.flush)

    def _charge(self, size: int) -> None:
        self.budget.used += size
        self.budget.settle()
        self._charged += size
        if self._charged > UNSENT_LIMITS_MAX * self.budget.limit:
            log.warning("peer_cut_off peer=%s unsent_bytes=%d", self.peer, self._charged)
            self.abort()

    def flush(self) -> None:
        """Have what was sent leave now. While frames are taken in, only more than is written as one: they may bring what joins the rest."""
        if self._is_pumping and self._out_bytes <= JOINED_BYTES_MAX:
            return
        self._is_flush_due = False
        self.budget.settle()
        transport, was_congested = self._transport, self.is_congested  # which what is written here may change
        if not self._out or was_congested or transport is None:
            return
        out, size = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        self._flushed_bytes += size
        if size <= JOINED_BYTES_MAX:
            transport.write(b"".join(out) if len(out) > 1 else out[0])
        else:
            transport.writelines(_coalesce(out))
            if not self.is_congested and transport.get_write_buffer_size() > self._queued_max:
                self._limit_queue(transport, self._queued_max)  # asyncio's own forgets to look after `writelines` (CVE-2024-12254)
        if self.is_congested:
            self._charge(size)

    def pause_writing(self) -> None:
        self.is_congested = True

    def resume_writing(self) -> None:
        self.is_congested = False
        charged, self._charged = self._charged, 0
        self.flush()
        if not self.is_congested:
            self._wake_waiters()
        self.release(charged)

    def _wake_waiters(self) -> None:
        waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # ------------------------------------------------------------ the end

    def give_up(self, error: EventLogError) -> None:
        """Say why and close: after what is already sent, if the peer reads."""
        if not self.is_closed:
            self.write(self.session.farewell(error))
            self._end(error)

    def close(self) -> None:
        """Close after what is already sent. Requests in flight fail at once."""
        self._end(ConnectionLost(address=self.peer, why="it was closed here"))

    def abort(self) -> None:
        """Close at once; nothing more is sent."""
        self._finish(ConnectionLost(address=self.peer, why="it was cut off here"))
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the socket is gone."""
        await asyncio.shield(self._closed)

    def connection_lost(self, exc: Exception | None) -> None:
        why = "the peer closed it" if exc is None else str(exc) or type(exc).__name__
        self._finish(ConnectionLost(address=self.peer, why=why))
        self._transport = None
        self._out, self._out_bytes = [], 0
        if self._linger is not None:
            self._linger.cancel()
        if not self._closed.done():
            self._closed.set_result(None)

    def _end(self, error: EventLogError) -> None:
        transport = self._transport
        if self.is_closed or transport is None:
            return
        if self._out:
            transport.writelines(self._out)
            self._out, self._out_bytes = [], 0
        self._finish(error)
        transport.close()
        self._linger = self._loop.call_later(self.linger_ms_max / 1000, transport.abort)

    def _finish(self, error: EventLogError) -> None:
        """End the session, once: what follows is only the socket's."""
        if self.is_closed:
            return
        self._ended_by = error
        self.is_closed = True
        outgoing, incoming = self.session.close()
        self.reader.close()
        self._charged = 0
        self.budget.close()
        self._wake_waiters()
        try:
            self.on_lost(error, outgoing, incoming)
        except Exception:  # whatever those who are told make of it, the socket is closed
            log.exception("connection_end_failed peer=%s", self.peer)


def _coalesce(buffers: Buffers) -> Buffers:
    """Return the same bytes with neighbouring small buffers joined."""
    found: Buffers = []
    small: Buffers = []
    for buffer in buffers:
        if len(buffer) <= SMALL_BUFFER_BYTES_MAX:
            small.append(buffer)
            continue
        if small:
            found.append(b"".join(small))
            small = []
        found.append(buffer)
    if small:
        found.append(b"".join(small))
    return found


def limit_kernel_queue(transport: asyncio.BaseTransport | None, size: int) -> None:
    """Have the kernel keep about `size` bytes of what is not sent yet, where it can be told; by itself it keeps megabytes."""
    found: socket.socket | None = None if transport is None else transport.get_extra_info("socket")
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if found is not None and option is not None and found.family in (socket.AF_INET, socket.AF_INET6):
        found.setsockopt(socket.IPPROTO_TCP, option, size)


def _name_of(transport: asyncio.BaseTransport) -> str:
    name = transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name or "unknown")


def _keep_alive(transport: asyncio.BaseTransport) -> None:
    """Have the kernel find peers that are gone without a word: a stream may be silent for hours."""
    found: socket.socket | None = transport.get_extra_info("socket")
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        option = getattr(socket, name, None)
        if option is not None:
            found.setsockopt(socket.IPPROTO_TCP, option, value)
