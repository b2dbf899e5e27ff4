"""Checksums of the state of copies: a changed row is seen at its copy, writes meanwhile are not taken for one."""

import asyncio

from eventlog.segment.keys import TAG_ENTRY, tag_range
from tests.process.one_loop.cluster import Cluster, with_cluster


def test_copies_of_a_cluster_are_equal_while_it_is_written_to_and_a_changed_row_is_named(tmp_path):
    async def act(cluster: Cluster) -> None:
        await cluster.create_cache()
        stop = asyncio.Event()

        async def write(writer: int) -> None:
            number = 0
            while not stop.is_set():
                await cluster.put(b"%d-%d" % (writer, number % 20), b"%d" % number)
                number += 1

        writers = [asyncio.create_task(write(writer)) for writer in range(4)]
        await cluster.until(lambda: len(cluster.acknowledged) == 80)
        node, backup, _ = cluster.up
        numbers = [other.number for other in cluster.up]
        entries = 0
        for segment in range(node.segments):
            found = await node.digests.compare(segment, numbers)
            assert found.why == ""
            entries += found.digests[node.number].entries
        stop.set()
        await asyncio.gather(*writers)
        await cluster.check()
        assert 0 < entries <= 80
        cache = backup.caches.named("c")
        (key, value), *_ = backup.store.read_state(*tag_range(0, cache.cache_id, TAG_ENTRY), limit=1)
        await backup.storage.run(lambda: backup.store.apply([(key, value[:-1] + bytes([value[-1] ^ 1]))]))
        backup.state_reads.pins.close()
        assert "states differ" in (await node.digests.compare(0, numbers)).why

    with_cluster(tmp_path, act)


def test_copies_that_have_applied_the_same_wait_for_no_promise_beyond_it(tmp_path):
    async def act(cluster: Cluster) -> None:
        await cluster.create_cache()
        for number in range(40):
            await cluster.put(b"%d" % number, b"v")
        await cluster.check()
        for other in cluster.up:
            other.state_digests.wait_s = 0
        node = cluster.up[0]
        for segment in range(node.segments):
            assert (await node.digests.compare(segment, [other.number for other in cluster.up])).why == ""

    with_cluster(tmp_path, act)
