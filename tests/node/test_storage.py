"""The storage thread: results in order, and which errors end all writing."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

import pytest

from eventlog.errors import DiskFull, StoreFenced
from eventlog.node.storage import StorageThread


def run(act: Callable[[StorageThread], Awaitable[None]]) -> list[StoreFenced]:
    async def main() -> list[StoreFenced]:
        fenced: list[StoreFenced] = []
        storage = StorageThread(on_fenced=fenced.append)
        storage.start()
        await act(storage)
        await storage.stop()
        await asyncio.sleep(0)
        return fenced

    return asyncio.run(main())


def full() -> NoReturn:
    raise DiskFull(free_bytes=0, reserve_bytes=0)


def broken() -> NoReturn:
    raise ZeroDivisionError


def fence() -> NoReturn:
    raise StoreFenced(why="the disk is gone")


def test_jobs_run_in_order_and_all_of_them_before_the_end():
    done: list[int] = []

    async def act(storage: StorageThread) -> None:
        for number in range(100):
            storage.post(lambda number=number: done.append(number))
        assert await storage.run(lambda: len(done)) == 100
        storage.post(lambda: done.append(100))

    assert run(act) == []
    assert done == list(range(101))


@pytest.mark.parametrize(("job", "kind"), [(full, DiskFull), (broken, ZeroDivisionError)])
def test_an_error_reaches_its_waiter_alone(job, kind):
    async def act(storage: StorageThread) -> None:
        with pytest.raises(kind):
            await storage.run(job)
        assert await storage.run(lambda: 1) == 1

    assert run(act) == []


@pytest.mark.parametrize("job", [full, broken, fence])
def test_an_error_of_a_vital_job_fences_the_store(job):
    async def act(storage: StorageThread) -> None:
        with pytest.raises(StoreFenced):
            await storage.run(job, is_vital=True)
        with pytest.raises(StoreFenced):
            await storage.run(lambda: 1)

    assert len(run(act)) == 1


@pytest.mark.parametrize("job", [full, broken, fence])
def test_an_error_that_nobody_waits_for_fences_the_store(job):
    async def act(storage: StorageThread) -> None:
        storage.post(job)
        with pytest.raises(StoreFenced):
            await storage.run(lambda: 1)

    assert len(run(act)) == 1


def test_a_result_that_nobody_waits_for_any_more_is_dropped():
    async def act(storage: StorageThread) -> None:
        storage.run(lambda: 1).cancel()
        assert await storage.run(lambda: 2) == 2

    assert run(act) == []
