"""Three nodes of one cluster: what one acknowledges all have, whoever dies or is cut off."""

import asyncio

from tests.process.one_loop.cluster import Cluster, with_cluster


def test_what_is_written_at_a_primary_is_on_every_node_byte_by_byte(tmp_path):
    async def act(cluster: Cluster) -> None:
        await cluster.create_cache()
        await asyncio.gather(*(cluster.put(b"key-%d" % number, b"v%d" % number) for number in range(200)))
        await asyncio.gather(*(cluster.put(b"key-%d" % number, b"w%d" % number) for number in range(0, 200, 3)))
        await cluster.check()

    with_cluster(tmp_path, act)


def test_backups_keep_nothing_of_a_cache_that_was_dropped(tmp_path):
    async def act(cluster: Cluster) -> None:
        await cluster.create_cache()
        cache_id = cluster.up[0].caches.named("c").cache_id

        def followed() -> list[bool]:
            return [any(cache_id in place for place in node.followed._late) for node in cluster.up]

        await asyncio.gather(*(cluster.put(b"key-%d" % number, b"v") for number in range(20)))
        await cluster.until(lambda: any(followed()))
        await cluster.up[0].cache_changes.drop("c")
        await cluster.until(lambda: not any(followed()))

    with_cluster(tmp_path, act)


def test_a_killed_primary_is_succeeded_and_nothing_acknowledged_is_lost(tmp_path):
    async def act(cluster: Cluster) -> None:
        await cluster.create_cache()
        stop = asyncio.Event()

        async def write(writer: int) -> None:
            number = 0
            while not stop.is_set():
                await cluster.put(b"%d-%d" % (writer, number), b"v")
                number += 1

        writers = [asyncio.create_task(write(writer)) for writer in range(8)]
        await cluster.until(lambda: len(cluster.acknowledged) > 100)
        await cluster.nodes[0].kill()
        reached = len(cluster.acknowledged)
        await cluster.until(lambda: sum(node.replicas.serving.sum() for node in cluster.up) == 8)
        await cluster.until(lambda: len(cluster.acknowledged) > reached + 200)
        stop.set()
        for task in writers:
            task.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
        await cluster.until(cluster.is_whole)
        await cluster.until(cluster.are_equal)
        for node in cluster.up:
            cache = node.caches.named("c")
            assert int(cache.live.sum()) >= len(cluster.acknowledged)

    with_cluster(tmp_path, act)


def test_a_backup_that_is_cut_off_leaves_the_set_and_catches_up_when_it_is_back(tmp_path):
    async def act(cluster: Cluster) -> None:
        await cluster.create_cache()
        await asyncio.gather(*(cluster.put(b"a%d" % number, b"v") for number in range(50)))
        lone = cluster.nodes[2]
        await cluster.until(cluster.is_spread)
        lone.fall_silent()
        rest = cluster.up[:2]
        own = lone.node.number

        def is_out() -> bool:
            records = [found.record for found in rest[0].view.segments.values()]
            are_served = (rest[0].replicas.serving | rest[1].replicas.serving).all()
            return bool(are_served) and all(own not in {replica.node for replica in record.in_sync} for record in records)

        await cluster.until(is_out)
        await asyncio.gather(*(cluster.put(b"b%d" % number, b"v") for number in range(200)))
        await cluster.until(lambda: not lone.node.replicas.serving.any())
        lone.join_again()
        await cluster.until(cluster.is_whole)
        await cluster.check()

    with_cluster(tmp_path, act)


def test_who_lacks_what_retention_removed_gets_a_copy_and_then_the_log(tmp_path):
    async def act(cluster: Cluster) -> None:
        await cluster.create_cache(retain_events=16)
        await asyncio.gather(*(cluster.put(b"a%d" % number, b"v") for number in range(100)))
        lone = cluster.nodes[2]
        lone.fall_silent()
        rest = cluster.nodes[0].node, cluster.nodes[1].node
        await cluster.until(lambda: bool((rest[0].replicas.serving | rest[1].replicas.serving).all()))
        await asyncio.gather(*(cluster.put(b"a%d" % number, b"w") for number in range(50)))
        await asyncio.gather(*(cluster.put(b"b%d" % number, b"v") for number in range(100)))
        await rest[0].retention.run(rest[0].caches.named("c"), dry_run=False)
        await cluster.until(lambda: all(node.caches.named("c").trimmed_ids.all() for node in rest))
        lone.join_again()
        writing = asyncio.create_task(keep_writing(cluster))
        await cluster.until(cluster.is_whole)
        await writing
        assert lone.node.copies.installed == 8
        await cluster.until(lambda: bool((lone.node.followed.applied == lone.node.core.ends).all()))
        await cluster.check_state()
        cache = lone.node.caches.named("c")
        assert cache.next_offsets.tolist() == rest[0].caches.named("c").next_offsets.tolist()

    async def keep_writing(cluster: Cluster) -> None:
        for number in range(100):
            await cluster.put(b"c%d" % number, b"v")

    with_cluster(tmp_path, act)
