"""Reading at nodes that have no copy of some segments, or of any."""

import asyncio

import pytest

from eventlog.errors import EventLogError, EventsTrimmed, NotPrimary
from eventlog.node.handlers import events
from eventlog.node.reading.watches import serve_watch
from tests.node.asking import read_all
from tests.node.polling import poll_exchange, rows_of_answer, watch_exchange
from tests.node.reading.test_closing import MINUTE_MS, begin, following, run, written

GATEWAY = 3


def fill(trio, groups):
    for _ in range(groups):
        number = trio.chance.randint(1, 3)
        of = trio.chance.sample(trio.nodes[number - 1].leads, trio.chance.randint(1, 2))
        trio.write(number, {segment: [b"x" * trio.chance.choice((1, 200))] * trio.chance.randint(1, 5) for segment in of})
        for node in trio.nodes:
            node.now_ms += trio.chance.choice((0, 1, 3))


def rows_by_id(trio):
    return sorted((row for node in trio.nodes for row in node.rows[1]), key=lambda row: row.id)


@pytest.mark.parametrize("copies", [1, 2])
def test_every_node_gives_everything_once_and_in_order(copies):
    async def scenario(trio):
        fill(trio, 80)
        for node in trio.nodes:
            for limits in ({}, {"max_events": 7}, {"max_bytes": 500}):
                _, found = await read_all(node, **limits)
                assert sorted(found, key=lambda row: row.id) == rows_by_id(trio)

    run(scenario, copies=copies, clocks=(0, MINUTE_MS, -MINUTE_MS, 0), tail_bytes=6_000)


def test_positions_of_some_segments_go_on_at_any_node():
    async def scenario(trio):
        fill(trio, 40)
        answer, first = await read_all(trio.nodes[0], segments=[1, 2, 4])
        fill(trio, 40)
        for node in trio.nodes:
            _, rest = await read_all(node, position=answer.position)
            found = sorted(first + rest, key=lambda row: row.id)
            assert found == [row for row in rows_by_id(trio) if row.segment in {1, 2, 4}]

    run(scenario, copies=1, clocks=(0, 0, 0, 0), tail_bytes=6_000)


def test_a_follower_at_a_gateway_hears_of_what_is_committed():
    async def scenario(trio):
        for number in (1, 2, 3, 1):
            after = max(written(trio), default=0)
            exchange = begin(trio.nodes[GATEWAY], after=after)
            await following(trio, trio.nodes[GATEWAY])
            trio.write(number, {number - 1: [b"news"]})
            answer, body = await exchange.until()
            assert [row.value for row in rows_of_answer(answer, body)] == [b"news"]

    run(scenario, copies=1, clocks=(0, 0, 0, 0))


@pytest.mark.parametrize("seed", range(3))
def test_a_scalar_follower_misses_nothing_at_nodes_with_few_copies_or_none(seed):
    async def scenario(trio):
        exchanges = [watch_exchange(follow=True) for _ in trio.nodes]
        watches = [asyncio.create_task(serve_watch(node.reads, node.how_far, one)) for node, one in zip(trio.nodes, exchanges, strict=True)]
        for _ in range(60):
            fill(trio, trio.chance.randint(1, 3))
            await asyncio.sleep(trio.chance.uniform(0, 0.006))
        expected = written(trio)
        for exchange in exchanges:
            while sum(answer.events for answer, _ in exchange.answers) < len(expected):
                await exchange.until(len(exchange.answers) + 1)
            found = [sorted(row.id for row in rows_of_answer(*answer)) for answer in exchange.answers]
            assert [id_ for ids in found for id_ in ids] == expected
            exchange.leave()
        await asyncio.gather(*watches)

    run(scenario, seed=seed, delay_s=0.004, copies=1 + seed % 2, clocks=(0, 4 * MINUTE_MS, -7 * MINUTE_MS, 0), tail_bytes=6_000)


def test_what_retention_removed_elsewhere_is_told_and_skipped_on_request():
    async def scenario(trio):
        for n in range(6):
            trio.write(2, {1: [b"%d" % n] * 3})
        owner, gateway = trio.nodes[1], trio.nodes[GATEWAY]
        ids = [row.id for row in owner.rows[1]]
        owner.trim(owner.caches.find(1), ids[8])
        exchange = poll_exchange(after=ids[0])
        events.poll(gateway, exchange)
        with pytest.raises(EventsTrimmed) as caught:
            await exchange.until()
        assert (caught.value.first_id, caught.value.lost) == (ids[9], 9)
        _, found = await read_all(gateway, earliest=True)
        assert [row.id for row in found] == ids[9:]

    run(scenario, copies=1, clocks=(0, 0, 0, 0))


def test_the_first_event_kept_is_not_none_where_a_segment_could_not_be_looked_at():
    async def scenario(trio):
        trio.write(2, {1: [b"b"]})
        gateway = trio.nodes[GATEWAY]

        async def first() -> int | EventLogError:
            found = asyncio.get_running_loop().create_future()
            gateway.reads.kept.first_id(gateway.caches.find(1), found.set_result, owner=None)
            return await found

        await read_all(gateway)
        trio.cuts.add(2)
        gateway.closing.changed()
        assert isinstance(await first(), NotPrimary)
        trio.cuts.clear()
        gateway.closing.changed()
        assert await first() == written(trio)[0]

    run(scenario, copies=1, clocks=(0, 0, 0, 0))


def test_what_cannot_be_reached_is_waited_for_and_said_in_the_end():
    async def scenario(trio):
        trio.write(1, {0: [b"a"]})
        trio.write(2, {1: [b"b"]})
        gateway = trio.nodes[GATEWAY]
        await read_all(gateway)
        trio.cuts.add(2)
        exchange = poll_exchange(after=0)
        events.poll(gateway, exchange)
        answer, _ = await exchange.until()
        assert (answer.events, answer.last_id) == (0, 0)
        trio.cuts.clear()
        gateway.closing.changed()
        _, found = await read_all(gateway)
        assert [row.value for row in sorted(found, key=lambda row: row.id)] == [b"a", b"b"]

    run(scenario, copies=1, clocks=(0, 0, 0, 0))
