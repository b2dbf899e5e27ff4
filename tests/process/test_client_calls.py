"""Polls, caches, limits and threads: the other calls of the client against a node of its own process."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import eventlog
from eventlog import blocking
from eventlog.client.client import connect
from eventlog.errors import (
    BadName,
    CacheDropped,
    CacheExists,
    CacheNotFound,
    CacheRecreated,
    ClientClosed,
    EventsTrimmed,
    InvalidArgument,
    PartlyWritten,
    PositionMismatch,
    TimedOut,
    TooLarge,
    VersionMismatch,
)
from tests.loops import WITHIN_S
from tests.process.client_ends import run
from tests.process.nodes import NodeProcess
from tests.process.one_node import SEGMENTS, using


def test_what_is_of_no_use_is_refused_at_the_call_and_the_client_goes_on(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("misused")
        stored = await cache.put("k", 1)
        odd: Any = "x"
        assert (await cache.put("k", 2, previous=odd)).previous == 1
        for refused in (
            cache.put("k", 3, headers=odd),
            cache.put("k", 3, if_version=odd),
            cache.put("k", 3, if_version=True),
            cache.remove("k", if_version=True),
            cache.poll(where=odd and 5),
            cache.poll(select=[5]),
            cache.poll(position=odd and 5),
            cache.new_consumer(odd and 5),
            cache.poll(max_events=odd),
            cache.poll(max_events=odd and 1.5),
            cache.poll(wait_ms=-1),
            cache.log_ends(segments=[0]),
            cache.new_worker("w", max_deliveries=1 << 40),
            cache.new_worker("w", prefetch=1 << 40),
            cache.publish("t", 1, [b"xxx"]),
            cache.publish("t", 1, [odd]),
            client.admin.compare_copies([SEGMENTS]),
            client.admin.set_replicas(-1),
            client.admin.rotate_key(overlap_ms=1 << 40),
            client.admin.start_rebalance(throttle_bytes=-1),
        ):
            with pytest.raises(InvalidArgument):
                await refused
        for broken in (cache.new_consumer("g", instance_id=odd and 5), cache.new_consumer("g", max_bytes=-1)):
            with pytest.raises((TypeError, InvalidArgument)):
                await broken
        async with cache.consumer("g") as consumer:
            for count in (-1, 1.5, 1 << 40):
                with pytest.raises(InvalidArgument):
                    await anext(consumer.batches(odd and count))
            with pytest.raises(InvalidArgument):
                await consumer.commit(odd)
        assert (await cache.put("k", 3)).id > stored.id

    using(node, test)


def test_polls_answer_with_events_and_where_to_go_on(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("polls")
        ids = [(await cache.put(f"k{n}", n)).id for n in range(10)]
        answer = await cache.poll(max_events=4)
        assert [event.id for event in answer.events] == ids[:4]
        following = await cache.poll(position=answer.position, max_events=4)
        assert [event.id for event in following.events] == ids[4:8]
        rest = await cache.poll(following.last_id)
        assert [event.id for event in rest.events] == ids[8:]
        assert rest.is_end
        assert rest.low_watermark >= ids[-1]
        waiting = asyncio.create_task(cache.poll(rest.last_id, wait_ms=10_000))
        bell = asyncio.create_task(cache.poll(rest.last_id, wait_ms=10_000, max_events=0))
        stored = await cache.put("news", 1)
        assert [event.id for event in (await waiting).events] == [stored.id]
        rung = await bell
        assert rung.events == []
        assert rung.last_id >= stored.id
        assert [event.id for event in (await cache.poll(position=rung.position)).events] == [stored.id]
        empty = await cache.poll(stored.id, wait_ms=20)
        assert (empty.events, empty.last_id >= stored.id) == ([], True)
        assert len((await cache.poll(max_events=1 << 31, max_bytes=1 << 40)).events) == 11
        odd: list[dict[str, Any]] = [{"wait_ms": -1}, {"wait_ms": 1 << 30}, {"max_events": -1}, {"max_events": 1 << 32}, {"max_bytes": -1}]
        for wrong in (*(cache.poll(**options) for options in odd), cache.poll(9, until_id=5), cache.put_arrow(5)):
            with pytest.raises(InvalidArgument):
                await wrong

    using(node, test)


def test_an_empty_key_is_a_key_like_others(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("empty-key")
        assert [entry async for entry in cache.entries()] == []
        assert (await cache.put("", "nothing")).kind == "CREATED"
        assert await cache.keys() == [""], "alone"
        await cache.put_many([("", "something"), *((f"k{n}", n) for n in range(600))])
        expected = {"": "something", **{f"k{n}": n for n in range(600)}}
        assert (await cache.get("")).value == "something"  # type: ignore[union-attr]
        assert [entry and entry.value for entry in await cache.get_many(["", "none", "k1"])] == ["something", None, 1]
        assert set(await cache.keys()) == set(expected)
        assert {key: entry.value async for key, entry in cache.entries(batch_size=1)} == expected
        assert {event.key: event.value async for event in cache.events(state_first=True)} == expected
        assert (await cache.remove("")).kind == "REMOVED"
        assert await cache.get("") is None
        assert await cache.get_many([""]) == [None]
        assert await cache.clear() == 600

    using(node, test)


def test_there_is_nothing_until_the_first_id(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("until")
        first = await cache.put("k", 1)
        for follow in (False, True):
            assert [event.id async for event in cache.events(until_id=0, follow=follow)] == []
            assert [event.id async for event in cache.events(until_id=first.id - 1, follow=follow)] == []
            assert [event.id async for event in cache.events(until_id=first.id, follow=follow)] == [first.id]
        with pytest.raises(InvalidArgument):
            await cache.poll(until_id=0)

    using(node, test)


def test_waiting_for_an_id_ends_when_readers_see_it(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache, other = await client.create_cache("wait"), await client.create_cache("wait-other")
        stored = await cache.put("k", 1)
        await client.wait_for(cache, stored.id)
        await client.wait_for(other.name, stored.id)
        with pytest.raises(TimedOut):
            await client.wait_for(cache, stored.id + (60_000 << 22), timeout_ms=50)
        for nothing in ((await cache.remove("nothing")).id, -1, 1.5, True, str(stored.id), 1 << 63):
            with pytest.raises(InvalidArgument, match="is not an id"):
                await client.wait_for(cache, nothing, timeout_ms=50)

    using(node, test)


def test_trimmed_events_are_told_or_skipped_as_asked(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("trimmed", format="bytes", state=False)
        ids: list[Any] = []
        for _ in range(60):
            ids += (await cache.put_many([("one key", bytes(40_000))] * 5)).ids
        await client.alter_cache("trimmed", retain_bytes=2_000_000)
        run_ = await client.run_retention("trimmed", dry_run=True)
        assert run_.removed > 0
        assert (await cache.log_ends()).first_id == ids[0]
        assert (await client.run_retention("trimmed")).removed > 0
        first = (await cache.log_ends()).first_id
        assert first is not None
        assert first > ids[0]
        kept = ids[ids.index(first) :]
        assert [event.id async for event in cache.events()] == kept
        with pytest.raises(EventsTrimmed) as caught:
            _ = [event async for event in cache.events(from_id=ids[0])]
        assert caught.value.first_id == first
        assert caught.value.lost >= ids.index(first) - 1
        assert [event.id async for event in cache.events(from_id=ids[0], on_trimmed="earliest")] == kept
        with pytest.raises(EventsTrimmed):
            await cache.poll(ids[0])

    using(node, test)


def test_caches_are_created_described_altered_listed_and_dropped(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("admin", format="bytes", state=False, retain_events=500, lifespan_ms=None)
        info = await cache.info()
        assert (info.format, info.state, info.events, info.retain_events, info.lifespan_ms) == ("bytes", False, True, 500, None)
        with pytest.raises(CacheExists):
            await client.create_cache("admin")
        assert (await (await client.create_cache("admin", if_exists="use")).info()).id == info.id
        alike = await client.create_cache("admin", format="bytes", key_format="utf8", state=False, retain_events=7, if_exists="use")
        assert (await alike.info()).retain_events == 500
        altered = await client.alter_cache("admin", retain_events=0, retain_bytes=1 << 30)
        assert (altered.retain_events, altered.retain_bytes) == (None, 1 << 30)
        assert await client.describe_cache("admin") == altered
        assert "admin" in [found.name for found in await client.list_caches()]
        await client.drop_cache("admin")
        with pytest.raises(CacheDropped):
            await cache.put("k", b"")
        for absent in (client.describe_cache("admin"), client.cache("admin").put("k", b""), client.drop_cache("admin")):
            with pytest.raises(CacheNotFound):
                await absent
        with pytest.raises(CacheNotFound):
            await client.cache("never")
        with pytest.raises(BadName):
            await client.create_cache("..")

    using(node, test)


def test_a_position_of_a_dropped_cache_is_told_from_one_of_its_successor_and_of_others(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("again")
        await cache.put("k", 1)
        position = next(iter([event.position async for event in cache.events()]))
        await client.drop_cache("again")
        successor = await client.create_cache("again")
        with pytest.raises(CacheRecreated):
            await successor.poll(position=position)
        with pytest.raises(CacheRecreated):
            _ = [event async for event in successor.events(position=position)]
        with pytest.raises(PositionMismatch):
            _ = [event async for event in (await client.create_cache("another")).events(position=position)]

    using(node, test)


def test_the_cluster_is_shown(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        await client.ping()
        while (status := await client.status()).health != "ok":  # noqa: ASYNC110 -- it was held up, and nothing else tells
            await asyncio.sleep(0.05)
        assert (status.cluster, status.segments) == (client.cluster, client.segments_count)
        cache = await client.create_cache("shown")
        stored = await cache.put_many([(f"k{n}", n) for n in range(40)])
        segments = await client.segments("shown")
        assert [found.segment for found in segments] == list(range(SEGMENTS))
        assert sum(found.events for found in segments) == 40
        assert max(found.last_id for found in await client.segments()) >= stored.last_id
        report = await client.check()
        assert report.problems == ()
        assert report.events >= 40
        ends = await cache.log_ends()
        assert (ends.first_id, ends.events) == (stored.first_id, 40)

    using(node, test)


def test_a_value_above_the_nodes_limit_fails_alone(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("limits", format="bytes")
        puts = [cache.put(f"k{n}", bytes(2 << 20 if n == 3 else 10)) for n in range(8)]
        results = await asyncio.gather(*puts, return_exceptions=True)
        assert [n for n, result in enumerate(results) if isinstance(result, eventlog.EventLogError)] == [3]
        assert isinstance(results[3], TooLarge)
        assert (results[3].what, results[3].size) == ("a value", 2 << 20)
        assert sorted(await cache.keys()) == [f"k{n}" for n in range(8) if n != 3]
        assert (await cache.put("k3", b"")).kind == "CREATED"

    using(node, test)


def test_more_than_a_frame_goes_in_as_several(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("frames", format="bytes", state=False)
        stored = await cache.put_many([(f"k{n}", bytes(900_000)) for n in range(40)])
        assert len(set(stored.ids)) == 40
        assert (await cache.log_ends()).events == 40
        with pytest.raises(PartlyWritten) as caught:
            await cache.put_many([(f"x{n}", bytes(2_000_000 if n == 39 else 900_000)) for n in range(40)])
        error = caught.value
        assert (error.outcome, error.unknown, error.ok + error.none) == ("none", [], list(range(40)))
        assert 39 in error.none
        assert (await cache.log_ends()).events == 40 + len(error.ok)

    using(node, test)


def test_the_blocking_client_does_the_same(node: NodeProcess) -> None:
    with eventlog.blocking.connect(node.address) as client:
        cache = client.create_cache("blocking", if_exists="use")
        stored = cache.put("k", {"n": 1})
        assert cache.put("k", {"n": 2}, previous=True).previous == {"n": 1}
        entry = cache.get("k")
        assert entry is not None
        assert entry.value == {"n": 2}
        with pytest.raises(VersionMismatch):
            cache.replace("k", 3, if_version=stored.id)
        many = cache.put_many([(f"k{n}", n) for n in range(3_000)])
        assert len(list(cache.keys())) == 3_001
        assert [found and found.value for found in cache.get_many(["k1", "none"])] == [1, None]
        assert dict(cache.entries("k299"))["k2999"].value == 2_999
        assert [event.id for event in cache.events()][-3_000:] == sorted(many.ids)
        assert sum(map(len, cache.event_batches())) == 3_002
        future = cache.send_columns([b"a", b"none"], [b"1", b""], removed=[False, True])
        assert future.result().kinds == ["CREATED", None]
        assert [event.key for event in cache.poll(many.last_id).events] == ["a"]
        assert (cache.size(), cache.remove("a").kind, cache.log_ends().events) == (3_002, "REMOVED", 3_004)
        client.wait_for(cache.name, stored.id)
        assert client.status().segments == SEGMENTS
        assert client.describe_cache("blocking") == cache.info()
        assert client.alter_cache("blocking", retain_events=5).retain_events == 5
        assert (client.cluster, client.segments_count) == (client.status().cluster, SEGMENTS)
        client.drop_cache("blocking")
        following = client.create_cache("blocking").events(follow=True)
    with pytest.raises(eventlog.errors.ClientClosed):
        next(following)


def test_many_threads_share_a_blocking_client(node: NodeProcess) -> None:
    with eventlog.blocking.connect(node.address) as client:
        cache = client.create_cache("threads")
        acknowledged: list[int | None] = []

        def write(writer: int) -> None:
            acknowledged.extend(cache.put(f"{writer}-{n}", n).id for n in range(100))

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(acknowledged) == [event.id for event in cache.events()]  # type: ignore[type-var]


def test_a_node_killed_while_it_is_written_to_loses_and_doubles_nothing(tmp_path: Path) -> None:
    async def main(node: NodeProcess) -> None:
        async with connect(node.address, timeout_ms=30_000) as client:
            cache = await client.create_cache("c")
            acknowledged: list[Any] = []
            progress = asyncio.Event()

            async def write(writer: int) -> None:
                for n in range(60):
                    if n % 3:
                        acknowledged.append((await cache.put(f"w{writer}", [writer, n])).id)
                    else:
                        acknowledged.extend((await cache.put_many([(f"w{writer}-{m}", [writer, n]) for m in range(10)])).ids)
                    progress.set()

            followed: list[int] = []

            async def follow() -> None:
                async for event in cache.events(follow=True):
                    followed.append(event.id)  # noqa: PERF401 -- seen while it grows

            reader = asyncio.create_task(follow())
            writers = [asyncio.create_task(write(writer)) for writer in range(6)]
            for _ in range(3):
                progress.clear()
                await progress.wait()
                await asyncio.to_thread(node.kill)
                await asyncio.to_thread(node.start)
            await asyncio.gather(*writers)
            events = [event async for event in cache.events()]
            assert [event.id for event in events] == sorted(acknowledged)
            assert len({(event.key, str(event.value)) for event in events}) == len(events) == 6 * (40 + 20 * 10)
            for writer in range(6):
                own = [event.value[1] for event in events if event.key == f"w{writer}"]
                assert own == sorted(own)
            async with asyncio.timeout(50):
                while len(followed) < len(events):  # noqa: ASYNC110 -- the follower has no event to wait for
                    await asyncio.sleep(0.01)
            reader.cancel()
            await asyncio.wait([reader])
            assert followed == [event.id for event in events]

    with NodeProcess(tmp_path, "--segments", "8") as node:
        run(main(node))


def test_a_client_whose_loop_has_ended_is_closed_to_a_later_one(node: NodeProcess) -> None:
    client = connect(node.address)

    async def first() -> eventlog.Cache:
        await client.open()
        cache = await client.create_cache("loops")
        await cache.put("k", 1)
        return cache

    async def later(cache: eventlog.Cache) -> None:
        for call in (cache.put("k", 2), cache.put_many([("k", 2)]), cache.get("k"), cache.poll(0), anext(cache.events()), client.status()):
            with pytest.raises(ClientClosed):
                await asyncio.wait_for(call, WITHIN_S)
        await asyncio.wait_for(client.close(), WITHIN_S)

    asyncio.run(later(asyncio.run(first())))


def test_what_is_waited_for_is_an_id_of_a_cache(node: NodeProcess) -> None:
    with blocking.connect(node.address) as client:
        cache = client.create_cache("waited")
        stored = cache.put("k", 1)
        client.wait_for(cache, stored.id)
        client.wait_for("waited", stored.id)
        odd: Any = 5
        with pytest.raises(InvalidArgument, match="cache is 5: give text"):
            client.wait_for(odd, stored.id)
        with pytest.raises(InvalidArgument, match="id 'x' is not an id"):
            client.wait_for(cache, odd and "x")
