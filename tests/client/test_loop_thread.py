"""A loop in a thread of its own."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from types import FrameType
from typing import Any

import pytest

from eventlog.client.loop_thread import Flat, LoopThread, Pulled, Steps, in_lists
from eventlog.errors import ClientClosed, InvalidArgument
from tests.loops import until


@contextmanager
def loop_thread() -> Iterator[LoopThread]:
    thread = LoopThread("test")
    try:
        yield thread
    finally:
        thread.stop()


@pytest.fixture
def _interrupts() -> Iterator[None]:
    """An interrupt is one although a run in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_soon() -> None:
    """As Ctrl-C does, once the main thread waits."""
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        while (frame := sys._current_frames()[main]).f_code is not threading.Condition.wait.__code__:
            time.sleep(0.001)  # nobody tells that another thread waits
        while sys._current_frames()[main] is frame:  # an interrupt in the last moment before a wait does not end it
            signal.pthread_kill(main, signal.SIGINT)
            time.sleep(1)

    threading.Thread(target=interrupt).start()


async def value(of: int) -> int:
    return of


class Source:
    """Numbers, and a note of how far they were taken and whether the reading was ended."""

    def __init__(self, *, stuck_at: int | None = None) -> None:
        self.taken = 0
        self.ended = threading.Event()
        self._stuck_at = stuck_at

    async def numbers(self) -> AsyncGenerator[int, None]:
        try:
            while True:
                if self.taken == self._stuck_at:
                    await asyncio.Event().wait()
                self.taken += 1
                yield self.taken
        finally:
            await asyncio.sleep(0)
            self.ended.set()


def test_coroutines_run_elsewhere_and_their_results_and_errors_come_back() -> None:
    async def fail() -> None:
        raise KeyError("x")

    with loop_thread() as thread:
        assert thread.run(value(3)) == 3
        with pytest.raises(KeyError):
            thread.run(fail())


def test_a_stopped_thread_says_so_and_may_be_stopped_again() -> None:
    with loop_thread() as thread:
        thread.stop()
        with pytest.raises(ClientClosed):
            thread.run(value(3))


def test_what_still_runs_is_cancelled_when_the_thread_stops() -> None:
    ended = threading.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with loop_thread() as thread:
        future = thread.submit(forever())
    assert ended.is_set()
    assert future.cancelled()


def test_a_call_handed_over_while_the_thread_stops_is_answered_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    hands_over, goes_on, stops = threading.Event(), threading.Event(), threading.Event()
    hand_over = asyncio.run_coroutine_threadsafe
    heard: list[object] = []

    def slow(*arguments: Any) -> Any:
        if threading.current_thread() is caller:
            hands_over.set()
            goes_on.wait()
        return hand_over(*arguments)

    def call() -> None:
        try:
            heard.append(thread.run(value(3)))
        except ClientClosed as error:
            heard.append(error)

    def stop() -> None:
        stops.set()
        thread.stop()

    with loop_thread() as thread:
        caller, stopper = threading.Thread(target=call, daemon=True), threading.Thread(target=stop)
        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", slow)
        caller.start()
        assert hands_over.wait(60)
        stopper.start()
        assert stops.wait(60)
        stopper.join(0.1)  # as far as it comes
        goes_on.set()
        stopper.join()
        caller.join(60)
        assert len(heard) == 1


@pytest.mark.parametrize("how", ["call", "items", "end"])
def test_who_waits_in_another_thread_while_it_stops_hears_that_it_is_closed(how: str) -> None:
    waits = threading.Event()
    heard: list[BaseException] = []

    async def items() -> AsyncGenerator[int, None]:
        yield await forever()

    async def endless() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            await forever()

    async def forever() -> int:
        waits.set()
        await asyncio.Event().wait()
        return 1

    def end() -> None:
        pulled = Pulled(thread, endless(), ahead=False)
        next(pulled)
        pulled.join()

    waits_for = {"call": lambda: thread.run(forever()), "items": lambda: next(Pulled(thread, items())), "end": end}

    def wait() -> None:
        try:
            waits_for[how]()
        except BaseException as error:  # noqa: BLE001 -- whatever it is
            heard.append(error)

    with loop_thread() as thread:
        waiting = threading.Thread(target=wait)
        waiting.start()
        waits.wait()
    waiting.join()
    assert [type(error) for error in heard] == [ClientClosed]


def test_a_call_inside_the_loop_is_refused_instead_of_hanging() -> None:
    with loop_thread() as thread:

        async def inside() -> int:
            return thread.run(value(1))

        with pytest.raises(InvalidArgument, match="never end"):
            thread.run(inside())


FORKED = """
import asyncio, os, warnings
from eventlog.client.loop_thread import LoopThread
from eventlog.errors import InvalidArgument

warnings.simplefilter("ignore")  # a fork with threads is what is tried
thread = LoopThread("thread")
child = os.fork()
if child:
    os.waitpid(child, 0)
    print(thread.run(asyncio.sleep(0, "parent")), flush=True)
else:
    try:
        thread.run(asyncio.sleep(0))
    except InvalidArgument as error:
        print(error, flush=True)
thread.stop()
os._exit(0)
"""


def test_a_client_does_not_survive_a_fork() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=True)
    told, answered = done.stdout.splitlines()
    assert "a client does not survive a fork" in told
    assert answered == "parent"


@pytest.mark.usefixtures("_interrupts")
def test_an_interrupt_cancels_the_call() -> None:
    cancelled = threading.Event()

    async def wait() -> None:
        interrupt_soon()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with loop_thread() as thread:
        with pytest.raises(KeyboardInterrupt):
            thread.run(wait())
        assert cancelled.wait(60)
        assert thread.run(value(2)) == 2


def test_items_are_fetched_one_ahead_and_no_further() -> None:
    source = Source()
    with loop_thread() as thread:
        pulled = Pulled(thread, source.numbers())
        assert source.taken == 0, "nothing is fetched before it is asked for"
        assert [next(pulled), next(pulled)] == [1, 2]
        thread.run(until(lambda: source.taken == 3))
        thread.run(asyncio.sleep(0.01))
        assert source.taken == 3
        pulled.close()
        assert source.ended.wait(60)
        assert list(pulled) == []


def test_the_end_of_the_items_is_the_end() -> None:
    async def two() -> AsyncGenerator[int, None]:
        yield 1
        yield 2

    async def broken() -> AsyncGenerator[int, None]:
        yield 1
        raise KeyError("x")

    with loop_thread() as thread:
        assert list(Pulled(thread, two())) == [1, 2]
        pulled = Pulled(thread, broken())
        assert next(pulled) == 1
        with pytest.raises(KeyError):
            next(pulled)
        assert list(pulled) == []


@pytest.mark.parametrize("how", ["forgotten", "closed", "left"])
def test_a_reading_that_waits_is_ended_with_its_iterator(how: str) -> None:
    source = Source(stuck_at=2)
    with loop_thread() as thread:
        pulled = Pulled(thread, source.numbers())
        assert [next(pulled), next(pulled)] == [1, 2]
        if how == "forgotten":
            del pulled
        elif how == "closed":
            pulled.close()
        else:
            with pulled:
                pass
        assert source.ended.wait(60)


@pytest.mark.usefixtures("_interrupts")
@pytest.mark.parametrize("is_flat", [False, True])
def test_an_interrupt_while_waiting_loses_no_item(is_flat: bool) -> None:
    gate = threading.Event()

    async def slow() -> AsyncGenerator[list[int], None]:
        yield [1]
        interrupt_soon()
        await asyncio.to_thread(gate.wait)
        yield [2]

    with loop_thread() as thread:
        pulled = Pulled(thread, slow())
        items: Iterator[object] = Flat(pulled) if is_flat else pulled
        found: list[object] = []
        with pytest.raises(KeyboardInterrupt):
            found.extend(items)
        gate.set()
        assert [*found, *items] == ([1, 2] if is_flat else [[1], [2]])


@pytest.mark.usefixtures("_interrupts")
@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("is_broken", [False, True])
def test_an_interrupt_that_comes_with_an_item_loses_neither(*, ahead: bool, is_broken: bool) -> None:
    gate = asyncio.Event()

    async def slow() -> AsyncGenerator[int, None]:
        yield 1
        interrupt_soon()
        await gate.wait()
        yield 2
        if is_broken:
            raise KeyError("x")
        yield 3

    async def item_comes() -> None:
        gate.set()
        for _ in range(20):
            await asyncio.sleep(0)

    with loop_thread() as thread:
        pulled = Pulled(thread, slow(), ahead=ahead)

        def interrupted(*_: object) -> None:
            thread.run(item_comes())
            raise KeyboardInterrupt

        signal.signal(signal.SIGINT, interrupted)
        assert next(pulled) == 1
        with pytest.raises(KeyboardInterrupt):
            next(pulled)
        assert next(pulled) == 2
        if is_broken:
            with pytest.raises(KeyError):
                next(pulled)
        else:
            assert next(pulled) == 3
        assert list(pulled) == []


@pytest.mark.usefixtures("_interrupts")
def test_an_interrupt_before_the_next_item_is_asked_for_skips_none() -> None:
    async def numbers() -> AsyncGenerator[int, None]:
        for number in range(1, 4):
            yield number

    with loop_thread() as thread:
        pulled = Pulled(thread, numbers())
        assert next(pulled) == 1
        main = threading.get_ident()

        def asked(frame: FrameType, event: str, _: object) -> None:
            if event == "return" and frame.f_code is LoopThread.submit.__code__ and threading.get_ident() == main:
                sys.setprofile(None)
                raise KeyboardInterrupt

        sys.setprofile(asked)
        with pytest.raises(KeyboardInterrupt):
            next(pulled)
        assert list(pulled) == [2, 3]


@pytest.mark.usefixtures("_interrupts")
def test_what_comes_of_a_step_that_was_interrupted_is_the_next_callers() -> None:
    gate = threading.Event()

    async def handed() -> AsyncGenerator[int, None]:
        yield 1
        interrupt_soon()
        gate.wait()  # the loop stands still: it learns of the interrupt when the item is handed out
        yield 2

    async def later() -> AsyncGenerator[int, None]:
        yield 3

    with loop_thread() as thread:
        steps, first = Steps[int](thread), handed()
        assert steps.next_of(first) == 1
        with pytest.raises(KeyboardInterrupt):
            steps.next_of(first)
        gate.set()
        second = later()
        assert [steps.next_of(second) for _ in range(3)] == [2, 3, None]


def test_rows_come_in_lists() -> None:
    async def rows() -> AsyncGenerator[int, None]:
        for row in range(5):
            yield row

    async def main() -> list[list[int]]:
        return [part async for part in in_lists(rows(), size=2)]

    assert asyncio.run(main()) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("what", ["items", "items of items"])
def test_a_second_thread_is_refused_an_iterator_and_the_first_one_loses_nothing(what: str) -> None:
    gate, waits = threading.Event(), threading.Event()
    found: list[object] = []

    async def lists() -> AsyncGenerator[list[int], None]:
        yield [1, 2]
        waits.set()
        await asyncio.to_thread(gate.wait)
        yield [3]

    with loop_thread() as thread:
        pulled = Pulled(thread, lists(), ahead=False)
        items: Iterator[object] = pulled if what == "items" else iter(Flat(pulled))
        first = threading.Thread(target=lambda: found.extend(items))
        first.start()
        assert waits.wait(60)
        try:
            with pytest.raises((InvalidArgument, ValueError)):
                next(items)
        finally:
            gate.set()
            first.join()
        assert found == ([[1, 2], [3]] if what == "items" else [1, 2, 3])


def test_items_of_items_go_on_in_the_next_loop_and_end_when_they_are_forgotten() -> None:
    source = Source()

    async def lists() -> AsyncGenerator[list[int], None]:
        async with aclosing(source.numbers()) as numbers:
            async for number in numbers:
                yield [number, -number]

    with loop_thread() as thread:
        items: Flat[int] = Flat(Pulled(thread, lists()))
        for _ in items:
            break
        assert [next(items), next(items)] == [-1, 2]
        assert not source.ended.is_set()
        del items
        assert source.ended.wait(60)


def test_a_forgotten_thread_warns_and_ends_by_itself() -> None:
    ended = threading.Event()

    async def last() -> None:
        ended.set()

    thread = LoopThread("thread", last=last)
    future = thread.submit(asyncio.Event().wait())
    [running] = [found for found in threading.enumerate() if found.name == "thread"]
    with pytest.warns(ResourceWarning, match="thread was forgotten"):
        del thread
    running.join(60)
    assert not running.is_alive()
    assert ended.is_set()
    assert future.cancelled()
