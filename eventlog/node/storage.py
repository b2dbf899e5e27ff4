"""The storage thread: it alone writes to the store. Readers and the event loop never wait in its queue.

A turn takes everything queued, in order, and reports all results with one call into the loop: a hop costs 15 to 45 us, so it is
paid per group, never per event. After a failed append or sync the store is fenced and every later job fails alike.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from eventlog.errors import EventLogError, StoreFenced

Result = TypeVar("Result")
_Job = tuple[Callable[[], Any], "asyncio.Future[Any] | None", bool]  # the last: an error fences the store


class StorageThread:
    """Runs jobs one after the other in a thread of its own."""

    def __init__(self, *, on_fenced: Callable[[StoreFenced], None]) -> None:
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="storage", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_fenced = on_fenced
        self._fenced: StoreFenced | None = None

    def start(self) -> None:
        """Start the thread; results are delivered into the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def run(self, job: Callable[[], Result], *, is_vital: bool = False) -> "asyncio.Future[Result]":
        """Queue a job; its result or error arrives in the future. An error of a vital one fences the store."""
        assert self._loop is not None, "start() comes first"
        future: asyncio.Future[Result] = self._loop.create_future()
        self._queue.put((job, future, is_vital))
        return future

    def post(self, job: Callable[[], Any]) -> None:
        """Queue a job whose result nobody waits for; an error fences the store."""
        self._queue.put((job, None, True))

    async def stop(self) -> None:
        """Run what is queued, then end the thread."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        going = True
        while going:
            jobs = [self._queue.get()]
            while not self._queue.empty():
                jobs.append(self._queue.get())
            done: list[tuple[asyncio.Future[Any], Any, BaseException | None]] = []
            for job in jobs:
                if job is None:
                    going = False
                    break
                self._do(job, done)
            if done:
                assert self._loop is not None
                self._loop.call_soon_threadsafe(_deliver, done)

    def _do(self, job: _Job, done: list[tuple["asyncio.Future[Any]", Any, BaseException | None]]) -> None:
        function, future, is_vital = job
        result: Any = None
        error: BaseException | None = self._fenced
        if error is None:
            try:
                result = function()
            except StoreFenced as fenced:
                error = self._fence(fenced)
            except EventLogError as known:
                error = self._fence(StoreFenced(why=str(known))) if is_vital else known
            except Exception as unknown:  # noqa: BLE001 -- the edge of the thread: whatever it is, the waiter must hear of it
                error = self._fence(StoreFenced(why=repr(unknown))) if is_vital else unknown
        if future is not None:
            done.append((future, result, error))

    def _fence(self, error: StoreFenced) -> StoreFenced:
        if self._fenced is None:
            self._fenced = error
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._on_fenced, error)
        return self._fenced


def _deliver(done: list[tuple["asyncio.Future[Any]", Any, BaseException | None]]) -> None:
    for future, result, error in done:
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
