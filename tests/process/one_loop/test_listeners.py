"""Listeners registered at one node and polled at any other."""

import asyncio
from pathlib import Path

import msgspec
import numpy as np
import pytest

from eventlog.errors import BadPredicate, InvalidArgument, ListenerExists, ListenerNotFound, Unavailable
from eventlog.ids import ID_MAX, time_of
from eventlog.read import token
from eventlog.read.position import OFFSET_UNKNOWN, Position, SegmentPositions
from eventlog.transport.connection import Connection
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.process.one_loop.clients import cache_id, on_spread_cluster, poll, register
from tests.process.one_loop.cluster import SEGMENTS, Cluster

ODD = pb.Filter(where="key LIKE 'odd%'")


async def describe(connection: Connection, listener: str) -> pb.Listener:
    while True:
        try:
            reply = await connection.request(Message(list_listeners=pb.ListListeners(id=listener)), timeout_ms=20_000)
            return reply.message.list_listeners_answer.listeners[0]
        except Unavailable:
            await asyncio.sleep(0.02)


async def put_some(cluster: Cluster, *names: str) -> None:
    for name in names:
        await cluster.put(name.encode(), b"v")


async def no_lag(connection: Connection, listener: str) -> bool:
    for _ in range(3_000):
        found = await describe(connection, listener)
        if not found.lag_events:
            return (found.lag_bytes, found.lag_ms) == (0, 0)
        await asyncio.sleep(0.01)
    return False


def homed_at(cluster: Cluster, index: int) -> str:
    """A name of a listener that a node keeps."""
    node = cluster.nodes[index].node
    return next(f"n{number}" for number in range(1000) if node.inner.leads(b"n%d" % number))


def test_a_listener_is_polled_at_every_node_from_where_it_was_registered_on(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        await put_some(cluster, "odd before")
        listener = await register(connections[0], cluster, filter=ODD)
        assert listener.last_id >= cluster.acknowledged[b"odd before"][1]
        await put_some(cluster, "odd 1", "even 2", "odd 3")
        for connection in connections:
            answer = await poll(connection, cluster, listener.id, after=listener.last_id, wait_ms=10_000)
            more = await poll(connection, cluster, listener.id, position=answer.position)
            assert answer.events + more.events == 2
            everything = await poll(connection, cluster, listener.id, after=0, wait_ms=10_000)
            assert (listener.first_id > 0, everything.events) == (True, 3)

    on_spread_cluster(tmp_path, act)


def test_the_state_is_answered_with_the_filter_of_now(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        await put_some(cluster, "odd 1", "even 2", "odd 3")
        listener = await register(connections[0], cluster, filter=ODD)
        altered = pb.AlterListener(id=listener.id, filter=pb.Filter(where="key LIKE 'even%'"))
        await connections[1].request(Message(alter_listener=altered), timeout_ms=20_000)
        planned = pb.AlterListener(id=listener.id, filter=pb.Filter(where="FALSE"), from_id=ID_MAX)
        await connections[1].request(Message(alter_listener=planned), timeout_ms=20_000)
        for connection in connections:
            answer, entries = await poll(connection, cluster, listener.id, state_first=True), 0
            while answer.state:
                entries += answer.events
                answer = await poll(connection, cluster, listener.id, position=answer.position)
            assert entries == 1

    on_spread_cluster(tmp_path, act)


def test_a_place_beyond_the_end_of_the_log_acknowledges_nothing(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        name = homed_at(cluster, 0)
        listener = await register(connections[0], cluster, id=name, durable=True)
        home = cluster.nodes[0].node.listeners.home
        for connection in connections:
            for after in (ID_MAX, listener.last_id + (1 << 40)):
                await poll(connection, cluster, name, after=after)
        await put_some(cluster, "a")
        for connection in connections:
            answer = await poll(connection, cluster, name, after=listener.last_id, wait_ms=10_000)
            assert answer.events == 1
        reached = token.decode(answer.position).at
        await poll(connections[0], cluster, name, position=answer.position)
        kept = await home.find(name)
        await cluster.until(lambda: kept.progress.lowest >= reached)
        assert kept.progress.lowest == reached

    on_spread_cluster(tmp_path, act)


def test_it_is_known_after_its_first_node_and_after_its_home_died(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        name = homed_at(cluster, 0)
        listener = await register(connections[0], cluster, id=name, durable=True)
        await put_some(cluster, "a", "b")
        answer = await poll(connections[0], cluster, name, after=listener.last_id, wait_ms=10_000)
        reached = token.decode(answer.position).at
        await poll(connections[1], cluster, name, position=answer.position)
        home = cluster.nodes[0].node.listeners.home
        kept = await home.find(name)
        await cluster.until(lambda: kept.progress.lowest == reached)
        await home.write_positions(is_last=True)
        await cluster.nodes[0].kill()
        await put_some(cluster, "after the death")
        for connection in connections[1:]:
            assert (await describe(connection, name)).position_id == reached
        for connection in connections[1:]:
            answer = await poll(connection, cluster, name, wait_ms=20_000)  # from where it has acknowledged
            assert answer.events
            seen = answer.events + (0 if answer.last_id >= cluster.acknowledged[b"after the death"][1] else 1)
            assert seen == 1 + (reached < cluster.acknowledged[b"b"][1])

    on_spread_cluster(tmp_path, act)


def test_an_alteration_holds_from_its_id_on_at_every_node(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        listener = await register(connections[0], cluster, filter=ODD)
        await put_some(cluster, "odd 1", "even 1")
        for connection in connections:
            await poll(connection, cluster, listener.id, after=listener.last_id, wait_ms=10_000)
        alter = pb.AlterListener(id=listener.id, filter=pb.Filter(where="key LIKE 'even%'"))
        altered = (await connections[1].request(Message(alter_listener=alter))).message.listener_answer.listener
        assert altered.from_id > listener.last_id
        await put_some(cluster, "odd 2", "even 2", "even 3")
        for connection in connections:
            seen, position = 0, b""
            while seen < 3:
                start = {"position": position} if position else {"after": listener.last_id}
                answer = await poll(connection, cluster, listener.id, wait_ms=10_000, **start)
                seen, position = seen + answer.events, answer.position
            assert seen == 3  # odd 1 of before, even 2 and 3 of after

    on_spread_cluster(tmp_path, act)


@pytest.mark.parametrize("durable", [True, False])
def test_a_poll_that_waits_goes_by_the_filter_of_after_the_alteration(tmp_path: Path, durable: bool) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        listener = await register(connections[0], cluster, filter=ODD, durable=durable)
        await put_some(cluster, "odd 1")
        for connection in connections:
            await poll(connection, cluster, listener.id, after=listener.last_id, wait_ms=10_000)
        last_id = cluster.acknowledged[b"odd 1"][1]

        async def next_one(connection: Connection) -> pb.PollAnswer:
            answer = await poll(connection, cluster, listener.id, after=last_id, wait_ms=20_000)
            while not answer.events:  # up to the alteration there was nothing
                assert answer.last_id < cluster.acknowledged.get(b"even 2", (0, ID_MAX))[1], "it was passed over"
                answer = await poll(connection, cluster, listener.id, position=answer.position, wait_ms=20_000)
            return answer

        waiting = [asyncio.create_task(next_one(connection)) for connection in connections]
        await cluster.until(lambda: all(node.reads.figures()["readers_waiting"][0] for node in cluster.up))
        alter = pb.AlterListener(id=listener.id, filter=pb.Filter(where="key LIKE 'even%'"))
        await connections[1].request(Message(alter_listener=alter))
        await put_some(cluster, "odd 2", "even 2")
        for answer in await asyncio.gather(*waiting):
            assert answer.events == 1
            assert answer.last_id >= cluster.acknowledged[b"even 2"][1]

    on_spread_cluster(tmp_path, act)


def test_alterations_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        listener = await register(connections[0], cluster, durable=True)
        alterations = [
            pb.AlterListener(id=listener.id, hold_bytes=1 << 20),
            pb.AlterListener(id=listener.id, hold_ms=60_000),
            pb.AlterListener(id=listener.id, filter=pb.Filter(where="key LIKE 'even%'")),
        ]
        asked = zip(connections, alterations, strict=True)
        await asyncio.gather(*(connection.request(Message(alter_listener=alteration)) for connection, alteration in asked))
        for connection in connections:
            found = await describe(connection, listener.id)
            assert (found.hold_bytes, found.hold_ms, found.filter.where) == (1 << 20, 60_000, "key LIKE 'even%'")

    on_spread_cluster(tmp_path, act)


def test_an_alteration_that_its_home_never_heard_the_end_of_is_not_in_the_way(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        name = homed_at(cluster, 0)
        listener = await register(connections[0], cluster, id=name, durable=True)
        home = cluster.nodes[0].node.listeners.home
        kept = await home.find(name)
        await home.alter(name, lambda record: msgspec.structs.replace(record, hold_ms=60_000))
        kept.record, kept.version = msgspec.structs.replace(kept.record, hold_ms=0), kept.version - 1
        await connections[1].request(Message(alter_listener=pb.AlterListener(id=name, hold_bytes=1 << 20)))
        found = await describe(connections[2], name)
        assert (found.hold_bytes, found.hold_ms) == (1 << 20, 60_000)
        kept.version -= 1
        await put_some(cluster, "a")
        answer = await poll(connections[0], cluster, name, after=listener.last_id, wait_ms=10_000)
        await poll(connections[0], cluster, name, position=answer.position)
        await cluster.until(lambda: kept.progress.lowest == token.decode(answer.position).at)
        await home.write_positions(is_last=True)
        await home.write_positions(is_last=True)
        assert not home._dirty

    on_spread_cluster(tmp_path, act)


def test_what_happened_since_a_moment_is_chosen_as_from_that_moment_on(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        listener = await register(connections[0], cluster, filter=ODD)
        alter = pb.AlterListener(id=listener.id, filter=pb.Filter(where="key LIKE 'even%'"))
        altered = (await connections[1].request(Message(alter_listener=alter))).message.listener_answer.listener
        since_ms = time_of(altered.from_id) + 1  # ids may be ahead of the clock by then
        while time_of(cluster.acknowledged.get(b"even", (b"", 0))[1]) < since_ms:
            await put_some(cluster, "even")
            await asyncio.sleep(0.005)
        answer = await poll(connections[2], cluster, listener.id, from_time_ms=since_ms, wait_ms=10_000)
        assert answer.events > 0

    on_spread_cluster(tmp_path, act)


def test_what_cannot_be_registered_is_refused_at_once(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        for connection in connections:
            with pytest.raises(BadPredicate):
                await register(connection, cluster, filter=pb.Filter(where="nonsense >"))
            with pytest.raises(InvalidArgument):
                await register(connection, cluster, hold_bytes=1)
            with pytest.raises(InvalidArgument):
                await register(connection, cluster, id="no name")
            first = await register(connection, cluster, id="mine", filter=ODD)
            assert (await register(connections[0], cluster, id="mine", filter=ODD)).last_id == first.last_id
            with pytest.raises(ListenerExists):
                await register(connection, cluster, id="mine")
            for request in (
                Message(poll=pb.Poll(cache_id=cache_id(cluster), listener="nobody")),
                Message(list_listeners=pb.ListListeners(id="nobody")),
                Message(alter_listener=pb.AlterListener(id="nobody")),
                Message(remove_listener=pb.RemoveListener(id="nobody")),
            ):
                with pytest.raises(ListenerNotFound):
                    await connection.request(request)
            with pytest.raises(InvalidArgument):
                await connection.request(Message(poll=pb.Poll(cache_id=cache_id(cluster), listener="mine", filter=ODD)))

    on_spread_cluster(tmp_path, act)


def test_all_who_register_the_same_at_once_are_answered_with_it(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        for index in range(3):
            name = homed_at(cluster, index)
            asking = (register(connection, cluster, id=name, filter=ODD) for connection in connections for _ in range(4))
            answers = await asyncio.gather(*asking)
            assert len({(one.id, one.version, one.last_id) for one in answers}) == 1
        asking = (register(connections[0], cluster, id="two", filter=pb.Filter(where=f"offset > {n}")) for n in range(2))
        kept, refused = sorted(await asyncio.gather(*asking, return_exceptions=True), key=lambda found: isinstance(found, Exception))
        assert (type(kept), type(refused)) == (pb.Listener, ListenerExists)

    on_spread_cluster(tmp_path, act)


def test_removed_is_removed_everywhere(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        listener = await register(connections[0], cluster)
        for connection in connections:
            await poll(connection, cluster, listener.id, after=0)
        assert [one.id for one in await everything(connections[2])] == [listener.id]
        await connections[1].request(Message(remove_listener=pb.RemoveListener(id=listener.id)))
        assert await everything(connections[2]) == []
        for connection in connections:
            with pytest.raises(ListenerNotFound):
                await poll(connection, cluster, listener.id, after=0)

    on_spread_cluster(tmp_path, act)


async def everything(connection: Connection) -> list[pb.Listener]:
    reply = await connection.request(Message(list_listeners=pb.ListListeners()), timeout_ms=20_000)
    return list(reply.message.list_listeners_answer.listeners)


def test_an_ephemeral_one_goes_when_nobody_uses_it_and_a_durable_one_stays(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        durable = await register(connections[0], cluster, durable=True)
        ephemeral = await register(connections[0], cluster, expire_ms=300)
        used = await register(connections[0], cluster, expire_ms=3_000)
        while len(left := await everything(connections[0])) > 2:
            await poll(connections[1], cluster, used.id, after=0)
        assert {one.id for one in left} == {durable.id, used.id}
        assert ephemeral.expire_ms == 300

    on_spread_cluster(tmp_path, act)


def test_an_ephemeral_one_stays_while_a_poll_waits_for_longer_than_it_lives(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        waited = await register(connections[0], cluster, id=homed_at(cluster, 0), expire_ms=800, filter=ODD)
        waiting = asyncio.ensure_future(poll(connections[1], cluster, waited.id, after=waited.last_id, wait_ms=50_000))
        unused = await register(connections[0], cluster, expire_ms=1_000)
        while unused.id in (left := {one.id for one in await everything(connections[0])}):
            pass
        assert waited.id in left
        assert not waiting.done()
        await put_some(cluster, "odd 1")
        assert (await waiting).events == 1

    on_spread_cluster(tmp_path, act)


def test_one_is_registered_while_the_lease_of_ids_is_used_up(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        for node in cluster.up:
            node.clock.ceiling = node.clock.last
        registered = await register(connections[0], cluster, durable=True)
        assert [one.id for one in await everything(connections[1])] == [registered.id]

    on_spread_cluster(tmp_path, act)


def test_one_registered_during_an_outage_begins_behind_all_that_was_acknowledged(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        await put_some(cluster, "odd 0")
        name = homed_at(cluster, 1)
        cluster.nodes[0].cut_off()
        lonely = cluster.nodes[0].node
        key = next(f"odd {n}" for n in range(1, 1_000) if cluster.leader(f"odd {n}".encode()) not in {None, lonely})
        await put_some(cluster, key)
        registering = asyncio.create_task(register(connections[1], cluster, id=name, durable=True, filter=ODD))
        await asyncio.sleep(0.5)
        cluster.nodes[0].join_again()
        listener = await registering
        assert listener.last_id >= cluster.acknowledged[key.encode()][1]

    on_spread_cluster(tmp_path, act)


def test_those_of_a_cache_that_is_dropped_go_with_it(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        await register(connections[0], cluster, durable=True)
        await register(connections[1], cluster, durable=True, filter=ODD)
        await register(connections[2], cluster, expire_ms=600_000)
        assert len(await everything(connections[0])) == 3
        await connections[0].request(Message(drop_cache=pb.DropCache(name="c")), timeout_ms=20_000)
        await cluster.until(lambda: not any(len(node.listeners.home) for node in cluster.up))
        assert await everything(connections[1]) == []

    on_spread_cluster(tmp_path, act)


def test_lag_counts_what_is_kept_behind_the_acknowledged_place(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        name = (await register(connections[0], cluster, durable=True)).id
        await put_some(cluster, *(f"k{number}" for number in range(20)))
        assert [(one.lag_events, one.lag_bytes > 0) for one in await everything(connections[1])] == [(20, True)]
        answer = await poll(connections[1], cluster, name, wait_ms=10_000)
        seen = answer.events
        while seen < 20:
            answer = await poll(connections[1], cluster, name, position=answer.position, wait_ms=10_000)
            seen += answer.events
        await poll(connections[2], cluster, name, position=answer.position)
        assert await no_lag(connections[0], name)

    on_spread_cluster(tmp_path, act)


def test_what_several_readers_acknowledge_of_their_segments_at_once_adds_up(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        name = (await register(connections[0], cluster, durable=True, id=homed_at(cluster, 0))).id
        await put_some(cluster, *(f"k{number}" for number in range(20)))
        end = max(event_id for _, event_id in cluster.acknowledged.values())

        def place(segment: int) -> bytes:
            ids, unknown = np.array([end]), np.array([OFFSET_UNKNOWN])
            at = SegmentPositions(of=np.array([segment]), ids=ids, offsets=unknown, epochs=np.zeros(1, np.int64))
            of = cluster.up[0]
            return token.encode(Position(cluster=of.cluster, cache_id=cache_id(cluster), segments=SEGMENTS, at=at))

        polls = [poll(connections[1], cluster, name, position=place(segment), segments=[segment]) for segment in range(SEGMENTS)]
        await asyncio.gather(*polls)
        assert await no_lag(connections[0], name)

    on_spread_cluster(tmp_path, act)


def test_a_waiting_listener_acknowledges_what_does_not_match(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        listener = await register(connections[0], cluster, durable=True, filter=ODD)
        waiting = asyncio.ensure_future(poll(connections[1], cluster, listener.id, after=listener.last_id, wait_ms=50_000))
        await put_some(cluster, "even 1", "even 2")
        assert await no_lag(connections[2], listener.id)
        assert not waiting.done()
        await put_some(cluster, "odd 1")
        assert (await waiting).events == 1

    on_spread_cluster(tmp_path, act)


def test_who_waits_for_listeners_hears_when_they_have_acknowledged(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        names = [homed_at(cluster, index) for index in range(3)]
        listeners = [await register(connections[0], cluster, id=name, durable=True) for name in names]
        await put_some(cluster, "a")
        id_ = cluster.acknowledged[b"a"][1]
        segments = list(range(8))
        request = Message(timeout_ms=30_000)
        request.await_listeners.CopyFrom(
            pb.AwaitListeners(listeners=names, cache_id=cache_id(cluster), segments=segments, ids=[id_] * 8, wait_ms=20_000)
        )
        waiting = [asyncio.ensure_future(connection.request(request, timeout_ms=30_000)) for connection in connections]
        answers = [await poll(connections[0], cluster, one.id, after=one.last_id, wait_ms=10_000) for one in listeners]
        for one, answer in zip(listeners, answers, strict=True):
            assert not any(future.done() for future in waiting)
            await poll(connections[2], cluster, one.id, position=answer.position)
        assert [list((await future).message.await_listeners_answer.missing) for future in waiting] == [[], [], []]
        request.await_listeners.ids[:] = [id_ + (1 << 40)] * 8
        request.await_listeners.wait_ms = 50
        request.await_listeners.listeners.append("nobody")
        for connection in connections:
            answer = (await connection.request(request)).message.await_listeners_answer
            assert (answer.missing, answer.gone) == ([*names, "nobody"], ["nobody"])

    on_spread_cluster(tmp_path, act)


def test_nobody_waits_for_listeners_that_acknowledge_nothing_of_the_cache(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        await connections[0].request(Message(create_cache=pb.CreateCache(name="other")))
        other = (await connections[0].request(Message(describe_cache=pb.DescribeCache(name="other")))).message.cache_answer.cache.id
        of_other = pb.RegisterListener(cache_id=other, id="of-other", durable=True)
        await connections[0].request(Message(register_listener=of_other), timeout_ms=20_000)
        await register(connections[0], cluster, id="ephemeral")
        await register(connections[0], cluster, id="durable", durable=True)
        names = ["of-other", "ephemeral", "durable"]
        request = pb.AwaitListeners(listeners=names, cache_id=cache_id(cluster), segments=[0], ids=[1], wait_ms=50_000)
        for connection in connections:  # all of them, the durable one too, are past the id that is asked for
            answer = await connection.request(Message(await_listeners=request, timeout_ms=60_000))
            found = answer.message.await_listeners_answer
            assert found.missing == found.gone == ["of-other", "ephemeral"]

    on_spread_cluster(tmp_path, act)


def test_a_listener_is_polled_and_not_watched(tmp_path: Path) -> None:
    async def act(cluster: Cluster, connections: list[Connection]) -> None:
        one = await register(connections[0], cluster, durable=True, filter=ODD)
        watch = pb.Watch(poll=pb.Poll(cache_id=cache_id(cluster), listener=one.id), credit=1 << 20)
        with pytest.raises(InvalidArgument, match="polled"):
            await anext(aiter(connections[1].stream(Message(watch=watch))))

    on_spread_cluster(tmp_path, act)
