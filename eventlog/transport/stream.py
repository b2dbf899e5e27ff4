"""A stream that we read: items in order, credit given back as they are taken."""

from collections import deque
from typing import Protocol, Self

from eventlog.errors import ConnectionLost, EventLogError, Outcome, PeerViolation, TimedOut
from eventlog.wire.kinds import CHANGES
from eventlog.wire.session import Outgoing, Reply, Session


def failure_of(kind: str, error: EventLogError) -> EventLogError:
    """Return why a request of a kind has no answer: a copy of `error`, to which each waiter adds its own traceback."""
    outcome: Outcome = "unknown" if kind in CHANGES and isinstance(error, ConnectionLost | TimedOut) else error.outcome
    return type(error)(outcome=outcome, **error.facts())


def end_of(kind: str, error: EventLogError, *, peer: str) -> EventLogError:
    """Return what a request of a kind hears of the error that ended its connection.

    Bytes that break the format say nothing of it: it may be done, or not, as when the connection had just broken. They are told as they
    are to Hello alone, which finds out whether a node listens there.
    """
    return ConnectionLost(address=peer, why=str(error)) if isinstance(error, PeerViolation) and kind != "hello" else error


CREDIT_PARTS = 4  # credit goes back when this part of it has been used up: few messages, and the sender never runs dry


class Carrier(Protocol):
    """The connection that a stream came on."""

    session: Session
    is_closed: bool

    def write(self, frame: bytes) -> None:
        """Have a frame leave."""
        ...


class Arrival(Protocol):
    """How a shell waits for what a stream brings, and hears that there is something."""

    async def wait(self) -> None:
        """Return when something may have come."""
        ...

    def wake(self) -> None:
        """Have `wait` return."""
        ...


class Stream:
    """The items of one stream. Iterate until the end; `end` it before, or use `async with`."""

    __slots__ = ("_arrival", "_connection", "_credit_bytes", "_error", "_is_over", "_items", "_outgoing", "_used")

    def __init__(self, connection: Carrier, credit_bytes: int, arrival: Arrival) -> None:
        self._connection = connection
        self._credit_bytes = credit_bytes
        self._outgoing: Outgoing | None = None
        self._items: deque[Reply] = deque()
        self._used = 0
        self._error: EventLogError | None = None
        self._is_over = False
        self._arrival = arrival

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Reply:
        """Return the next item. Its memory is the caller's.

        Raises:
            EventLogError: whatever ended the stream, after all items that came before it.
        """
        while not self._items:
            if self._is_over:
                self._raise_error()
                raise StopAsyncIteration
            await self._arrival.wait()
        item = self._items.popleft()
        self._give_back(item.size)
        return item

    @property
    def number(self) -> int:
        """The opaque of the request that opened it, by which other requests name it."""
        assert self._outgoing is not None, "it was asked for"
        return self._outgoing.opaque

    def stop(self) -> None:
        """Ask for the end. What is under way still comes to the iteration."""
        if self._outgoing is not None and not self._connection.is_closed:
            frame = self._connection.session.end_stream(self._outgoing)
            if frame is not None:
                self._connection.write(frame)

    async def end(self) -> None:
        """Ask for the end and wait for it, dropping what is under way. Does nothing on a stream that is over."""
        self.stop()
        while not self._is_over:
            self._items.clear()
            await self._arrival.wait()
        self._items.clear()
        self._error = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    # ------------------------------------------------------------ the connection's calls

    def opened(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing

    def deliver(self, item: Reply) -> None:
        self._items.append(item)
        self._arrival.wake()

    def failed(self, error: EventLogError) -> None:
        """The end follows."""
        self._error = error

    def ended(self) -> None:
        self._is_over = True
        self._arrival.wake()

    # ------------------------------------------------------------ below

    def _give_back(self, size: int) -> None:
        self._used += size
        if self._used * CREDIT_PARTS >= self._credit_bytes and not self._is_over and not self._connection.is_closed:
            assert self._outgoing is not None
            frame = self._connection.session.give_credit(self._outgoing, self._used)
            self._connection.write(frame)
            self._used = 0

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
