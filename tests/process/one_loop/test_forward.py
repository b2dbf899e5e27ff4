"""Requests that come to a node that does not lead their segments."""

from pathlib import Path

import numpy as np
import pytest

from eventlog.batch.marks import REFUSED
from eventlog.batch.one import decode_rows
from eventlog.errors import BadMessage, CacheNotFound, EventLogError, NotMember, NotPrimary
from eventlog.hashing import hash_key, segment_of
from eventlog.node.node import Node
from eventlog.transport.connect import connect
from eventlog.transport.connection import Connection, Reply
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.process.member_ends import greet_as_member
from tests.process.one_loop.clients import cache_id, frame, on_spread_cluster
from tests.process.one_loop.cluster import SEGMENTS, Cluster, with_cluster

KEYS = [b"key %d" % n for n in range(40)]


async def write(connection: Connection, node: Node, keys: list[bytes] = KEYS) -> tuple[pb.WriteAnswer, Reply, list[bytes]]:
    message, body, _, order = frame(keys, node)
    reply = await connection.request(message, *body, timeout_ms=30_000)
    return reply.message.write_answer, reply, order


async def rows_of(connection: Connection, message: Message, *body: bytes) -> list[tuple[bytes, bytes, int]]:
    return [
        row[:3]
        async for item in connection.stream(message, *body)
        for row in decode_rows(item.body, count=item.message.stream_item.entries.count, has_metadata=False)
    ]


def test_a_write_with_several_primaries_is_answered_as_one(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        for connection, node in zip(connections, cluster.up, strict=True):
            answer, reply, order = await write(connection, node)
            ids = np.frombuffer(reply.body[: 8 * answer.events], "<i8").tolist()
            assert (answer.events, len(answer.refusals)) == (len(KEYS), 0)
            for key, id_ in zip(order, ids, strict=True):
                found = (await connection.request(Message(get=pb.Get(cache_id=cache_id(cluster), key=key)))).message.get_answer
                assert (found.value, found.version) == (b"v" + key, id_)

    on_spread_cluster(tmp_path, act)


def test_a_request_that_has_no_body_is_refused_with_one(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        poll = Message(poll=pb.Poll(cache_id=cache_id(cluster), wait_ms=60_000))
        for message in (poll, Message(status=pb.Status()), Message(get=pb.Get(cache_id=cache_id(cluster), key=b"k"))):
            with pytest.raises(BadMessage, match="a body of 1000 bytes"):
                await connections[0].request(message, bytes(1_000), timeout_ms=10_000)
        await connections[0].request(Message(get=pb.Get(cache_id=cache_id(cluster), key=b"k")))

    on_spread_cluster(tmp_path, act)


def test_entries_of_all_primaries_are_read_at_any_node(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        await write(connections[0], cluster.up[0])
        offsets = np.cumsum([0, *map(len, KEYS), 4]).astype("<i4").tobytes()
        for connection in connections:
            many = Message(get_many=pb.GetMany(cache_id=cache_id(cluster), count=len(KEYS) + 1))
            found = await rows_of(connection, many, offsets, b"".join(KEYS) + b"none")
            assert [(key, value) for key, value, _ in found[:-1]] == [(key, b"v" + key) for key in KEYS]
            assert found[-1][2] == 0
            keys = await rows_of(connection, Message(keys=pb.Keys(cache_id=cache_id(cluster))))
            by_segment = sorted(KEYS, key=lambda key: (segment_of(hash_key(key), SEGMENTS), key))
            assert [key for key, _, _ in keys] == by_segment
            some = [segment_of(hash_key(by_segment[20]), SEGMENTS), 7]
            rest = pb.Keys(cache_id=cache_id(cluster), segments=sorted(set(some)), after=by_segment[20], limit=3)
            wanted = [key for key in by_segment[21:] if segment_of(hash_key(key), SEGMENTS) in some][:3]
            assert [key for key, _, _ in await rows_of(connection, Message(keys=rest))] == wanted
            size = await connection.request(Message(size=pb.Size(cache_id=cache_id(cluster))))
            assert size.message.size_answer.size == len(KEYS)

    on_spread_cluster(tmp_path, act)


def test_clear_removes_the_entries_of_all_primaries(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        await write(connections[0], cluster.up[0])
        removed = 0
        while True:
            clear = Message(clear=pb.Clear(cache_id=cache_id(cluster), limit=7))
            answer = (await connections[1].request(clear, timeout_ms=30_000)).message.clear_answer
            removed += answer.removed
            if not answer.more:
                break
        assert removed == len(KEYS)

    on_spread_cluster(tmp_path, act)


def test_a_request_is_passed_on_once(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        node, connection = cluster.up[0], connections[0]
        with pytest.raises(NotMember, match="passing requests on"):
            await connection.request(Message(size=pb.Size(cache_id=cache_id(cluster)), forwarded=True), timeout_ms=30_000)
        await greet_as_member(connection, cluster.location, cluster.up[1].number)
        elsewhere = next(key for key in KEYS if not node.replicas.serving[segment_of(hash_key(key), SEGMENTS)])
        message, body, _, _ = frame([elsewhere], node, forwarded=True)
        with pytest.raises(NotPrimary):
            await connection.request(message, *body, timeout_ms=30_000)
        for request in (Message(get=pb.Get(cache_id=cache_id(cluster), key=elsewhere)), Message(size=pb.Size(cache_id=cache_id(cluster)))):
            request.forwarded = True
            segment = segment_of(hash_key(elsewhere), SEGMENTS)
            request.cover.CopyFrom(pb.Cover(segments=[segment], epochs=[int(node.core.epochs[segment])]))
            with pytest.raises(NotPrimary):
                await connection.request(request, timeout_ms=30_000)
        keys = Message(keys=pb.Keys(cache_id=cache_id(cluster)), forwarded=True)
        with pytest.raises(NotPrimary):
            await rows_of(connection, keys)

    on_spread_cluster(tmp_path, act)


def test_a_primary_that_cannot_be_reached_refuses_its_own_blocks_only(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        node = cluster.up[0]
        missing = cluster.nodes[2].node
        lost = set(np.flatnonzero(missing.replicas.serving).tolist())
        node.peers.update({number: address for number, address in node.leaders.topology.addresses.items() if number != missing.number})
        message, body, segments, order = frame(KEYS, node)
        reply = await connections[0].request(message, *body, timeout_ms=30_000)
        answer = reply.message.write_answer
        assert {segments[refusal.block] for refusal in answer.refusals} >= lost & set(segments)
        assert {refusal.error.code for refusal in answer.refusals} == {"NOT_PRIMARY"}
        kinds = bytes(reply.body[8 * answer.events :])
        refused = {key for key, kind in zip(order, kinds, strict=True) if kind == REFUSED}
        assert refused == {key for key in KEYS if segment_of(hash_key(key), SEGMENTS) in {segments[row.block] for row in answer.refusals}}
        with pytest.raises(EventLogError) as raised:
            await connections[0].request(Message(get=pb.Get(cache_id=cache_id(cluster), key=next(iter(refused)))), timeout_ms=30_000)
        assert isinstance(raised.value, NotPrimary)

    on_spread_cluster(tmp_path, act)


def test_clients_are_told_the_topology_and_of_its_changes(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        told: list[int] = []

        def hear(exchange: object) -> None:
            told.append(exchange.message.topology_changed.epoch)  # type: ignore[attr-defined]
            exchange.answer(Message(done=pb.Done()))  # type: ignore[attr-defined]

        listening = await connect("127.0.0.1", cluster.nodes[0].port, dispatch=hear)
        answer = (await connections[0].request(Message(get_topology=pb.GetTopology()))).message.topology_answer
        assert {address.number for address in answer.nodes} == {node.number for node in cluster.up}
        assert len(answer.primaries) == SEGMENTS
        assert answer.number == connections[0].hello.number == cluster.up[0].number
        await cluster.nodes[2].kill()
        await cluster.until(lambda: bool(told) and told[-1] > answer.epoch)
        listening.close()
        await listening.wait_closed()

    on_spread_cluster(tmp_path, act)


def test_a_cache_that_another_node_has_just_made_is_known_everywhere(tmp_path):
    async def act(cluster):
        node = cluster.nodes[2].node
        await cluster.nodes[0].node.cache_changes.create("fresh", {}, use_existing=False)
        await cluster.until(lambda: "fresh" in [cache.name for cache in node.caches])
        node.caches.drop(node.caches.named("fresh"))  # as if it had not heard of it yet
        connection = await connect("127.0.0.1", cluster.nodes[2].port)
        try:
            found = (await connection.request(Message(describe_cache=pb.DescribeCache(name="fresh")))).message.cache_answer
            assert found.cache.name == "fresh"
            with pytest.raises(CacheNotFound):
                await connection.request(Message(describe_cache=pb.DescribeCache(name="never")))
        finally:
            connection.close()
            await connection.wait_closed()

    with_cluster(tmp_path, act)
