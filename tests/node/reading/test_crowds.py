"""Polls that ask the same and wait together."""

import asyncio
import gc
import weakref
from dataclasses import replace
from itertools import pairwise

import pytest

from eventlog.errors import CacheDropped
from eventlog.node.reading.pulls import ReadPace
from tests.loops import until
from tests.node.asking import ask, fill, waiting
from tests.node.asking import run as run_with
from tests.node.polling import rows_of_answer

NOBODY_IS_LATE = ReadPace(join_ms=600_000)
A_FEW = replace(NOBODY_IS_LATE, slice_answers=4)


def run(scenario, pace=NOBODY_IS_LATE):
    run_with(scenario, pace=pace)


def readers_waiting(node):
    return node.reads.figures()["readers_waiting"][0]


async def values_of(exchange):
    answer, body = await exchange.until()
    return [row.value for row in rows_of_answer(answer, body)]


async def at_the_end(node):
    """Return a cache that has a few events, and where it ends."""
    cache = node.cache()
    fill(node, cache, 3)
    return cache, (await ask(node))[0].last_id


async def crowd(node, count):
    """Return a cache, and those who wait for what comes next in it."""
    cache, end = await at_the_end(node)
    return cache, [waiting(node, after=end) for _ in range(count)]


def test_those_who_ask_the_same_wait_as_one_and_are_all_answered():
    async def scenario(node):
        cache, exchanges = await crowd(node, 300)
        made, given = node.reads.made, node.reads.given
        assert (len(node.reads.rounds), readers_waiting(node)) == (1, 300)
        node.write((cache, {0: [b"new"]}))
        assert [await values_of(exchange) for exchange in exchanges] == [[b"new"]] * 300
        assert (node.reads.made - made, node.reads.given - given, readers_waiting(node)) == (1, 300, 0)
        assert all(exchange.on_end is None for exchange in exchanges)

    run(scenario)


def test_nothing_of_them_is_left_to_the_collector_of_cycles():
    async def scenario(node):
        cache, exchanges = await crowd(node, 100)
        node.write((cache, {0: [b"new"]}))
        for exchange in exchanges:
            await exchange.until()
        await asyncio.sleep(0)
        kept = [weakref.ref(exchange) for exchange in exchanges]
        gc.disable()
        try:
            del exchange, exchanges
            assert not any(one() for one in kept)
        finally:
            gc.enable()

    run(scenario)


def test_they_are_answered_a_few_in_each_turn_of_the_loop():
    async def scenario(node):
        cache, exchanges = await crowd(node, 100)
        node.write((cache, {0: [b"new"]}))
        counts = [0]
        while counts[-1] < len(exchanges):
            await asyncio.sleep(0)
            counts.append(sum(bool(exchange.answers) for exchange in exchanges))
        assert max(after - before for before, after in pairwise(counts)) <= NOBODY_IS_LATE.slice_answers

    run(scenario)


def test_who_is_answered_late_gets_what_was_committed_meanwhile():
    async def scenario(node):
        cache, exchanges = await crowd(node, 20)
        given = node.reads.given
        exchanges[-1].is_over = True  # has left meanwhile
        node.write((cache, {0: [b"first"]}))
        await exchanges[0].until()
        node.write((cache, {1: [b"second"]}))
        found = [await values_of(exchange) for exchange in exchanges[:-1]]
        assert found == [[b"first"]] * 8 + [[b"first", b"second"]] * 11
        await asyncio.sleep(0)
        assert (node.reads.given - given, node.reads.crowds.due, readers_waiting(node)) == (19, 0, 0)
        assert not exchanges[-1].answers

    run(scenario, replace(A_FEW, renew_answers=8))


def test_the_next_crowd_gets_what_was_committed_while_the_one_before_was_answered():
    async def scenario(node):
        cache, start = await at_the_end(node)
        crowds = [[waiting(node, after=start, max_bytes=nbytes) for _ in range(8)] for nbytes in (1_000, 2_000)]
        await until(lambda: len(node.reads.rounds) == len(crowds))  # some may be looked at in a later turn
        node.write((cache, {0: [b"first"]}))
        await crowds[0][0].until()
        node.write((cache, {1: [b"second"]}))
        assert [await values_of(exchange) for exchange in crowds[0]] == [[b"first"]] * 8
        assert [await values_of(exchange) for exchange in crowds[1]] == [[b"first", b"second"]] * 8

    run(scenario, replace(A_FEW, renew_served=8))


def test_one_who_cannot_be_answered_keeps_nobody_else_waiting():
    def fails(*_):
        raise RuntimeError("a bug")

    async def scenario(node):
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        cache, exchanges = await crowd(node, 12)
        exchanges[5].answer = exchanges[11].answer = fails
        node.write((cache, {0: [b"new"]}))
        for index in (0, 4, 6, 10):
            assert await values_of(exchanges[index]) == [b"new"]
        await asyncio.sleep(0)
        assert node.reads.crowds.due == 0
        again = waiting(node, after=node.last_id)
        node.write((cache, {0: [b"newer"]}))
        assert await values_of(again) == [b"newer"]

    run(scenario, A_FEW)


def test_who_leaves_is_not_answered_and_the_last_one_takes_the_pull_with_him():
    async def scenario(node):
        cache, exchanges = await crowd(node, 3)
        exchanges[0].is_over = True
        exchanges[0].on_end()
        assert readers_waiting(node) == 2
        node.write((cache, {0: [b"new"]}))
        assert [await values_of(exchange) for exchange in exchanges[1:]] == [[b"new"]] * 2
        assert not exchanges[0].answers
        last = waiting(node, after=node.last_id)
        last.on_end()
        assert (readers_waiting(node), len(node.reads.rounds)) == (0, 0)
        again = waiting(node, after=node.last_id)
        assert readers_waiting(node) == 1, "he who left is not joined"
        node.write((cache, {0: [b"newer"]}))
        assert await values_of(again) == [b"newer"]

    run(scenario)


def test_who_comes_late_waits_for_as_long_as_he_asked_for():
    async def scenario(node):
        cache, exchanges = await crowd(node, 5)
        await until(lambda: (len(node.reads.rounds), readers_waiting(node)) == (5, 5))  # some may be looked at in a later turn
        node.write((cache, {0: [b"new"]}))
        assert [await values_of(exchange) for exchange in exchanges] == [[b"new"]] * 5

    run(scenario, ReadPace(join_ms=-1))  # with 0, who comes within the same millisecond joins


@pytest.mark.parametrize("fields", [{"wait_ms": 500}, {"latest": True}, {"notify": True}])
def test_short_waits_and_those_that_depend_on_their_moment_are_nobody_elses(fields):
    async def scenario(node):
        _, start = await at_the_end(node)
        where = {} if "latest" in fields else {"after": start}
        for _ in range(2):
            waiting(node, **where, **fields)
        await until(lambda: (len(node.reads.rounds), node.reads.crowds.waiting) == (2, 0))  # one may be looked at in a later turn

    run(scenario)


def test_a_dropped_cache_is_told_to_all_of_them():
    async def scenario(node):
        cache, exchanges = await crowd(node, 50)
        cache.dropped = True
        node.reads.dropped(cache)
        for exchange in exchanges:
            with pytest.raises(CacheDropped):
                await exchange.until()
        assert readers_waiting(node) == 0

    run(scenario)


def test_an_answer_that_cannot_be_made_again_is_an_error_for_those_who_are_left():
    async def scenario(node):
        cache, exchanges = await crowd(node, 10)
        node.write((cache, {0: [b"first"]}))
        await exchanges[0].until()
        node.write((cache, {1: [b"second"]}))
        node.caches.drop(cache)
        for exchange in exchanges[:4]:
            assert await values_of(exchange) == [b"first"]
        for exchange in exchanges[4:]:
            with pytest.raises(CacheDropped):
                await exchange.until()

    run(scenario, replace(A_FEW, renew_answers=4))
