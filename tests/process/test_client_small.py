"""The small client against nodes that are busy, refuse, and are lost before they answer."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import eventlog
from eventlog.client import small
from eventlog.errors import KeyExists, OutcomeUnknown, Overloaded, TimedOut
from eventlog.transport.exchange import Exchange
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
