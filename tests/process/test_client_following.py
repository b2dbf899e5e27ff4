"""Readers that follow: they outlive their node, wait for another one long enough, and leave with a word."""

import asyncio
from typing import Any

import pytest

from eventlog.client.client import connect
from eventlog.errors import ClientClosed, TimedOut
from eventlog.transport.connection import Exchange
from tests.client.fake_cluster import cluster_of
from tests.client.fake_node import FakeNode
from tests.loops import SkippingLoop, skip
from tests.process.client_ends import FAST, client_of, road_to, run, until


def test_a_follower_outlives_its_node() -> None:
    async def main() -> None:
        node = FakeNode()
        async with road_to(node) as road, connect(road.address, retry=FAST) as client:
            cache = await client.create_cache("c")
            found: list[str] = []

            async def follow() -> None:
                async for event in cache.events(follow=True):
                    found.append(event.key)
                    if event.key == "end":
                        return

            reader = asyncio.create_task(follow())
            for number in range(20):
                await cache.put(f"k{number}", number)
                if number % 5 == 4:
                    await until(lambda number=number: len(found) == number + 1)
                    road.cut()
            await cache.put("end", 0)
            await reader
            assert found == [*(f"k{number}" for number in range(20)), "end"]
            assert road.connections >= 4

    run(main())


def test_a_follower_to_whom_nothing_happened_for_long_outlives_its_node() -> None:
    async def main() -> None:
        node = FakeNode()
        watches: list[Exchange] = []
        dispatch = node.dispatch

        def keep_the_first_waiting(exchange: Exchange) -> None:
            if exchange.kind == "watch":
                watches.append(exchange)
            if exchange.kind != "watch" or len(watches) > 1:
                dispatch(exchange)

        node.dispatch = keep_the_first_waiting  # type: ignore[method-assign]
        async with road_to(node) as road, connect(road.address, retry=FAST, reconnect_ms_max=5_000) as client:
            cache = await client.create_cache("c")
            events = cache.events(follow=True)
            first = asyncio.ensure_future(anext(events))
            await until(lambda: bool(watches))
            skip(20)
            road.cut()
            await cache.put("k", 1)
            assert (await first).key == "k"
            await events.aclose()

    run(main(), loop_factory=SkippingLoop)


def test_who_follows_by_polls_waits_for_a_node_longer_than_a_request_does() -> None:
    async def main() -> None:
        async with cluster_of(1) as cluster, connect(cluster.addresses[1], retry=FAST, timeout_ms=5_000) as client:
            cache = await client.create_cache("c")
            events = cache.events(follow=True, poll_interval_ms=10)
            first = asyncio.ensure_future(anext(events))
            await until(lambda: cluster.asked[1, "poll"])
            await cluster.kill(1)
            await until(lambda: not client.usage.connections)
            for _ in range(50):  # whoever gives up after five seconds does so now
                skip(0.3)
                await asyncio.sleep(0.001)
            await cluster.start(1)
            await cache.put("k", 1)
            assert (await first).key == "k"
            await events.aclose()

    run(main(), loop_factory=SkippingLoop)


class Swallowing(FakeNode):
    """A node behind a network that swallows some requests, once `kind` says which: three of them. `swallowed` counts them."""

    kind = ""
    swallowed = 0

    def dispatch(self, exchange: Exchange) -> None:
        if exchange.kind == self.kind and self.swallowed < 3:
            self.swallowed += 1
        else:
            super().dispatch(exchange)


@pytest.mark.parametrize(("kind", "options"), [("poll", {"poll_interval_ms": 10}), ("get_topology", {"read_from": "any"})])
def test_who_follows_goes_on_where_the_network_has_swallowed_a_request(kind: str, options: dict[str, Any]) -> None:
    async def main() -> None:
        node = Swallowing()
        async with client_of(node, timeout_ms=100) as client:
            cache = await client.create_cache("c")
            await cache.put("k", 1)
            node.kind = kind
            events = cache.events("earliest", follow=True, **options)
            assert (await anext(events)).key == "k"
            assert node.swallowed == 3
            await events.aclose()

    run(main())


def test_who_follows_gives_up_where_nothing_is_answered_for_long() -> None:
    async def main() -> None:
        node = Swallowing()
        async with client_of(node, timeout_ms=50, reconnect_ms_max=120) as client:
            cache = await client.create_cache("c")
            node.kind = "poll"
            with pytest.raises(TimedOut):
                await anext(cache.events("earliest", follow=True, poll_interval_ms=10))
        assert node.swallowed > 1

    run(main())


def test_closing_a_client_is_no_loss_of_its_node_to_who_waits_for_long(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = FakeNode()
        async with client_of(node) as client:
            cache = await client.create_cache("c")
            reading = asyncio.ensure_future(cache.poll("latest", wait_ms=30_000))
            await until(lambda: bool(node.news))
            skip(20)
            await client.close()
            with pytest.raises(ClientClosed):
                await reading
        assert not caplog.records

    run(main(), loop_factory=SkippingLoop)


def test_a_follower_goes_on_when_its_stream_ends_without_a_word() -> None:
    async def main() -> None:
        node = FakeNode()
        async with client_of(node) as client:
            cache = await client.create_cache("c")
            await cache.put_many([(f"k{n}", n) for n in range(5)])
            dispatch, ended = node.dispatch, 0

            def end_twice(exchange: Exchange) -> None:
                nonlocal ended
                ended += exchange.kind == "watch"
                if exchange.kind == "watch" and ended < 3:
                    exchange.stream_end()
                else:
                    dispatch(exchange)

            node.dispatch = end_twice  # type: ignore[method-assign]
            assert len([event async for event in cache.events(follow=True, until_id=node.log[-1].id)]) == 5
            assert ended == 3

    run(main())


def test_a_reader_that_leaves_tells_the_node() -> None:
    async def main() -> None:
        node = FakeNode()
        async with client_of(node, read_ahead_bytes=500) as client:
            cache = await client.create_cache("c")
            await cache.put("k", 1)
            async for _ in cache.events(follow=True):
                assert len(node.tasks) == 1
                break
            await until(lambda: not node.tasks)
            await cache.put_many([(f"k{n}", n) for n in range(100)])
            async for _ in cache.keys():
                break
            await until(lambda: not node.tasks)

    run(main())
