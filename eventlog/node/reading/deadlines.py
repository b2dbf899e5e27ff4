"""When pulls give up waiting. Long waits that end within one tick share a timer: a thousand followers that poll again cost no timers."""

import asyncio
from collections.abc import Callable

from eventlog.node.reading.pulls import Pull

LONG_MS = 1_000
TICK_MS = 100  # a long wait ends so much later, at most


class Deadlines:
    """Calls `expire` once for each pull whose time is up and that was not cleared before."""

    def __init__(self, expire: Callable[[Pull], None]) -> None:
        self._expire = expire
        self._ticks: dict[int, dict[Pull, None]] = {}

    def set(self, pull: Pull, wait_ms: int) -> None:
        """Let a pull that has no deadline wait so long."""
        loop = asyncio.get_running_loop()
        if wait_ms < LONG_MS:
            pull.deadline = loop.call_later(wait_ms / 1000, self._one, pull)
            return
        tick = int(loop.time() * 1000 + wait_ms) // TICK_MS + 1
        pulls = self._ticks.get(tick)
        if pulls is None:
            pulls = self._ticks[tick] = {}
            loop.call_at(tick * TICK_MS / 1000, self._tick, tick)
        pulls[pull] = None
        pull.deadline = tick

    def clear(self, pull: Pull) -> None:
        """Let a pull wait without end, or not at all."""
        deadline, pull.deadline = pull.deadline, None
        if deadline is None:
            return
        if isinstance(deadline, int):
            self._ticks[deadline].pop(pull, None)
        else:
            deadline.cancel()

    def _one(self, pull: Pull) -> None:
        pull.deadline = None
        self._expire(pull)

    def _tick(self, tick: int) -> None:
        pulls = self._ticks[tick]
        while pulls:
            pull, _ = pulls.popitem()
            self._one(pull)
        del self._ticks[tick]
