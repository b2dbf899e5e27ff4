"""Both ends of copies, where something goes wrong."""

import asyncio
import threading

from eventlog.errors import CorruptData
from eventlog.node.copying import mending
from eventlog.node.copying.copies import Counters
from eventlog.node.copying.replicate_copy import _Open
from eventlog.node.state.checkpoint import load_marks
from eventlog.replication import EpochStart, Replica
from eventlog.replication.commands import CloseSnapshot, EndInstall, ReadSnapshot
from eventlog.segment.recovery import recover
from tests.node.nodes import with_node

READ = ReadSnapshot(to=Replica(2, "first"), segment=0, transfer=7, part=0, bytes_max=1)


async def until_idle(node):
    while any(task.get_name() == "copy" for task in node._tasks):  # noqa: ASYNC110 -- nothing tells that the last step is done
        await asyncio.sleep(0)


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
        await until_idle(node)

    with_node(tmp_path, act)


def test_a_replica_that_is_dropped_while_the_end_of_its_copy_is_written_is_gone_afterwards(tmp_path):
    end = EndInstall(segment=0, epoch=1, transfer=7, pin=1 << 40, end_epoch=1, history=(EpochStart(1, 1, 0),))

    async def act(node):
        goes_on = asyncio.Event()

        async def learn_late():
            await goes_on.wait()

        node.learn_caches = learn_late
        copies = node.replicas.copies
        copies._counters[0] = Counters(caches=[])
        copies.commands()[EndInstall](end)
        dropped = asyncio.create_task(node.replicas.takeover.discard([0]))
        for _ in range(100):
            await asyncio.sleep(0)  # as far as it gets
        goes_on.set()
        await dropped
        await until_idle(node)
        assert node.storage.ends.ids[0] == 0
        assert recover(node.store, keyed=[]).ends.ids[0] == 0
        assert load_marks(node.store)[0][0] == 0

    with_node(tmp_path, act)


def test_what_is_dropped_is_marked_so_on_disk_although_the_mark_was_another_tasks_to_write(tmp_path, monkeypatch):
    async def act(node):
        await node.checkpoints.write()
        assert load_marks(node.store)[0][0] > 0
        apply, flush, goes_on = node.store.apply, node.store.flush_state, threading.Event()
        marked = []

        def apply_late(puts):
            goes_on.wait(10)
            apply(puts)

        def note_and_flush():
            marked.append(load_marks(node.store)[0][0])
            flush()

        monkeypatch.setattr(node.store, "flush_state", note_and_flush)
        written = []

        async def empty(segments):
            await emptied(segments)
            monkeypatch.setattr(node.store, "apply", apply_late)
            written.append(asyncio.create_task(node.checkpoints.write()))
            await asyncio.sleep(0)

        emptied = node.replicas.takeover.empty
        monkeypatch.setattr(node.replicas.takeover, "empty", empty)
        dropped = asyncio.create_task(node.replicas.takeover.discard([0]))
        while not written:  # noqa: ASYNC110 -- the storage thread has no event for it
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)  # what does not wait for the mark goes on meanwhile
        goes_on.set()
        await asyncio.gather(dropped, *written)
        assert marked == [0]

    with_node(tmp_path, act)
