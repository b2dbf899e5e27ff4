"""The state of a replica that follows its log, where what it needs has to be read."""

import asyncio

import numpy as np
import pytest

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.entries import encode_entry
from eventlog.batch.layout import VALUE_HEAD_BYTES, ValueHead, encode_value
from eventlog.control.records import CacheOptions
from eventlog.errors import CorruptData
from eventlog.ids import ID_STEP
from eventlog.node.state.following import Followed
from eventlog.node.workers import ThreadWorker
from eventlog.node.writing.storage import StorageThread
from eventlog.replication.bodies import values_from
from eventlog.segment.keys import entry_key, log_key
from eventlog.segment.memory import MemoryDisk, MemoryStore
from eventlog.segment.port import StoreEnds
from eventlog.state.caches import Caches, new_cache
from eventlog.write.overlay import Overlay

SEGMENTS, CACHE = 2, 7


class Mended:
    """Reads as it is asked to; where that meets damage, `mend` is called for the next time."""

    def __init__(self, mend=None):
        self.again_ms = 0
        self._mend = mend

    async def read(self, work):
        try:
            return work()
        except CorruptData:
            self._mend()
            raise


class Reading:
    """What follows logs that hold one value a segment, of a cache that has to be asked for; asking ends when `asked_for` is set."""

    def __init__(self):
        self.ends = np.arange(1, SEGMENTS + 1) * ID_STEP
        ends = StoreEnds(ids=self.ends, epochs=np.ones(SEGMENTS, np.uint32))
        store = MemoryStore(MemoryDisk(segments=SEGMENTS, ends=ends))
        store.append([(log_key(segment, CACHE, id_), _value(segment, id_)) for segment, id_ in enumerate(self.ends.tolist())], [])
        self.asked_for = asyncio.Event()
        self.asks = asyncio.Event()
        self.followed = Followed(
            store=store,
            storage=StorageThread(store, ends=ends, on_fenced=lambda _: None, worker=ThreadWorker("storage")),
            overlay=Overlay(),
            caches=Caches(),
            applied=np.zeros(SEGMENTS, np.int64),
            ends=self.ends,
            number=1,
            steps=lambda *_: [],
            show=lambda *_: None,
            mending=Mended(),
            refresh_caches=self._ask,
        )

    async def _ask(self):
        self.asks.set()
        await self.asked_for.wait()


def _value(segment, id_):
    head = ValueHead(flags=0, sections=0, epoch=1, count=0, bitmap=0, kinds=0, producers=0, base=id_, first_offset=0)
    return encode_value(head, segment=segment, cache=CACHE, sections=[])


def _put(segment, id_, *, key, value):
    section, _ = build_blocks(Columns(kinds=np.zeros(1, np.uint8), keys=[key], values=[value]), np.array([1]))
    head = ValueHead(flags=0, sections=1, epoch=1, count=1, bitmap=0, kinds=1, producers=0, base=id_, first_offset=0)
    return encode_value(head, segment=segment, cache=CACHE, sections=[section])


def test_who_wants_a_segment_that_another_reads_gets_it_whole():
    async def act():
        reading, both = Reading(), np.arange(SEGMENTS)
        followed = reading.followed
        behind = followed.learned(both, reading.ends)
        follows = asyncio.create_task(followed.catch_up(behind[:1]))
        await reading.asks.wait()
        takes_over = asyncio.create_task(followed.catch_up(followed.learned(both, reading.ends)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not takes_over.done()
        assert followed.unattended(both).tolist() == [1]
        reading.asked_for.set()
        await takes_over
        assert followed.applied.tolist() == reading.ends.tolist()
        await follows

    asyncio.run(act())


def test_what_a_reader_is_told_meanwhile_is_read_as_well():
    async def act():
        reading, both = Reading(), np.arange(SEGMENTS)
        followed = reading.followed
        follows = asyncio.create_task(followed.catch_up(followed.learned(both, reading.ends)))
        await reading.asks.wait()
        follows_too = asyncio.create_task(followed.catch_up(both[1:]))
        reading.asked_for.set()
        await asyncio.gather(follows, follows_too)
        assert followed.is_at(both)
        assert not len(followed.learned(both, reading.ends))

    asyncio.run(act())


@pytest.mark.parametrize("bit", range(0, 8 * VALUE_HEAD_BYTES, 7))
def test_what_is_damaged_in_the_log_is_waited_for(bit):
    """A node that starts has its last second yet to apply: one flipped bit in there must not end it again and again."""

    async def act():
        store = MemoryStore(MemoryDisk(segments=SEGMENTS, ends=StoreEnds.empty(SEGMENTS)))
        caches, where, ends = Caches(), log_key(0, CACHE, ID_STEP), np.array([ID_STEP, 0])
        cache = new_cache(cache_id=CACHE, name="c", options=CacheOptions(format="bytes", state=False), from_id=0, segments=SEGMENTS)
        caches.add(cache)
        sound = bytearray(_put(0, ID_STEP, key=b"k", value=b"v"))
        sound[bit // 8] ^= 1 << bit % 8
        store.append([(where, bytes(sound))], [])
        mends = []

        def mend():
            mends.append(None)
            if len(mends) == 3:
                store.append([(where, _put(0, ID_STEP, key=b"k", value=b"v"))], [])

        followed = Followed(
            store=store,
            storage=StorageThread(store, ends=StoreEnds.empty(SEGMENTS), on_fenced=lambda _: None, worker=ThreadWorker("storage")),
            overlay=Overlay(),
            caches=caches,
            applied=np.zeros(SEGMENTS, np.int64),
            ends=ends,
            number=1,
            steps=lambda *_: [],
            show=lambda *_: None,
            mending=Mended(mend),
            refresh_caches=asyncio.Event().wait,
        )
        await followed.catch_up(followed.learned(np.array([0]), ends[:1]))
        assert len(mends) == 3
        assert followed.applied.tolist() == ends.tolist()
        assert cache.next_offsets.tolist() == [1, 0]

    asyncio.run(act())


def test_what_is_applied_is_shown_to_readers_at_once_and_put_into_the_store_soon():
    async def act():
        store = MemoryStore(MemoryDisk(segments=SEGMENTS, ends=StoreEnds.empty(SEGMENTS)))
        storage, overlay, caches = (
            StorageThread(store, ends=StoreEnds.empty(SEGMENTS), on_fenced=lambda _: None, worker=ThreadWorker("storage")),
            Overlay(),
            Caches(),
        )
        storage.start()
        caches.add(new_cache(cache_id=CACHE, name="c", options=CacheOptions(), from_id=0, segments=SEGMENTS))
        followed = Followed(
            store=store,
            storage=storage,
            overlay=overlay,
            caches=caches,
            applied=np.zeros(SEGMENTS, np.int64),
            ends=np.zeros(SEGMENTS, np.int64),
            number=1,
            steps=lambda *_: [],
            show=lambda *_: None,
            mending=Mended(),
            refresh_caches=asyncio.Event().wait,
        )
        where, end = np.array([1]), np.array([3 * ID_STEP])
        followed.keep(values_from(where, [CACHE], [_put(1, 3 * ID_STEP, key=b"k", value=b"v")]))
        assert not len(followed.learned(where, end))
        key = entry_key(1, CACHE, b"k")
        (entry,) = overlay.find([key])[0].values()
        assert entry == encode_entry(3 * ID_STEP, b"v")
        assert store.get_many([key]) == [None]
        assert await storage.run(lambda: store.get_many([key])) == [entry]
        assert overlay.find([key]) == ({}, [key])
        await storage.stop()

    asyncio.run(act())


def test_what_came_value_by_value_and_is_told_at_once_is_shown_value_by_value():
    shown, caches = [], Caches()
    cache = new_cache(cache_id=CACHE, name="c", options=CacheOptions(format="bytes", state=False), from_id=0, segments=SEGMENTS)
    caches.add(cache)
    none = StoreEnds(ids=np.zeros(SEGMENTS, np.int64), epochs=np.zeros(SEGMENTS, np.uint32))
    store = MemoryStore(MemoryDisk(segments=SEGMENTS, ends=none))
    followed = Followed(
        store=store,
        storage=StorageThread(store, ends=none, on_fenced=lambda _: None, worker=ThreadWorker("storage")),
        overlay=Overlay(),
        caches=caches,
        applied=none.ids,
        ends=none.ids,
        number=1,
        steps=lambda *_: [],
        show=lambda segments, applied, groups, _: shown.append((segments.tolist(), applied.tolist(), groups)),
        mending=Mended(),
        refresh_caches=None,
    )
    ids = [ID_STEP, 2 * ID_STEP, 3 * ID_STEP]
    for segment, id_ in zip((1, 0, 1), ids, strict=True):
        followed.keep(values_from(np.array([segment]), [CACHE], [_value(segment, id_)]))
    assert not len(followed.learned(np.arange(SEGMENTS), np.array(ids[1:])))
    [(segments, applied, groups)] = shown
    assert (segments, applied) == ([0, 1], ids[1:])
    assert [(group.first_id, group.last_id, group.caches[0].segments) for group in groups] == [
        (id_, id_, [segment]) for segment, id_ in zip((1, 0, 1), ids, strict=True)
    ]
    assert followed.applied.tolist() == ids[1:]
    assert followed.nbytes == 0
