"""Segments and stores that a start deletes or misses because an earlier one ended in the middle, and that others fill again."""

import asyncio
from pathlib import Path

from eventlog.segment.keys import encode_partial
from eventlog.segment.port import StoreEnds
from eventlog.segment.rocks.store import open_store
from tests.process.one_loop.cluster import SEGMENTS, Cluster, with_cluster


def test_entries_of_segments_that_a_start_deletes_are_not_counted_twice(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.create_cache()
        await asyncio.gather(*(cluster.put(b"key-%d" % number, b"v") for number in range(100)))
        await cluster.until(cluster.are_equal)
        running = cluster.nodes[2]
        await running.node.checkpoints.write()
        await running.kill()
        store = open_store(tmp_path / "n3" / "store", segments=SEGMENTS)  # as after a kill in the middle of giving them back
        store.append([], [encode_partial(segment) for segment in range(SEGMENTS)])
        store.sync(StoreEnds.empty(SEGMENTS))
        store.close()
        await running.start()
        await cluster.until(cluster.is_whole)
        await cluster.until(cluster.are_equal)
        assert running.node.copies.installed == 0
        assert running.node.caches.named("c").live.tolist() == cluster.up[0].caches.named("c").live.tolist()

    with_cluster(tmp_path, act, storage="rocksdb")


def test_a_start_goes_on_where_the_one_before_ended_after_it_had_set_the_store_aside(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.create_cache()
        await asyncio.gather(*(cluster.put(b"key-%d" % number, b"v") for number in range(100)))
        running = cluster.nodes[2]
        await running.kill()
        (tmp_path / "n3" / "store").rename(tmp_path / "n3" / "store.damaged")
        await running.start()
        await cluster.until(cluster.is_whole)
        await cluster.until(cluster.are_equal)
        assert running.node.caches.named("c").live.tolist() == cluster.up[0].caches.named("c").live.tolist()

    with_cluster(tmp_path, act, storage="rocksdb")
