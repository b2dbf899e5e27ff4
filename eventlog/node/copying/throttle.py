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

    async def take(self, segment: int, nbytes: int, *, to: int) -> None:
        """Return when `nbytes` of a copy of `segment` may be sent to the node `to`; at once where nothing limits it."""
        if not self._is_move(segment, to):
            return
        await self._wait(segment, nbytes, to)
        segments = self._view().segments
        self.sent = {number: count for number, count in self.sent.items() if number in segments and segments[number].record.target}
        if self._is_move(segment, to):
            self.sent[segment] = self.sent.get(segment, 0) + nbytes

    async def _wait(self, segment: int, nbytes: int, to: int) -> None:
        share, begun = self._share(), self._seconds()
        if share is None:
            return
        self._due = max(self._due, begun) + nbytes / share
        due = self._due
        while (left := due - self._seconds()) > 0:
            await self._sleep(min(left, _STEP_S))
            if self._share() is None:
                self._due = 0.0
                return
            if not self._is_move(segment, to):
                return

    def _is_move(self, segment: int, to: int) -> bool:
        """Return whether a node gets a copy because the segment moves: those that it is to have anyway come first among the owners."""
        view = self._view()
        found = view.segments.get(segment)
        if found is None or not found.record.target or to not in found.record.owners[view.replicas :]:
            return False
        return all(replica.node != to for replica in found.record.in_sync)

    def _share(self) -> float | None:
        """Return how many bytes a second this node may send, None without a limit."""
        view = self._view()
        running = view.rebalance
        if running is None or running.record.state != "running" or not running.record.throttle_bytes:
            return None
        sources = {moving.record.primary for moving in view.segments.values() if moving.record.target}
        return running.record.throttle_bytes / max(len(sources), 1)
