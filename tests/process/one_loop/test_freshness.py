"""Entries are read at a primary that others still take for one."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from eventlog.errors import NotPrimary
from eventlog.hashing import hash_key, segment_of
from eventlog.transport.connect import connect
from eventlog.transport.connection import Connection
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.process.one_loop.cluster import Cluster, with_cluster


async def led_by(cluster: Cluster, index: int) -> bytes:
    """Return a key that one node leads."""
    return next(key for key in (b"%d" % n for n in range(1_000)) if cluster.leader(key) is cluster.nodes[index].node)


async def get(connection: Connection, cache_id: int, key: bytes, consistency: pb.Consistency = pb.PRIMARY) -> pb.GetAnswer:
    request = Message(get=pb.Get(cache_id=cache_id, key=key, consistency=consistency))
    return (await connection.request(request, timeout_ms=30_000)).message.get_answer


def test_a_primary_that_is_cut_off_answers_only_reads_of_any_copy(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.until(cluster.is_spread)
        await cluster.create_cache()
        key = await led_by(cluster, 0)
        await cluster.put(key, b"old")
        node, port = cluster.nodes[0].node, cluster.nodes[0].port
        cache_id = node.caches.named("c").cache_id
        connection = await connect("127.0.0.1", port)
        for consistency in (pb.PRIMARY, pb.LINEAR, pb.ANY):
            assert (await get(connection, cache_id, key, consistency)).value == b"old"
        cluster.nodes[0].cut_off()
        with pytest.raises(NotPrimary):
            await get(connection, cache_id, key, pb.LINEAR)
        segment = next(segment for segment in np.flatnonzero(node.replicas.serving).tolist())
        await cluster.until(lambda: not node.freshness.is_fresh(segment))
        with pytest.raises(NotPrimary):
            await get(connection, cache_id, key)
        assert (await get(connection, cache_id, key, pb.ANY)).value == b"old"
        connection.close()
        await connection.wait_closed()
        cluster.nodes[0].join_again()

    with_cluster(tmp_path, act)


def test_any_replica_answers_reads_of_any_copy(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.until(cluster.is_spread)
        await cluster.create_cache()
        key = await led_by(cluster, 0)
        await cluster.put(key, b"v")
        leader, segment = cluster.nodes[0].node, segment_of(hash_key(key), cluster.nodes[0].node.segments)
        await cluster.until(lambda: all(node.followed.applied[segment] >= leader.core.watermark[segment] for node in cluster.up[1:]))
        for running in cluster.nodes[1:]:
            running.cut_off()
            connection = await connect("127.0.0.1", running.port)
            assert (await get(connection, running.node.caches.named("c").cache_id, key, pb.ANY)).value == b"v"
            connection.close()
            await connection.wait_closed()
            running.join_again()

    with_cluster(tmp_path, act)


def test_many_reads_of_one_second_ask_the_others_once(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.until(cluster.is_spread)
        await cluster.create_cache()
        key = await led_by(cluster, 0)
        node = cluster.nodes[0].node
        asked: list[int] = []
        send = node.peers.send

        def count(number: int, message: Message, *buffers: object, timeout_ms: int = 0) -> object:
            asked.extend([number] * message.HasField("confirm_epochs"))
            return send(number, message, *buffers, timeout_ms=timeout_ms)

        node.peers.send = count  # type: ignore[assignment,method-assign]
        connection = await connect("127.0.0.1", cluster.nodes[0].port)
        cache_id = node.caches.named("c").cache_id
        await asyncio.gather(*(get(connection, cache_id, key) for _ in range(50)))
        assert sorted(asked) == sorted(other.number for other in cluster.up if other is not node)
        connection.close()
        await connection.wait_closed()

    with_cluster(tmp_path, act)
