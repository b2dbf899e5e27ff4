"""The cluster's own caches, written and read at any node."""

import asyncio
from pathlib import Path

import pytest

from eventlog.errors import BadName, NotMember, NotPrimary, OperationRefused, VersionMismatch
from eventlog.node.consumers.inner import LISTENERS
from eventlog.node.node import Node
from eventlog.transport.connect import connect
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.process.one_loop.clients import frame
from tests.process.one_loop.cluster import Cluster, with_cluster

ROUTES = [b"route %d" % n for n in range(12)]


def test_every_node_writes_and_reads_what_any_other_leads(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.until(cluster.is_spread)
        for index, route in enumerate(ROUTES):
            node = cluster.up[index % 3]
            versions = await node.inner.write(LISTENERS, route, puts={route + b"\0": b"%d" % index}, expect={route + b"\0": None})
            for other in cluster.up:
                found = await other.inner.entry(LISTENERS, route + b"\0")
                assert found is not None
                assert (found.value, found.version) == (b"%d" % index, versions[route + b"\0"])
                with pytest.raises(VersionMismatch):
                    await other.inner.write(LISTENERS, route, puts={route + b"\0": b""}, expect={route + b"\0": None})
        for node in cluster.up:
            assert sorted(key for key, _ in await node.inner.scan_all(LISTENERS)) == sorted(route + b"\0" for route in ROUTES)

    with_cluster(tmp_path, act)


def test_a_failover_is_waited_for(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.until(cluster.is_spread)
        versions: dict[bytes, int] = {}
        for route in ROUTES:
            versions |= await cluster.up[0].inner.write(LISTENERS, route, puts={route + b"\0": b"before"})
        dead = cluster.nodes[2]
        moved = [route for route in ROUTES if dead.node.inner.leads(route)]
        assert moved
        await dead.kill()
        for route in moved:
            for node in cluster.up:
                found = await node.inner.entry(LISTENERS, route + b"\0", deadline_ms=30_000)
                assert found is not None
                expect = {route + b"\0": versions[route + b"\0"]}
                versions |= await node.inner.write(LISTENERS, route, puts={route + b"\0": b"after"}, expect=expect, deadline_ms=30_000)

    with_cluster(tmp_path, act)


def test_users_see_them_when_they_ask_and_never_change_them(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        node = cluster.up[0]
        await node.inner.write(LISTENERS, b"r", puts={b"r\0": b"1"})
        await cluster.create_cache()
        connection = await connect("127.0.0.1", cluster.nodes[0].port)
        try:
            for internal, names in ((False, ["c"]), (True, [LISTENERS, "c"])):
                reply = await connection.request(Message(list_caches=pb.ListCaches(internal=internal)))
                assert [cache.name for cache in reply.message.list_caches_answer.caches] == names
            for request in (
                Message(create_cache=pb.CreateCache(name="__mine")),
                Message(alter_cache=pb.AlterCache(name=LISTENERS)),
                Message(drop_cache=pb.DropCache(name=LISTENERS)),
            ):
                with pytest.raises(BadName):
                    await connection.request(request)
            message, body, _, _ = frame([b"r\0"], node)
            message.write.cache_id = node.caches.named(LISTENERS).cache_id
            for forwarded, error in ((False, OperationRefused), (True, NotMember)):
                message.forwarded = forwarded
                with pytest.raises(error):
                    await connection.request(message, *body)
            own = message.write.cache_id
            for request in (
                Message(get=pb.Get(cache_id=own, key=b"r\0")),
                Message(size=pb.Size(cache_id=own)),
                Message(poll=pb.Poll(cache_id=own)),
                Message(log_ends=pb.LogEnds(cache_id=own)),
                Message(iteration_start=pb.IterationStart(cache_id=own)),
                Message(register_listener=pb.RegisterListener(cache_id=own)),
                Message(group_beat=pb.GroupBeat(group="g", cache_id=own, member="m")),
            ):
                with pytest.raises(OperationRefused, match=f"of {LISTENERS} is refused: it is the cluster's own"):
                    await connection.request(request)
            for request in (Message(keys=pb.Keys(cache_id=own)), Message(watch=pb.Watch(poll=pb.Poll(cache_id=own)))):
                with pytest.raises(OperationRefused):
                    await anext(aiter(connection.stream(request)))
            with pytest.raises(OperationRefused):
                await connection.request(Message(clear=pb.Clear(cache_id=message.write.cache_id)))
        finally:
            connection.close()
            await connection.wait_closed()

    with_cluster(tmp_path, act)


def test_writers_in_a_race_are_told_apart_by_their_conditions(tmp_path: Path) -> None:
    async def count(node: Node) -> int:
        won = 0
        for _ in range(10):
            found = await node.inner.entry(LISTENERS, b"r\0")
            value = b"%d" % (int(found.value) + 1 if found else 1)
            try:
                await node.inner.write(LISTENERS, b"r", puts={b"r\0": value}, expect={b"r\0": found.version if found else None})
                won += 1
            except VersionMismatch:
                continue
        return won

    async def act(cluster: Cluster) -> None:
        won = await asyncio.gather(*(count(node) for node in cluster.up))
        found = await cluster.up[0].inner.entry(LISTENERS, b"r\0")
        assert found is not None
        assert int(found.value) == sum(won)

    with_cluster(tmp_path, act)


def test_a_write_of_a_term_is_not_passed_on_to_whoever_leads_the_route_after_it(tmp_path: Path) -> None:
    """Else a coordinator that is replaced in the middle of a commit would change what its successor has read already."""

    async def act(cluster: Cluster) -> None:
        route, key = ROUTES[0], ROUTES[0] + b"\0"
        await cluster.until(lambda: any(node.inner.leads(route) for node in cluster.up))
        node = next(node for node in cluster.up if node.inner.leads(route))
        term = node.inner.term(route)
        await node.inner.write(LISTENERS, route, puts={key: b"1"}, term=term)
        await node.leaving.hand_over()
        await cluster.until(lambda: any(other.inner.leads(route) for other in cluster.up if other is not node))
        with pytest.raises(NotPrimary):
            await node.inner.write(LISTENERS, route, puts={key: b"2"}, term=term)
        found = await node.inner.entry(LISTENERS, key)
        assert found is not None
        assert found.value == b"1"
        await node.inner.write(LISTENERS, route, puts={key: b"3"})

    with_cluster(tmp_path, act)
