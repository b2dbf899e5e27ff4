"""Both ends of copies, where something goes wrong."""

import asyncio

from eventlog.errors import CorruptData
from eventlog.node.copying import mending
from eventlog.node.copying.replicate_copy import _Open
from eventlog.replication import Replica
from eventlog.replication.commands import CloseSnapshot, ReadSnapshot
from tests.node.nodes import with_node

READ = ReadSnapshot(to=Replica(2, "first"), segment=0, transfer=7, part=0, bytes_max=1)


class Damaged:
    """A copy that can be read at the fourth attempt, or never."""

    def __init__(self, *, reads):
        self.left = reads
        self.is_read = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def read(self, *, bytes_max):
        del bytes_max
        self.left -= 1
        if self.left:
            raise CorruptData(where="state", why="a file cannot be read")
        self._loop.call_soon_threadsafe(self.is_read.set)


def test_a_copy_that_cannot_be_read_is_tried_again_while_somebody_waits_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr(mending, "AGAIN_MS", 1)

    async def act(node):
        copies, damaged, closed = node.replicas.copies, Damaged(reads=4), Damaged(reads=-1)
        copies._open[7] = _Open(copy=damaged, counters=[])
        copies.commands()[ReadSnapshot](READ)
        await damaged.is_read.wait()
        copies._open[7] = _Open(copy=closed, counters=[])
        copies.commands()[ReadSnapshot](READ)
        copies.commands()[CloseSnapshot](CloseSnapshot(segment=0, transfer=7))
        while any(task.get_name() == "copy" for task in node._tasks):  # noqa: ASYNC110 -- nothing tells that nothing is tried any more
            await asyncio.sleep(0)

    with_node(tmp_path, act)
