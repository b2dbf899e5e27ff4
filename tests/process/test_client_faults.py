"""Connections that break anywhere: nothing acknowledged is lost or doubled, readers go on where they were."""

import asyncio
from collections import Counter

import pytest

import eventlog
from eventlog.client.client import connect
from eventlog.errors import ConnectionLost, OutcomeUnknown, Overloaded, Stopping, TimedOut
from eventlog.limits import PRODUCER_RESULTS_KEPT
from eventlog.transport.exchange import Exchange
from tests.client.fake_node import FakeNode, running
from tests.process.client_ends import FAST, client_of, road_to, run, until

BATCHES, ROWS = 12, 5


async def write_all(client: eventlog.Client) -> list[int]:
    cache = await client.create_cache("c", if_exists="use")
    pairs = [[(f"k{(7 * batch + row) % 20}", [batch, row]) for row in range(ROWS)] for batch in range(BATCHES)]
    futures = [asyncio.ensure_future(cache.put_many(part)) for part in pairs]
    singles = [asyncio.ensure_future(cache.put(f"s{number}", number)) for number in range(5)]
    stored = [id_ for future in futures for id_ in (await future).ids]
    return stored + [(await single).id for single in singles]


def check_written(node: FakeNode, acknowledged: list[int]) -> None:
    written = Counter((event.key, event.value) for event in node.log)
    assert set(written.values()) == {1}, "written twice"
    assert len(node.log) == BATCHES * ROWS + 5
    assert sorted(acknowledged) == [event.id for event in node.log]
    for segment in range(node.segments):
        order = [event.value for event in node.log if event.segment == segment and event.key.startswith(b"k")]
        by_key = Counter()
        for key in {event.key for event in node.log if event.segment == segment}:
            values = [event.value for event in node.log if event.key == key]
            assert values == sorted(values, key=lambda value: [int(part) for part in value.decode().strip("[]").split(",")]), "order"
            by_key[key] = len(values)
        assert len(order) <= sum(by_key.values())


@pytest.mark.parametrize("way", ["up", "down"])
def test_writes_are_there_once_wherever_the_connection_breaks(way: str) -> None:
    async def once(position: int) -> bool:
        node = FakeNode()
        async with road_to(node) as road:
            road.allowance[way] = position
            async with connect(road.address, retry=FAST, frame_bytes_target=200) as client:
                check_written(node, await write_all(client))
            return road.connections > 1

    async def main() -> None:
        position, broken = 60, 0
        while await once(position):
            position += 37 if position > 300 else 1 + position % 5
            broken += 1
        assert broken > 50

    run(main())


@pytest.mark.parametrize("reading", ["events", "event_batches"])
def test_readers_miss_nothing_and_repeat_nothing_wherever_the_connection_breaks(reading: str) -> None:
    node = FakeNode(answer_events=9)

    async def once(position: int) -> bool:
        async with road_to(node) as road:
            async with connect(road.address, retry=FAST, read_ahead_bytes=1_500) as client:
                cache = client.cache("c")
                await cache.info()
                road.allowance["down"] = position
                if reading == "events":
                    found = [event.id async for event in cache.events()]
                else:
                    found = [id_ async for batch in cache.event_batches() for id_ in batch.ids.tolist()]
                assert found == [event.id for event in node.log]
            return road.connections > 1

    async def main() -> None:
        async with client_of(node) as client:
            await write_all(client)
        position, broken = 1, 0
        while await once(position):
            position += 41 if position > 300 else 3
            broken += 1
        assert broken > 50

    run(main())


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


def test_a_write_whose_answer_is_lost_is_answered_by_its_first_result() -> None:
    async def main() -> None:
        node = FakeNode()
        async with road_to(node) as road, connect(road.address, retry=FAST) as client:
            cache = await client.create_cache("c")
            node.hold = []
            writing = asyncio.create_task(cache.put("k", 1))
            await until(lambda: len(node.log) == 1)
            road.cut()
            node.hold = None
            stored = await writing
            assert (stored.id, stored.kind, len(node.log)) == (node.log[0].id, "CREATED", 1)

    run(main())


def test_a_conditional_write_whose_refusal_is_lost_is_still_refused() -> None:
    async def main() -> None:
        node = FakeNode()
        async with road_to(node) as road, connect(road.address, retry=FAST) as client:
            cache = await client.create_cache("c")
            await cache.put("k", 1)
            for attempt in (cache.put("k", 2, if_absent=True), cache.replace("k", 2, if_version=5), cache.replace("none", 2)):
                node.hold = []
                writing = asyncio.create_task(attempt)
                await until(lambda: bool(node.hold))
                road.cut()
                node.hold = None
                with pytest.raises((eventlog.errors.KeyExists, eventlog.errors.VersionMismatch)):
                    await writing
            assert len(node.log) == 1

    run(main())


def test_without_idempotence_a_lost_answer_is_an_unknown_outcome_and_nothing_is_sent_twice() -> None:
    async def main() -> None:
        node = FakeNode()
        async with road_to(node) as road, connect(road.address, retry=FAST, idempotent=False) as client:
            cache = await client.create_cache("c")
            node.hold = []
            writing = asyncio.create_task(cache.put("k", 1))
            await until(lambda: len(node.log) == 1)
            road.cut()
            node.hold = None
            with pytest.raises(OutcomeUnknown) as caught:
                await writing
            assert caught.value.outcome == "unknown"
            assert (await cache.put("k", 2)).kind == "MODIFIED"
            assert (len(node.log), node.frames) == (2, 2)

    run(main())


def test_a_write_that_waits_for_a_node_is_sent_when_one_comes_up() -> None:
    async def main() -> None:
        node = FakeNode()
        async with running(node) as address:
            client = connect(address, retry=FAST)
            await client.open()
            cache = await client.create_cache("c")
            port = int(address.rpartition(":")[2])
        writing = asyncio.create_task(cache.put("k", 1))
        await asyncio.sleep(0.02)
        async with running(node, port=port):
            assert (await writing).kind == "CREATED"
            await client.close()

    run(main())


def test_nobody_listening_is_told_at_once_and_another_address_is_tried() -> None:
    async def main() -> None:
        with pytest.raises(ConnectionLost):
            async with connect("127.0.0.1:1", "127.0.0.1:2"):
                pass
        async with running(FakeNode()) as address, connect("127.0.0.1:1", address) as client:
            await client.create_cache("c")

    run(main())


def test_a_node_of_another_cluster_is_not_taken_for_the_first() -> None:
    async def main() -> None:
        first, second = FakeNode(), FakeNode(cluster="c2")
        async with running(second) as other, running(first) as address:
            client = connect(address, other, retry=FAST, timeout_ms=300)
            await client.open()
            cache = await client.create_cache("c")
            await cache.put("k", 1)
            first.refusal = lambda _: Stopping()
            with pytest.raises((eventlog.errors.WrongCluster, Stopping)):
                await cache.get("k")
            assert second.log == []
            await client.close()

    run(main())


@pytest.mark.parametrize("error", [Overloaded(what="x", limit=1), Stopping()])
def test_a_busy_node_is_asked_again_and_the_order_of_writes_stays(error: eventlog.EventLogError) -> None:
    async def main() -> None:
        node = FakeNode()
        seen = Counter()

        def refuse_some(exchange: Exchange) -> eventlog.EventLogError | None:
            seen[exchange.kind] += 1
            return error if exchange.kind in ("write", "get", "size") and seen[exchange.kind] % 3 == 1 else None

        async with client_of(node, frame_bytes_target=200) as client:
            await client.create_cache("c")
            node.refusal = refuse_some
            check_written(node, await write_all(client))
            assert await client.cache("c").size() == 25
            assert (await client.cache("c").get("s1")).value == 1

    run(main())


def test_a_gap_is_closed_when_a_frame_is_refused_for_good() -> None:
    async def main() -> None:
        node = FakeNode(segments=1)
        too_large = eventlog.errors.TooLarge(what="a value", size=2, limit=1)

        async with client_of(node, frame_bytes_target=1) as client:
            cache = await client.create_cache("c")
            node.refusal = lambda exchange: too_large if b"poison" in bytes(exchange.body) else None
            writes = [asyncio.ensure_future(cache.put(f"k{n}", "poison" if n == 3 else n)) for n in range(20)]
            results = await asyncio.gather(*writes, return_exceptions=True)
            assert [n for n, result in enumerate(results) if isinstance(result, eventlog.errors.TooLarge)] == [3]
            assert [event.key for event in node.log] == [b"k%d" % n for n in range(20) if n != 3]

    run(main())


def test_one_bad_write_does_not_fail_those_that_share_its_frame() -> None:
    async def main() -> None:
        node = FakeNode()
        bad = eventlog.errors.BadBlock(segment=0, block=0, why="poison")
        async with client_of(node) as client:
            cache = await client.create_cache("c")
            node.refusal = lambda exchange: bad if b"poison" in bytes(exchange.body) else None
            writes = [asyncio.ensure_future(cache.put(f"k{n}", "poison" if n == 3 else n)) for n in range(20)]
            results = await asyncio.gather(*writes, return_exceptions=True)
            assert [n for n, result in enumerate(results) if isinstance(result, eventlog.errors.BadBlock)] == [3]
            assert len(node.log) == 19

    run(main())


def test_a_producer_that_was_forgotten_begins_again() -> None:
    async def main() -> None:
        node = FakeNode()
        async with client_of(node) as client:
            cache = await client.create_cache("c")
            await cache.put_many([(f"k{n}", n) for n in range(50)])
            node.results.clear()
            node.last.clear()
            await cache.put_many([(f"k{n}", n) for n in range(50)])
            assert len(node.log) == 100

    run(main())


def test_a_write_in_doubt_is_not_repeated_by_a_forgotten_producer() -> None:
    async def main() -> None:
        node = FakeNode(segments=1)
        async with road_to(node) as road, connect(road.address, retry=FAST) as client:
            cache = await client.create_cache("c")
            await cache.put("k", 0)
            node.hold = []
            writing = asyncio.create_task(cache.put("k", 1))
            await until(lambda: len(node.log) == 2)
            node.results.clear()
            node.last.clear()
            road.cut()
            node.hold = None
            with pytest.raises(OutcomeUnknown):
                await writing
            assert len(node.log) == 2
            assert (await cache.put("k", 2)).kind == "MODIFIED"
            assert node.producers == 2

    run(main())


def test_a_write_out_of_time_says_whether_it_may_have_been_written() -> None:
    async def main() -> None:
        node = FakeNode(segments=1)
        async with client_of(node, timeout_ms=100) as client:
            cache = await client.create_cache("c")
            node.hold = []
            with pytest.raises(TimedOut) as caught:
                await cache.put("k", 1)
            assert caught.value.outcome == "unknown"
            # The first one still counts as unanswered, and no more than the node remembers may be.
            blocked = [asyncio.ensure_future(cache.put("k", n, previous=True)) for n in range(PRODUCER_RESULTS_KEPT + 3)]
            errors = [error for error in await asyncio.gather(*blocked, return_exceptions=True) if isinstance(error, TimedOut)]
            assert [error.outcome for error in errors] == ["unknown"] * (PRODUCER_RESULTS_KEPT - 1) + ["none"] * 4
            node.release()
            assert (await cache.put("k", 9)).kind == "MODIFIED"
            assert [event.value for event in node.log] == [b"1", *(b"%d" % n for n in range(PRODUCER_RESULTS_KEPT - 1)), b"9"]

    run(main())


def test_writes_that_nobody_waits_for_any_more_are_not_sent_on_a_new_connection() -> None:
    async def main() -> None:
        node = FakeNode()
        async with road_to(node) as road, connect(road.address, retry=FAST, timeout_ms=1_000) as client:
            cache = await client.create_cache("c")
            held = node.dispatch
            node.dispatch = lambda _: None  # type: ignore[method-assign]  # a node that hangs
            writing = asyncio.create_task(cache.put("k", 1, timeout_ms=50))
            with pytest.raises(TimedOut):
                await writing
            node.dispatch = held  # type: ignore[method-assign]
            road.cut()
            await until(lambda: client._core.uplink.live is None)
            assert (await cache.put("k", 2)).kind == "CREATED"
            assert [event.value for event in node.log] == [b"2"]

    run(main())


def test_a_cancelled_put_leaves_the_others_alone() -> None:
    async def main() -> None:
        node = FakeNode(segments=1)
        async with client_of(node) as client:
            cache = await client.create_cache("c")
            node.hold = []
            tasks = [asyncio.create_task(cache.put(f"k{n}", n)) for n in range(10)]
            await until(lambda: len(node.log) == 10)
            tasks[3].cancel()
            node.release()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [n for n, result in enumerate(results) if isinstance(result, asyncio.CancelledError)] == [3]
            assert (await cache.put("k", 0)).kind == "CREATED"

    run(main())


def test_writers_wait_while_too_many_bytes_are_unanswered() -> None:
    async def main() -> None:
        node = FakeNode(segments=1)
        async with client_of(node, bytes_unanswered_max=5_000, frame_bytes_target=1) as client:
            cache = await client.create_cache("c", format="bytes")
            node.hold = []
            tasks = [asyncio.create_task(cache.put(f"k{n}", bytes(1_000))) for n in range(30)]
            await until(lambda: len(node.log) == 4)
            await asyncio.sleep(0.02)
            assert len(node.log) == 4, "a writer did not wait"
            node.release()
            await asyncio.gather(*tasks)
            assert [event.key for event in node.log] == [b"k%d" % n for n in range(30)]

    run(main())


def test_leaving_a_client_waits_for_its_writes_and_an_exception_does_not() -> None:
    async def main() -> None:
        node = FakeNode()
        async with client_of(node) as client:
            cache = await client.create_cache("c")
            sent = await cache.send_columns([b"a", b"b"], [b"1", b"2"])
        assert sent.result().kinds == ["CREATED", "CREATED"]

        async def leave() -> None:
            async with client_of(node) as client:
                node.hold = []
                nonlocal sent
                sent = await client.cache("c").send_columns([b"c"], [b"3"])
                await until(lambda: len(node.log) == 3)
                raise KeyError

        with pytest.raises(KeyError):
            await leave()
        with pytest.raises(eventlog.errors.ClientClosed) as caught:
            await sent
        assert caught.value.outcome == "unknown"

    run(main())


def test_a_closed_client_says_so() -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            cache = await client.create_cache("c")
        for call in (cache.put("k", 1), cache.get("k"), cache.size()):
            with pytest.raises(eventlog.errors.ClientClosed):
                await call

    run(main())
