"""How fast copies of moving segments are read: what an operator allowed, shared among the nodes that are read from; and how far they are.

Only moves are slowed down. A replica that fell behind, or one that takes the place of a lost copy, gets what it lacks at full speed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from eventlog.control.records import RebalanceRecord
from eventlog.control.view import ClusterView

_STEP_S = 0.5  # then the limit is looked at again: it may be another by then


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
        self._of = ""  # the rebalancing whose limit was looked at last
        self._due = 0.0  # everything that it let through so far is paid for by then
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
        limited = self._limited()
        if limited is None:
            return
        if limited.nonce != self._of:
            self._of, self._due = limited.nonce, 0.0
        self._due = max(self._due, self._seconds()) + nbytes / self._share(limited)
        due = self._due
        while (left := due - self._seconds()) > 0:
            await self._sleep(min(left, _STEP_S))
            if self._limited() != limited or not self._is_move(segment, to):
                return

    def _is_move(self, segment: int, to: int) -> bool:
        """Return whether a node gets a copy because the segment moves: those that it is to have anyway come first among the owners."""
        view = self._view()
        found = view.segments.get(segment)
        if found is None or not found.record.target or to not in found.record.owners[view.replicas :]:
            return False
        return all(replica.node != to for replica in found.record.in_sync)

    def _limited(self) -> RebalanceRecord | None:
        """Return the rebalancing that runs under a limit."""
        found = self._view().rebalance
        return found.record if found is not None and found.record.state == "running" and found.record.throttle_bytes else None

    def _share(self, limited: RebalanceRecord) -> float:
        """Return how many bytes a second this node may send while something moves."""
        sources = {moving.record.primary for moving in self._view().segments.values() if moving.record.target}
        return limited.throttle_bytes / len(sources)
