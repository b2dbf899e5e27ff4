"""State, then tail, from three nodes on one loop: asked as an application asks."""

import numpy as np
import pytest

import eventlog
from eventlog.client.reading.batches import EventBatch
from eventlog.errors import InvalidArgument, NoEvents, NoState, PositionMismatch
from eventlog.hashing import hash_key
from eventlog.read import token
from tests.process.one_loop.clients import address, fill
from tests.process.one_loop.cluster import SEGMENTS, Cluster, with_cluster


class Table:
    """What a reader makes of entries and events; it notes whatever comes twice, or out of its place."""

    def __init__(self):
        self.rows = {}
        self.seen = set()
        self.states = 0

    def take(self, event):
        assert (event.key, event.id) not in self.seen, "twice"
        assert event.id > self.rows.get(event.key, (b"", 0))[1], "an old one"
        self.seen.add((event.key, event.id))
        self.states += event.kind == "STATE"
        if event.kind in {"REMOVED", "EXPIRED"}:
            self.rows.pop(event.key, None)
        else:
            self.rows[event.key] = (event.value, event.id)


def expected(cluster):
    return {key.decode(): entry for key, entry in cluster.acknowledged.items()}


def test_entries_come_first_then_what_happened_after_them(tmp_path):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 300)
        async with eventlog.connect(address(cluster.nodes[0])) as client:
            cache = await client.cache("c")
            table = Table()
            events = cache.events(state_first=True, follow=True)
            for number in range(500):
                if number == 150:
                    await fill(cluster, 200, prefix=b"late")
                table.take(await anext(events))
            await events.aclose()
            assert table.rows == expected(cluster)
            assert table.states == 300
            once = Table()
            async for event in cache.events(state_first=True):
                once.take(event)
            assert once.rows == expected(cluster)
            assert once.states == 500
            assert [event async for event in cache.events(position=event.position)] == []

    with_cluster(tmp_path, act)


def test_the_bare_notification_leaves_the_entries_where_they_are(tmp_path):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 30)
        async with eventlog.connect(address(cluster.nodes[0])) as client:
            cache = await client.cache("c")
            told = await cache.poll(state_first=True, max_events=0)
            some = await cache.poll(position=told.position, max_events=10)
            told_again = await cache.poll(position=some.position, max_events=0)
            rest = [event.key async for event in cache.events(position=told_again.position)]
            assert (told.events, told_again.events) == ([], [])
            assert {event.key for event in some.events} | set(rest) == set(expected(cluster))
            assert len(some.events) + len(rest) == 30

    with_cluster(tmp_path, act)


def test_every_position_resumes_at_any_node_also_among_entries(tmp_path):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 60)
        table, position, taken, turn = Table(), None, 0, 0
        while taken < 100:
            running = cluster.nodes[turn % 3]
            turn += 1
            async with eventlog.connect(address(running), routing="any") as client:
                cache = await client.cache("c")
                async for event in cache.events(position=position, state_first=position is None, follow=True):
                    table.take(event)
                    position = event.position
                    taken += 1
                    if taken == 37:
                        await fill(cluster, 40, prefix=b"late")
                    if taken % 7 == 0 or taken == 100:
                        break
        assert table.rows == expected(cluster)
        assert 60 <= table.states < 100

    with_cluster(tmp_path, act)


def test_a_killed_node_costs_no_entry_and_repeats_none(tmp_path):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 400)
        table = Table()
        async with eventlog.connect(*map(address, cluster.nodes), read_ahead_bytes=4_000) as client:
            cache = await client.cache("c")
            batches = cache.event_batches(state_first=True, follow=True, max_bytes=300)
            dead = False
            while len(table.rows) < 450 or not dead:
                for event in (await anext(batches)).events():
                    table.take(event)
                if len(table.seen) > 100 and not dead:
                    dead = True
                    served_by = next(running for running in cluster.nodes if running.is_up and len(running.node.state_reads.pins))
                    await fill(cluster, 50, prefix=b"late")
                    await served_by.kill()
            await batches.aclose()
        assert table.rows == expected(cluster)

    with_cluster(tmp_path, act)


def test_a_pin_that_is_lost_is_a_step_and_the_tail_leaves_out_what_a_later_pin_had(tmp_path):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 200)
        table = Table()
        async with eventlog.connect(address(cluster.nodes[0])) as client:
            cache = await client.cache("c")
            position, lost = None, 0
            while True:
                answer = await cache.poll(position=position, state_first=position is None, max_events=7)
                for event in answer.events:
                    table.take(event)
                position = answer.position
                if not token.from_text(position).unread and not answer.events:
                    break
                for running in cluster.nodes:
                    lost += len(running.node.state_reads.pins)
                    running.node.state_reads.pins.close()
                if len(table.seen) < 260:
                    await cluster.put(b"k%05d" % (len(table.seen) % 200), b"%d" % len(table.seen))
                    await cluster.put(b"new%d" % len(table.seen), b"x")
        assert lost > 20
        assert table.rows == expected(cluster)

    with_cluster(tmp_path, act)


def test_segments_are_chosen_and_few_rows_are_spread_over_all_of_them(tmp_path):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        async with eventlog.connect(address(cluster.nodes[0])) as client:
            cache = await client.cache("c")
            assert [event async for event in cache.events(state_first=True)] == []
            await fill(cluster, 40)
            chosen = [event async for event in cache.events(state_first=True, segments=[1, 5])]
            assert {event.segment for event in chosen} == {1, 5}
            assert {event.key for event in chosen} == {
                key.decode() for key in cluster.acknowledged if hash_key(key) >> (64 - (SEGMENTS - 1).bit_length()) in (1, 5)
            }
            batches = [batch async for batch in cache.event_batches(state_first=True)]
            assert sum(map(len, batches)) == 40
            assert isinstance(batches[0], EventBatch)
            frame = batches[0].arrow()
            assert set(frame["kind"].to_pylist()) == {"STATE"}
            assert np.array_equal(frame["id"].to_numpy(), batches[0].ids)

    with_cluster(tmp_path, act)


def test_what_cannot_be_read_so_is_refused_with_its_reason(tmp_path):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 20)
        async with eventlog.connect(address(cluster.nodes[0])) as client:
            cache = await client.cache("c")
            with pytest.raises(InvalidArgument):
                cache.events(5, state_first=True)
            event = await anext(cache.events(state_first=True))
            other = await client.create_cache("other", format="bytes")
            with pytest.raises(PositionMismatch):
                await anext(other.events(position=event.position))
            for name, options, error in (("quiet", {"events": False}, NoEvents), ("flat", {"state": False}, NoState)):
                odd = await client.create_cache(name, format="bytes", **options)
                with pytest.raises(error):
                    await anext(odd.events(state_first=True, follow=True))

    with_cluster(tmp_path, act)
