"""An event loop in a thread of its own, and how code outside of it waits for what runs there."""

import asyncio
import os
import threading
import warnings
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, Self, TypeVar

from eventlog.client.values import Shown
from eventlog.errors import ClientClosed, InvalidArgument
from eventlog.transport.loops import new_event_loop

T = TypeVar("T")
_END: Final = object()


class LoopThread:
    """Runs coroutines for other threads, any number of them. Stop it; until then it lives, as a daemon.

    One that is forgotten warns, and ends by itself: `last` is what is to be done then, before everything else is cancelled.
    """

    def __init__(self, name: str, *, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        self._is_stopped = True
        self._handing = threading.RLock()  # its holder may come upon a forgotten iterator, which hands its ending over
        self._name = name
        self._last = last
        self._loop = new_event_loop()
        self._process = os.getpid()
        self._thread = threading.Thread(target=_serve, args=(self._loop,), name=name, daemon=True)  # which does not keep this alive
        self._thread.start()
        self._is_stopped = False

    def __del__(self) -> None:
        if self._is_stopped or os.getpid() != self._process:
            return
        ending = _end(self._loop, self._last)
        try:
            asyncio.run_coroutine_threadsafe(ending, self._loop)
        except RuntimeError:  # the interpreter has ended the loop
            ending.close()
        warnings.warn(f"{self._name} was forgotten: close it, or use it in a with statement", ResourceWarning, stacklevel=2, source=self)

    @property
    def is_stopped(self) -> bool:
        """Whether nothing runs here any more."""
        return self._is_stopped

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine; its future may be waited for in any other thread.

        Raises:
            ClientClosed: the thread was stopped.
            InvalidArgument: called in the thread itself, or in a process forked from the one that started it; both would wait forever.
        """
        try:
            if os.getpid() != self._process:
                raise InvalidArgument(why="a client does not survive a fork: connect in the child")
            if threading.current_thread() is self._thread:
                raise InvalidArgument(why="a blocking call inside the client's own loop would never end")
            with self._handing:
                if self._is_stopped:
                    raise ClientClosed(what="client")
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except BaseException:
            coroutine.close()
            raise

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. An interrupt, of this thread, cancels it."""
        future = self.submit(coroutine)
        try:
            return _result_of(future)
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Cancel what still runs, end the thread, and wait for that, whichever thread began it."""
        if os.getpid() != self._process:
            return
        with self._handing:
            last = None if self._is_stopped else self.submit(_wind_up())
            self._is_stopped = True
        try:
            if last is not None:
                last.result()
        finally:
            if last is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.close()


async def _end(loop: asyncio.AbstractEventLoop, last: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
    try:
        if last is not None:
            await last()
        await _wind_up()
    finally:
        loop.stop()


def _result_of(future: "Future[T]") -> T:
    try:
        return future.result()
    except CancelledError:
        raise ClientClosed(what="client") from None  # another thread has stopped it meanwhile


async def _wind_up() -> None:
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


class Steps(Generic[T]):
    """Items of one asynchronous generator after the other, for any number of threads: each item goes to one of them.

    A generator has an item handed out when it yields it. So one that comes of a step whose caller was interrupted is kept, for whoever
    asks next: nobody else would be given it.
    """

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self._come: deque[T] = deque()
        self._is_interrupted = False

    def next_of(self, items: AsyncGenerator[T, None]) -> T | None:
        """Return the next item, None after the last."""
        try:
            if self._is_interrupted:
                self._thread.run(asyncio.sleep(0))  # by then the step that was interrupted has its item, or never will
                self._is_interrupted = False
            while not self._come:
                if not self._thread.run(self._step(items)) and not self._come:
                    return None
            return self._come.popleft()
        except BaseException:  # whatever a handler of a signal raises
            self._is_interrupted = True
            raise

    async def _step(self, items: AsyncGenerator[T, None]) -> bool:
        item = await anext(items, _END)
        if item is _END:
            return False
        self._come.append(item)  # type: ignore[arg-type]  # it is no end
        return True


class Pulled(Shown, Generic[T]):
    """Items of an asynchronous generator in another thread: one hop an item, with `ahead` the next one fetched while this one is used.

    Give it generators of large items. An interrupt while waiting loses nothing: the next call goes on waiting. It is one thread's at a
    time: a second one that asks while the first one waits is refused, as both would get the same item.
    """

    _place = "eventlog.blocking"

    def __init__(self, thread: LoopThread, items: AsyncGenerator[T, None], *, ahead: bool = True) -> None:
        self._thread = thread
        self._ahead = ahead
        self._source = _Source(items)
        self._next: Future[Any] | None = None
        self._at = 0  # the number of the item that is asked for
        self._is_over = False
        self._asked = threading.Lock()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if not self._asked.acquire(blocking=False):
            raise InvalidArgument(why="another thread waits for the next item of this iterator: give each thread an iterator of its own")
        try:
            return self._take()
        finally:
            self._asked.release()

    def _take(self) -> T:
        if self._is_over:
            raise StopIteration
        if self._next is None:
            self._next = self._thread.submit(self._source.pull(self._at))
        try:
            item = _result_of(self._next)
        except BaseException as error:
            if self._next.done() and (self._next.cancelled() or self._next.exception() is error):
                self._is_over = True  # else it is an interrupt that came with the item: the next call has that
            raise
        if item is _END:
            self._is_over = True
            raise StopIteration
        ahead = self._thread.submit(self._source.pull(self._at + 1)) if self._ahead else None
        self._next, self._at = ahead, self._at + 1  # without a call between them: an interrupt comes before both, or after
        found: T = item
        return found

    def close(self) -> None:
        """End the reading. Leaving a `for` loop early does it, too, once the iterator is forgotten."""
        self._end()

    def join(self) -> None:
        """End the reading, and return when nothing of it is under way any more."""
        ending = self._end()
        if ending is not None:
            _result_of(ending)

    def _end(self) -> "Future[None] | None":
        self._is_over = True
        pending, self._next = self._next, None
        if self._thread.is_stopped:
            return None
        if pending is not None:
            pending.cancel()
        return self._thread.submit(self._source.end())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._is_over:
            # Refused if stopped meanwhile, or forgotten by the loop's own thread or after a fork: there is nobody to tell.
            with suppress(ClientClosed, InvalidArgument):
                self.close()


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception


class _Source(Generic[T]):
    """The generator, in its own loop. Apart from `Pulled`, so that a fetch under way does not keep a forgotten iterator alive."""

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        self._items = items
        self._lock: asyncio.Lock | None = None
        self._at = -1
        self._found: Any = None  # the item of that number, or why there is none

    async def pull(self, at: int) -> Any:
        """Return an item by its number, `_END` after the last: the next one, or once more the last, whose asker was interrupted."""
        async with self._own_lock():
            if at > self._at:
                try:
                    found: Any = await anext(self._items, _END)
                except Exception as error:  # noqa: BLE001 -- whatever it is, it is for whoever asks
                    found = _Failed(error)
                self._at, self._found = at, found
            if isinstance(self._found, _Failed):
                raise self._found.error
            return self._found

    async def end(self) -> None:
        """End the generator, once a fetch under way is."""
        async with self._own_lock():
            await self._items.aclose()

    def _own_lock(self) -> asyncio.Lock:
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock


class Flat(Shown, Generic[T]):
    """The items of what is pulled, one after the other. A loop over it costs what a generator does, and is one thread's at a time, too.

    After an interrupt another loop goes on where the first one was.
    """

    _place = "eventlog.blocking"

    def __init__(self, pulled: Pulled[Any]) -> None:
        self._pulled = pulled
        self._items: Iterator[T] = iter(())

    def __iter__(self) -> Iterator[T]:
        while True:
            yield from self._items
            try:
                self._items = iter(next(self._pulled))
            except StopIteration:
                return

    def __next__(self) -> T:
        while True:
            for item in self._items:
                return item
            self._items = iter(next(self._pulled))

    def close(self) -> None:
        """End the reading. Leaving a `for` loop early does it, too, once the iterator is forgotten."""
        self._pulled.close()


async def in_lists(rows: AsyncGenerator[T, None], *, size: int) -> AsyncGenerator[list[T], None]:
    """Yield the items of `rows` in lists of up to `size`."""
    part: list[T] = []
    async for row in rows:
        part.append(row)
        if len(part) >= size:
            yield part
            part = []
    if part:
        yield part
