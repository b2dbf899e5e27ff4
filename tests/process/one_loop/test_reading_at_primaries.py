"""Reads of segments that one node leads are served by that node, and by another one when it is gone."""

import pytest

from eventlog.errors import InvalidArgument
from tests.process.one_loop.clients import client_of, cluster_of, run, until, until_spread

KEYS = 200
READS = 30


def test_a_read_of_what_one_node_leads_is_that_nodes(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster:
            await until_spread(cluster)
            async with client_of(cluster) as client:
                cache = await client.create_cache("c")
                await cache.put_many([(f"k{key}", key) for key in range(KEYS)])
                groups = cache.segments_by_primary()
                assert sorted(segment for group in groups for segment in group) == list(range(client.segments_count))
                assert len(groups) == 3
                assert cache.segments_by_primary([groups[1][0], groups[0][0]]) == sorted([groups[0][:1], groups[1][:1]])
                end, found = (await cache.log_ends()).last_id, []
                for group in groups:
                    before = [node.reads.given for node in cluster.up]
                    found += [event async for event in cache.events(0, until_id=end, segments=group, follow=True)]
                    served = [node for node, count in zip(cluster.up, before, strict=True) if node.reads.given > count]
                    assert [node.replicas.serving[list(group)].all() for node in served] == [True]
                assert len({event.id for event in found}) == KEYS

    run(act())


def test_any_node_with_a_copy_serves_a_read_that_asks_for_one(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster:
            await until_spread(cluster)
            async with client_of(cluster) as client:
                cache = await client.create_cache("c")
                await cache.put_many([(f"k{key}", key) for key in range(KEYS)])
                group, end, served = cache.segments_by_primary()[0], (await cache.log_ends()).last_id, set()
                for _ in range(READS):
                    before = [node.reads.given for node in cluster.up]
                    found = [event async for event in cache.events(0, until_id=end, segments=group, follow=True, read_from="any")]
                    assert {event.segment for event in found} == {*group}
                    served |= {node.number for node, count in zip(cluster.up, before, strict=True) if node.reads.given > count}
                assert served == {node.number for node in cluster.up}, "each has a copy of everything"
                with pytest.raises(InvalidArgument, match="read_from is 'primary': use owner or any"):
                    cache.events(0, read_from="primary")

    run(act())


def test_one_that_is_gone_is_another_ones_in_the_middle_of_a_read(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster:
            await until_spread(cluster)
            async with client_of(cluster) as client:
                cache = await client.create_cache("c")
                await cache.put_many([(f"k{key}", key) for key in range(KEYS)])
                home = next(running for running in cluster.nodes if running.node.replicas.serving.any())
                groups = cache.segments_by_primary()
                group = next(group for group in groups if not home.node.replicas.serving[list(group)].any())
                owner = next(running for running in cluster.nodes if running.node.replicas.serving[list(group)].all())
                follows, found = cache.events(0, segments=group, follow=True), []
                found.append(await anext(follows))
                await owner.kill()
                key = found[0].key
                await until(lambda: len(cluster.up) == 2)
                stored = await cache.put(key, -1)
                while found[-1].id != stored.id:
                    found.append(await anext(follows))
                await follows.aclose()
                assert [event.id for event in found] == sorted({event.id for event in found})
                assert [event.id for event in found] == [event.id async for event in cache.events(0, segments=group)]

    run(act())
