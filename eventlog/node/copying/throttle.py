"""How fast copies of moving segments are read: what an operator allowed, shared among the nodes that are read from; and how far they are.

Only moves are slowed down. A replica that fell behind, or one that takes the place of a lost copy, gets what it lacks at full speed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from eventlog.control.view import ClusterView

_STEP_S = 0.5  # then the limit is looked at again: it may have been lifted


class CopyThrottle:
    """Paces, and counts, what this node reads for others. `seconds` is a monotonic clock.

    `sent` has how many bytes of each moving segment went out from here.
    """

    def __init__(
        self,
        view: Callable[[], ClusterView],
        *,
        seconds: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._view = view
        self._seconds = seconds
        self._sleep = sleep
        self._due = 0.0  # everything let through so far is paid for by then
        self.sent: dict[int, int] = {}

    async def take(self, segment: int, nbytes: int) -> None:
        """Return when `nbytes` of a copy of `segment` may be sent; at once where nothing limits it."""
        await self._wait(segment, nbytes)
        segments = self._view().segments
        self.sent = {number: count for number, count in self.sent.items() if number in segments and segments[number].record.target}
        if segment in segments and segments[segment].record.target:
            self.sent[segment] = self.sent.get(segment, 0) + nbytes

    async def _wait(self, segment: int, nbytes: int) -> None:
        begun = self._seconds()
        share = self._share(segment)
        if share is None:
            return
        self._due = max(self._due, begun) + nbytes / share
        due = self._due
        while (left := due - self._seconds()) > 0:
            await self._sleep(min(left, _STEP_S))
            if self._share(segment) is None:
                self._due = 0.0
                return

    def _share(self, segment: int) -> float | None:
        """Return how many bytes a second this node may send of the segment, None without a limit."""
        view = self._view()
        found, running = view.segments.get(segment), view.rebalance
        if found is None or not found.record.target or running is None or running.record.state != "running":
            return None
        if not running.record.throttle_bytes:
            return None
        sources = {moving.record.primary for moving in view.segments.values() if moving.record.target}
        return running.record.throttle_bytes / len(sources)
