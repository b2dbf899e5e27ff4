"""What the synchronous client does beside calling the asynchronous one."""

import asyncio
import threading
from collections.abc import AsyncGenerator

from eventlog.blocking import Entries
from eventlog.client.loop_thread import LoopThread
from eventlog.client.reading.entries import Entries as AsyncEntries


def test_entries_may_be_left_while_the_next_ones_are_fetched() -> None:
    ended = threading.Event()

    async def batches(*, metadata: bool) -> AsyncGenerator[int, None]:
        try:
            yield int(metadata)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    thread = LoopThread("test")
    try:
        with Entries(thread, AsyncEntries(batches, limit=0, metadata=False)) as rows:
            assert next(iter(rows.batches())) == 0
        assert ended.is_set()
    finally:
        thread.stop()
