"""Polls that wait: what wakes them, what they cost, how they end."""

import asyncio

import pytest

from eventlog.errors import (
    Stopping,
)
from eventlog.ids import TIME_SHIFT, time_of
from eventlog.limits import STALLED_MS
from eventlog.node.handlers import events
from eventlog.node.reading.pulls import ReadPace
from eventlog.read import token
from tests.loops import until
from tests.node.asking import ask, fill, read_all, run, waiting
from tests.node.polling import NODE_NUMBER, poll_exchange, rows_of_answer

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


def test_who_reads_up_to_an_id_that_nobody_writes_is_through_when_the_clock_has_passed_it():
    async def scenario(node):
        fill(node, node.cache(), 5)
        until_id = node.now_ms + 20 << TIME_SHIFT
        exchange = waiting(node, after=(await ask(node))[0].last_id, until_id=until_id)
        looked = node.closings
        await until(lambda: node.closings > looked)
        assert not exchange.answers, "by the clock of the loop it has passed; ids at or below it may still be given out"
        node.now_ms += 21
        answer, _ = await exchange.until()
        assert (answer.events, answer.end) == (0, True)
        assert answer.last_id == until_id <= answer.low_watermark

    run(scenario)


def test_a_reader_of_other_segments_moves_on_without_an_answer():
    async def scenario(node):
        cache = node.cache()
        exchange = waiting(node, segments=[3], wait_ms=500)
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


def test_many_who_lag_are_answered_a_few_a_turn_and_share_their_answers_while_more_is_committed():
    async def scenario(node):
        cache, first = node.cache(), node.last_id
        fill(node, cache, 60)
        exchanges = []
        for _ in range(100):
            exchanges.append(waiting(node, after=first, max_bytes=300, wait_ms=900))  # too short to wait with others
            if len(exchanges) % 10 == 0:
                node.write((cache, {0: [b"more"]}))
                await asyncio.sleep(0)
        answered = [exchange for exchange in exchanges if exchange.answers]
        assert 0 < len(answered) < 100
        for exchange in exchanges:
            await exchange.until()
        assert (node.reads.made, node.reads.given) == (1, 100)
        assert len({body for exchange in exchanges for _, body in exchange.answers}) == 1

    run(scenario, pace=ReadPace(turn_s=60.0, turn_looks=3))
