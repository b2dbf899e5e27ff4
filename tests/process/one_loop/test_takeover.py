"""What a node that leads a segment again knows of the time between."""

import asyncio
from pathlib import Path

from eventlog.events import Kind
from eventlog.hashing import hash_key, segment_of
from eventlog.write.groups import WriteResult
from tests.node.nodes import submit
from tests.process.one_loop.cluster import SEGMENTS, Cluster, with_cluster

KEYS = {segment_of(hash_key(key), SEGMENTS): key for key in (b"k%d" % number for number in range(100))}


def test_keys_that_were_removed_under_another_primary_are_not_there_when_a_node_leads_again(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.create_cache()
        await cluster.until(cluster.is_spread)
        former = cluster.nodes[1]
        led = [key for segment, key in KEYS.items() if former.node.replicas.serving[segment]]
        await asyncio.gather(*(cluster.put(key, b"v") for key in led))
        former.fall_silent()
        await cluster.until(lambda: not former.node.replicas.serving.any())
        rest = [node for node in cluster.up if node is not former.node]
        await cluster.until(lambda: bool((rest[0].replicas.serving | rest[1].replicas.serving).all()))
        for key in led:
            node = cluster.leader(key)
            assert node is not None
            result = await submit(node, node.caches.named("c"), [(key, None)])
            assert isinstance(result, WriteResult)
        former.join_again()
        await cluster.until(cluster.is_spread)
        again = [key for key in led if cluster.leader(key) is former.node]
        assert again
        for key in again:
            cache = former.node.caches.named("c")
            result = await submit(former.node, cache, [(key, b"w")])
            assert isinstance(result, WriteResult)
            assert result.kinds.tolist() == [Kind.CREATED]
            assert int(cache.live[segment_of(hash_key(key), SEGMENTS)]) == 1

    with_cluster(tmp_path, act)
