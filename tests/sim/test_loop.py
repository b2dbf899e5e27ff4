"""asyncio on virtual time."""

import asyncio
import math

from tests.sim.loop import VirtualLoop
from tests.sim.scheduler import Process, Scheduler


def make() -> tuple[Scheduler, Process, VirtualLoop, list[BaseException]]:
    scheduler, errors = Scheduler(), []
    process = Process(scheduler)
    return scheduler, process, VirtualLoop(process, on_error=errors.append), errors


def test_sleeping_takes_virtual_time_alone():
    scheduler, _, loop, errors = make()
    woke = []

    async def sleeper():
        await asyncio.sleep(3600)
        woke.append(loop.time())

    loop.start(sleeper())
    scheduler.run(4_000_000_000)
    assert (woke, errors) == ([3600.0], [])


def test_timeouts_and_locks_work_as_drivers_use_them():
    scheduler, _, loop, errors = make()
    lock, said = asyncio.Lock(), []

    async def holder():
        async with lock:
            await asyncio.sleep(2)

    async def waiter():
        try:
            async with asyncio.timeout(1):
                async with lock:
                    said.append("too early")
        except TimeoutError:
            said.append(loop.time())
        async with lock:
            said.append(loop.time())

    loop.start(holder())
    loop.start(waiter())
    scheduler.run(10_000_000)
    assert (said, errors) == ([1.0, 2.0], [])


def test_a_wait_for_less_than_a_microsecond_ends():
    scheduler, _, loop, errors = make()
    turns = []

    async def waiter():
        await asyncio.sleep(1)
        deadline = math.nextafter(loop.time(), math.inf)
        while loop.time() < deadline and len(turns) < 10:
            turns.append(loop.time())
            await asyncio.sleep(deadline - loop.time())

    loop.start(waiter())
    scheduler.run(2_000_000)
    assert (turns, errors) == ([1.0], [])


def test_an_error_that_nobody_caught_is_heard_of():
    scheduler, _, loop, errors = make()

    async def fails():
        await asyncio.sleep(1)
        raise ValueError("no")

    loop.start(fails())
    scheduler.run(2_000_000)
    assert [str(error) for error in errors] == ["no"]


def test_a_crash_drops_tasks_where_they_stand():
    scheduler, process, loop, errors = make()
    said = []

    async def works():
        await asyncio.sleep(1)
        said.append("after the crash")

    loop.start(works())
    scheduler.run(500_000)
    process.kill()
    loop.end()
    scheduler.run(5_000_000)
    assert (said, errors) == ([], [])
