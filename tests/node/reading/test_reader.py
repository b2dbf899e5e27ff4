"""The reader thread and its turns."""

import asyncio
import threading

import pytest

from eventlog.node.reading.reader import FairQueue, ReaderThread
from eventlog.node.workers import ThreadWorker


def test_owners_take_turns():
    queue = FairQueue()
    for item in ("a1", "a2", "a3", "b1", "b2", "c1"):
        queue.put(item[0], item)
    assert len(queue) == queue.peak == 6
    assert [queue.take()[1] for _ in range(3)] == ["a1", "b1", "c1"]
    queue.put("c", "c2")
    assert [queue.take()[1] for _ in range(4)] == ["a2", "b2", "c2", "a3"]
    assert len(queue) == 0


def test_results_and_errors_arrive_on_the_loop():
    async def main():
        reader = ReaderThread(ThreadWorker("reader"))
        reader.start()
        assert await reader.run("a", threading.get_ident) != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            await reader.run("a", lambda: 1 / 0)
        assert await reader.run("a", lambda: 7) == 7
        await reader.stop()

    asyncio.run(main())


def test_one_owner_with_many_jobs_delays_another_by_one():
    async def main():
        reader = ReaderThread(ThreadWorker("reader"))
        reader.start()
        gate, order = threading.Event(), []
        first = reader.run("greedy", gate.wait)
        rest = [reader.run("greedy", lambda n=n: order.append(f"greedy {n}")) for n in range(3)]
        other = reader.run("modest", lambda: order.append("modest"))
        gate.set()
        await asyncio.gather(first, *rest, other)
        assert order.index("modest") <= 1
        assert reader.readers == 2
        assert reader.figures()["history_requests"][0] == 0
        await reader.stop()

    asyncio.run(main())


def test_a_cancelled_job_is_not_begun():
    async def main():
        reader = ReaderThread(ThreadWorker("reader"))
        reader.start()
        gate, begun = threading.Event(), []
        first = reader.run("a", gate.wait)
        second = reader.run("a", lambda: begun.append(1))
        second.cancel()
        gate.set()
        await first
        await reader.run("a", lambda: None)
        assert begun == []
        await reader.stop()

    asyncio.run(main())


def test_stopping_cancels_what_waits_and_what_comes_later():
    async def main():
        reader = ReaderThread(ThreadWorker("reader"))
        reader.start()
        gate = threading.Event()
        reader.run("a", gate.wait)
        waiting = reader.run("a", lambda: None)
        stopping = asyncio.create_task(reader.stop())
        await asyncio.sleep(0)
        gate.set()
        await stopping
        later = reader.run("a", lambda: None)
        for future in (waiting, later):
            with pytest.raises(asyncio.CancelledError):
                await future

    asyncio.run(main())


def test_a_reader_that_was_never_started_stops():
    asyncio.run(ReaderThread(ThreadWorker("reader")).stop())
