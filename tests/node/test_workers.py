"""Workers that are threads: what was put is taken in its order, and the thread ends once, whoever does not know of it."""

import asyncio
import threading

from eventlog.node.workers import ThreadWorker


def test_what_comes_behind_the_end_does_not_break_the_last_turn():
    async def main():
        turns, begun, may_end = list[list[str]](), threading.Event(), threading.Event()

        def turn(items):
            turns.append(items)
            begun.set()
            may_end.wait()

        worker = ThreadWorker("w")
        worker.start(turn)
        worker.put("first")
        await asyncio.to_thread(begun.wait)
        worker.put("before")
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        worker.put("behind")
        may_end.set()
        await stopping
        assert turns == [["first"], ["before", "behind"]]

    asyncio.run(main())
