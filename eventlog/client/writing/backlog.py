"""Calls that wait for a frame, and writers that wait for room. One limit in bytes covers both and all that is unanswered."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress

from eventlog.client.options import FRAME_EVENTS_TARGET
from eventlog.client.writing.changes import WriteCall
from eventlog.errors import ClientClosed, TimedOut


class Backlog:
    """Calls in the order in which they were admitted. `nbytes` counts them and those in frames, until `release`.

    At most half of the room is for calls that wait for segments that cannot be written now: others need not wait for those to end.
    """

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.calls: deque[WriteCall] = deque()
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.nbytes = 0
        self.held_bytes = 0

    def has_admitted(self, nbytes: int) -> bool:
        """Take up `nbytes` if that is possible at once."""
        if self._waiters or not self._fits(nbytes):
            return False
        self.nbytes += nbytes
        return True

    async def admit(self, nbytes: int, *, deadline: float, timeout_ms: int) -> None:
        """Take up `nbytes` as soon as there is room, in order of arrival. What is larger than all room gets it alone.

        Raises:
            TimedOut: no room until `deadline`. Nothing was sent.
            ClientClosed: `close` was called meanwhile.
        """
        if self.has_admitted(nbytes):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (nbytes, waiter)
        self._waiters.append(place)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.release(nbytes)  # there was room, and then it was not wanted any more
            else:
                with suppress(ValueError):  # it was its turn in the very moment
                    self._waiters.remove(place)
                self._wake()
            if isinstance(error, TimeoutError):
                raise TimedOut(what="room among the bytes unanswered", timeout_ms=timeout_ms) from None
            raise

    def _fits(self, nbytes: int) -> bool:
        return self.nbytes == 0 or self.nbytes + nbytes <= self._bytes_max

    def release(self, nbytes: int) -> None:
        """Give room back."""
        self.nbytes -= nbytes
        self._wake()

    def hold(self, calls: Sequence[WriteCall]) -> bool:
        """Count calls among those that wait for segments that cannot be written; False where there is no room for that."""
        new = [call for call in calls if not call.is_held]
        nbytes = sum([call.nbytes for call in new])
        if self.held_bytes and self.held_bytes + nbytes > self._bytes_max // 2:
            return False
        self.held_bytes += nbytes
        for call in new:
            call.is_held = True
        return True

    def closed(self, call: WriteCall) -> None:
        """Give back the room of a call that is decided."""
        self.nbytes -= call.nbytes
        if call.is_held:
            self.held_bytes -= call.nbytes
        if self._waiters:
            self._wake()

    def _wake(self) -> None:
        while self._waiters and self._fits(self._waiters[0][0]):
            nbytes, waiter = self._waiters.popleft()
            if not waiter.done():
                self.nbytes += nbytes
                waiter.set_result(None)

    def close(self) -> None:
        """Send away the calls that wait for room."""
        waiters, self._waiters = self._waiters, deque()
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(ClientClosed(what="client"))

    def take(self, *, bytes_target: int) -> list[WriteCall]:
        """Return the calls of the next frame: the oldest, and what follows it in its cache, up to the target. Empty if none waits."""
        taken: list[WriteCall] = []
        size = events = 0
        while self.calls:
            call = self.calls[0]
            if not call.is_live:
                self.release(self.calls.popleft().nbytes)
                continue
            joined = (size + call.nbytes, events + len(call.changes))
            if taken and not _may_join(call, taken[0], joined, bytes_target=bytes_target):
                break
            taken.append(self.calls.popleft())
            size, events = joined
            if call.is_alone:
                break
        return taken

    def waiting(self) -> Iterator[WriteCall]:
        """Yield the calls that are in no frame yet."""
        return iter(tuple(self.calls))

    def forget_dead(self) -> None:
        """Drop calls that nobody waits for."""
        dead = [call for call in self.calls if not call.is_live]
        self.calls = deque(call for call in self.calls if call.is_live)
        for call in dead:
            self.release(call.nbytes)


def _may_join(call: WriteCall, first: WriteCall, joined: tuple[int, int], *, bytes_target: int) -> bool:
    nbytes, events = joined
    is_same = call.changes.cache_id == first.changes.cache_id and not call.is_alone
    return is_same and nbytes <= bytes_target and events <= FRAME_EVENTS_TARGET
