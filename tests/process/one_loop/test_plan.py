"""Where a read of so many events ends, counted by the primaries, and the same whoever is asked and whenever."""

from collections import Counter

import pytest

import eventlog
from eventlog.errors import InvalidArgument, NoEvents
from tests.process.one_loop.clients import address, client_of, cluster_of, run, until_spread

EVENTS = 300


async def filled(client, **options):
    cache = await client.create_cache("c", **options)
    await cache.put_many([(f"k{n}", n) for n in range(EVENTS - 20)])
    for n in range(20):
        await cache.put(f"k{n}", -n)
    return cache


def test_plans_follow_each_other_without_gap_or_repetition_at_any_node(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster:
            await until_spread(cluster)
            async with client_of(cluster) as client:
                cache = await filled(client)
                every = [event async for event in cache.events()]
            planned = []
            for index in range(3):
                async with client_of(cluster, index) as client:
                    cache, after, found = client.cache("c"), 0, []
                    while (plan := await cache.plan(after, max_events=70)).events:
                        assert plan.events == min(70, EVENTS - len(found))
                        found += [event async for event in cache.events(after, until_id=plan.upto)]
                        after = plan.upto
                        planned.append(plan)
                    assert found == every
                    assert after == every[-1].id, "the id of the last event, and not one behind it"
                    assert (plan.upto, plan.bytes) == (after, 0), "an end that nothing moves"
            assert [one.events for one in planned] == [70, 70, 70, 70, 20] * 3

    run(act())


def test_a_plan_is_about_some_segments_and_ends_where_it_is_told(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await filled(client)
            every = [event async for event in cache.events()]
            some = [event for event in every if event.segment in {2, 5}]
            plan = await cache.plan(0, max_events=10, segments=[5, 2])
            assert plan.events == 10
            assert [event async for event in cache.events(0, until_id=plan.upto, segments=[5, 2])] == some[:10]
            assert (await cache.plan(0, upto=every[99].id)).events == 100
            assert (plan.first_id, plan.trimmed) == (some[0].id, False)
            assert {one.segment: one.events for one in plan.segments} == Counter(event.segment for event in some[:10])
            leaders = {address(running) for running in cluster.nodes if running.node.replicas.serving[[2, 5]].any()}
            assert {one.primary for one in plan.segments} <= leaders
            whole = await cache.plan(0)
            assert (whole.within([5, 2])[0], whole.within([])) == (len(some), (0, 0))
            assert (await cache.plan(every[99].id, upto=every[99].id)).upto == every[99].id
            again = await cache.plan(every[9].id, max_events=25)
            await cache.put_many([(f"k{n}", None) for n in range(100)])
            later = await cache.plan(every[9].id, max_events=25)
            assert (later.upto, later.events) == (again.upto, again.events)

    run(act())


def test_a_plan_of_all_there_is_ends_with_the_last_event_that_is_kept(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await filled(client, retain_events=40)
            every = [event async for event in cache.events()]
            for upto in (every[0].id, every[99].id, every[100].id - 1, every[-1].id + (1 << 30)):
                whole = [event.id for event in every if event.id <= upto]
                plan = await cache.plan(0, upto=upto, max_events=EVENTS)
                assert (plan.upto, plan.events) == (whole[-1], len(whole))
            some = [event.id for event in every if event.segment in {2, 5}]
            plan = await cache.plan(some[3], segments=[5, 2])
            assert (plan.upto, plan.events) == (some[-1], len(some) - 4)
            assert (await client.run_retention("c")).removed > 0
            kept = [event.id async for event in cache.events()]
            gone = [event.id for event in every if event.id < kept[0]]
            plan = await cache.plan(0)
            assert (plan.upto, plan.events, plan.first_id, plan.trimmed) == (kept[-1], len(kept), kept[0], True)
            assert sum(one.events for one in plan.segments) == len(kept)
            assert not (await cache.plan(gone[-1])).trimmed, "what was taken lies before it"
            plan = await cache.plan(0, upto=gone[-1])
            assert (plan.upto, plan.events, plan.first_id, plan.segments) == (0, 0, None, ()), "what retention has taken is no end"

    run(act())


def test_a_plan_ends_where_readers_see_everything_whatever_end_was_asked_for(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster:
            await until_spread(cluster)
            lonely, other = cluster.nodes[0], cluster.nodes[1]
            async with eventlog.connect(address(other), timeout_ms=3_000) as client:
                cache = await filled(client)
                every = [event async for event in cache.events()]
                lonely.cut_off()  # nobody takes it for dead, so nobody else promises for what it leads
                key = next(key for n in range(EVENTS - 20) if cluster.leader((key := f"k{n}").encode()) is other.node)
                stored = await cache.put(key, 1, timeout_ms=60_000)
                segment = next(event.segment for event in every if event.key == key)
                before = [event.id for event in every if event.segment == segment]
                plan = await cache.plan(0, upto=stored.id, segments=[segment])
                assert (plan.upto, plan.events) == (before[-1], len(before)), "events of other segments may still come below it"
                assert (await cache.plan(every[-1].id, upto=stored.id, segments=[segment])).events == 0
                lonely.join_again()
                async for event in cache.events(before[-1], segments=[segment], follow=True):
                    assert event.id == stored.id
                    break
                plan = await cache.plan(0, upto=stored.id, segments=[segment])
                assert (plan.upto, plan.events) == (stored.id, len(before) + 1)

    run(act())


def test_near_the_logs_end_a_plan_is_made_from_memory_and_says_what_the_store_would(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster:
            await until_spread(cluster)
            async with client_of(cluster) as client:
                cache = await filled(client)
                await cache.put_many([(f"k{n}", "x") for n in range(100)])
                every = [event async for event in cache.events()]
                ends = await cache.log_ends(whole=True)
                middle = every[EVENTS + 50].id

                async def plans():
                    return [
                        await cache.plan(after, upto=upto, max_events=limit, segments=segments)
                        for after in (every[3].id, every[3].id + 1, every[-40].id, middle, middle - 1, every[-1].id)
                        for upto in (middle, every[-1].id, ends.last_id)
                        for limit in (0, 1, 17)
                        for segments in (None, [2, 5])
                        if after < upto
                    ]

                from_memory = await plans()
                for running in cluster.nodes:
                    running.node.tail.skip(every[-1].id)
                assert from_memory == await plans()
                assert {plan.events for plan in from_memory} >= {1, 17, 40 - 1, 50 - 1}
                for plan in from_memory:
                    read = [event.id async for event in cache.events(plan.after, until_id=plan.upto)]
                    assert not plan.events or plan.upto in read

    run(act())


def test_what_retention_took_is_counted_in_no_plan_from_memory(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await filled(client, retain_events=40)
            every = [event async for event in cache.events()]
            assert (await client.run_retention("c")).removed > 0
            kept = [event.id async for event in cache.events()]
            number = (await cache.info()).id
            assert all(running.node.tail.floor(number) < every[9].id for running in cluster.nodes), "all is in memory"
            plan = await cache.plan(every[9].id)
            assert (plan.upto, plan.events, plan.first_id, plan.trimmed) == (kept[-1], len(kept), kept[0], True)

    run(act())


def test_bytes_bound_a_plan_too_and_there_is_always_one_event(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("c")
            await cache.put_many([(f"k{n}", "x" * 1_000) for n in range(100)])
            whole = await cache.plan(0)
            assert whole.events == 100
            half = await cache.plan(0, max_bytes=whole.bytes // 2)
            assert 40 <= half.events <= 60
            assert (await cache.plan(0, max_bytes=1)).events == 1
            assert (await cache.plan(0, max_bytes=1, max_events=1)).events == 1

    run(act())


def test_what_cannot_be_planned_is_refused(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("c", events=False)
            with pytest.raises(NoEvents):
                await cache.plan(0, upto=1)
            other = await client.create_cache("d")
            with pytest.raises(InvalidArgument):
                await other.plan(0, segments=[1 << 15])
            with pytest.raises(InvalidArgument):
                await other.plan(-1)
            with pytest.raises(InvalidArgument):
                await other.plan(0, max_events=-1)
            assert (await other.plan(7)).upto == 7

    run(act())
