"""A connection within one process: what serves others beside the node's own protocol asks the node as any client does, and by no socket.

Two ends of a connection, joined by memory. Rights, limits, credits and refusals are therefore those of every other connection, and a
handler never knows the difference. What is written at one end arrives at the other in a later turn of the loop.
"""

import asyncio
from collections import deque
from typing import Any

from eventlog.errors import Misuse
from eventlog.transport.connection import Connection, Dispatch, Exchange
from eventlog.transport.greeting import GreetingOptions, hello_of
from eventlog.transport.link import Link
from eventlog.wire.flow import Arena, ByteBudget, ProcessBudget
from eventlog.wire.reader import Reader
from eventlog.wire.session import Role, Session

Buffer = bytes | bytearray | memoryview


async def connect_inside(
    dispatch: Dispatch, options: GreetingOptions, *, process: ProcessBudget, arena: Arena | None = None, name: str
) -> Connection:
    """Return an open connection whose requests `dispatch` answers. Close it with `close` and `wait_closed`.

    `process` counts what all of these connections have asked and not been answered, and `arena` is the memory in which things arrive:
    a caller that opens many has them share one, for each has its own otherwise. `name` is what the answering end knows this one by.

    Raises:
        EventLogError: `dispatch` refused Hello.
    """
    arena = Arena() if arena is None else arena
    asking = _end("client", options, process=ProcessBudget(options.bytes_in_flight_max), arena=arena, dispatch=_refuse)
    answering = _end("server", options, process=process, arena=arena, dispatch=dispatch)
    answering.is_inside = True
    here, there = _Memory(asking, "node"), _Memory(answering, name)
    here.other, there.other = there, here
    answering.connection_made(there)
    asking.connection_made(here)
    try:
        await asking.send(hello_of(options))
    except BaseException:
        asking.abort()
        raise
    return asking


def _end(role: Role, options: GreetingOptions, *, process: ProcessBudget, arena: Arena, dispatch: Dispatch) -> Connection:
    session = Session(role, options.session)
    reader = Reader(frame_bytes_max=session.frame_bytes_in_max, arena=arena, claims=ProcessBudget(options.bytes_in_flight_max))
    return Connection(session, reader, ByteBudget(options.bytes_in_flight_max, process), dispatch=dispatch)


def _refuse(_exchange: Exchange) -> None:
    raise Misuse(why="this side answers no requests")


class _Memory(asyncio.Transport):
    """One end's way out: `write` queues, and the queue is given to the other end while that one reads."""

    other: "_Memory"

    def __init__(self, link: Link, peer: str) -> None:
        super().__init__(extra={"peername": peer})
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Buffer] = deque()
        self._queued_bytes = 0
        self._high_bytes, self._low_bytes = 0, 0
        self._is_reading = True
        self._is_paused = False  # our link was told to write no more
        self._is_due = False
        self._is_closing = False
        self._is_lost = False

    # ------------------------------------------------------------ out

    def write(self, data: Buffer) -> None:
        if self._is_closing or not len(data):
            return
        self._queue.append(data)
        self._queued_bytes += len(data)
        self._deliver_soon()
        if self._queued_bytes > self._high_bytes and not self._is_paused:
            self._is_paused = True
            self._link.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None, "a link names both"
        assert low is not None, "a link names both"
        self._high_bytes, self._low_bytes = high, low

    def get_write_buffer_size(self) -> int:
        return self._queued_bytes

    def _deliver_soon(self) -> None:
        if not self._is_due and self.other.is_reading():
            self._is_due = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        """Give the other end what it has room for, one buffer of its own a turn of this loop."""
        self._is_due = False
        while self._queue and self.other.is_reading():
            room = self.other.take(self._queue[0])
            if room < len(self._queue[0]):
                self._queue[0] = memoryview(self._queue[0])[room:]
            else:
                self._queue.popleft()
            self._queued_bytes -= room
        if self._is_paused and self._queued_bytes <= self._low_bytes:
            self._is_paused = False
            self._link.resume_writing()
        if self._is_closing and not self._queue:
            self._lose()

    # ------------------------------------------------------------ in

    def take(self, data: Buffer) -> int:
        """Have our link receive the beginning of what the other end wrote; return how much that is."""
        room = self._link.get_buffer(len(data))
        size = min(len(room), len(data))
        room[:size] = memoryview(data)[:size]
        self._link.buffer_updated(size)
        return size

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_lost

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        if self.other._queue:  # noqa: SLF001 -- the other half of this one
            self.other._deliver_soon()  # noqa: SLF001

    # ------------------------------------------------------------ the end

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Close once the other end has taken what is queued."""
        self._is_closing = True
        if not self._queue:
            self._lose()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        self._queue.clear()
        self._queued_bytes = 0
        self._lose()

    def _lose(self) -> None:
        """Tell both ends, each in a turn of its own: one that closes is not yet done with what it does."""
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self._loop.call_soon(self._link.connection_lost, None)
            self.other.abort()
