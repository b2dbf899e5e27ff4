"""Watches: the same pull on one stream, driven by credits."""

import asyncio

import msgspec
import pytest

from eventlog.errors import CacheDropped, EventLogError, EventsTrimmed, NoEvents
from eventlog.ids import TIME_SHIFT
from eventlog.limits import STALLED_MS
from eventlog.node.handlers import events
from eventlog.node.reading.pulls import ReadPace
from eventlog.node.reading.watches import ITEM_BYTES_MIN, UNREAD_BYTES_MAX, shared_out
from eventlog.read.answer import Limits
from tests.loops import until
from tests.node.polling import FakeNode, rows_of_answer, watch_exchange
from tests.node.reading.test_answers import by_id, fill, run


def watch(node, **fields):
    """Open a watch, served in a task of the node as the dispatcher does it."""
    exchange = watch_exchange(**fields)

    async def serve():
        try:
            await events.watch(node, exchange)
        except EventLogError as error:
            exchange.fail(error)

    node.own(asyncio.create_task(serve()))
    return exchange


def rows_of(exchange):
    return [row for answer, body in exchange.answers for row in by_id(rows_of_answer(answer, body))]


async def finished(exchange):
    await exchange.until(1 << 60)


@pytest.mark.parametrize("tail_bytes", [0, 4_000, 1 << 20])
def test_a_watch_streams_everything_and_ends_at_the_end_of_the_log(tail_bytes):
    async def scenario(node):
        fill(node, node.cache(), 40)
        exchange = watch(node, max_events=7)
        await finished(exchange)
        assert exchange.ended
        assert rows_of(exchange) == by_id(node.rows[1])
        assert exchange.whole.HasField("stream_item")

    run(scenario, tail_bytes=tail_bytes)


@pytest.mark.parametrize(("pace_ms", "items"), [(0, 11), (200, 2)])
def test_what_happens_within_a_pace_comes_together(pace_ms, items):
    async def scenario(node):
        cache = node.cache()
        node.write((cache, {0: [b"0"]}))
        exchange = watch(node, follow=True, pace_ms=pace_ms)
        await exchange.until(1)
        for number in range(1, 11):
            node.write((cache, {0: [b"%d" % number]}))
            if not pace_ms:
                await exchange.until(number + 1)
        await until(lambda: len(rows_of(exchange)) == 11)
        assert len(exchange.answers) == items

    run(scenario)


def test_a_pace_holds_up_nobody_who_has_more_to_read():
    async def scenario(node):
        fill(node, node.cache(), 40)
        exchange = watch(node, follow=True, pace_ms=60_000, max_events=7)
        await until(lambda: len(rows_of(exchange)) == len(node.rows[1]))
        assert rows_of(exchange) == by_id(node.rows[1])

    run(scenario)


def test_a_watch_of_nothing_ends_with_its_position():
    async def scenario(node):
        node.cache()
        exchange = watch(node)
        answer, _ = await exchange.until()
        await finished(exchange)
        assert (exchange.ended, answer.events, answer.end) == (True, 0, True)
        assert answer.position
        beyond = watch(node, after=1 << 62)
        await finished(beyond)
        assert (beyond.ended, len(beyond.answers)) == (True, 1)

    run(scenario)


def test_a_watch_up_to_an_id_that_nobody_writes_ends_when_the_clock_has_passed_it():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 3)
        exchange = watch(node, follow=True, until_id=node.now_ms + 20 << TIME_SHIFT)
        await exchange.until()
        node.write((cache, {0: [b"last"]}))
        await exchange.until(2)
        await until(lambda: len(node.reads.rounds) and not node.reads.rounds.looks_due)
        node.now_ms += 21
        await finished(exchange)
        assert exchange.ended
        assert rows_of(exchange) == by_id(node.rows[1])

    run(scenario)


def test_the_end_of_the_log_is_that_of_the_beginning():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 10)
        exchange = watch(node, credits=0, max_events=3)
        await asyncio.sleep(0)
        before = by_id(node.rows[1])
        fill(node, cache, 10)
        exchange.give(1_000)
        await finished(exchange)
        assert rows_of(exchange) == before

    run(scenario)


def test_a_follower_goes_on_at_the_end():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 3)
        exchange = watch(node, follow=True)
        await exchange.until(1)
        for count in range(2, 6):
            node.write((cache, {count % 4: [b"new %d" % count]}))
            await exchange.until(count)
        assert rows_of(exchange) == by_id(node.rows[1])
        assert not exchange.is_over
        exchange.leave()
        await finished(exchange)
        assert exchange.ended
        assert node.reads.figures()["readers_waiting"][0] == 0

    run(scenario)


def test_a_follower_up_to_an_id_ends_there():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 3)
        rows = by_id(node.rows[1])
        exchange = watch(node, follow=True, until_id=rows[-2].id)
        await finished(exchange)
        assert rows_of(exchange) == rows[:-1]

    run(scenario)


def test_nothing_is_made_without_credit():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 10)
        exchange = watch(node, follow=True, credits=2, max_events=1)
        await exchange.until(2)
        made = node.reads.figures()["answer_cache_bytes"][0]
        for _ in range(5):
            node.write((cache, {0: [b"x"]}))
            await asyncio.sleep(0.002)
        assert len(exchange.answers) == 2
        assert node.reads.figures()["answer_cache_bytes"][0] == made
        assert node.reads.figures()["readers_waiting"][0] == 0
        exchange.give(1_000)
        await exchange.until(len(node.rows[1]))
        assert rows_of(exchange) == by_id(node.rows[1])

    run(scenario)


def test_followers_at_one_place_share_the_bytes():
    async def scenario(node):
        cache = node.cache()
        exchanges = [watch(node, follow=True) for _ in range(20)]
        await asyncio.sleep(0)
        node.write((cache, {0: [b"x"], 1: [b"y"]}))
        for exchange in exchanges:
            await exchange.until()
        assert len({(id(message), tuple(map(id, body))) for exchange in exchanges for message, body in exchange.raw}) == 1

    run(scenario)


@pytest.mark.parametrize("earliest", [False, True])
def test_a_running_reader_that_retention_overtakes_is_told_unless_it_goes_on_at_the_first_event_kept(earliest):
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 20)
        exchange = watch(node, credits=1, max_events=2, earliest=earliest)
        await exchange.until(1)
        node.trim(cache, by_id(node.rows[1])[20].id)
        kept = by_id(node.rows[1])
        exchange.give(1)
        if earliest:
            await exchange.until(2)
            assert [row.id for row in rows_of_answer(*exchange.answers[1])] == [row.id for row in kept[:2]]
            return
        with pytest.raises(EventsTrimmed):
            await finished(exchange)

    run(scenario)


def test_a_dropped_cache_ends_its_followers():
    async def scenario(node):
        cache = node.cache()
        exchange = watch(node, follow=True)
        await asyncio.sleep(0)
        node.caches.drop(cache)
        node.reads.dropped(cache)
        with pytest.raises(CacheDropped):
            await finished(exchange)

    run(scenario)


@pytest.mark.parametrize("credits", [1, 2])
def test_a_follower_of_a_cache_that_keeps_no_events_any_more_is_told(credits):
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 1)
        exchange = watch(node, follow=True, credits=credits)
        first, _ = await exchange.until(1)
        cache.options = msgspec.structs.replace(cache.options, events=False)
        node.reads.altered(cache)
        fill(node, cache, 1, seed=2)
        exchange.give(10)
        with pytest.raises(NoEvents):
            await finished(exchange)
        assert (first.events > 0, len(exchange.answers)) == (True, 1)

    run(scenario)


def test_with_a_wait_a_follower_hears_where_it_is():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 1)
        exchange = watch(node, follow=True, wait_ms=3)
        first, _ = await exchange.until(1)
        node.now_ms += 1_000
        later, _ = await exchange.until(2)
        assert (later.events, later.last_id) == (0, later.low_watermark)
        assert later.last_id > first.last_id

    run(scenario)


def test_a_follower_who_stands_still_hears_why():
    async def scenario(node):
        cache = node.cache()
        exchange = watch(node, follow=True)
        await asyncio.sleep(0)
        node.stamp((cache, {3: [b"x"]}))
        node.now_ms += STALLED_MS
        answer, _ = await exchange.until(1)
        assert [one.segment for one in answer.stalled] == [3]

    run(scenario, pace=ReadPace(stalled_ms=10))


def test_a_reader_who_leaves_while_nothing_is_sent_costs_nothing_more():
    async def main():
        node = FakeNode()
        node.reads.start()
        node.cache()
        exchange = watch(node, follow=True)
        await asyncio.sleep(0)
        assert len(node.tasks) == 1
        exchange.leave()
        await finished(exchange)
        await asyncio.sleep(0)
        assert not node.tasks
        await node.reads.stop()

    asyncio.run(main())


def test_many_watches_share_what_they_may_leave_unread() -> None:
    wanted = Limits(nbytes=1 << 20)
    assert shared_out(wanted, watches=10) is wanted
    for watches in (100, 1_000, 2_000):
        found = shared_out(wanted, watches=watches)
        assert found.nbytes * watches <= UNREAD_BYTES_MAX < 2 * found.nbytes * watches
        assert found == shared_out(wanted, watches=watches + 1)
    assert shared_out(wanted, watches=1_000_000).nbytes == ITEM_BYTES_MIN
    assert shared_out(Limits(nbytes=100), watches=1_000_000).nbytes == 100
