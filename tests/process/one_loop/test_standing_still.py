"""Readers of a group beside a segment whose promise stands still: what the other segments of its node have is read all the same."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from eventlog.groups.record import route_of
from eventlog.hashing import hash_key, segment_of
from tests.process.one_loop.clients import client_of, until_spread
from tests.process.one_loop.cluster import SEGMENTS, Cluster, with_cluster

EVENTS = 40


def keys_beside(segments: set[int], still: int) -> list[bytes]:
    """Return keys of some segments but one."""
    found = (b"k%d" % number for number in range(10_000))
    own = [key for key in found if segment_of(hash_key(key), SEGMENTS) in segments - {still}]
    return own[:EVENTS]


@pytest.mark.parametrize("mode", ["read", "work"])
def test_a_group_reads_on_beside_a_segment_that_stands_still(mode: str, tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        await until_spread(cluster)
        await cluster.create_cache(bytes_keys=True)
        node = cluster.up[0]
        led = set(np.flatnonzero(node.replicas.serving).tolist())
        still = min(led - {node.inner.segment(route_of("g"))})
        id_ = node.clock.next(1)
        node.promises.begin(np.array([still]), first_id=id_, last_id=id_)  # an event that is in flight for good
        keys = keys_beside(led, still)
        async with client_of(cluster) as client:
            cache = await client.cache("c")
            async with cache.consumer(group="g", mode=mode) as consumer:
                for key in keys:
                    await cache.put(key, b"v")
                seen = set()
                async with asyncio.timeout(40):
                    async for one in consumer:
                        seen.add(one.event.key if mode == "work" else one.key)
                        if mode == "work":
                            await one.ack()
                        if len(seen) == len(keys):
                            break
        node.promises.commit(np.array([still]), np.array([id_]), upto=id_)
        assert seen == set(keys)

    with_cluster(tmp_path, act)
