"""Both ends of copies, where something goes wrong."""

import asyncio
import threading

import msgspec

from eventlog.errors import CorruptData
from eventlog.interceptor.producers import ProducerTable
from eventlog.node.copying import mending
from eventlog.node.copying.copies import CacheCounters, Counters, unseal
from eventlog.node.copying.replicate_copy import _Open
from eventlog.node.state.checkpoint import load_marks
from eventlog.replication import EpochStart, Replica
from eventlog.replication.commands import CloseSnapshot, EndInstall, ReadSnapshot
from eventlog.segment.keys import producer_key
from eventlog.segment.recovery import recover
from tests.node.nodes import cache_of, with_node

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


def test_the_producers_of_a_segment_are_copied_without_holding_up_the_loop(tmp_path):
    async def act(node):
        cache, turns = await cache_of(node), 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        for number in range(1, 301):
            cache.producers.learn_one(number, segment=0, sequence=7, id_=number << 22, kind=0)
        opened = _Open(
            copy=None,
            counters=[
                CacheCounters(
                    cache_id=cache.cache_id, next_offset=0, trimmed_id=0, trimmed_offset=-1, live=0, may_expire=False, producers=[]
                )
            ],
        )
        counting = asyncio.create_task(count())
        [found] = msgspec.msgpack.decode(unseal(await node.replicas.copies._counted(0, opened)), type=Counters).caches
        counting.cancel()
        assert dict(found.producers) == dict(cache.producers.export(0))
        assert len(found.producers) == 300
        assert turns > 3

    with_node(tmp_path, act)


def test_what_is_copied_of_producers_is_in_the_store_when_the_copy_ends(tmp_path):
    async def act(node):
        cache, other = await cache_of(node), ProducerTable(node.segments)
        at = int(node.core.ends.max())
        other.learn_one(5, segment=0, sequence=7, id_=at, kind=0)
        [(_, row)] = other.export(0)
        copies = node.replicas.copies
        copies._counters[0] = Counters(
            caches=[
                CacheCounters(
                    cache_id=cache.cache_id, next_offset=1, trimmed_id=0, trimmed_offset=-1, live=0, may_expire=False, producers=[(5, row)]
                )
            ]
        )
        copies.commands()[EndInstall](EndInstall(segment=0, epoch=1, transfer=7, pin=at, end_epoch=1, history=(EpochStart(1, 1, 0),)))
        await until_idle(node)
        assert node.store.get_many([producer_key(0, cache.cache_id, 5)]) == [row]
        assert list(cache.producers.export(0)) == [(5, row)]

    with_node(tmp_path, act)
