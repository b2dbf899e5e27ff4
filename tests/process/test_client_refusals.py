"""A client whose node is busy, stops, forgets or refuses: what is tried again, in which order, and what callers hear."""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

import eventlog
from eventlog.client.client import connect
from eventlog.errors import InvalidArgument, OutcomeUnknown, Overloaded, Stopping, TimedOut
from eventlog.hashing import hash_key, segment_of
from eventlog.limits import PRODUCER_RESULTS_KEPT
from eventlog.routing.retry import RetryPolicy
from eventlog.transport.connection import Exchange
from tests.client.fake_node import FakeNode, running
from tests.loops import SkippingLoop, skip
from tests.ports import free_port
from tests.process.client_ends import FAST, client_of, road_to, run, until

BATCHES, ROWS = 12, 5
from tests.process.fault_checks import check_written, write_all


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


def test_from_a_node_that_stops_writes_and_reads_go_to_another() -> None:
    async def main() -> None:
        node = FakeNode()
        is_stopping = False

        def stopping(exchange: Exchange) -> None:
            if is_stopping and exchange.kind != "hello":
                exchange.fail(Stopping())
            else:
                node.dispatch(exchange)

        async with running(node, dispatch=stopping) as first, running(node) as second:
            async with connect(first, second, retry=FAST) as client:
                cache = await client.create_cache("c")
                await cache.put("k", 1)
                is_stopping = True
                assert (await cache.put("k", 2)).kind == "MODIFIED"
            is_stopping = False
            async with connect(first, second, retry=FAST) as client:
                cache = await client.cache("c")
                is_stopping = True
                assert (await cache.get("k")).value == 2
            is_stopping = False
            async with connect(first, second, retry=FAST) as client:
                cache = await client.cache("c")
                await cache.log_ends()
                is_stopping = True
                assert [event.value async for event in cache.events(follow=True, until_id=node.log[-1].id)] == [1, 2]
                assert await cache.get_many(["k"]) == [await cache.get("k")]

    run(main())


def test_before_a_producer_begins_anew_what_is_on_its_way_is_waited_for() -> None:
    async def main() -> None:
        node = FakeNode(segments=2)
        async with road_to(node) as road, connect(road.address, retry=FAST, frame_bytes_target=1) as client:
            cache = await client.create_cache("c")
            low, high = (next(f"k{n}" for n in range(99) if segment_of(hash_key(b"k%d" % n), 2) == segment) for segment in (0, 1))
            await cache.put_many([(low, 0), (high, 0)])
            node.hold = []
            forgotten, known = asyncio.ensure_future(cache.put(low, 1)), asyncio.ensure_future(cache.put(high, 1))
            await until(lambda: len(node.log) == 4)
            node.results = {place: found for place, found in node.results.items() if place[2] == 1}
            node.last = {place: last for place, last in node.last.items() if place[2] == 1}
            held: list[Callable[[], None]] = []
            node.reply = lambda answer: held.append(answer) if held else (answer(), held.append(lambda: None))  # type: ignore[method-assign]
            road.cut()
            await until(lambda: len(held) == 2)
            assert node.producers == 1
            del node.reply
            node.hold = None
            for answer in held:
                answer()
            assert (await known).kind == "MODIFIED"
            with pytest.raises(OutcomeUnknown, match="under its number"):
                await forgotten
            assert (await cache.put(low, 2)).kind == "MODIFIED"
            assert node.producers == 2

    run(main())


def test_a_busy_node_is_left_alone_for_a_while() -> None:
    async def main() -> None:
        node = FakeNode()
        asked: list[float] = []

        def busy_twice(exchange: Exchange) -> eventlog.EventLogError | None:
            asked.append(asyncio.get_running_loop().time())
            return Overloaded(what="x", limit=1) if len(asked) < 3 else None

        async with client_of(node, retry=RetryPolicy(backoff_ms_min=60, backoff_ms_max=60)) as client:
            cache = await client.create_cache("c")
            for call in (cache.put("k", 1), cache.get("k")):
                asked.clear()
                node.refusal = busy_twice
                writing = asyncio.ensure_future(call)
                await writing
                assert [later - earlier >= 0.029 for earlier, later in pairwise(asked)] == [True, True]

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
        async with client_of(node) as client:
            cache = await client.create_cache("c")
            node.hold = []
            writing = asyncio.ensure_future(cache.put("k", 1, timeout_ms=20_000))
            await until(lambda: len(node.log) == 1)
            skip(20)
            with pytest.raises(TimedOut) as caught:
                await writing
            assert caught.value.outcome == "unknown"
            # The first one still counts as unanswered, and no more than the node remembers may be.
            puts = [cache.put("k", n, previous=True, timeout_ms=20_000) for n in range(PRODUCER_RESULTS_KEPT + 3)]
            blocked = [asyncio.ensure_future(put) for put in puts]
            await until(lambda: len(node.log) == PRODUCER_RESULTS_KEPT)
            skip(20)
            errors = [error for error in await asyncio.gather(*blocked, return_exceptions=True) if isinstance(error, TimedOut)]
            assert [error.outcome for error in errors] == ["unknown"] * (PRODUCER_RESULTS_KEPT - 1) + ["none"] * 4
            node.release()
            assert (await cache.put("k", 9)).kind == "MODIFIED"
            assert [event.value for event in node.log] == [b"1", *(b"%d" % n for n in range(PRODUCER_RESULTS_KEPT - 1)), b"9"]

    run(main(), loop_factory=SkippingLoop)


def test_each_call_runs_out_of_its_own_time() -> None:
    async def main() -> None:
        node = FakeNode()
        async with client_of(node) as client:
            cache = await client.create_cache("c")
            node.hold = []
            timeouts = (20_000, 10_000, 50_000)
            calls = [asyncio.ensure_future(cache.put(f"k{n}", n, timeout_ms=timeout)) for n, timeout in enumerate(timeouts)]
            await until(lambda: len(node.log) == 3)
            for late, still in ((calls[1], calls[0]), (calls[0], calls[2])):
                skip(10)
                with pytest.raises(TimedOut):
                    await late
                assert not still.done()
            node.release()
            assert (await calls[2]).kind == "CREATED"

    run(main(), loop_factory=SkippingLoop)


def test_a_call_whose_frame_goes_out_for_others_may_be_written_after_its_time() -> None:
    async def main() -> None:
        node = FakeNode(segments=1)
        async with client_of(node, timeout_ms=50_000) as client:
            cache = await client.create_cache("c")
            node.hold = []
            before = [asyncio.ensure_future(cache.put("k", n, previous=True)) for n in range(PRODUCER_RESULTS_KEPT)]
            hasty, patient = asyncio.ensure_future(cache.put("a", 1, timeout_ms=20_000)), asyncio.ensure_future(cache.put("b", 1))
            await until(lambda: client.usage.frames_undecided == PRODUCER_RESULTS_KEPT + 1)
            skip(20)
            with pytest.raises(TimedOut) as caught:
                await hasty
            assert caught.value.outcome == "unknown"
            node.release()
            await asyncio.gather(*before, patient)
            assert [event.key for event in node.log][-2:] == [b"a", b"b"]

    run(main(), loop_factory=SkippingLoop)


def test_a_write_is_not_left_waiting_when_another_cluster_took_the_address() -> None:
    async def main() -> None:
        port = free_port()
        async with running(FakeNode(), port=port) as address:
            client = connect(address, retry=FAST)
            await client.open()
            cache = await client.create_cache("c")
        writing = asyncio.create_task(cache.put("k", 1))
        other = FakeNode(cluster="c2")
        async with running(other, port=port):
            with pytest.raises(eventlog.errors.WrongCluster):
                await writing
            assert other.log == []
            await client.close()

    run(main())


def test_addresses_may_come_as_one_text() -> None:
    async def main() -> None:
        async with running(FakeNode()) as address, connect(f"127.0.0.1:{free_port()}, {address}", retry=FAST) as client:
            await client.create_cache("c")

    run(main())
    with pytest.raises(eventlog.errors.InvalidArgument, match="HOST:PORT"):
        connect("127.0.0.1:7400,")


@pytest.mark.parametrize("wrong", [["127.0.0.1:7400", "127.0.0.1:7401"], None, 7400])
def test_what_is_no_text_is_no_address(wrong: object) -> None:
    with pytest.raises(eventlog.errors.InvalidArgument, match="several are arguments"):
        connect(wrong)


def test_writes_that_nobody_waits_for_any_more_are_not_sent_on_a_new_connection() -> None:
    async def main() -> None:
        node = FakeNode()
        async with road_to(node) as road, connect(road.address, retry=FAST, timeout_ms=30_000) as client:
            cache = await client.create_cache("c")
            held = node.dispatch
            node.dispatch = lambda _: None  # type: ignore[method-assign]  # a node that hangs
            writing = asyncio.create_task(cache.put("k", 1, timeout_ms=50))
            with pytest.raises(TimedOut):
                await writing
            node.dispatch = held  # type: ignore[method-assign]
            road.cut()
            await until(lambda: client.usage.connections == 0)
            assert (await cache.put("k", 2)).kind == "CREATED"
            assert [event.value for event in node.log] == [b"2"]

    run(main())


def test_a_write_for_too_many_listeners_is_refused_before_it_is_written() -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            cache = await client.create_cache("c")
            with pytest.raises(InvalidArgument, match="at most 100 listeners, not for 101"):
                await cache.put("k", 1, wait_listeners=[f"l{number}" for number in range(101)])
            assert await cache.size() == 0

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


def test_columns_are_what_they_were_when_they_were_sent() -> None:
    async def main() -> None:
        node = FakeNode()
        async with client_of(node) as client:
            cache = await client.create_cache("c", format="bytes")
            sent, keys, values, removed = [], [], [], []
            for number in range(5):
                keys[:], values[:], removed[:] = [b"a%d" % number, b"b%d" % number], [b"1", b""], [False, True]
                sent.append(await cache.send_columns(keys, values, removed=removed))
                keys.clear()
            await asyncio.gather(*sent)
        assert sorted(event.key for event in node.log) == [b"a%d" % number for number in range(5)]

    run(main())


@pytest.mark.parametrize(("keys", "values"), [(["k"], [b"v"]), ([b"k"], ["v"]), ([b"k", b"l"], [b"v", None]), ([b"k"], [b"v", b"w"])])
def test_columns_that_cannot_be_written_are_refused_at_once_and_hold_up_nothing(keys, values) -> None:
    async def main() -> None:
        node = FakeNode()
        async with client_of(node) as client:
            cache = await client.create_cache("c", format="bytes")
            with pytest.raises(eventlog.errors.InvalidArgument):
                await cache.send_columns(keys, values)
            assert (await (await cache.send_columns([b"a"], [b"1"]))).kinds == ["CREATED"]

    run(main())


def test_what_cannot_be_packed_fails_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from eventlog.client.writing import writer

    real = writer.pack

    def pack(calls: Any, routes: Any) -> Any:
        if any(call.changes.keys[0] == b"odd" for call in calls):
            raise TypeError("odd")
        return real(calls, routes)

    monkeypatch.setattr(writer, "pack", pack)

    async def main() -> None:
        node = FakeNode()
        async with client_of(node) as client:
            cache = await client.create_cache("c", format="bytes")
            found = await asyncio.gather(*(cache.put(key, b"1") for key in ("a", "odd", "b")), return_exceptions=True)
            assert [type(one) for one in found] == [eventlog.Stored, eventlog.errors.InvalidArgument, eventlog.Stored]
            assert client.usage.bytes_unanswered == 0

    run(main())


def test_a_closed_client_says_so() -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            cache = await client.create_cache("c")
        for call in (cache.put("k", 1), cache.get("k"), cache.size()):
            with pytest.raises(eventlog.errors.ClientClosed):
                await call

    run(main())


def test_who_waits_for_a_busy_node_for_seconds_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = FakeNode()
        refusals = 0

        def refuse(exchange: Exchange) -> eventlog.EventLogError | None:
            nonlocal refusals
            if exchange.kind != "get" or refusals == 4:
                return None
            refusals += 1
            skip(1.5)
            return Overloaded(what="the number of readers", limit=256)

        async with client_of(node, timeout_ms=60_000) as client:
            cache = await client.create_cache("c")
            node.refusal = refuse
            assert await cache.get("k") is None
            (told,) = [record.message for record in caplog.records if record.name == "eventlog.client"]
            assert "the number of readers" in told
            assert "it is tried again for 56 s more" in told
            refusals = 0
            caplog.clear()
            assert await cache.get("k") is None
            assert len(caplog.records) == 1, "each operation once"

    run(main(), loop_factory=SkippingLoop)
