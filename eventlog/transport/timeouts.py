"""When requests run out of time: one heap and one timer per connection, nothing per request but a number."""

from collections.abc import Callable, Container
from heapq import heapify, heappop, heappush
from typing import Final

OPAQUE_BITS: Final = 32
DEAD_ENTRIES_MAX: Final = 1_024


class Timeouts:
    """Deadlines of opaques. Answered ones stay in the heap until their time, or until they are the larger part of it."""

    __slots__ = ("_heap", "_live")

    def __init__(self, live: Container[int]) -> None:
        self._heap: list[int] = []  # deadline_ms << 32 | opaque: numbers compare faster than tuples
        self._live = live

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, opaque: int, deadline_ms: int) -> bool:
        """Note a deadline; True if it is now the earliest."""
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

    def compact(self, live_count: int) -> None:
        """Drop answered ones if they are most of the heap."""
        if len(self._heap) > 2 * live_count + DEAD_ENTRIES_MAX:
            self._heap = [entry for entry in self._heap if entry & ((1 << OPAQUE_BITS) - 1) in self._live]
            heapify(self._heap)
