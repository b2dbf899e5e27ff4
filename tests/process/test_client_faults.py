"""Connections that break anywhere: nothing acknowledged is lost or doubled, readers go on where they were."""

import asyncio

import pytest

import eventlog
from eventlog.client.client import connect
from eventlog.errors import ClientClosed, ConnectionLost, DiskFull, OutcomeUnknown, PartlyWritten, Stopping, TimedOut
from eventlog.transport.connection import Connection, Exchange
from tests.client.fake_node import FakeNode, running
from tests.loops import SkippingLoop, skip
from tests.ports import free_port
from tests.process.client_ends import FAST, client_of, road_to, run, until

BATCHES, ROWS = 12, 5
from tests.process.fault_checks import check_written, write_all


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


def test_requests_that_find_no_connection_open_one_together() -> None:
    async def main() -> None:
        node = FakeNode()
        async with road_to(node) as road, connect(road.address, retry=FAST) as client:
            cache = await client.create_cache("c")
            await cache.put("k", 1)
            road.cut()
            await until(lambda: client.usage.connections == 0)
            await asyncio.gather(*(cache.get("k") for _ in range(20)), cache.put("k", 2), cache.size())
            assert road.connections == 2

    run(main())


def test_a_connection_that_closes_at_once_is_replaced() -> None:
    async def main() -> None:
        node = FakeNode()
        async with road_to(node) as road, connect(road.address, retry=FAST) as client:
            cache = await client.create_cache("c")
            nodes = client._core.nodes
            uplink, on_open, opened = nodes.home, nodes.on_connection, 0

            def close_two(connection: Connection) -> None:
                nonlocal opened
                opened += 1
                on_open(connection)
                if opened % 3:
                    uplink.drop(connection)

            nodes.on_connection = close_two
            for call in (lambda: cache.get("k"), cache.size, lambda: cache.get_many(["k"]), lambda: cache.put("k", 1)):
                road.cut()
                await until(lambda: uplink.live is None)
                await call()
            road.cut()
            assert [event.value async for event in cache.events()] == [1]

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


def test_an_answer_that_comes_after_all_writes_were_given_up_is_none_the_worse() -> None:
    async def main() -> None:
        node, broken = FakeNode(), []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
        async with client_of(node) as client:
            cache = await client.create_cache("c")
            for writing in (cache.put("k", 1), cache.put_many([("a", 1), ("b", 2)])):
                seen = len(node.log)
                node.hold = []
                waiting = asyncio.create_task(writing)
                await until(lambda seen=seen: len(node.log) > seen)
                client._core.writer._fail_all(DiskFull(free_bytes=1, reserve_bytes=2))  # as when no node can be reached for good
                with pytest.raises(DiskFull, match="unknown"):
                    await waiting
                node.release()
                assert (await cache.put("later", 2)).id
        assert broken == []

    run(main())


def test_a_second_try_that_is_refused_does_not_say_that_the_first_was() -> None:
    async def main() -> None:
        node = FakeNode()
        async with road_to(node) as road, connect(road.address, retry=FAST) as client:
            cache = await client.create_cache("c")
            node.hold = []
            writing = asyncio.create_task(cache.put("k", 1))
            await until(lambda: len(node.log) == 1)
            node.refusal = lambda exchange: DiskFull(free_bytes=1, reserve_bytes=2) if exchange.kind == "write" else None
            road.cut()
            with pytest.raises(OutcomeUnknown, match="bytes free"):
                await writing
            node.refusal, node.hold = lambda _: None, None
            assert (await cache.put("k", 2)).kind == "MODIFIED"

    run(main())


def test_a_write_of_which_a_node_knows_no_outcome_is_tried_again_under_its_number() -> None:
    async def main() -> None:
        node = FakeNode(segments=1)
        async with client_of(node) as client:
            cache = await client.create_cache("c")
            doubts = iter([OutcomeUnknown(outcome="unknown", why="no quorum")] * 2)
            node.refusal = lambda exchange: next(doubts, None) if exchange.kind == "write" else None
            writes = [asyncio.ensure_future(cache.put("k", n)) for n in range(3)]
            assert [(await write).kind for write in writes] == ["CREATED", "MODIFIED", "MODIFIED"]
            assert [event.value for event in node.log] == [b"0", b"1", b"2"]

    run(main())


@pytest.mark.parametrize("in_doubt", [False, True])
def test_a_node_that_stands_in_the_past_for_a_moment_costs_nothing(in_doubt: bool) -> None:
    async def main() -> None:
        node = FakeNode(segments=1)
        async with road_to(node) as road, connect(road.address, retry=FAST) as client:
            cache = await client.create_cache("c")
            await cache.put("k", 0)
            past = dict(node.last), {place: dict(found) for place, found in node.results.items()}
            await cache.put("k", 1)
            if in_doubt:
                node.hold = []
            writing = asyncio.create_task(cache.put("k", 2))
            if in_doubt:
                await until(lambda: len(node.log) == 3)
                road.cut()
                node.hold = None
            else:
                await writing
            present, asked = (node.last, node.results), []
            node.last, node.results = past

            def wake_up(exchange: Exchange) -> None:
                asked.append(exchange.kind)
                if asked.count("write") > 2:
                    node.last, node.results = present

            node.refusal = wake_up
            last = asyncio.create_task(cache.put("k", 3))
            await asyncio.gather(writing, last)
            assert [event.value for event in node.log] == [b"0", b"1", b"2", b"3"]
            assert (asked.count("write") > 2, node.producers) == (True, 1)

    run(main())


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_write_that_was_written_with_an_unknown_outcome_is_there_once(idempotent: bool) -> None:
    async def main() -> None:
        node = FakeNode(segments=1)
        async with client_of(node, idempotent=idempotent) as client:
            cache = await client.create_cache("c")
            dispatch = node.dispatch

            def write_and_say_nothing_of_it(exchange: Exchange) -> None:
                if exchange.kind != "write":
                    dispatch(exchange)
                    return
                node.hold = []
                dispatch(exchange)
                node.hold, node.dispatch = None, dispatch  # type: ignore[method-assign]
                exchange.fail(OutcomeUnknown(outcome="unknown", why="no quorum"))

            node.dispatch = write_and_say_nothing_of_it  # type: ignore[method-assign]
            if idempotent:
                assert (await cache.put("k", 1)).id == node.log[0].id
            else:
                with pytest.raises(OutcomeUnknown, match="quorum"):
                    await cache.put("k", 1)
            await cache.put("k", 2)
            assert [event.value for event in node.log] == [b"1", b"2"]

    run(main())


@pytest.mark.parametrize("idempotent", [True, False])
def test_an_answer_right_before_the_connection_breaks_counts(idempotent: bool) -> None:
    async def main() -> None:
        node = FakeNode()
        async with road_to(node) as road, connect(road.address, retry=FAST, idempotent=idempotent) as client:
            cache = await client.create_cache("c")
            dispatch = node.dispatch

            def answer_and_break(exchange: Exchange) -> None:
                dispatch(exchange)
                if exchange.kind == "write":
                    nonsense = bytes(64)  # no frame begins like this
                    asyncio.get_running_loop().call_later(0.01, exchange.connection.write, nonsense)

            node.dispatch = answer_and_break  # type: ignore[method-assign]
            road.lag_s = 0.03
            assert (await cache.put("k", 1)).kind == "CREATED"
            await until(lambda: client.usage.connections == 0)
            assert node.frames == 1

    run(main())


def test_a_write_that_waits_for_a_node_is_sent_when_one_comes_up() -> None:
    async def main() -> None:
        node = FakeNode()
        port = free_port()
        async with running(node, port=port) as address:
            client = connect(address, retry=FAST)
            await client.open()
            cache = await client.create_cache("c")
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
        asked: list[str] = []
        first = FakeNode()
        second = FakeNode(cluster="c2", refusal=lambda exchange: asked.append(exchange.kind))
        async with running(second) as other, running(first) as address:
            client = connect(address, other, retry=FAST, timeout_ms=20_000)
            await client.open()
            cache = await client.create_cache("c")
            await cache.put("k", 1)
            first.refusal = lambda _: Stopping()
            reading = asyncio.ensure_future(cache.get("k"))
            await until(lambda: bool(asked))
            skip(20)
            with pytest.raises((eventlog.errors.WrongCluster, Stopping, TimedOut)):
                await reading
            assert set(asked) == {"hello"}
            await client.close()

    run(main(), loop_factory=SkippingLoop)


@pytest.mark.parametrize("is_writing", [False, True])
def test_leaving_that_is_broken_off_closes_every_connection(is_writing: bool) -> None:
    async def main() -> None:
        seen: list[Connection] = []
        node = FakeNode(refusal=lambda exchange: seen.append(exchange.connection))
        async with running(node) as address:
            client = await connect(address, retry=FAST).open()
            cache = await client.create_cache("c")
            theirs = seen[-1]
            if is_writing:
                node.hold = []
                writing = asyncio.ensure_future(cache.put("k", 1))
            leaving = asyncio.create_task(client.__aexit__(None))
            await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.wait([leaving])
            await theirs.wait_closed()
            await until(lambda: not any(task.get_name().startswith("eventlog-client") for task in asyncio.all_tasks()))
            if is_writing:
                with pytest.raises(ClientClosed):
                    await writing

    run(main())


def test_of_a_large_write_each_part_is_told_of_within_one_deadline() -> None:
    """What fits no frame is sent in parts; that a later one finds no room in time says nothing of those before it."""

    async def main() -> None:
        node = FakeNode()
        async with client_of(node, timeout_ms=1_500) as client:
            cache = await client.create_cache("c", format="bytes")
            node.hold = []
            began = asyncio.get_running_loop().time()
            writing = asyncio.ensure_future(cache.put_many([(f"k{number}", bytes(12 << 20)) for number in range(4)]))
            await until(lambda: node.hold)
            for answer in node.hold:
                answer()  # the first part is written and told of
            node.hold = []
            with pytest.raises(PartlyWritten) as caught:
                await writing
            assert asyncio.get_running_loop().time() - began < 2.5
            assert (caught.value.ok, caught.value.unknown, caught.value.none) == ([0], [1], [2, 3])
            node.release()

    run(main())


def test_waiting_for_an_id_ends_in_time_where_nobody_answers() -> None:
    async def main() -> None:
        node = FakeNode()
        async with client_of(node) as client:
            cache = await client.create_cache("c")
            node.on_log_ends = lambda _: None
            with pytest.raises(TimedOut) as caught:
                await client.wait_for(cache, 1 << 40, timeout_ms=100)
            assert caught.value.timeout_ms == 100

    run(main())


@pytest.mark.parametrize("is_first", [True, False])
def test_a_block_that_was_forgotten_meanwhile_is_not_written_again(monkeypatch: pytest.MonkeyPatch, is_first: bool) -> None:
    """Its answer is lost, and nobody is reached for longer than it takes to forget its producer."""
    monkeypatch.setattr("eventlog.client.writing.lane.FIRST_BLOCK_MS_MAX", 50)
    node, away_s = FakeNode(), 0.2
    back_at: list[float] = []

    def dispatch(exchange: Exchange) -> None:
        now = asyncio.get_running_loop().time()
        if exchange.kind == "write" and len(node.log) == (not is_first) and not back_at:
            back_at.append(now + away_s)
            node.hold = []
            node.dispatch(exchange)  # written, and not answered
            node.hold = None
            node.last.clear()
            node.results.clear()
        if back_at and now < back_at[0]:
            exchange.connection.abort()
        elif exchange.kind != "write" or not exchange.is_over:
            node.dispatch(exchange)

    async def main() -> None:
        async with running(node, dispatch=dispatch) as address, connect(address, retry=FAST, timeout_ms=20_000) as client:
            cache = await client.create_cache("c")
            if not is_first:
                await cache.put("k", 0)
            with pytest.raises(OutcomeUnknown):
                await cache.put("k", 1)
            assert [event.key for event in node.log] == [b"k"] * (1 + (not is_first))
            await cache.put("k", 2)
            assert len(node.log) == 2 + (not is_first)

    run(main())
