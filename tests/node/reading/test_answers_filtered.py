"""Polls and watches with a filter: what matches of the log, a position that passes the rest, one judging for all who ask the same."""

import asyncio
import random

import pytest

from eventlog.errors import EventLogError, InvalidArgument
from eventlog.node.handlers import events
from eventlog.node.reading.pulls import ReadPace
from eventlog.read import token
from eventlog.wire.eventlog_pb2 import Filter
from tests.loops import until
from tests.node.asking import ask, by_id, fill, read_all, run, waiting
from tests.node.polling import poll_exchange, rows_of_answer
from tests.node.reading.test_closing import run as run_trio
from tests.node.reading.test_fetch import fill as fill_trio
from tests.node.reading.test_fetch import rows_by_id
from tests.node.reading.test_watches import finished, rows_of, watch
from tests.read.filters import compile_by_hand

WANTED = "7"


def by_hand(scenario):
    """Return the scenario with filters made by hand; `node.compiled` are those in use."""

    async def begun(node):
        node.compiled = []

        def compiler(spec, context):
            node.compiled.append(compile_by_hand(spec, context))
            return node.compiled[-1]

        node.reads.filters.compiler = compiler
        await scenario(node)

    return begun


def wanted_of(rows, text=b"7"):
    return [row for row in by_id(rows) if text in row.key or text in row.value]


@pytest.mark.parametrize("seed", range(16))
def test_repeated_polls_return_what_matches_once_wherever_it_lies(seed):
    chance = random.Random(seed)
    where = chance.choice(("", "costly ")) + WANTED

    async def scenario(node):
        cache, other = node.cache(), node.cache(2, "other")
        fill(node, cache, 60, seed=seed, other=other)
        at, found = 0, []
        while True:
            if chance.random() < 0.1:
                fill(node, cache, 2, seed=chance.random(), other=other)
            wanted = {"max_events": chance.choice((1, 3, 50)), "max_bytes": chance.choice((0, 1, 300))}
            answer, rows = await ask(node, after=at, filter=Filter(where=where), **wanted)
            assert all(at < row.id <= answer.last_id <= answer.low_watermark for row in rows)
            assert token.decode(answer.position).at == answer.last_id >= at
            found += by_id(rows)
            at = answer.last_id
            if answer.end:
                break
        assert found == wanted_of(node.rows[1])
        assert at == answer.low_watermark
        assert len(node.compiled) == 1

    run(by_hand(scenario), tail_bytes=chance.choice((0, 4_000, 1 << 20)), step_events=chance.choice((1, 7)), step_bytes=1 << 30)


@pytest.mark.parametrize("seed", range(6))
def test_places_by_segment_pass_what_does_not_match(seed):
    async def scenario(node):
        cache = node.cache()
        fill(node, cache, 40, seed=seed)
        asked = [0, 2, 3]
        answer, rows = await read_all(node, segments=asked, filter=Filter(where="none"), max_bytes=200)
        assert rows == []
        at = token.decode(answer.position).at
        assert at.offsets.tolist() == [cache.next_offsets[segment] for segment in asked]
        fill(node, cache, 5, seed=seed)
        _, rest = await read_all(node, position=answer.position)
        assert by_id(rest) == [row for row in by_id(node.rows[1]) if row.segment in asked and row.id > at.ids.min()]

    run(by_hand(scenario), tail_bytes=4_000, step_events=7)


def test_a_wake_up_without_a_match_answers_nothing_and_moves_the_place():
    async def scenario(node):
        cache = node.cache()
        exchange = waiting(node, filter=Filter(where="wanted"))
        for _ in range(5):
            node.write((cache, {0: [b"other"] * 3}))
            await until(lambda: node.compiled and node.compiled[0].judged >= sum(row.value == b"other" for row in node.rows[1]))
        judged = node.compiled[0].judged
        assert judged == 15
        assert not exchange.answers
        node.write((cache, {1: [b"other", b"wanted", b"other"]}))
        answer, body = await exchange.until()
        assert [row.value for row in rows_of_answer(answer, body)] == [b"wanted"]
        assert node.compiled[0].judged == judged + 3
        _, rest = await ask(node, after=answer.last_id)
        assert rest == []

    run(by_hand(scenario))


def test_a_long_poll_without_a_match_ends_with_the_place_reached():
    async def scenario(node):
        cache = node.cache()
        exchange = waiting(node, wait_ms=50, filter=Filter(where="wanted"))
        node.write((cache, {0: [b"other"] * 3}))
        answer, _ = await exchange.until()
        assert (answer.events, answer.end) == (0, True)
        assert answer.last_id >= node.rows[1][-1].id

    run(by_hand(scenario))


def test_a_bare_notification_is_for_what_matches():
    async def scenario(node):
        cache = node.cache()
        exchange = waiting(node, notify=True, filter=Filter(where="wanted"))
        node.write((cache, {0: [b"other"]}))
        await asyncio.sleep(0.02)
        assert not exchange.answers
        node.write((cache, {0: [b"wanted"]}))
        answer, _ = await exchange.until()
        assert answer.events == 0
        assert answer.last_id >= node.rows[1][-1].id

    run(by_hand(scenario))


def test_a_thousand_followers_of_one_filter_have_it_judged_once_a_round():
    async def scenario(node):
        cache = node.cache()
        exchanges = [waiting(node, filter=Filter(where="wanted")) for _ in range(1_000)]
        rounds = node.reads.rounds
        await until(lambda: len(rounds) == 1_000)  # they begin as their filter has been compiled
        assert (len(node.compiled), rounds.rounds) == (1, 0)
        node.write((cache, {0: [b"other"]}))
        await until(lambda: rounds.rounds and not rounds.looks_due)
        node.write((cache, {0: [b"wanted"]}))
        for exchange in exchanges:
            answer, body = await exchange.until()
            assert [row.value for row in rows_of_answer(answer, body)] == [b"wanted"]
        assert node.compiled[0].calls <= 3
        assert len({id(exchange.raw[0][0]) for exchange in exchanges}) <= 2, "the same bytes for all"

    run(by_hand(scenario))


def test_a_write_wakes_a_thousand_with_one_reading_and_one_judging_for_each_filter():
    async def scenario(node):
        cache = node.cache()
        filters = [None, "wanted", "other", "more"]
        exchanges = [(where := filters[index % 4], waiting(node, **_filtered(where))) for index in range(1_000)]
        await until(lambda: node.reads.figures()["readers_waiting"][0] == 1_000)  # they begin as their filter has been compiled
        assert (node.reads.made, node.reads.given, len(node.compiled)) == (0, 0, 3)
        node.write((cache, {0: [b"wanted"], 1: [b"more"]}))
        for where, exchange in exchanges:
            if where != "other":
                answer, body = await exchange.until()
                wanted = [b"more", b"wanted"] if where is None else [where.encode()]
                assert sorted(row.value for row in rows_of_answer(answer, body)) == wanted
        await asyncio.sleep(0)
        assert not any(exchange.answers for where, exchange in exchanges if where == "other")
        assert (node.reads.made, node.reads.given) == (4, 750)
        assert [found.calls for found in node.compiled] == [1, 1, 1]
        assert len({id(exchange.raw[0][0]) for where, exchange in exchanges if where is None}) == 1, "encoded once"

    run(by_hand(scenario), pace=ReadPace(join_ms=600_000))  # none of them comes late


def _filtered(where):
    return {} if where is None else {"filter": Filter(where=where)}


LITTLE_SCANNING = ReadPace(scan_step_bytes=1_000, scan_bytes_max=4_000)


@pytest.mark.parametrize("tail_bytes", [0, 1 << 20])
def test_a_poll_that_has_scanned_enough_says_where_it_stands(tail_bytes):
    async def scenario(node):
        cache = node.cache()
        for _ in range(100):
            node.write((cache, {0: [b"other" * 20] * 3}))
        places, at, is_end = [], 0, False
        while not is_end:
            answer, _ = await ask(node, after=at, filter=Filter(where="none"), max_bytes=1, wait_ms=10_000 if not places else 0)
            assert answer.last_id > at, "each goes on"
            at, is_end = answer.last_id, answer.end
            places.append(at)
        assert 5 < len(places) < 30

    run(by_hand(scenario), tail_bytes=tail_bytes, step_bytes=500, pace=LITTLE_SCANNING)


def test_a_watch_streams_what_matches_to_the_end():
    async def scenario(node):
        fill(node, node.cache(), 60)
        exchange = watch(node, filter=Filter(where=WANTED))
        await finished(exchange)
        assert rows_of(exchange) == wanted_of(node.rows[1])
        assert exchange.answers[-1][0].end

    run(by_hand(scenario), tail_bytes=4_000)


def test_a_follower_is_told_now_and_then_where_it_stands_and_only_when_that_is_new():
    async def scenario(node):
        cache = node.cache()
        exchange = watch(node, follow=True, filter=Filter(where="wanted"))
        await asyncio.sleep(0.1)
        quiet = len(exchange.answers)
        assert quiet <= 1
        node.write((cache, {0: [b"other"]}))
        answer, _ = await exchange.until(quiet + 1)
        assert (answer.events, answer.last_id >= node.rows[1][-1].id) == (0, True)
        await asyncio.sleep(0.1)
        assert len(exchange.answers) == quiet + 1
        node.write((cache, {0: [b"wanted"]}))
        await exchange.until(quiet + 2)
        assert [row.value for row in rows_of(exchange)] == [b"wanted"]
        exchange.leave()
        await finished(exchange)

    run(by_hand(scenario), pace=ReadPace(position_told_first_ms=10, position_told_ms=20))


def test_a_filter_that_cannot_be_compiled_fails_its_reader_alone():
    def refuse(*_):
        raise InvalidArgument(why="no")

    async def scenario(node):
        node.cache()
        node.reads.filters.compiler = refuse
        exchange = poll_exchange(filter=Filter(where="x"))
        events.poll(node, exchange)
        with pytest.raises(EventLogError):
            await exchange.until()
        stream = watch(node, filter=Filter(where="x"))
        with pytest.raises(EventLogError):
            await stream.until()
        answer, _ = await ask(node)
        assert answer.end

    run(scenario)


@pytest.mark.parametrize("copies", [1, 2])
def test_nodes_that_hold_a_part_or_nothing_have_the_rest_judged_where_it_is(copies):
    async def scenario(trio):
        for node in trio.nodes:
            node.reads.filters.compiler = compile_by_hand
        for n in range(60):
            fill_trio(trio, 1)
            trio.write(1 + n % 3, {trio.nodes[n % 3].leads[0]: [b"x", b"wanted %d" % n, b"y"]})
        expected = wanted_of(rows_by_id(trio), b"wanted")
        for node in trio.nodes:
            for fields in ({}, {"max_events": 7}, {"max_bytes": 100}, {"segments": [0, 1, 4]}):
                answer, found = await read_all(node, filter=Filter(where="wanted"), **fields)
                asked = fields.get("segments", range(100))
                assert by_id(found) == [row for row in expected if row.segment in asked]
                assert answer.last_id >= rows_by_id(trio)[-1].id

    run_trio(scenario, copies=copies, clocks=(0, 0, 0, 0), tail_bytes=6_000)


def test_a_poll_at_a_gateway_says_where_it_stands_after_as_much_scanning():
    async def scenario(trio):
        for node in trio.nodes:
            node.reads.filters.compiler = compile_by_hand
        fill_trio(trio, 400)
        places, at, is_end = [], 0, False
        while not is_end:
            answer, _ = await ask(trio.nodes[3], after=at, filter=Filter(where="none"), max_bytes=1)
            assert answer.last_id > at, "each goes on"
            at, is_end = answer.last_id, answer.end
            places.append(at)
        assert 2 < len(places) < 60

    run_trio(scenario, copies=1, clocks=(0, 0, 0, 0), tail_bytes=2_000, step_bytes=500, pace=LITTLE_SCANNING)
