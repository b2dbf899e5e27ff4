"""A client of several nodes: straight to each primary, after segments that move, around nodes that die, hang or cannot be reached."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Self

import pytest

import eventlog
from eventlog.client.client import Client, connect
from eventlog.errors import (
    EventLogError,
    GroupNotFound,
    InvalidArgument,
    MetadataUnavailable,
    NotEnoughReplicas,
    NotPrimary,
    OutcomeUnknown,
    TimedOut,
)
from eventlog.limits import MIB
from eventlog.transport.connection import Exchange
from eventlog.wire.session import ConnectionStage
from tests.client.fake_cluster import FakeCluster, cluster_of
from tests.process.client_ends import FAST, run, until

PAIRS = [(f"k{n}", n) for n in range(60)]


def on_cluster(act: Callable[[FakeCluster], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        async with cluster_of(**options) as cluster:
            await act(cluster)

    run(main())


async def connected_to_all(client: Client, cluster: FakeCluster) -> None:
    """Have the client open its connections: it does when they are wanted."""
    cache = await client.create_cache("c", if_exists="use")
    while client.usage.connections < len(cluster.addresses):
        await cache.put_many(PAIRS)


def test_writes_go_straight_to_each_primary_and_results_come_in_the_order_of_the_pairs() -> None:
    async def act(cluster: FakeCluster) -> None:
        async with connect(cluster.addresses[1], retry=FAST) as client:
            await connected_to_all(client, cluster)
            cluster.passed_on.clear()
            stored = await client.cache("c").put_many(PAIRS)
            assert cluster.passed_on == Counter()
            by_id = {event.id: event.key.decode() for event in cluster.node.log}
            assert [by_id[id_] for id_ in stored.ids if id_] == [key for key, _ in PAIRS]
            assert all(cluster.asked[number, "write"] for number in (1, 2, 3))

    on_cluster(act)


def test_keys_and_named_entries_are_read_from_each_primary() -> None:
    async def act(cluster: FakeCluster) -> None:
        async with connect(cluster.addresses[2], retry=FAST) as client:
            await connected_to_all(client, cluster)
            cache, wanted = client.cache("c"), dict(PAIRS)
            cluster.passed_on.clear()
            assert set(await cache.keys()) == set(wanted)
            asked = [*reversed(wanted), "none"]
            assert [entry and entry.value for entry in await cache.get_many(asked)] == [wanted.get(key) for key in asked]
            for key in ("k1", "k2", "k3", "k4"):
                entry = await cache.get(key)
                assert entry is not None
                assert entry.value == wanted[key]
            assert len(await cache.keys(limit=7)) == 7
            assert cluster.passed_on == Counter()

    on_cluster(act)


def test_with_routing_any_one_node_gets_everything() -> None:
    async def act(cluster: FakeCluster) -> None:
        async with connect(cluster.addresses[3], retry=FAST, routing="any") as client:
            cache = await client.create_cache("c")
            for _ in range(3):
                await cache.put_many(PAIRS)
            assert set(await cache.keys()) == {key for key, _ in PAIRS}
            assert [entry and entry.value for entry in await cache.get_many(["k3", "k4", "k5"])] == [3, 4, 5]
            assert {number for number, _ in cluster.asked} == {3}

    on_cluster(act)


def test_a_node_that_cannot_be_reached_is_reached_through_another_and_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def act(cluster: FakeCluster) -> None:
        cluster.advertised[2] = "127.0.0.1:1"
        with caplog.at_level(logging.WARNING, "eventlog.client"):
            async with connect(cluster.addresses[1], retry=FAST) as client:
                cache = await client.create_cache("c")
                while not caplog.records:
                    await cache.put_many(PAIRS)
                for _ in range(3):
                    await cache.put_many(PAIRS)
        assert [record.getMessage().startswith("127.0.0.1:1 cannot be reached") for record in caplog.records] == [True]
        assert cluster.asked[2, "write"] == 0
        assert {event.key for event in cluster.node.log} == {key.encode() for key, _ in PAIRS}

    on_cluster(act)


def test_a_node_is_reached_directly_once_that_is_possible() -> None:
    async def act(cluster: FakeCluster) -> None:
        address = cluster.addresses[2]
        cluster.advertised[2] = "127.0.0.1:1"
        async with connect(cluster.addresses[1], retry=FAST) as client:
            cache = await client.create_cache("c")
            for _ in range(3):
                await cache.put_many(PAIRS)
            cluster.advertised[2] = address
            cluster.move([], 1)
            while not cluster.asked[2, "write"]:
                await cache.put_many(PAIRS)

    on_cluster(act)


def test_a_node_that_comes_back_is_reached_directly_again() -> None:
    async def act(cluster: FakeCluster) -> None:
        async with connect(cluster.addresses[1], retry=FAST) as client:
            await connected_to_all(client, cluster)
            cache = client.cache("c")
            await cluster.kill(2)
            cluster.move(cluster.segments_of(2), 3)
            await cache.put_many(PAIRS)
            await cluster.start(2)
            cluster.move([0, 1, 2], 2)
            before = cluster.asked[2, "write"]
            while cluster.asked[2, "write"] == before:
                await cache.put_many(PAIRS)

    on_cluster(act)


class Load:
    """Writers that go on until told to stop; `check` demands that everything acknowledged is there once and in order."""

    def __init__(self, client: Client, *, writers: int = 6) -> None:
        self._client = client
        self._writers = writers
        self._is_over = False
        self._acknowledged: list[int] = []
        self.calls = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        cache = await self._client.create_cache("load", if_exists="use")
        self._tasks = [asyncio.create_task(self._write(cache, writer)) for writer in range(self._writers)]
        return self

    async def _write(self, cache: eventlog.Cache, writer: int) -> None:
        number = 0
        while not self._is_over:
            if writer % 2:
                found = await cache.put_many([(f"w{writer}-{row}", number) for row in range(9)])
                self._acknowledged += [id_ for id_ in found.ids if id_]
            else:
                self._acknowledged.append((await cache.put(f"w{writer}", number)).id or 0)
            number += 1
            self.calls += 1

    async def some(self, calls: int = 30) -> None:
        goal = self.calls + calls
        await until(lambda: self.calls >= goal or any(task.done() for task in self._tasks))

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True
        await asyncio.gather(*self._tasks)

    def check(self, cluster: FakeCluster) -> None:
        events = [event for event in cluster.node.log if event.key.startswith(b"w")]
        assert Counter(event.id for event in events) == Counter(self._acknowledged)
        assert max(Counter((event.key, event.value) for event in events).values()) == 1
        for key in {event.key for event in events}:
            values = [int(event.value) for event in events if event.key == key]
            assert values == list(range(len(values)))


@pytest.mark.parametrize("forwards", [True, False])
@pytest.mark.parametrize("tell", [True, False])
def test_writes_follow_their_segments_without_an_error(forwards: bool, tell: bool) -> None:
    async def act(cluster: FakeCluster) -> None:
        chance = random.Random(3)
        async with connect(*cluster.addresses.values(), retry=FAST) as client:
            async with Load(client) as load:
                for _ in range(25):
                    await load.some(10)
                    cluster.move(chance.sample(range(8), 3), chance.choice([1, 2, 3]), tell=tell)
                await load.some()
            load.check(cluster)

    on_cluster(act, forwards=forwards)


def test_a_change_while_somebody_has_yet_to_greet_is_told_to_those_who_have() -> None:
    async def act(cluster: FakeCluster) -> None:
        async with connect(cluster.addresses[1], retry=FAST) as client:
            await connected_to_all(client, cluster)
            _, mute = await asyncio.open_connection(*cluster.addresses[1].split(":"))
            await until(lambda: ConnectionStage.NEW in cluster.stages(1))
            asked = cluster.asked_for_topology
            cluster.move([0], 2)
            assert ConnectionStage.NEW in cluster.stages(1)
            await until(lambda: cluster.asked_for_topology > asked)
            mute.close()
            await mute.wait_closed()

    on_cluster(act)


@pytest.mark.parametrize("home", [True, False])
@pytest.mark.parametrize("forwards", [True, False])
def test_a_dead_nodes_segments_are_found_at_their_new_primaries(home: bool, forwards: bool) -> None:
    async def act(cluster: FakeCluster) -> None:
        first, dead = (2, 2) if home else (1, 2)
        async with connect(cluster.addresses[first], retry=FAST) as client:
            await connected_to_all(client, cluster)
            async with Load(client) as load:
                await load.some()
                await cluster.kill(dead)
                await asyncio.sleep(0.05)  # the time that a failover takes
                cluster.move(cluster.segments_of(dead), 3)
                await load.some()
            load.check(cluster)

    on_cluster(act, forwards=forwards)


@pytest.mark.parametrize("home", [True, False])
def test_a_hung_nodes_segments_are_found_at_their_new_primaries(home: bool) -> None:
    async def act(cluster: FakeCluster) -> None:
        async with connect(cluster.addresses[2 if home else 1], retry=FAST) as client:
            await connected_to_all(client, cluster)
            async with Load(client) as load:
                await load.some()
                cluster.hang(2)
                await asyncio.sleep(0.05)
                cluster.move(cluster.segments_of(2), 3)
                await load.some()
            load.check(cluster)

    on_cluster(act)


def test_a_silent_node_holds_up_nobody_who_writes_elsewhere() -> None:
    async def act(cluster: FakeCluster) -> None:
        async with connect(cluster.addresses[1], retry=FAST, timeout_ms=60_000) as client:
            await connected_to_all(client, cluster)
            cache = client.cache("c")
            owners = {key: cluster.primaries[cluster.node.segment(key.encode())] for key, _ in PAIRS[:24]}
            cluster.hung.add(2)  # it answers pings, so its connection stays
            writes: dict[int, list[asyncio.Future[Any]]] = {1: [], 2: [], 3: []}
            for number in range(25):  # more frames than may be unanswered
                for key, owner in owners.items():
                    writes[owner].append(asyncio.ensure_future(cache.put(key, number)))
                await asyncio.sleep(0.001)
            await asyncio.wait_for(asyncio.gather(*writes[1], *writes[3]), 50)
            assert not any(write.done() for write in writes[2])
            await cluster.kill(2)
            cluster.move(cluster.segments_of(2), 3)
            await asyncio.gather(*writes[2])

    on_cluster(act)


def test_writes_given_up_in_doubt_cost_the_others_nothing() -> None:
    async def act(cluster: FakeCluster) -> None:
        async with connect(cluster.addresses[1], retry=FAST) as client:
            await connected_to_all(client, cluster)
            outcomes: Counter[str | None] = Counter()
            async with Load(client) as load:
                for _ in range(3):
                    await load.some()
                    cluster.hung.add(2)
                    pairs = [(f"given-up-{number}", number) for number in range(20)]
                    given_up = [asyncio.ensure_future(client.cache("c").put(*pair, timeout_ms=200)) for pair in pairs]
                    for outcome in await asyncio.gather(*given_up, return_exceptions=True):
                        assert isinstance(outcome, TimedOut) or not isinstance(outcome, BaseException)
                        outcomes[outcome.outcome if isinstance(outcome, TimedOut) else None] += 1
                    await cluster.kill(2)
                    cluster.move(cluster.segments_of(2), 3)
                    await load.some()
                    cluster.hung.clear()
                    await cluster.start(2)
                    cluster.move([0, 3, 6], 2)
                await load.some()
            load.check(cluster)
            assert outcomes["unknown"], "of one that was not sent in time nobody is in doubt"
            assert max(Counter(event.key for event in cluster.node.log if event.key.startswith(b"given-up")).values()) <= 3

    on_cluster(act)


def test_a_node_that_falls_silent_is_left_without_a_word_from_anybody() -> None:
    async def act(cluster: FakeCluster) -> None:
        async with connect(cluster.addresses[2], cluster.addresses[1], retry=FAST, routing="any") as client:
            cache = await client.create_cache("c")
            await cache.put("k", 1)
            cluster.hang(2)
            cluster.move(cluster.segments_of(2), 1, tell=False)
            entry, stored = await asyncio.gather(cache.get("k"), cache.put("k", 2))
            assert entry is not None
            assert stored.kind == "MODIFIED"
            assert cluster.asked[1, "write"] == 1

    on_cluster(act)


def test_a_silent_node_is_left_where_its_socket_is_full_too() -> None:
    async def act(cluster: FakeCluster) -> None:
        async with connect(cluster.addresses[2], cluster.addresses[1], retry=FAST, routing="any", timeout_ms=30_000) as client:
            cache = await client.create_cache("c")
            await cache.put("k", 1)
            cluster.hang(2)
            cluster.move(cluster.segments_of(2), 1, tell=False)
            large = [[(f"large-{number}-{part}", "x" * 900_000) for part in range(4)] for number in range(6)]
            writes = [asyncio.ensure_future(cache.put_many(pairs)) for pairs in large]
            await until(lambda: client.usage.bytes_unanswered > 12 * MIB)  # more than the sockets hold
            assert await cache.get("k") is not None
            await asyncio.gather(*writes)

    on_cluster(act)


@pytest.mark.parametrize("how", ["dies", "hangs"])
def test_a_reader_goes_on_at_another_node_when_its_own_is_lost(how: str) -> None:
    async def act(cluster: FakeCluster) -> None:
        async with connect(*cluster.addresses.values(), retry=FAST) as client, connect(cluster.addresses[3], retry=FAST) as other:
            cache = await other.create_cache("c")
            found: list[Any] = []

            async def follow() -> None:
                async for event in client.cache("c").events(follow=True):
                    found.append(event.value)
                    if event.value == 9:
                        return

            following = asyncio.create_task(follow())
            for number in range(5):
                await cache.put(f"k{number}", number)
            await until(lambda: len(found) == 5)
            if how == "dies":
                await cluster.kill(1)
            else:
                cluster.hang(1)
            cluster.move(cluster.segments_of(1), 2, tell=False)
            for number in range(5, 10):
                await cache.put(f"k{number}", number)
            await following
            assert found == list(range(10))

    on_cluster(act)


def test_keys_go_on_after_the_last_one_when_their_node_dies() -> None:
    async def act(cluster: FakeCluster) -> None:
        async with connect(cluster.addresses[1], retry=FAST, read_ahead_bytes=500) as client:
            cache = await client.create_cache("c")
            wanted = {f"key-{n:04d}" for n in range(400)}
            await cache.put_many([(key, 1) for key in wanted])
            await connected_to_all(client, cluster)
            found: list[str] = []
            async for key in cache.keys("key-"):
                found.append(str(key))
                if len(found) == 100:
                    await cluster.kill(2)
                    cluster.move(cluster.segments_of(2), 3)
            assert sorted(found) == sorted(wanted)

    on_cluster(act)


def test_a_write_without_a_producer_is_tried_again_while_it_is_sure_not_to_be_written() -> None:
    async def act(cluster: FakeCluster) -> None:
        refusals = iter([NotPrimary(segment=1)] * 3)
        async with connect(cluster.addresses[1], retry=FAST, idempotent=False) as client:
            cache = await client.create_cache("c")
            cluster.node.refusal = lambda exchange: next(refusals, None) if exchange.kind == "write" else None
            await cache.put("k", 1)
            await cache.put_many(PAIRS)
            assert len(cluster.node.log) == 1 + len(PAIRS)

    on_cluster(act)


@pytest.mark.parametrize("error", [OutcomeUnknown(outcome="unknown", why="lost"), NotPrimary(outcome="unknown", segment=1)])
def test_a_shift_of_a_group_that_may_be_done_is_not_done_again(error: EventLogError) -> None:
    async def act(cluster: FakeCluster) -> None:
        asked: list[str | None] = []

        def refuse(exchange: Exchange) -> EventLogError | None:
            if exchange.kind != "reset_group":
                return None
            asked.append(exchange.message.reset_group.WhichOneof("to"))
            return error if len(asked) == 1 else GroupNotFound(group="g")

        async with connect(cluster.addresses[1], retry=FAST) as client:
            cluster.node.refusal = refuse
            with pytest.raises(type(error)) as raised:
                await client.groups.reset("g", shift_by=-3)
            assert (raised.value.outcome, asked) == ("unknown", ["shift_by"])
            for again in ({"shift_by": -3, "dry_run": True}, {"to_id": 7}):
                asked.clear()
                with pytest.raises(GroupNotFound):
                    await client.groups.reset("g", **again)  # type: ignore[arg-type]
                assert len(asked) == 2

    on_cluster(act)


def test_a_group_is_not_reset_as_a_whole_where_no_segment_is_chosen() -> None:
    async def act(cluster: FakeCluster) -> None:
        async with connect(cluster.addresses[1], retry=FAST) as client:
            with pytest.raises(InvalidArgument, match="no segments"):
                await client.groups.reset("g", to_id="latest", segments=[])

    on_cluster(act)


@pytest.mark.parametrize(
    "error", [NotEnoughReplicas(segment=1, have=1, need=2), MetadataUnavailable(why="it sleeps"), NotPrimary(segment=1)]
)
def test_what_a_failover_cures_is_waited_out_within_the_deadline(error: EventLogError) -> None:
    async def act(cluster: FakeCluster) -> None:
        refused: Counter[str] = Counter()

        def refuse(exchange: Exchange) -> EventLogError | None:
            refused[exchange.kind] += 1
            return error if exchange.kind in ("write", "get") and refused[exchange.kind] < 4 else None

        async with connect(cluster.addresses[1], retry=FAST) as client:
            cache = await client.create_cache("c")
            cluster.node.refusal = refuse
            await cache.put("k", 1)
            entry = await cache.get("k")
            assert entry is not None
            cluster.node.refusal = lambda exchange: error if exchange.kind == "write" else None
            for _ in range(50):
                with pytest.raises((type(error), TimedOut)) as raised:
                    await cache.put("k", 2, timeout_ms=150)
                if isinstance(raised.value, type(error)) and raised.value.outcome == "none":
                    return  # else a try was on its way when the time was over
            pytest.fail(f"of 50 puts not one ended between two tries: {raised.value!r}")

    on_cluster(act)
