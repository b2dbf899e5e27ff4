"""The reader thread: answers that need the store, or more than a moment of work, are made here, one at a time and in turns.

It never waits in the storage thread's queue and never holds the loop: a caller gets a future. Every owner (a connection) has
a queue of its own, and they are served round robin, so one with many requests delays another by one answer at most.
"""

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from eventlog.limits import CONNECTIONS_MAX, REQUESTS_PER_CONNECTION_MAX
from eventlog.node.workers import Worker

Result = TypeVar("Result")
Item = TypeVar("Item")
_RECENT = 32


class FairQueue(Generic[Item]):
    """A queue for each owner, taken from in turns."""

    def __init__(self) -> None:
        self._owners: OrderedDict[object, deque[Item]] = OrderedDict()
        self._size = 0
        self.peak = 0

    def __len__(self) -> int:
        return self._size

    def put(self, owner: object, item: Item) -> None:
        """Append to the owner's queue."""
        self._owners.setdefault(owner, deque()).append(item)
        self._size += 1
        self.peak = max(self.peak, self._size)

    def take(self) -> tuple[object, Item]:
        """Remove and return the oldest item of the owner whose turn it is; there is one."""
        owner, items = self._owners.popitem(last=False)
        item = items.popleft()
        if items:
            self._owners[owner] = items
        self._size -= 1
        return owner, item


class ReaderThread:
    """Runs jobs one after the other in turns of a worker."""

    def __init__(self, worker: Worker[None]) -> None:
        self._worker = worker  # is put something for each job
        self._queue: FairQueue[tuple[Callable[[], Any], asyncio.Future[Any]]] = FairQueue()
        self._lock = threading.Lock()
        self._recent: deque[object] = deque(maxlen=_RECENT)
        self._going = True
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start the thread; results are delivered into the running loop."""
        self._loop = asyncio.get_running_loop()
        self._worker.start(self._work)

    async def stop(self) -> None:
        """End after the job that runs now; what still waits is cancelled."""
        self._going = False
        await self._worker.stop()
        while len(self._queue):
            _, (_, future) = self._queue.take()
            future.cancel()

    def run(self, owner: object, job: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Queue a job; its result or error arrives in the future. A cancelled one is not begun."""
        assert self._loop is not None, "start() comes first"
        future: asyncio.Future[Result] = self._loop.create_future()
        if not self._going:
            future.cancel()
            return future
        with self._lock:
            self._queue.put(owner, (job, future))
        self._worker.put(None)
        return future

    @property
    def readers(self) -> int:
        """Return how many owners were served lately, at least one."""
        with self._lock:
            return max(len(set(self._recent)), 1)

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {"history_requests": (len(self._queue), CONNECTIONS_MAX * REQUESTS_PER_CONNECTION_MAX, self._queue.peak)}

    def _work(self, tickets: list[None]) -> None:
        for _ in tickets:
            if not self._going:
                return
            with self._lock:
                owner, (job, future) = self._queue.take()
                self._recent.append(id(owner))
            if not future.cancelled():
                self._do(job, future)

    def _do(self, job: Callable[[], Any], future: "asyncio.Future[Any]") -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = job()
        except Exception as failure:  # noqa: BLE001  # the edge of the thread: whatever it is, the waiter must hear of it
            error = failure
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(_deliver, future, result, error)
        except RuntimeError:  # the loop is closed; nobody waits any more
            return


def _deliver(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
