"""Copies trimmed like their originals, never above what their own state has on disk."""

import asyncio

import numpy as np

from eventlog.node.copying.trimmed_copies import TrimmedCopies
from eventlog.segment.trimming import Trim
from tests.node.nodes import cache_of, with_node


def test_a_copy_is_trimmed_only_when_its_state_on_disk_has_passed_that_place(tmp_path):
    """What is trimmed of the log is nowhere but in the state: above the mark a crash would take it from there."""

    async def act(node):
        cache = await cache_of(node)
        marks, removed = np.zeros(node.segments, np.int64), []

        async def flush():
            return marks.copy()

        async def remove(of, trims):
            assert of is cache
            removed.extend(trims)

        async def work():
            copies._start()
            await asyncio.gather(*(task for task in node._tasks if task.get_name() == "trim_copies"))

        copies = TrimmedCopies(node, flush=flush, remove=remove)
        copies._pending[cache.cache_id, 3] = 1000, 7
        marks[3] = 999
        await work()
        assert removed == []
        marks[3] = 1000
        await work()
        assert removed == [Trim(3, cache.cache_id, 1000, 7)]
        await work()
        assert len(removed) == 1

    with_node(tmp_path, act)
