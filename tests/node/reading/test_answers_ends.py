"""Polls that meet an end: retention, dropped caches, damage, nonsense; and the ends of a log."""

import asyncio
import time

import msgspec
import numpy as np
import pytest

from eventlog.errors import (
    BadMessage,
    CacheDropped,
    CacheNotFound,
    CacheRecreated,
    CorruptData,
    EventLogError,
    EventsTrimmed,
    InvalidArgument,
    NoEvents,
    NotPrimary,
    PositionDiverged,
    PositionMismatch,
)
from eventlog.limits import STALLED_MS
from eventlog.node.handlers import events
from eventlog.node.reading.ends import when_seen
from eventlog.read import token
from eventlog.read.cursor import Lost
from eventlog.read.position import PinStep, SegmentPositions
from eventlog.wire.eventlog_pb2 import LogEnds, Message
from tests.node.asking import ask, by_id, fill, position_of, read_all, run, waiting
from tests.node.polling import FakeExchange, poll_exchange, rows_of_answer

# ---------------------------------------------------------------- retention, drops


@pytest.mark.parametrize("tail_bytes", [0, 1 << 20])
def test_a_position_that_retention_passed_is_told_what_it_lost(tail_bytes):
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 30)
        rows = by_id(node.rows[1])
        vector, _ = await ask(node, segments=[0, 1, 2, 3], max_events=10)
        cut = rows[len(rows) // 2].id
        node.trim(cache, cut)
        left = by_id(node.rows[1])
        gone = [row for row in rows if row not in left]
        first = min(row.id for row in left if row.id > max(row.id for row in gone))
        with pytest.raises(EventsTrimmed) as scalar:
            await ask(node, after=rows[9].id)
        assert scalar.value.first_id == first
        assert scalar.value.lost >= len(gone) - 10
        with pytest.raises(EventsTrimmed) as exact:
            await ask(node, position=vector.position)
        assert exact.value.lost == len(gone) - 10
        answer, found = await ask(node, after=rows[9].id, earliest=True)
        assert by_id(found) == [row for row in left if row.id >= first]
        assert answer.end
        _, found = await ask(node)
        assert by_id(found) == [row for row in left if row.id >= first]
        _, found = await ask(node, segments=[0, 1, 2, 3])
        assert by_id(found) == left

    run(scenario, tail_bytes=tail_bytes)


def test_after_everything_is_trimmed_there_is_no_first_id():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 5)
        node.trim(cache, node.last_id)
        with pytest.raises(EventsTrimmed) as caught:
            await ask(node, after=1)
        assert caught.value.first_id == 0
        answer, found = await ask(node)
        assert (found, answer.end) == ([], True)

    run(scenario, tail_bytes=0)


def test_retention_between_reading_and_answering_is_told_too():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 30)
        rows = by_id(node.rows[1])
        exchange = poll_exchange(after=rows[0].id)
        events.poll(node, exchange)
        while not node.reads.figures()["history_cache_bytes"][0]:
            time.sleep(0.001)  # noqa: ASYNC251  # the loop stands: the reader thread has read, and cannot say so yet
        node.trim(cache, rows[20].id)
        with pytest.raises(EventsTrimmed):
            await exchange.until()

    run(scenario, tail_bytes=0)


def test_a_dropped_cache_ends_its_readers():
    async def scenario(node):
        cache = node.cache()
        exchange = waiting(node)
        node.caches.drop(cache)
        node.reads.dropped(cache)
        for failing in (exchange.until(), ask(node)):
            with pytest.raises(CacheDropped):
                await failing
        node.cache(2, "orders")
        old = token.encode(position_of(node, 5))
        with pytest.raises(CacheRecreated):
            await ask(node, cache_id=2, position=old)

    run(scenario)


def test_a_position_of_a_cache_dropped_before_the_node_started_is_told_from_one_of_a_later_cache():
    async def scenario(node):
        node.cache(2, "orders")
        with pytest.raises(CacheRecreated):
            await ask(node, cache_id=2, position=token.encode(position_of(node, 5)))
        node.cache(1, "other")
        with pytest.raises(PositionMismatch):
            await ask(node, cache_id=2, position=token.encode(position_of(node, 5)))
        with pytest.raises(PositionMismatch):
            await ask(node, cache_id=1, position=token.encode(position_of(node, 5, cache_id=2)))

    run(scenario)


def test_a_cache_dropped_while_it_is_read_ends_its_readers():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 30)
        exchange = poll_exchange()
        events.poll(node, exchange)
        node.caches.drop(cache)
        node.reads.dropped(cache)
        with pytest.raises(CacheDropped):
            await exchange.until()

    run(scenario, tail_bytes=0)


def without_events(node, cache):
    cache.options = msgspec.structs.replace(cache.options, events=False)
    node.reads.altered(cache)


@pytest.mark.parametrize("tail_bytes", [0, 1 << 20])
@pytest.mark.parametrize("groups", [0, 30])
def test_a_cache_that_keeps_no_events_any_more_ends_its_readers(tail_bytes, groups):
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, groups)
        exchanges = [poll_exchange(), poll_exchange(wait_ms=30_000), waiting(node, latest=True)]
        for exchange in exchanges[:2]:
            events.poll(node, exchange)
        answered = [exchange for exchange in exchanges if exchange.is_over]
        without_events(node, cache)
        node.write((cache, {0: [b"later"]}))
        for exchange in exchanges:
            if exchange not in answered:
                with pytest.raises(NoEvents):
                    await exchange.until()

    run(scenario, tail_bytes=tail_bytes)


def test_who_waits_for_an_id_alone_needs_no_events():
    async def scenario(node):
        cache = node.cache()
        without_events(node, cache)
        seen = asyncio.get_running_loop().create_future()
        when_seen(node.reads, node.reads.end, cache, lambda _: seen.set_result(node.reads.limit()), owner=None, wait_ms=30_000)
        node.now_ms += 1_000
        assert await asyncio.wait_for(seen, 60) > 0
        without_events(node, cache)

    run(scenario)


# ---------------------------------------------------------------- damage


def test_a_damaged_value_is_named_and_nothing_of_it_is_served():
    async def scenario(node):
        fill(node, node.cache(), 10)
        log = node.store.disk.log
        key = log.keys[len(log.keys) // 2]
        value = bytearray(log.rows[key])
        value[-1] ^= 1
        log.rows[key] = bytes(value)
        with pytest.raises(CorruptData, match="checksum"):
            await ask(node)

    run(scenario, tail_bytes=0, step_events=1 << 30)


def test_a_missing_value_is_noticed():
    async def scenario(node):
        cache = node.cache()
        for index in range(10):
            node.write((cache, {1: [b"%d" % index]}))
        log = node.store.disk.log
        log.delete(log.keys[5])
        with pytest.raises(CorruptData, match="missing"):
            await ask(node)

    run(scenario, tail_bytes=0, step_events=10)


def test_trimming_below_the_reader_is_no_damage():
    async def scenario(node):
        cache = node.cache()
        for index in range(20):
            node.write((cache, {1: [b"%d" % index]}))
        rows = node.rows[1]
        exchange = poll_exchange(after=rows[14].id)  # its chunk begins with the step at the tenth event
        events.poll(node, exchange)
        node.trim(cache, rows[12].id)
        answer, body = await exchange.until()
        assert [row.value for row in rows_of_answer(answer, body)] == [b"15", b"16", b"17", b"18", b"19"]

    run(scenario, tail_bytes=0, step_events=10)


# ---------------------------------------------------------------- refusals


def test_what_cannot_be_asked_is_refused_by_name():
    async def scenario(node):
        node.cache()
        node.cache(2, "quiet", events=False)
        scalar = position_of(node, 5)
        some = position_of(node, SegmentPositions(of=np.array([1]), ids=np.array([5]), offsets=np.array([0]), epochs=np.array([1])))
        wrong = [
            (CacheNotFound, {"cache_id": 9}),
            (NoEvents, {"cache_id": 2}),
            (InvalidArgument, {"segments": [4]}),
            (InvalidArgument, {"segments": [1, 1]}),
            (InvalidArgument, {"segments": [0, 1, 2, 3, 0]}),
            (InvalidArgument, {"position": token.encode(some), "segments": [1, 2]}),
            (InvalidArgument, {"position": token.encode(position_of(node, 5, steps=(PinStep(segment=0, key=b"", pin=1),)))}),
            (BadMessage, {"position": b"garbage"}),
            (BadMessage, {"position": b""}),
            (PositionMismatch, {"position": token.encode(position_of(node, 5, cluster="elsewhere"))}),
            (PositionMismatch, {"position": token.encode(position_of(node, 5, segments=8))}),
            (PositionMismatch, {"position": token.encode(position_of(node, 5, cache_id=3))}),
            (PositionMismatch, {"position": token.encode(position_of(node, 5, cache_id=3, cluster="elsewhere"))}),
        ]
        for error, fields in wrong:
            with pytest.raises(error):
                await ask(node, **fields)
        await ask(node, position=token.encode(scalar))

    run(scenario)


def test_a_bug_of_ours_fails_one_reader_and_no_other():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 3)
        exchange = waiting(node, segments=[1], after=node.last_id)
        good = waiting(node, after=node.last_id)
        node.low.limit = lambda asked=None: 1 / 0 if asked is not None else type(node.low).limit(node.low)
        node.write((cache, {1: [b"x"]}))
        with pytest.raises(EventLogError, match="a bug of eventlog"):
            await exchange.until()
        assert (await good.until())[0].events == 1

    run(scenario)


# ---------------------------------------------------------------- where a log begins and ends


async def log_ends(node, cache_id=1):
    exchange = FakeExchange(Message(log_ends=LogEnds(cache_id=cache_id)))
    events.log_ends(node, exchange)
    await exchange.until()
    return exchange.whole.log_ends_answer


@pytest.mark.parametrize("tail_bytes", [0, 1 << 20])
def test_the_ends_of_a_log_are_told(tail_bytes):
    async def scenario(node):
        cache = node.cache()
        empty = await log_ends(node)
        assert (empty.first_id, empty.events) == (0, 0)
        fill(node, cache, 20)
        rows = by_id(node.rows[1])
        ends = await log_ends(node)
        assert (ends.first_id, ends.events) == (rows[0].id, len(rows))
        assert ends.last_id >= rows[-1].id
        node.trim(cache, rows[9].id)
        ends = await log_ends(node)
        assert ends.first_id == min(row.id for row in node.rows[1] if row.id > cache.last_trimmed_id)
        assert ends.events == len(node.rows[1])
        node.cache(2, "quiet", events=False)
        with pytest.raises(NoEvents):
            await log_ends(node, 2)

    run(scenario, tail_bytes=tail_bytes)


def test_a_place_that_a_forced_primary_gave_up_is_told_once():
    async def scenario(node):
        cache = node.cache()
        node.write((cache, {0: [b"a"]}))
        place = node.rows[1][-1].id
        begun = waiting(node, after=place)
        node.reads.lose({0: [Lost(epoch=2, after=place - 1, upto=place + 10)]})
        with pytest.raises(PositionDiverged) as caught:
            await begun.until()
        assert (caught.value.segment, caught.value.upto) == (0, place + 10)
        with pytest.raises(PositionDiverged):
            await ask(node, after=place)
        accepted = waiting(node, after=place, accept_diverged=True)
        node.write((cache, {0: [b"b"]}))
        answer, _ = await accepted.until()
        assert answer.events == 1
        _, found = await read_all(node, earliest=True)
        assert len(found) == 2, "who begins anew stands nowhere"

    run(scenario)


def test_the_end_of_a_log_that_stands_still_says_which_segment_holds_it():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 3)
        group = node.stamp((cache, {2: [b"in flight"]}))
        assert not (await log_ends(node)).stalled
        node.now_ms += STALLED_MS + 10
        ends = await log_ends(node)
        assert ends.last_id < group.first_id
        assert [held.segment for held in ends.stalled] == [2]

    run(scenario)


def test_the_end_of_a_log_is_not_told_where_a_segment_can_be_read_nowhere():
    async def scenario(node):
        fill(node, node.cache(), 3)
        assert [held.segment for held in (await log_ends(node)).stalled] == [3], "there is a copy, which nobody leads"
        node.low.place(np.array([True, True, True, False]))
        node.low.drop(np.array([3]))
        with pytest.raises(NotPrimary, match="segment 3"):
            await log_ends(node)

    run(scenario, leads=(0, 1, 2))
