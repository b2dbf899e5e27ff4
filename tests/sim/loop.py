"""asyncio on virtual time: one loop a process, so that the product's drivers run as they are.

Only what drivers use is there: tasks, futures, timers. Sockets, threads and signals are not.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVarTuple

from tests.sim.scheduler import Process

Given = TypeVarTuple("Given")


def virtual_loop(process: Process, *, on_error: Callable[[Exception], None]) -> "VirtualLoop":
    """Return a loop; what it leaves abstract is never called."""
    return VirtualLoop(process, on_error=on_error)  # type: ignore[abstract]


class VirtualLoop(asyncio.AbstractEventLoop):
    """A loop whose time is the scheduler's and whose callbacks run in `process`. `on_error` hears what no task caught."""

    def __init__(self, process: Process, *, on_error: Callable[[Exception], None]) -> None:
        self.process = process
        self._on_error = on_error
        self._tasks: dict[asyncio.Task[Any], None] = {}  # a set would be iterated in the order of addresses

    def time(self) -> float:
        return self.process.scheduler.now_us / 1e6

    def call_soon(self, callback: Callable[[*Given], object], *args: *Given, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.process.after(0, lambda: self._run(handle))
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Given], object], *args: *Given, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Given], object], *args: *Given, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        is_later = int(when > self.time())  # what waits for that little must find it passed, or it would wait again for ever
        delay_us = max(is_later, round(when * 1e6) - self.process.scheduler.now_us)
        self.process.after(delay_us, lambda: self._run(handle))
        return handle

    def _run(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        asyncio._set_running_loop(self)
        try:
            handle._run()
        finally:
            asyncio._set_running_loop(None)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Run `work` in the process; an error that it does not catch goes to `on_error`."""
        self.create_task(work)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._on_error(error)

    def end(self) -> None:
        """Drop all tasks where they stand, as a crash does."""
        for task in list(self._tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            if coroutine is not None:
                coroutine.close()
        self._tasks.clear()

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self.process.is_alive and isinstance(error, Exception):
            self._on_error(error)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing to do: the queue passes over it."""
