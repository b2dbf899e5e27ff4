"""Entries are read at a primary that others still take for one."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from eventlog.control.appointment import commit_of
from eventlog.control.operators import forced_record
from eventlog.errors import MetadataUnavailable, NotPrimary
from eventlog.hashing import hash_key, segment_of
from eventlog.transport.connect import connect
from eventlog.transport.connection import Connection
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests import loops
from tests.node.nodes import submit
from tests.process.one_loop.cluster import SEGMENTS, STEP_S, Cluster, with_cluster


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


class Unreachable:
    """A metadata store that does not answer."""

    def __getattr__(self, _name: str) -> object:
        raise MetadataUnavailable(outcome="none", why="nobody is there")


def test_who_was_alone_in_sync_when_it_last_looked_is_read_no_more_once_another_leads(tmp_path: Path) -> None:
    """The first node's watch ends right before its own proposal lets the second one into the in-sync sets; then it is cut off."""

    async def act() -> None:
        cluster = Cluster(tmp_path)
        first, second = cluster.nodes[:2]
        connections = []
        try:
            await first.start()
            await cluster.until(lambda: bool(first.node.replicas.serving.all()))
            await cluster.create_cache()
            await cluster.put(b"k", b"old")
            segment, node = segment_of(hash_key(b"k"), SEGMENTS), first.node
            [watch] = [task for task in asyncio.all_tasks() if task.get_name() == "metadata"]
            node.metadata.hooks.append(lambda change: watch.cancel() if len(change.view.segments[segment].record.owners) > 1 else None)
            await second.start()
            await cluster.until(lambda: len(second.node.view.segments[segment].record.in_sync) == 2)
            assert [replica.node for replica in node.view.segments[segment].record.in_sync] == [node.number]

            first.cut_off()
            node.records._store = Unreachable()  # type: ignore[assignment]
            view = await second.node.records.view()
            forced = forced_record(view, view.segments[segment].record, view.members[second.node.number], "forced")
            plan = commit_of(view, [forced])
            assert plan is not None
            await second.node.records.carry_out(plan)
            await cluster.until(lambda: bool(second.node.replicas.serving[segment]))
            await submit(second.node, second.node.caches.named("c"), [(b"k", b"new")])

            cache_id = node.caches.named("c").cache_id
            connections = [await connect("127.0.0.1", running.port) for running in (first, second)]
            for consistency in (pb.LINEAR, pb.PRIMARY):
                assert (await get(connections[1], cache_id, b"k", consistency)).value == b"new"
                await cluster.until(lambda: not node.freshness.is_fresh(segment))
                assert node.replicas.serving[segment]
                with pytest.raises(NotPrimary):
                    await get(connections[0], cache_id, b"k", consistency)
            assert (await get(connections[0], cache_id, b"k", pb.ANY)).value == b"old"
        finally:
            for connection in connections:
                connection.close()
                await connection.wait_closed()
            await cluster.stop()

    loops.run(act(), step_s=STEP_S)


def test_who_is_alone_asks_the_metadata_store_once_for_all_who_wait_and_never_before_they_came(tmp_path: Path) -> None:
    async def act() -> None:
        cluster = Cluster(tmp_path)
        try:
            await cluster.nodes[0].start()
            node = cluster.nodes[0].node
            await cluster.until(lambda: bool(node.replicas.serving.all()))
            asked: list[frozenset[int]] = []
            led_now, is_open = node.records.led_now, asyncio.Event()

            async def counted(terms: Mapping[int, int]) -> frozenset[int]:
                asked.append(frozenset(terms))
                await is_open.wait()
                return await led_now(terms)

            node.records.led_now = counted  # type: ignore[method-assign]
            first = asyncio.ensure_future(node.freshness.prove([0]))
            await cluster.until(lambda: len(asked) == 1)
            later = [asyncio.ensure_future(node.freshness.prove([segment % SEGMENTS])) for segment in range(1, 50)]
            later[0].cancel()  # the others are answered all the same
            for _ in range(10):
                await asyncio.sleep(0)  # until all of them wait for one answer
            is_open.set()
            await asyncio.gather(first, *later[1:])
            assert asked == [{0}, frozenset(range(SEGMENTS))]

            await cluster.until(lambda: not any(node.freshness.is_fresh(segment) for segment in range(SEGMENTS)))
            asked.clear()
            await asyncio.gather(*(node.freshness.refresh(segment) for segment in range(SEGMENTS)))
            assert asked == [frozenset(range(SEGMENTS))]
            assert all(node.freshness.is_fresh(segment) for segment in range(SEGMENTS))
        finally:
            await cluster.stop()

    loops.run(act(), step_s=STEP_S)
