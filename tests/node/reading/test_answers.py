"""Polls against a model: a list of all events beside what repeated polls return."""

import asyncio
import random

import numpy as np
import pytest

from eventlog.ids import TIME_SHIFT, time_of
from eventlog.read import token
from eventlog.read.position import SegmentPositions
from tests.node.asking import ask, by_id, fill, position_of, read_all, run, waiting
from tests.node.polling import START_MS, rows_of_answer

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
        node.closing.close_up()
        limit = node.low.limit()
        node.closing.close_up = lambda _=None: []  # promises come from elsewhere from now on
        node.write((cache, {0: [b"b"], 1: [b"c"]}))
        exchange = waiting(node, after=limit)
        answer, found = await ask(node)
        assert (by_id(found), answer.low_watermark) == (by_id(node.rows[1])[:1], limit)
        await asyncio.sleep(0.02)
        assert not exchange.answers
        del node.closing.close_up
        node.closing.close_up()
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
