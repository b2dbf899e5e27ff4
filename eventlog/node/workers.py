"""Work beside the loop: what must not hold it is done in turns by a worker, whose thread is the only one that does it.

A node asks for its workers by name (`MakeWorker`), so the code that opens it decides what they are: threads, or, where time is not
the machine's, something that takes its turns when that time has come.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

Item = TypeVar("Item")
Turn: TypeAlias = Callable[[list[Item]], float | None]
"""Does something about items that came, in their order; returns in how many seconds to be called again if none comes, None for never."""


class Worker(Protocol[Item]):
    """Takes turns beside the loop, one at a time."""

    def start(self, turn: Turn[Item]) -> None:
        """Begin; `turn` is called for what was put before, too."""
        ...

    def put(self, item: Item) -> None:
        """Have an item taken in one of the next turns."""
        ...

    def meanwhile(self) -> list[Item]:
        """Take what was put since the turn that runs began. For turns alone."""
        ...

    async def stop(self) -> None:
        """Return when a turn has taken everything that was put, and no other follows."""
        ...


MakeWorker: TypeAlias = Callable[[str], Worker[Any]]


_LAST: Any = object()  # ends a thread, once it has taken what was put before


class ThreadWorker(Generic[Item]):
    """A worker that is a thread of its own."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Item] = SimpleQueue()
        self._turn: Turn[Item]
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, turn: Turn[Item]) -> None:
        self._turn = turn
        self._thread.start()

    def put(self, item: Item) -> None:
        self._queue.put(item)

    def meanwhile(self) -> list[Item]:
        taken = [self._queue.get() for _ in range(self._queue.qsize())]
        found = [item for item in taken if item is not _LAST]  # whoever does not know yet that it ends may have put something behind it
        self._is_ending |= len(found) < len(taken)
        return found

    async def stop(self) -> None:
        self._queue.put(_LAST)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        again_s: float | None = None
        while not self._is_ending:
            items: list[Item] = []
            with suppress(Empty):
                items.append(self._queue.get(timeout=again_s))
            if items and items[0] is _LAST:
                self._is_ending, items = True, []
            again_s = self._turn(items + self.meanwhile())
