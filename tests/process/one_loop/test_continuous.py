"""Continuous queries at three nodes in this process: what a client is told is what happened to the set of matching entries."""

import asyncio
from pathlib import Path

import pytest

from eventlog.client.cache import Cache
from eventlog.client.client import Client, connect
from eventlog.client.reading.continuous import QueryChange
from eventlog.errors import BadPredicate, EventsTrimmed, InvalidArgument
from tests.process.one_loop.clients import client_of
from tests.process.one_loop.cluster import Cluster, with_cluster

WHERE = "value.n > 10"


def with_cache(tmp_path: Path, act, **options: object) -> None:
    async def run(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            await act(cluster, client, await client.create_cache("c", **options))

    with_cluster(tmp_path, run)


async def take(changes, count: int) -> list[QueryChange]:
    async with asyncio.timeout(60):
        return [await anext(changes) for _ in range(count)]


def told(changes: list[QueryChange]) -> list[tuple[str, object, object]]:
    return [(change.change, change.key, change.value) for change in changes]


def test_the_beginning_and_then_what_joins_changes_and_leaves(tmp_path: Path):
    async def act(cluster: Cluster, client: Client, cache: Cache) -> None:
        await cache.put_many([(f"k{number}", {"n": number}) for number in range(20)])
        async with cache.continuous_query(WHERE) as changes:
            initial = await take(changes, 9)
            assert {change.key for change in initial} == {f"k{number}" for number in range(11, 20)}
            assert all(change.initial and change.change == "JOINED" and change.value["n"] > 10 for change in initial)
            stored = [
                await cache.put("k1", {"n": 50}),
                await cache.put("k2", {"n": 3}),
                await cache.put("k15", {"n": 51}),
                await cache.put("k16", {"n": 1}),
                await cache.remove("k17"),
                await cache.put("new", {"n": 52}, lifespan_ms=1),
            ]
            found = await take(changes, 6)
            assert told(found) == [
                ("JOINED", "k1", {"n": 50}),
                ("UPDATED", "k15", {"n": 51}),
                ("LEFT", "k16", None),
                ("LEFT", "k17", None),
                ("JOINED", "new", {"n": 52}),
                ("LEFT", "new", None),
            ]
            assert [change.id for change in found[:5]] == [stored[row].id for row in (0, 2, 3, 4, 5)]
            assert [change.before for change in found] == [None, {"n": 15}, {"n": 16}, {"n": 17}, None, {"n": 52}]
            assert not any(change.initial for change in found)
            await cache.clear()
            left = await take(changes, 8)
            assert {(change.change, change.key) for change in left} == {
                ("LEFT", key) for key in ("k1", "k11", "k12", "k13", "k14", "k15", "k18", "k19")
            }

    with_cache(tmp_path, act)


def test_it_resumes_after_any_change_and_at_any_node(tmp_path: Path):
    async def act(cluster: Cluster, client: Client, cache: Cache) -> None:
        await cache.put_many([(f"k{number}", {"n": number}) for number in range(20)])
        async with cache.continuous_query(WHERE) as changes:
            begun = await take(changes, 4)
        async with client_of(cluster) as other, other.cache("c").continuous_query(WHERE, position=begun[-1].position) as changes:
            rest = await take(changes, 5)
            assert len({change.key for change in begun + rest}) == 9
            await cache.put("k1", {"n": 50})
            joined = await take(changes, 1)
            await cache.put("k1", {"n": 5})
            assert told(await take(changes, 1)) == [("LEFT", "k1", None)]
        async with cache.continuous_query(WHERE, position=joined[0].position) as changes:
            assert told(await take(changes, 1)) == [("LEFT", "k1", None)]

    with_cache(tmp_path, act)


def test_it_goes_on_when_its_node_and_primaries_die(tmp_path: Path):
    async def act(cluster: Cluster, client: Client, cache: Cache) -> None:
        matching: dict[str, int] = {}

        async def follow() -> None:
            async with cache.continuous_query(WHERE) as changes:
                async for change in changes:
                    assert (change.key in matching) == (change.change != "JOINED"), change
                    if change.change == "LEFT":
                        del matching[change.key]
                    else:
                        matching[change.key] = change.value["n"]

        following = asyncio.create_task(follow())
        expected: dict[str, int] = {}
        for number in range(300):
            key, value = f"k{number % 13}", number * 7 % 23
            await cache.put(key, {"n": value})
            expected[key] = value
            if number == 150:
                await cluster.nodes[0].kill()
        async with asyncio.timeout(60):
            while matching != {key: value for key, value in expected.items() if value > 10}:
                assert not following.done(), following.result()
                await asyncio.sleep(0.01)
        following.cancel()

    with_cache(tmp_path, act)


def test_without_a_beginning_it_tells_what_happens_from_its_entering_on(tmp_path: Path):
    async def act(cluster: Cluster, client: Client, cache: Cache) -> None:
        await cache.put("a", {"n": 11})
        async with cache.continuous_query("value.n > :least", parameters={"least": 10}, select="value.n", initial=False) as changes:
            await cache.put("b", {"n": 12, "more": 1})
            await cache.put("a", {"n": 13, "more": 1})
            assert told(await take(changes, 2)) == [("JOINED", "b", {"n": 12}), ("UPDATED", "a", {"n": 13})]
        async with cache.continuous_query(initial=False) as changes:
            await cache.remove("b")
            assert told(await take(changes, 1)) == [("LEFT", "b", None)]

    with_cache(tmp_path, act)


def test_a_cache_without_before_images_says_which_option_is_missing(tmp_path: Path):
    async def act(cluster: Cluster, client: Client, cache: Cache) -> None:
        with pytest.raises(BadPredicate, match="before"):
            async with cache.continuous_query("value.n > 1") as changes:
                await anext(changes)
        with pytest.raises(InvalidArgument):
            cache.continuous_query(on_trimmed="earliest")

    with_cache(tmp_path, act, before=False)


def test_changes_that_cannot_be_told_for_want_of_before_images_are_said(tmp_path: Path):
    async def act(cluster: Cluster, client: Client, cache: Cache) -> None:
        await cache.put_many([(f"k{number}", {"n": 11 + number}) for number in range(20)])
        async with cache.continuous_query(WHERE, initial=False) as changes:
            await cache.put("k1", {"n": 50})
            place = (await take(changes, 1))[0].position
            await client.alter_cache("c", before=False)
            await cache.put("k2", {"n": 1})
            with pytest.raises(BadPredicate, match="before-images"):
                await take(changes, 1)
        await client.alter_cache("c", before=True)
        stored = await cache.put("k3", {"n": 1})
        with pytest.raises(BadPredicate, match="before-images"):
            async with cache.continuous_query(WHERE, position=place) as changes:
                await take(changes, 1)
        found = [event.change async for event in cache.events(stored.id - 1, where=WHERE, continuous=True)]
        assert found == ["LEFT"]

    with_cache(tmp_path, act)


def test_a_position_that_retention_has_passed_is_said_or_begun_anew(tmp_path: Path):
    async def act(cluster: Cluster, client: Client, cache: Cache) -> None:
        await cache.put("a", {"n": 11})
        await cache.put("b", {"n": 1})
        async with cache.continuous_query(WHERE) as changes:
            place = (await take(changes, 1))[0].position
        await cache.put("a", {"n": 1})
        await cache.put("b", {"n": 12})
        for node in cluster.up:
            trimmed = node.caches.named("c")
            trimmed.trimmed_ids[:] = node.low.limit()
            trimmed.trimmed_offsets[:] = 10
        with pytest.raises(EventsTrimmed):
            async with cache.continuous_query(WHERE, position=place) as changes:
                await anext(changes)
        async with cache.continuous_query(WHERE, position=place, on_trimmed="resync") as changes:
            (only,) = await take(changes, 1)
            assert (only.initial, only.key, only.value) == (True, "b", {"n": 12})

    with_cache(tmp_path, act)


def test_a_continuous_listener_is_polled_for_changes_at_any_node(tmp_path: Path):
    async def act(cluster: Cluster, client: Client, cache: Cache) -> None:
        await cache.put("a", {"n": 11})
        listener = await cache.register(where=WHERE, continuous=True)
        await cache.put("a", {"n": 12})
        await cache.put("b", {"n": 1})
        await cache.put("a", {"n": 2})
        async with connect(f"127.0.0.1:{cluster.nodes[2].port}") as other:
            answer = await other.cache("c").poll(listener=listener.id, after=listener.last_id, wait_ms=10_000)
            found = list(answer.events)
            while len(found) < 2:
                answer = await other.cache("c").poll(listener=listener.id, position=answer.position, wait_ms=10_000)
                found += answer.events
        assert [(event.change, event.key) for event in found] == [("UPDATED", "a"), ("LEFT", "a")]
        assert [event.change async for event in cache.events(where=WHERE, continuous=True)] == ["JOINED", "UPDATED", "LEFT"]
        assert {event.change async for event in cache.events()} == {None}

    with_cache(tmp_path, act)


def test_the_state_before_the_events_of_a_continuous_listener_has_joined(tmp_path: Path):
    async def act(cluster: Cluster, client: Client, cache: Cache) -> None:
        await cache.put_many([("a", {"n": 11}), ("b", {"n": 1})])
        for narrowed in ({"listener": (await cache.register(where=WHERE, continuous=True)).id}, {"where": WHERE, "continuous": True}):
            found = [(event.kind, event.change, event.key) async for event in cache.events(state_first=True, follow=False, **narrowed)]
            assert found == [("STATE", "JOINED", "a")]
        plain = await cache.register(where=WHERE)
        assert [event.change async for event in cache.events(state_first=True, follow=False, listener=plain.id)] == [None]

    with_cache(tmp_path, act)


def test_columns_of_changes_have_their_names(tmp_path: Path):
    async def act(cluster: Cluster, client: Client, cache: Cache) -> None:
        for number in (11, 12, 1):
            await cache.put("a", {"n": number})
        batches = [batch async for batch in cache.event_batches(where=WHERE, continuous=True)]
        assert [name for batch in batches for name in batch.arrow()["change"].to_pylist()] == ["JOINED", "UPDATED", "LEFT"]
        initial, *_ = [batch.arrow() async for batch in cache.event_batches(state_first=True, where="key = 'a'", continuous=True)]
        assert (initial["kind"].to_pylist(), initial["change"].to_pylist()) == (["STATE"], ["JOINED"])
        plain, *_ = [batch.arrow() async for batch in cache.event_batches(where="key = 'a'")]
        assert "change" not in plain.schema.names

    with_cache(tmp_path, act)
