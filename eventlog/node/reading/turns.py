"""Readers who lag: a few are looked at in each turn of the loop, the others wait in the order of their coming.

A thousand who read on as fast as they are answered would otherwise all be looked at between two steps of a write.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter

from eventlog.node.reading.pulls import Pull

TURN_S = 0.001
TURN_LOOKS = 24


class Turns:
    """Calls `look` once for each pull that is taken, at once where this turn of the loop has room for it."""

    def __init__(self, look: Callable[[Pull], None]) -> None:
        self._look = look
        self._waiting: dict[Pull, None] = {}
        self._began = 0.0
        self._looks = 0
        self._next: asyncio.Handle | None = None
        self.peak = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, pull: Pull) -> None:
        """Look at a pull now or in one of the next turns."""
        if self._next is None:
            self._next = asyncio.get_running_loop().call_soon(self._turn)
            self._began, self._looks = perf_counter(), 0
        if self._waiting or not self._has_room():
            self._waiting[pull] = None
            self.peak = max(self.peak, len(self._waiting))
        else:
            self._looks += 1
            self._look(pull)

    def remove(self, pull: Pull) -> None:
        """Forget a pull."""
        self._waiting.pop(pull, None)

    def stop(self) -> list[Pull]:
        """Look at nobody any more; return who waited."""
        if self._next is not None:
            self._next.cancel()
        waiting, self._waiting = list(self._waiting), {}
        return waiting

    def _has_room(self) -> bool:
        return self._looks == 0 or (self._looks < TURN_LOOKS and perf_counter() - self._began < TURN_S)

    def _turn(self) -> None:
        self._next = None
        if not self._waiting:
            return
        self._next = asyncio.get_running_loop().call_soon(self._turn)
        self._began, self._looks = perf_counter(), 0
        while self._waiting and self._has_room():
            pull = next(iter(self._waiting))
            del self._waiting[pull]
            self._looks += 1
            self._look(pull)
