"""The small client against nodes that are busy, refuse, forward, and are lost before they answer."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import eventlog
from eventlog.client import small
from eventlog.errors import (
    EventLogError,
    InvalidArgument,
    KeyExists,
    NotPrimary,
    OutcomeUnknown,
    Overloaded,
    TimedOut,
    Unavailable,
    WrongCluster,
)
from eventlog.transport.connection import Exchange
from tests.client.fake_cluster import FakeCluster, cluster_of
from tests.client.fake_node import FakeNode, running
from tests.process.client_ends import FAST, run


async def with_small_client(node: FakeNode, act: Callable[[Any], Any], *, dispatch: Callable[[Exchange], None] | None = None) -> Any:
    """Return what `act` returns with a cache of a small client."""

    def call(address: str) -> Any:
        with small.connect(address, retry=FAST, timeout_ms=2_000) as client:
            return act(client.cache("c"))

    async with running(node, dispatch=dispatch) as address:
        async with eventlog.connect(address) as client:
            await client.create_cache("c")
        return await asyncio.to_thread(call, address)


def test_it_writes_and_reads_what_any_client_does() -> None:
    def act(cache: Any) -> None:
        first = cache.put("k", {"n": 1})
        second = cache.put("k", {"n": 2}, previous=True)
        assert (first.kind, first.previous, second.kind, second.previous) == ("CREATED", None, "MODIFIED", {"n": 1})
        assert (cache.get("k").value, cache.get("k").version) == ({"n": 2}, second.id)
        assert cache.remove("k").kind == "REMOVED"
        nothing = cache.remove("k")
        assert (nothing.id, nothing.kind, cache.get("k")) == (None, None, None)

    run(with_small_client(FakeNode(), act))


def test_a_busy_node_is_asked_again_and_writes_once() -> None:
    node, seen = FakeNode(), Counter()

    def refuse_some(exchange: Exchange) -> eventlog.EventLogError | None:
        seen[exchange.kind] += 1
        return Overloaded(what="x", limit=1) if exchange.kind in ("write", "get") and seen[exchange.kind] % 3 else None

    def act(cache: Any) -> None:
        node.refusal = refuse_some
        assert cache.put("k", 1).kind == "CREATED"
        assert cache.get("k").value == 1

    run(with_small_client(node, act))
    assert (len(node.log), seen["write"]) == (1, 3)


def test_a_condition_that_does_not_hold_is_said_and_not_tried_again() -> None:
    def act(cache: Any) -> None:
        stored = cache.put("k", 1, if_absent=True)
        with pytest.raises(KeyExists) as refused:
            cache.put("k", 2, if_absent=True)
        assert refused.value.version == stored.id

    node = FakeNode()
    run(with_small_client(node, act))
    assert node.frames == 2


def losing(node: FakeNode, *, times: int) -> Callable[[Exchange], None]:
    """Return how a node answers that loses the connection after its first writes, before it answers them."""
    lost = Counter[str]()

    def dispatch(exchange: Exchange) -> None:
        if exchange.kind == "write" and lost["write"] < times:
            lost["write"] += 1
            node.hold = []
            node.dispatch(exchange)
            node.hold = None
            exchange.connection.close()
        else:
            node.dispatch(exchange)

    return dispatch


def test_a_write_whose_answer_is_lost_is_sent_again_and_written_once() -> None:
    node = FakeNode()

    def act(cache: Any) -> None:
        first = cache.put("k", 1)
        assert cache.put("k", 2).id > first.id

    run(with_small_client(node, act, dispatch=losing(node, times=2)))
    assert (node.frames, len(node.log)) == (4, 2)


def test_a_write_behind_one_that_failed_has_no_number_and_leaves_the_outcome_open() -> None:
    node = FakeNode()
    dispatch = [node.dispatch]

    def act(cache: Any) -> None:
        cache.put("k", 1)
        with pytest.raises(KeyExists):
            cache.put("k", 2, if_absent=True)
        dispatch.append(losing(node, times=1))
        with pytest.raises(OutcomeUnknown) as lost:
            cache.put("k", 3)
        assert lost.value.outcome == "unknown"

    def newest(exchange: Exchange) -> None:
        dispatch[-1](exchange)

    run(with_small_client(node, act, dispatch=newest))
    assert (node.frames, len(node.log)) == (3, 2)


@pytest.mark.parametrize("refusal", [NotPrimary(segment=0), Unavailable(why="planted")])
def test_a_write_that_was_sent_once_and_then_refused_until_the_deadline_leaves_the_outcome_open(refusal: EventLogError) -> None:
    node = FakeNode()
    lose = losing(node, times=1)

    def dispatch(exchange: Exchange) -> None:
        if exchange.kind == "write" and node.log:
            exchange.fail(refusal)
        else:
            lose(exchange)

    def act(cache: Any) -> None:
        with pytest.raises(EventLogError) as failed:
            cache.put("k", 1, timeout_ms=300)
        assert failed.value.outcome == "unknown"

    run(with_small_client(node, act, dispatch=dispatch))
    assert len(node.log) == 1


def test_an_answer_that_does_not_come_in_time_leaves_the_outcome_open() -> None:
    node = FakeNode()

    def act(cache: Any) -> None:
        cache.info()
        node.hold = []
        with pytest.raises(TimedOut) as late:
            cache.put("k", 1, timeout_ms=50)
        assert (late.value.outcome, late.value.timeout_ms) == ("unknown", 50)

    run(with_small_client(node, act))
    assert len(node.log) == 1


def test_a_lifespan_is_refused_before_anything_is_sent() -> None:
    def act(cache: Any) -> None:
        with pytest.raises(eventlog.errors.InvalidArgument, match="lifespans"):
            cache.put("k", 1, lifespan_ms=5)

    node = FakeNode()
    run(with_small_client(node, act))
    assert node.frames == 0


# ---------------------------------------------------------------- several nodes


def with_cluster(act: Callable[[Any, FakeCluster, Callable[[Any], None]], None], *, forwards: bool = True, **options: Any) -> None:
    """Have `act` use a cache of a small client that was given the address of the first of three nodes, and change the cluster meanwhile."""

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def now(change: Any) -> None:
            asyncio.run_coroutine_threadsafe(change, loop).result()

        def call(address: str) -> None:
            with small.connect(address, **{"retry": FAST, "timeout_ms": 20_000, **options}) as client:
                act(client.cache("c"), cluster, now)

        async with cluster_of(forwards=forwards) as cluster:
            async with eventlog.connect(*cluster.addresses.values()) as client:
                await client.create_cache("c")
            cluster.asked.clear()
            await asyncio.to_thread(call, cluster.addresses[1])

    run(main())


def keys_by_member(cluster: FakeCluster) -> dict[int, str]:
    """Return a key of each member's segments."""
    return {cluster.primaries[cluster.node.segment(b"k%d" % number)]: f"k{number}" for number in range(100)}


def test_the_node_that_is_named_forwards_to_the_others() -> None:
    def act(cache: Any, cluster: FakeCluster, _: Any) -> None:
        for key in keys_by_member(cluster).values():
            cache.put(key, 1)
            assert cache.get(key).value == 1
        assert {member for member, _ in cluster.asked} == {1}
        assert cluster.passed_on == {"write": 2, "get": 2}

    with_cluster(act)


def test_a_node_that_does_not_forward_is_passed_by() -> None:
    def act(cache: Any, cluster: FakeCluster, _: Any) -> None:
        stored = {member: cache.put(key, member) for member, key in keys_by_member(cluster).items()}
        assert len({one.id for one in stored.values()}) == len(cluster.node.log) == 3
        assert {member for member, kind in cluster.asked if kind == "write"} == {1, 2, 3}

    with_cluster(act, forwards=False)


def test_with_routing_to_any_no_other_node_is_connected_to() -> None:
    def act(cache: Any, cluster: FakeCluster, _: Any) -> None:
        with pytest.raises(NotPrimary):
            cache.put(keys_by_member(cluster)[2], 1, timeout_ms=300)
        assert {member for member, _ in cluster.asked} == {1}

    with_cluster(act, forwards=False, routing="any")


@pytest.mark.parametrize("how", ["kill", "hang"])
def test_when_the_node_that_was_named_is_gone_the_others_go_on_and_nothing_is_written_twice(how: str) -> None:
    def act(cache: Any, cluster: FakeCluster, now: Callable[[Any], None]) -> None:
        key = keys_by_member(cluster)[1]
        first = cache.put(key, 1)

        async def lose() -> None:
            if how == "kill":
                await cluster.kill(1)
            else:
                cluster.hang(1)
            cluster.move(cluster.segments_of(1), 2, tell=False)

        now(lose())
        second = cache.put(key, 2, previous=True)
        assert (second.previous, cache.get(key).version) == (1, second.id)
        assert [happened.id for happened in cluster.node.log] == [first.id, second.id]

    with_cluster(act)


def test_nodes_that_say_nothing_are_not_waited_for_beyond_the_deadline_one_by_one() -> None:
    def act(cache: Any, cluster: FakeCluster, now: Callable[[Any], None]) -> None:
        cache.info()

        async def lose() -> None:
            await cluster.kill(1)
            cluster.hang(2)
            cluster.hang(3)

        now(lose())
        began_at = time.monotonic()
        with pytest.raises(TimedOut):
            cache.get("k")
        assert 0.9 < time.monotonic() - began_at < 1.9

    with_cluster(act, timeout_ms=1_000)


def test_keys_go_on_behind_the_last_one_when_a_node_is_lost() -> None:
    def act(cache: Any, cluster: FakeCluster, now: Callable[[Any], None]) -> None:
        written = [f"key{number}" for number in range(60)]
        for key in written:
            cache.put(key, 1)
        found = cache.keys("key")
        some = [next(found) for _ in range(5)]

        async def lose() -> None:
            await cluster.kill(1)
            cluster.move(cluster.segments_of(1), 3, tell=False)

        now(lose())
        assert sorted([*some, *found]) == sorted(written)

    with_cluster(act, read_ahead_bytes=1)


def test_keys_end_where_they_are_told_to() -> None:
    def act(cache: Any) -> None:
        for number in range(20):
            cache.put(f"k{number}", number)
        assert len(list(cache.keys(limit=7))) == 7
        assert list(cache.keys("k1", limit=1)) in ([f"k1{end}"] for end in ("", *range(10)))
        few = cache.keys()
        next(few)
        few.close()
        assert cache.get("k1").value == 1
        with pytest.raises(InvalidArgument):
            cache.keys(limit=0)

    run(with_small_client(FakeNode(), act))


def test_another_cluster_behind_the_same_address_is_refused() -> None:
    node = FakeNode()

    def act(cache: Any) -> None:
        cache.put("k", 1)
        node.cluster = "c2"
        node.refusal = lambda exchange: None if exchange.kind != "get" else exchange.connection.abort()
        with pytest.raises(WrongCluster):
            cache.get("k")

    run(with_small_client(node, act))


def test_a_first_write_that_was_forgotten_meanwhile_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "FIRST_BLOCK_MS_MAX", 50)
    node, back_at = FakeNode(), []

    def dispatch(exchange: Exchange) -> None:
        now = asyncio.get_running_loop().time()
        if exchange.kind == "write" and not back_at:
            back_at.append(now + 0.2)
            node.hold = []
            node.dispatch(exchange)
            node.hold = None
            node.last.clear()
            node.results.clear()
        if back_at and now < back_at[0]:
            exchange.connection.abort()
        else:
            node.dispatch(exchange)

    def act(cache: Any) -> None:
        with pytest.raises(OutcomeUnknown):
            cache.put("k", 1)
        assert len(node.log) == 1

    run(with_small_client(node, act, dispatch=dispatch))
