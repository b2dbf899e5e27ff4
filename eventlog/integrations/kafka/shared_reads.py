"""One read for all who want the same at that time.

The progress of all mirrors of a prefix is one topic, and each shard reads it whole before it begins: where many begin at once, one read
does for those that wait. What a shard wants is what was committed before it asked, so it is never given a read that had begun by then, and
one that goes at least as far as each of those that share it has to see.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class SharedReads(Generic[Answer]):
    """Reads by what they read: of each one is under way, and at most one waits for its end."""

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[Answer]] = {}
        self._waiting: dict[Hashable, asyncio.Task[Answer]] = {}
        self._upto: dict[Hashable, int] = {}

    async def get(self, key: Hashable, read: Callable[[int], Awaitable[Answer]], *, upto: int) -> Answer:
        """Return the answer of a read that begins after this was called, and is told to go to `upto` or farther. Raises what it does.

        Whoever is cancelled leaves the read to the others that wait for it.
        """
        self._upto[key] = max(upto, self._upto.get(key, 0))
        task = self._waiting.get(key)
        if task is None:
            task = self._waiting[key] = asyncio.create_task(self._read(key, read), name="kafka shared read")
            task.add_done_callback(_heard)  # where nobody waits any more
        return await asyncio.shield(task)

    async def _read(self, key: Hashable, read: Callable[[int], Awaitable[Answer]]) -> Answer:
        if key in self._running:
            await asyncio.wait([self._running[key]])
        self._running[key] = self._waiting.pop(key)
        try:
            return await read(self._upto.pop(key))
        finally:
            del self._running[key]


def _heard(task: "asyncio.Task[Answer]") -> None:
    if not task.cancelled():
        task.exception()
