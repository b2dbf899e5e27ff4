"""Questions to all primaries while one of them is lost: an answer is one of all segments, or there is none."""

import asyncio
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from eventlog.errors import BadMessage, EventLogError, PrimariesMissing
from eventlog.hashing import hash_key, segment_of
from eventlog.transport.connection import Connection
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.process.one_loop.clients import on_spread_cluster, register
from tests.process.one_loop.cluster import SEGMENTS, Cluster, Running
from tests.process.one_loop.test_retention import KEPT, fill, retain

KEYS = [b"k%d" % number for number in range(40 * SEGMENTS)]
ROUNDS = 3


async def clear(connection: Connection, cluster: Cluster) -> int:
    """Clear until nothing is left, and return how often that took an error."""
    request = Message(clear=pb.Clear(cache_id=cluster.up[0].caches.named("c").cache_id))
    errors = 0
    while True:
        try:
            if not (await connection.request(request, timeout_ms=30_000)).message.clear_answer.more:
                return errors
        except EventLogError:
            errors += 1
            await asyncio.sleep(0)


def test_a_clear_beside_a_kill_leaves_nothing_that_was_there_before(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        left = []
        for _ in range(ROUNDS):
            await asyncio.gather(*(cluster.put(key, b"v") for key in KEYS))
            await cluster.nodes[2].kill()
            await clear(connections[0], cluster)
            await cluster.until(lambda: sum(int(node.replicas.serving.sum()) for node in cluster.up) == SEGMENTS)
            left.append(sum(int(node.caches.named("c").live[node.replicas.serving].sum()) for node in cluster.up))
            await clear(connections[0], cluster)
            await cluster.nodes[2].start()
            await cluster.until(cluster.is_spread)
        assert left == [0] * ROUNDS

    on_spread_cluster(tmp_path, act, storage="rocksdb")


def test_a_primary_that_cannot_know_that_it_still_is_one_answers_for_nothing(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        await asyncio.gather(*(cluster.put(key, b"v") for key in KEYS))
        node, cache_id = cluster.nodes[0].node, cluster.up[0].caches.named("c").cache_id
        cluster.nodes[0].cut_off()
        assert node.replicas.serving.any()
        with pytest.raises(PrimariesMissing) as raised:
            await connections[0].request(Message(clear=pb.Clear(cache_id=cache_id)), timeout_ms=500)
        assert raised.value.segments == list(range(SEGMENTS))
        cluster.nodes[0].join_again()

    on_spread_cluster(tmp_path, act)


def test_a_node_that_asks_says_about_which_segments(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        question = Message(clear=pb.Clear(cache_id=cluster.up[0].caches.named("c").cache_id), forwarded=True)
        covers = [((), ()), ((0, 0), (1, 1)), ((SEGMENTS,), (1,)), ((0, 1), (1,))]
        for segments, epochs in covers:
            question.cover.CopyFrom(pb.Cover(segments=segments, epochs=epochs))
            with pytest.raises(BadMessage, match="clear of another node names no segments"):
                await cluster.up[0].peers.connection(cluster.up[1].number).request(question, timeout_ms=10_000)

    on_spread_cluster(tmp_path, act)


def successors(cluster: Cluster, victim: Running) -> dict[int, int]:
    """Return who takes over each segment that a node leads, if it dies: whoever leads least then."""
    led = {running.node.number: int(running.node.replicas.serving.sum()) for running in cluster.nodes if running is not victim}
    found = {}
    for segment in np.flatnonzero(victim.node.replicas.serving).tolist():
        found[segment] = min(led, key=lambda number: (led[number], number))
        led[found[segment]] += 1
    return found


def test_nothing_is_removed_while_the_home_of_a_listener_is_taken_over(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        chooser = next(running for running in cluster.nodes if running.node.replicas.serving[0])
        victim, heir = (running for running in cluster.nodes if running is not chooser)
        home = next(segment for segment, number in successors(cluster, victim).items() if number == heir.node.number)
        names = map("l{}".format, range(1_000))
        name = next(name for name in names if segment_of(hash_key(name.encode()), SEGMENTS) == home)
        await fill(cluster, 300)
        held = (await register(connections[0], cluster, id=name, durable=True, hold_bytes=1 << 30)).last_id
        await fill(cluster, 600)
        async with heir.node.lease.lock:  # ids for its new terms would have to lie above the lease of who led before
            await cluster.until(lambda: victim.node.clock.ceiling > heir.node.clock.ceiling)
            await victim.kill()
            left = {chooser.node.number, heir.node.number}
            await cluster.until(lambda: {chooser.node.leader_of(segment) for segment in range(SEGMENTS)} == left)
            with suppress(PrimariesMissing):
                await retain(connections[chooser.index])
            assert not heir.node.replicas.serving[home]
            assert max(int(node.caches.named("c").trimmed_ids.max()) for node in cluster.up) <= held
        await cluster.until(lambda: sum(int(node.replicas.serving.sum()) for node in cluster.up) == SEGMENTS)
        await retain(connections[chooser.index])
        assert max(int(node.caches.named("c").trimmed_ids.max()) for node in cluster.up) <= held
        await connections[chooser.index].request(Message(remove_listener=pb.RemoveListener(id=name)), timeout_ms=30_000)
        assert (await retain(connections[chooser.index])).removed

    on_spread_cluster(tmp_path, act, retain_events=KEPT)


def test_a_near_cache_s_probe_is_answered_when_all_primaries_have_said_how_far_they_are(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        asker = cluster.nodes[0]
        victim, heir = cluster.nodes[1:]
        inherited = {segment for segment, number in successors(cluster, victim).items() if number == heir.node.number}
        answers: list[int | EventLogError] = []

        async def probe() -> int | EventLogError:
            count = len(answers)
            asker.node.how_far.end(answers.append)
            await cluster.until(lambda: len(answers) > count)
            return answers[-1]

        await asyncio.gather(*(cluster.put(key, b"v") for key in KEYS))
        assert await probe() >= max(id_ for _, id_ in cluster.acknowledged.values())
        async with heir.node.lease.lock:  # ids for its new terms would have to lie above the lease of who led before
            await cluster.until(lambda: victim.node.clock.ceiling > heir.node.clock.ceiling)
            await victim.kill()
            left = {asker.node.number, heir.node.number}
            await cluster.until(lambda: {asker.node.leader_of(segment) for segment in range(SEGMENTS)} == left)
            assert isinstance(await probe(), PrimariesMissing)
            assert not heir.node.replicas.serving[list(inherited)].any()
            assert heir.node.replicas.serving.any(), "it answers for others"
        await cluster.until(lambda: sum(int(node.replicas.serving.sum()) for node in cluster.up) == SEGMENTS)
        await asyncio.gather(*(cluster.put(key, b"w") for key in KEYS))
        assert await probe() >= max(id_ for _, id_ in cluster.acknowledged.values())

    on_spread_cluster(tmp_path, act)
