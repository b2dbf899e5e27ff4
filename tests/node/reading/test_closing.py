"""Closing up between nodes, and ordered readers of what several nodes write."""

import asyncio
import gc
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from eventlog.errors import ConnectionLost
from eventlog.ids import TIME_SHIFT, FlakeClock, make_id
from eventlog.limits import CLOSE_UP_MS_MAX
from eventlog.node.handlers import events
from eventlog.node.reading.closing import Closing, ClosingTimes
from eventlog.node.reading.watches import serve_watch
from eventlog.read.watermark import LowWatermark, Promises
from eventlog.testing.clocks import ManualClock
from tests import loops
from tests.loops import until
from tests.node.asking import ask, read_all
from tests.node.polling import poll_exchange, rows_of_answer, watch_exchange
from tests.node.trios import Trio

MINUTE_MS = 60_000
NOW = 1_700_000_000_000


def run(scenario, **options):
    async def main():
        trio = Trio(**options)
        trio.caches = trio.cache()
        trio.start()
        try:
            async with asyncio.timeout(loops.WITHIN_S):
                await scenario(trio)
        finally:
            await trio.stop()

    loops.run(main())


def begin(node, **fields):
    exchange = poll_exchange(**{"wait_ms": 30_000} | fields)
    events.poll(node, exchange)
    return exchange


async def following(trio, node):
    """Wait until all others hold the last request of a node whose readers wait, and none is due: what it sends next is for what comes."""

    def is_held(other):
        last = node.members.last.get(other.number)
        return last is not None and last.message.HasField("close_up") and last.on_end is not None and not last.is_over

    others = [other for other in trio.nodes if other is not node]
    await until(lambda: all(map(is_held, others)) and not node.closing.requests_due)


def written(trio):
    """Return the ids of everything committed, in order."""
    return sorted(row.id for node in trio.nodes for row in node.rows[1])


def test_an_ordered_reader_is_served_after_one_round_trip():
    async def scenario(trio):
        one, two, three = trio.nodes
        exchange = begin(one)
        await following(trio, one)
        one.members.sent.clear()
        trio.write(1, {0: [b"a"]})
        answer, body = await exchange.until()
        assert [row.value for row in rows_of_answer(answer, body)] == [b"a"]
        asked = [message.close_up for _, message in one.members.sent if not message.close_up.wait_ms]
        assert {number for number, _ in one.members.sent} == {2, 3}
        assert len(asked) == 2, "each was asked once for what it was needed for"
        assert min(two.low.limits[1], three.low.limits[2]) >= answer.last_id

    run(scenario)


def test_what_a_primary_is_about_to_commit_is_promised_by_the_others_meanwhile():
    async def scenario(trio):
        one, _, three = trio.nodes
        id_ = (one.now_ms + 1) << 22
        one.closing.foresee(id_, primary=2, copies=list)
        assert one.members.sent == [], "nobody reads"
        exchange = begin(one)
        await following(trio, one)
        one.members.sent.clear()
        one.closing.foresee(id_, primary=2, copies=list)
        assert [(number, message.close_up.id) for number, message in one.members.sent] == [(3, id_)]
        await until(lambda: three.low.limits[2] >= id_ and one.low.limits[2] >= id_)
        assert not exchange.is_over

    run(scenario)


LONG = ClosingTimes(follow_ms=60_000, held_ms_max=60_000)
"""A request that nothing answers waits for longer than a test does."""


def test_whoever_is_given_a_copy_promises_to_those_who_read_without_being_asked():
    async def scenario(trio):
        one, _, three = trio.nodes
        id_ = (one.now_ms + 1) << 22
        begin(one)
        await following(trio, one)
        assert not three.members.sent, "nobody reads there"
        one.members.sent.clear()
        one.closing.foresee(id_, primary=2, copies=lambda: (2, 3))
        three.closing.foresee(id_, primary=2, copies=lambda: (2, 1))
        await until(lambda: one.low.limits[2] >= id_)
        assert not [message for _, message in one.members.sent if message.close_up.id >= id_ or not message.close_up.wait_ms]

    run(scenario, closing_times=LONG)


def test_what_was_foreseen_while_no_request_waited_is_answered_with_the_next():
    async def scenario(trio):
        one, _, three = trio.nodes
        id_ = (one.now_ms + 1) << 22
        begin(one)
        await following(trio, one)
        three.closing.answer_soon()
        for _ in range(5):
            await asyncio.sleep(0)
        assert one.members.last[3].is_over, "the request that waited there is answered, and the next one not sent yet"
        three.closing.foresee(id_, primary=2, copies=lambda: (2, 1))
        await until(lambda: one.low.limits[2] >= id_)

    run(scenario, closing_times=replace(LONG, pause_s=0.05))


@pytest.mark.parametrize("primary", [1, 2])
def test_what_all_were_given_a_copy_of_is_read_without_asking_anybody_again(primary):
    async def scenario(trio):
        one = trio.nodes[0]
        exchange = begin(one)
        await following(trio, one)
        one.closing.times = replace(LONG, pause_s=60)  # after which one is asked who has not told by himself
        group = trio.stamp(primary, {primary - 1: [b"a"]})
        for node in trio.nodes:
            if node.number != primary:
                others = [other.number for other in trio.nodes if other is not node]
                node.closing.foresee(group.last_id, primary=primary, copies=partial(list, others))
        told = [segment for node in trio.nodes[1:] if node.number != primary for segment in node.leads]
        await until(lambda: one.low.limits[told].min() >= group.last_id)
        one.members.sent.clear()
        trio.commit(primary, group)
        trio.learn(one, list(trio.pending[1]))  # before the primary's promise is there
        answer, body = await exchange.until()
        assert [row.value for row in rows_of_answer(answer, body)] == [b"a"]
        assert all(message.close_up.wait_ms for _, message in one.members.sent)

    run(scenario, closing_times=LONG)


def test_a_reader_at_a_backup_hears_of_a_commit_without_another_write():
    async def scenario(trio):
        exchange = begin(trio.nodes[2])
        await following(trio, trio.nodes[2])
        trio.write(1, {0: [b"a"], 3: [b"b"]})
        answer, body = await exchange.until()
        assert [row.value for row in rows_of_answer(answer, body)] == [b"a", b"b"]

    run(scenario)


def test_nobody_is_asked_for_nobody():
    async def scenario(trio):
        for number in (1, 2, 3):
            trio.write(number, {number - 1: [b"a"]})
        await asyncio.sleep(0.05)
        assert [node.members.sent for node in trio.nodes] == [[], [], []]
        exchange, one = begin(trio.nodes[0], wait_ms=20, after=1 << 60), trio.nodes[0]
        await following(trio, one)
        await exchange.until()
        one.members.sent.clear()
        await until(lambda: not one.closing.requests_due and all(request.is_over for request in one.members.last.values()))
        await asyncio.sleep(0.05)
        assert one.members.sent == [], "no more than what was under way when the last reader left"

    run(scenario)


def test_what_a_request_to_a_member_that_has_left_fails_with_is_looked_at():
    class Leaving:
        """One member that is asked once, and has left by the time of the answer."""

        def __init__(self):
            self.incarnations = {9: "gone"}

        def send(self, *_, **__):
            self.request = asyncio.get_running_loop().create_future()
            return self.request

    async def scenario(trio):
        told = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        closing, members = trio.nodes[0].closing, Leaving()
        closing.join(members)
        closing.follow(on=True)
        lost, members.incarnations = members.request, {}
        closing.changed()
        del members.request
        lost.set_exception(ConnectionLost(address="there", why="it has left"))
        await asyncio.sleep(0)
        del lost
        gc.collect()
        assert told == []

    run(scenario)


def test_the_low_watermark_follows_the_clock_where_nobody_reads():
    async def scenario(trio):
        one = trio.nodes[0]
        before = one.low.limit()
        for node in trio.nodes:
            node.now_ms += 5_000
        one.closing.close_up()
        one.closing.refresh()
        await until(lambda: one.low.limit() >= before + (5_000 << 22))
        assert len(one.members.sent) == 2

    run(scenario)


def test_what_was_committed_anywhere_before_a_read_began_is_in_it():
    async def scenario(trio):
        for _ in range(5):
            for number in (1, 2, 3):
                trio.write(number, {number - 1: [b"a"]})
            for node in trio.nodes:
                _, found = await read_all(node)
                assert [row.id for row in sorted(found, key=lambda row: row.id)] == written(trio)

    run(scenario, delay_s=0.01, clocks=(0, 3 * MINUTE_MS, -2 * MINUTE_MS))


def test_a_read_to_the_end_does_not_wait_for_a_node_that_is_gone_for_long():
    async def scenario(trio):
        trio.write(1, {0: [b"a"]})
        await read_all(trio.nodes[0])
        trio.cuts.add(3)
        trio.write(1, {0: [b"b"]})
        begun = asyncio.get_running_loop().time()
        answer, found = await ask(trio.nodes[0])
        assert [row.value for row in found] == [b"a"]
        answer, found = await ask(trio.nodes[0], after=answer.last_id)
        assert not found
        assert not answer.end, "nobody knows what node 3 has committed"
        assert asyncio.get_running_loop().time() - begun < 2 * CLOSE_UP_MS_MAX / 1000
        assert answer.low_watermark < trio.nodes[0].rows[1][-1].id

    run(scenario)


def test_an_event_in_flight_at_another_node_holds_the_reader_until_it_is_committed():
    async def scenario(trio):
        early = trio.stamp(2, {1: [b"early"]})
        trio.nodes[0].last_id = early.last_id
        trio.write(1, {0: [b"late"]})
        exchange = begin(trio.nodes[0])
        await asyncio.sleep(0.05)
        assert not exchange.answers
        trio.commit(2, early)
        answer, body = await exchange.until()
        assert [row.value for row in sorted(rows_of_answer(answer, body), key=lambda row: row.id)] == [b"early", b"late"]

    run(scenario)


def test_who_reads_up_to_an_id_that_nobody_writes_has_the_other_primaries_promise_it():
    async def scenario(trio):
        trio.write(1, {0: [b"a"]})
        last_id = (await read_all(trio.nodes[0]))[0].last_id
        until_id = trio.nodes[0].now_ms + 5 << TIME_SHIFT
        exchange = begin(trio.nodes[0], after=last_id, until_id=until_id)
        for node in trio.nodes:
            node.now_ms += 6
        answer, _ = await exchange.until()
        assert (answer.events, answer.last_id) == (0, until_id)

    run(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_a_scalar_reader_at_any_node_misses_nothing_and_sees_all_in_order(seed):
    """Clocks differ by minutes, messages are late, tails are so small that readers fall back on the store."""

    async def scenario(trio):
        exchanges = [watch_exchange(follow=True) for _ in trio.nodes]
        watches = [asyncio.create_task(serve_watch(node.reads, node.how_far, one)) for node, one in zip(trio.nodes, exchanges, strict=True)]
        for _ in range(120):
            number = trio.chance.randint(1, 3)
            of = trio.chance.sample(trio.nodes[number - 1].leads, trio.chance.randint(1, 2))
            trio.write(number, {segment: [b"x" * trio.chance.choice((1, 200))] * trio.chance.randint(1, 5) for segment in of})
            for node in trio.nodes:
                node.now_ms += trio.chance.choice((0, 1, 3))
            if trio.chance.random() < 0.5:
                await asyncio.sleep(trio.chance.uniform(0, 0.004))
        expected = written(trio)
        for exchange in exchanges:
            while sum(answer.events for answer, _ in exchange.answers) < len(expected):
                await exchange.until(len(exchange.answers) + 1)
            found = [sorted(row.id for row in rows_of_answer(*answer)) for answer in exchange.answers]
            assert [id_ for ids in found for id_ in ids] == expected
            exchange.leave()
        await asyncio.gather(*watches)

    run(scenario, seed=seed, delay_s=0.005, clocks=(0, 4 * MINUTE_MS, -7 * MINUTE_MS), tail_bytes=6_000)


def test_a_member_whose_clock_is_far_behind_closes_up_to_ids_that_a_lease_vouches_for():
    clock = ManualClock(wall_ms=NOW)
    flake = FlakeClock(clock, node=1)
    flake.set_ceiling(make_id(NOW + 10 * MINUTE_MS, 0, 0))
    promises, low, ceiling = Promises(2), LowWatermark(2), make_id(NOW + 5 * MINUTE_MS, 0, 2)
    promises.lead(np.arange(2), epochs=np.ones(2, np.int64), last_ids=np.zeros(2, np.int64))
    closing = Closing(
        clock=flake, promises=promises, low=low, believed=lambda *told: list(told[-1]), on_heard=lambda *_: None, vouched=lambda: ceiling
    )
    far = make_id(NOW + 4 * MINUTE_MS, 0, 2)
    closing.close_up(far)
    assert low.limit() >= far
    assert flake.next(1) > far
    closing.close_up(make_id(NOW + 9 * MINUTE_MS, 0, 2))  # nobody could have issued that
    assert low.limit() < ceiling
