"""Polls against a model: a list of all events beside what repeated polls return."""

import asyncio
import random
import time

import numpy as np
import pytest

from eventlog.consume import token
from eventlog.consume.position import SegmentPositions, Step
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
    PositionMismatch,
    Stopping,
)
from eventlog.ids import TIME_SHIFT, time_of
from eventlog.limits import STALLED_MS
from eventlog.node.handlers import events
from eventlog.wire.eventlog_pb2 import LogEnds, Message
from tests.node.reading import NODE_NUMBER, START_MS, FakeExchange, FakeNode, poll_exchange, rows_of_answer


def run(scenario, **options):
    """Run a scenario with a started node; afterwards nothing waits and the bounds held."""

    async def main():
        node = FakeNode(**options)
        node.reads.start()
        try:
            await scenario(node)
        finally:
            await node.reads.stop()
        for name, (used, limit, peak) in node.reads.figures().items():
            assert used <= peak, name
            assert peak <= limit, name

    asyncio.run(main())


async def ask(node, **fields):
    """Poll once; return the answer's message and its events."""
    exchange = poll_exchange(**fields)
    events.poll(node, exchange)
    answer, body = await exchange.until()
    return answer, rows_of_answer(answer, body, fields.get("cache_id", 1))


async def read_all(node, **fields):
    """Poll to the end; return the last answer and all events."""
    found = []
    while True:
        answer, rows = await ask(node, **fields)
        found += rows
        if answer.end:
            return answer, found
        fields = {name: value for name, value in fields.items() if name not in {"after", "from_time_ms", "earliest"}}
        fields |= {"position": answer.position}


def waiting(node, **fields):
    """Begin a long poll and return its exchange."""
    exchange = poll_exchange(**{"wait_ms": 30_000} | fields)
    events.poll(node, exchange)
    return exchange


def fill(node, cache, groups, *, seed=1, other=None):
    chance = random.Random(seed)
    for index in range(groups):
        of = chance.sample(range(node.segments), chance.randint(1, node.segments))
        contents = {segment: [b"%d/%d" % (index, n) for n in range(chance.choice((0, 1, 1, 4)))] for segment in of}
        parts = [(cache, contents)]
        if other is not None and chance.random() < 0.5:
            parts.append((other, {chance.randrange(node.segments): [b"other"]}))
        node.write(*parts)
        node.now_ms += chance.choice((0, 0, 1))


def by_id(rows):
    return sorted(rows, key=lambda row: row.id)


# ---------------------------------------------------------------- everything once, in order


@pytest.mark.parametrize("seed", range(25))
def test_repeated_polls_return_every_event_once_in_the_order_of_ids(seed):
    chance = random.Random(seed)

    async def scenario(node):
        cache, other = node.cache(), node.cache(2, "other")
        fill(node, cache, 40, seed=seed, other=other)
        at, found, limit = 0, [], 0
        while True:
            if chance.random() < 0.1:
                fill(node, cache, 2, seed=chance.random(), other=other)
            wanted = {"max_events": chance.choice((0, 1, 3, 50)), "max_bytes": chance.choice((0, 1, 300, 5_000))}
            answer, rows = await ask(node, after=at, **wanted)
            if wanted["max_events"]:
                assert len(rows) <= wanted["max_events"]
            assert all(at < row.id <= answer.last_id <= answer.low_watermark for row in rows)
            assert answer.last_id >= at
            assert token.decode(answer.position).at == answer.last_id
            assert answer.low_watermark >= limit
            found += by_id(rows)
            at, limit = answer.last_id, answer.low_watermark
            if answer.end:
                break
            assert rows, "an answer without events that is not the end"
        assert found == by_id(node.rows[1])

    run(scenario, tail_bytes=chance.choice((0, 4_000, 1 << 20)), step_events=chance.choice((1, 7, 1 << 20)), step_bytes=1 << 30)


@pytest.mark.parametrize("seed", range(25))
def test_positions_by_segment_return_every_event_of_their_segments_once(seed):
    chance = random.Random(seed)
    asked = sorted(chance.sample(range(4), chance.randint(1, 4)))

    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 40, seed=seed)
        fields, found = {"segments": asked}, []
        while True:
            if chance.random() < 0.1:
                fill(node, cache, 2, seed=chance.random())
            answer, rows = await ask(node, **fields, max_events=chance.choice((0, 1, 3)), max_bytes=chance.choice((0, 1, 300)))
            found += rows
            position = token.decode(answer.position)
            assert isinstance(position.at, SegmentPositions)
            assert position.at.of.tolist() == asked
            read = {segment: [row for row in found if row.segment == segment] for segment in asked}
            assert position.at.offsets.tolist() == [len(read[segment]) for segment in asked]
            assert position.at.epochs.tolist() == [int(bool(read[segment])) for segment in asked]
            fields = {"position": answer.position} | chance.choice(({}, {"segments": asked}))
            if answer.end:
                break
        assert by_id(found) == by_id(row for row in node.rows[1] if row.segment in asked)

    run(scenario, tail_bytes=chance.choice((0, 4_000, 1 << 20)), step_events=chance.choice((1, 7, 1 << 20)), step_bytes=1 << 30)


def test_segments_at_different_places_go_on_each_from_its_own():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 30)
        rows = by_id(node.rows[1])
        starts = {segment: [row for row in rows if row.segment == segment][segment] for segment in range(4)}
        at = SegmentPositions(
            of=np.arange(4),
            ids=np.array([starts[segment].id for segment in range(4)]),
            offsets=np.array([starts[segment].offset + 1 for segment in range(4)]),
            epochs=np.ones(4, np.int64),
        )
        position = token.encode(position_of(node, at))
        _, found = await read_all(node, position=position)
        assert by_id(found) == [row for row in rows if row.id > starts[row.segment].id]
        one, found = await read_all(node, position=position, segments=[2])
        assert token.decode(one.position).at.of.tolist() == [2]
        assert found == [row for row in rows if row.segment == 2 and row.id > starts[2].id]

    run(scenario, tail_bytes=3_000)


def position_of(node, at, **changes):
    from eventlog.consume.position import Position

    return Position(**{"cluster": node.cluster, "cache_id": 1, "segments": node.segments, "at": at} | changes)


@pytest.mark.parametrize("tail_bytes", [0, 1 << 20])
def test_until_id_is_included_and_is_the_end(tail_bytes):
    async def scenario(node):
        fill(node, node.cache(), 20)
        rows = by_id(node.rows[1])
        until = rows[len(rows) // 2].id
        answer, found = await ask(node, until_id=until, wait_ms=30_000)
        assert by_id(found) == [row for row in rows if row.id <= until]
        assert (answer.end, answer.last_id) == (True, until)
        answer, found = await ask(node, after=until, until_id=until, wait_ms=30_000)
        assert (answer.end, found) == (True, [])

    run(scenario, tail_bytes=tail_bytes)


def test_reading_from_a_time_begins_with_its_millisecond():
    async def scenario(node):
        cache = node.cache()
        for _ in range(6):
            node.write((cache, {0: [b"x"], 1: [b"y"]}))
            node.now_ms += 1
        rows = by_id(node.rows[1])
        for time_ms in {time_of(row.id) for row in rows}:
            _, found = await ask(node, from_time_ms=time_ms)
            assert by_id(found) == [row for row in rows if time_of(row.id) >= time_ms]
        _, found = await ask(node, from_time_ms=0)
        assert len(found) == 12
        _, found = await ask(node, from_time_ms=1 << 60)
        assert found == []

    run(scenario)


def test_latest_begins_behind_everything_committed():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 5)
        answer, found = await ask(node, latest=True)
        assert (found, answer.end, answer.last_id) == ([], True, answer.low_watermark)
        node.write((cache, {0: [b"new"]}))
        _, found = await ask(node, after=answer.last_id)
        assert [row.value for row in found] == [b"new"]
        answer, found = await ask(node, latest=True, segments=[1, 2])
        assert token.decode(answer.position).at.ids.tolist() == [answer.low_watermark] * 2

    run(scenario)


def test_large_stored_values_go_out_as_they_are_and_parts_keep_the_order_of_a_segment():
    async def scenario(node):
        cache = node.cache()
        for size in (10, 70_000, 10, 10, 80_000):
            node.write((cache, {1: [bytes(size)], 2: [b"small"]}))
        answer, found = await ask(node)
        assert [(part.form, part.runs > 0) for part in answer.parts].count((1, False)) == 2
        assert [row for row in found if row.segment == 1] == [row for row in by_id(found) if row.segment == 1]
        assert by_id(found) == by_id(node.rows[1])

    run(scenario, tail_bytes=1 << 20)


# ---------------------------------------------------------------- the watermark


def test_a_group_in_flight_is_not_seen_and_holds_readers_of_its_segments():
    async def scenario(node):
        cache = node.cache()
        node.write((cache, {0: [b"a"]}))
        group = node.stamp((cache, {0: [b"b"], 1: [b"c"]}))
        node.now_ms += 10
        answer, found = await ask(node)
        assert [row.value for row in found] == [b"a"]
        assert answer.low_watermark < group.first_id
        answer, _ = await ask(node, segments=[2, 3])
        assert answer.low_watermark > group.last_id, "nothing of these is in flight"
        node.commit(group)
        _, found = await ask(node)
        assert [row.value for row in by_id(found)] == [b"a", b"b", b"c"]

    run(scenario)


@pytest.mark.parametrize("is_told", [True, False])
def test_what_is_committed_elsewhere_is_cut_at_the_low_watermark(is_told):
    async def scenario(node):
        cache = node.cache()
        node.write((cache, {0: [b"a"]}))
        node.close_up()
        limit = node.low.limit()
        node.close_up = lambda: 0  # promises come from elsewhere from now on
        node.write((cache, {0: [b"b"], 1: [b"c"]}))
        exchange = waiting(node, after=limit)
        answer, found = await ask(node)
        assert (by_id(found), answer.low_watermark) == (by_id(node.rows[1])[:1], limit)
        await asyncio.sleep(0.02)
        assert not exchange.answers
        del node.close_up
        node.close_up()
        if is_told:
            node.reads.watermark_rose()
        answer, body = await exchange.until()
        assert [row.value for row in by_id(rows_of_answer(answer, body))] == [b"b", b"c"]

    run(scenario)


def test_a_position_beyond_the_watermark_stays_where_it_is():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 5)
        ahead = (START_MS + 50_000) << TIME_SHIFT
        answer, found = await ask(node, after=ahead)
        assert (found, answer.last_id, answer.end) == ([], ahead, True)

    run(scenario)


# ---------------------------------------------------------------- waiting


def test_a_long_poll_is_answered_when_an_event_is_committed():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 5)
        answer, _ = await ask(node)
        exchange = waiting(node, after=answer.last_id)
        assert not exchange.answers
        node.write((cache, {2: [b"new"]}))
        answer, body = await exchange.until()
        assert [row.value for row in rows_of_answer(answer, body)] == [b"new"]

    run(scenario)


def test_a_long_poll_ends_empty_with_the_position_moved_to_the_watermark():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 5)
        before, _ = await ask(node)
        node.now_ms += 1_000
        answer, rows = await ask(node, after=before.last_id, wait_ms=5)
        assert (rows, answer.end) == ([], True)
        assert answer.last_id == answer.low_watermark > before.low_watermark

    run(scenario)


def test_a_reader_of_other_segments_moves_on_without_an_answer():
    async def scenario(node):
        cache = node.cache()
        exchange = waiting(node, segments=[3], wait_ms=50)
        for _ in range(20):
            node.write((cache, {0: [b"not for you"]}))
            await asyncio.sleep(0)
        answer, _ = await exchange.until()
        at = token.decode(answer.position).at
        assert (at.ids.tolist(), at.offsets.tolist()) == ([answer.low_watermark], [0])
        assert answer.low_watermark >= node.rows[1][-1].id

    run(scenario)


def test_a_waiting_reader_costs_nothing_for_what_others_write():
    async def scenario(node):
        cache, other = node.cache(), node.cache(2, "other")
        fill(node, cache, 1)
        exchange = waiting(node, after=(await ask(node))[0].last_id)
        looked = node.closings
        for _ in range(10):
            node.write((other, {0: [b"x"]}))
            await asyncio.sleep(0)
        assert node.closings == looked, "no round was held"
        assert not exchange.answers
        node.write((cache, {0: [b"x"]}))
        await exchange.until()

    run(scenario)


def test_a_bare_notification_says_that_there_is_something_and_keeps_the_position():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 3)
        start, _ = await ask(node)
        exchange = waiting(node, after=start.last_id, notify=True)
        node.write((cache, {0: [b"x" * 100_000]}))
        answer, body = await exchange.until()
        assert (len(answer.parts), answer.events, body) == (0, 0, b"")
        assert answer.last_id >= node.rows[1][-1].id
        assert token.decode(answer.position).at < node.rows[1][-1].id
        _, rows = await ask(node, position=answer.position)
        assert len(rows) == 1

    run(scenario)


def test_all_who_ask_the_same_get_the_same_bytes():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 3)
        start = (await ask(node))[0].last_id
        exchanges = [waiting(node, after=start) for _ in range(50)] + [waiting(node, after=start, max_events=1) for _ in range(2)]
        node.write((cache, {0: [b"x"], 1: [b"y"]}))
        for exchange in exchanges:
            await exchange.until()
        alike = {(id(message), tuple(map(id, body))) for exchange in exchanges[:50] for message, body in exchange.raw}
        assert len(alike) == 1
        assert [answer.events for exchange in exchanges[50:] for answer, _ in exchange.answers] == [1, 1]

    run(scenario)


def test_all_who_ask_the_same_of_history_wait_for_one_reading():
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 30)
        exchanges = [poll_exchange() for _ in range(20)]
        for exchange in exchanges:
            exchange.connection = object()
            events.poll(node, exchange)
        for exchange in exchanges:
            await exchange.until()
        assert len({(id(message), tuple(map(id, body))) for exchange in exchanges for message, body in exchange.raw}) == 1
        assert node.reads.figures()["history_requests"][2] == 1

    run(scenario, tail_bytes=0)


def test_a_group_on_its_way_into_the_store_is_not_taken_for_missing():
    async def scenario(node):
        cache = node.cache()
        node.write((cache, {0: [b"a"]}))
        append, late = node.store.append, []
        node.store.append = lambda log, meta: late.append((log, meta))  # the storage thread has not come to it
        group = node.stamp((cache, {0: [b"b"] * 3, 1: [b"c"] * 3}))
        assert node.steps.last(1).id == group.last_id, "its step is counted already"
        answer, rows = await ask(node)
        assert [row.value for row in rows] == [b"a"]
        node.store.append = append
        for log, meta in late:
            append(log, meta)
        node.commit(group)
        _, rows = await read_all(node, after=answer.last_id)
        assert len(rows) == 6

    run(scenario, tail_bytes=0, step_events=6)


def test_a_reader_who_left_is_forgotten():
    async def scenario(node):
        cache = node.cache()
        exchange = waiting(node)
        assert node.reads.figures()["readers_waiting"][0] == 1
        exchange.leave()
        assert node.reads.figures()["readers_waiting"][0] == 0
        node.write((cache, {0: [b"x"]}))
        await asyncio.sleep(0.01)
        assert not exchange.answers

    run(scenario)


def test_an_answer_is_made_only_when_the_connection_has_room():
    async def scenario(node):
        fill(node, node.cache(), 3)
        exchange = poll_exchange(after=node.tail.floor(1))
        exchange.has_room = False
        events.poll(node, exchange)
        await asyncio.sleep(0)
        assert not exchange.answers
        assert not node.reads.figures()["answer_cache_bytes"][2], "nothing was made"
        exchange.give_room()
        answer, _ = await exchange.until()
        assert answer.events

    run(scenario)


def test_standing_still_is_said_with_what_holds_it():
    async def scenario(node):
        cache = node.cache()
        node.write((cache, {0: [b"a"]}))
        answer, _ = await ask(node)
        assert not answer.stalled
        group = node.stamp((cache, {2: [b"b"]}))
        node.now_ms += STALLED_MS + 10
        answer, rows = await ask(node, after=answer.last_id, wait_ms=5)
        assert rows == []
        assert [(one.segment, one.node) for one in answer.stalled] == [(2, NODE_NUMBER)]
        assert abs(answer.stalled[0].since_ms - time_of(group.first_id)) <= 1
        answer, _ = await ask(node, after=answer.last_id, wait_ms=5, segments=[0, 1])
        assert not answer.stalled

    run(scenario)


def test_stopping_tells_everybody_who_waits():
    async def scenario(node):
        node.cache()
        exchange = waiting(node)
        await node.reads.stop()
        late = waiting(node)
        for one in (exchange, late):
            with pytest.raises(Stopping):
                await one.until()

    run(scenario)


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


@pytest.mark.parametrize("which", ["in the middle", "at the end"])
def test_a_missing_value_is_noticed(which):
    async def scenario(node):
        cache = node.cache()
        for index in range(10):
            node.write((cache, {1: [b"%d" % index]}))
        log = node.store.disk.log
        key = log.keys[5 if which == "in the middle" else -1]
        log.delete(key)
        with pytest.raises(CorruptData, match=r"missing|instead of"):
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
            (InvalidArgument, {"position": token.encode(position_of(node, 5, steps=(Step(segment=0, key=b"", pin=1),)))}),
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
        with pytest.raises(EventLogError, match="ZeroDivisionError"):
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
