"""Copies trimmed like their originals, never above what their own state has on disk."""

import asyncio

import numpy as np

from eventlog.node.copying.trimmed_copies import TrimmedCopies
from eventlog.node.reading.fetch import note_trimmed
from eventlog.segment.keys import log_range, parse_log_key
from eventlog.segment.trimming import Trim
from eventlog.wire.eventlog_pb2 import FetchAnswer, Message, TrimCopies
from tests.node.copying.test_replicate_in import Wire
from tests.node.nodes import cache_of, submit, with_node
from tests.node.polling import FakeExchange


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

        async def over():
            await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "trim_copies"))

        copies = TrimmedCopies(node, flush=flush, remove=remove)
        marks[3] = 999
        node.replicas.serving[3] = False  # another process of this number leads it
        told = TrimCopies(cache_id=cache.cache_id, segments=[3], ids=[1000], offsets=[7])
        copies.asked(FakeExchange(Message(trim_copies=told), connection=Wire(node, number=node.number)))
        await over()
        assert removed == []
        marks[3] = 1000
        await copies.spread()
        await over()
        assert removed == [Trim(3, cache.cache_id, 1000, 7)]
        await copies.spread()
        await over()
        assert len(removed) == 1
        node.replicas.serving[3] = True

    with_node(tmp_path, act)


def test_a_copy_is_trimmed_also_where_a_reader_has_heard_of_it_before(tmp_path):
    """A read that asks the primary tells this node what is gone there; its own copy has it all the same."""

    async def act(node):
        cache = await cache_of(node)
        (id_,) = (await submit(node, cache, [(b"k", b"v")])).ids.tolist()
        (segment,) = np.flatnonzero(cache.next_offsets)
        heard = FetchAnswer(trimmed=[segment], trimmed_ids=[id_], trimmed_offsets=[0])
        assert note_trimmed(cache, heard)
        await node.retention.remove(cache, [Trim(int(segment), cache.cache_id, id_, 0)])
        assert node.store.read_log(*log_range(int(segment), cache.cache_id, after=0, upto=id_), bytes_max=1 << 20) == []
        assert (cache.removed_ids[segment], cache.trimmed_ids[segment], cache.events_kept) == (id_, id_, 0)

    with_node(tmp_path, act)


def test_a_new_primary_removes_what_the_one_before_had_removed(tmp_path):
    """A cut is one id over all segments: what is trimmed in one of them says what is to be gone in the others."""

    async def act(node):
        cache = await cache_of(node, retain_events=1_000)
        ids = [int((await submit(node, cache, [(b"k%d" % number, b"v")])).ids.item()) for number in range(40)]
        cut, told = ids[29], int(cache.next_offsets.argmax())
        cache.trimmed_ids[told] = cut  # by a node that is gone
        await node.retention.run_all()
        kept = node.store.read_log(b"", b"\xff" * 8, bytes_max=1 << 20)
        places = [parse_log_key(key) for key, _ in kept]
        assert sorted(base for _, cache_id, base in places if cache_id == cache.cache_id) == ids[30:]
        assert cache.events_kept == 10

    with_node(tmp_path, act)
