"""The last events of a cache of three nodes, counted by the primaries of its segments."""

import asyncio
from contextlib import closing, suppress

import pytest

import eventlog
from eventlog.errors import InvalidArgument, NoEvents, NotPrimary, Unavailable
from eventlog.transport.connect import connect as dial
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.process.one_loop.clients import address, client_of, cluster_of, run, until_spread
from tests.process.one_loop.cluster import SEGMENTS

EVENTS = 200


async def ask(cluster, request):
    with closing(await dial("127.0.0.1", cluster.nodes[0].port)) as connection:
        return await connection.request(Message(last_events=request), timeout_ms=30_000)


async def filled(client, **options):
    cache = await client.create_cache("c", **options)
    await cache.put_many([(f"k{n}", n) for n in range(EVENTS)])
    for n in range(10):
        await cache.put(f"k{n}", -n)
    return cache


def test_the_last_events_are_the_same_at_any_node_and_as_many_as_asked_for(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster:
            await until_spread(cluster)
            async with client_of(cluster) as client:
                cache = await filled(client)
                every = [event async for event in cache.events()]
            for index in range(3):
                async with client_of(cluster, index) as client:
                    cache = client.cache("c")
                    for count in (1, 10, 11, 150, EVENTS + 9, EVENTS + 10, EVENTS + 11, 1 << 62):
                        assert [event async for event in cache.events(tail=count)] == every[-count:]
                    some = [event for event in every if event.segment in {2, 5}]
                    assert [event async for event in cache.events(tail=12, segments=[5, 2])] == some[-12:]
                    assert [event async for event in cache.events(tail=30, where="value < 0")] == [e for e in every[-30:] if e.value < 0]
                    table = await cache.scan_events(tail=20, columns=["id"]).to_arrow()
                    assert table["id"].to_pylist() == [event.id for event in every[-20:]]
                    ends = await cache.log_ends(tail=20)
                    assert (await cache.log_ends()).tail_id is None
                    assert every[-21].id <= ends.tail_id < every[-20].id

    run(act())


def test_what_is_kept_no_more_and_what_lies_above_the_end_does_not_count(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await filled(client, retain_events=20)
            every = [event.id async for event in cache.events()]
            request = pb.LastEvents(cache_id=(await cache.info()).id, events=7, upto=every[99])
            reply = await ask(cluster, request)
            assert every[92] <= reply.message.last_events_answer.after < every[93]
            assert (await client.run_retention("c")).removed > 0
            kept = [event.id async for event in cache.events()]
            assert 0 < len(kept) < len(every)
            for count in (1, len(kept) - 1, len(kept), EVENTS):
                assert [event.id async for event in cache.events(tail=count)] == kept[-count:]
            assert (await cache.log_ends(tail=len(kept))).tail_id == 0, "retention may go on: what begins at the beginning loses nothing"

    run(act())


def test_a_read_that_ends_waits_for_what_was_written_before_it(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster:
            await until_spread(cluster)
            lonely, other = cluster.nodes[0], cluster.nodes[1]
            async with eventlog.connect(address(other), timeout_ms=3_000) as client:
                cache = await filled(client)
                lonely.cut_off()  # nobody takes it for dead, so nobody else promises for what it leads
                key = next(key for n in range(1_000) if cluster.leader((key := f"new{n}").encode()) is other.node)
                await cache.put(key, 1, timeout_ms=60_000)
                assert (await cache.log_ends()).is_behind
                for read in (cache.log_ends(whole=True), anext(cache.events()), anext(cache.events(tail=1, on_stalled="error"))):
                    with pytest.raises(Unavailable, match="segment"):
                        await read
                asyncio.get_running_loop().call_later(1, lonely.join_again)
                assert [event.key async for event in cache.events()][-1] == key
                assert not (await cache.log_ends(whole=True)).is_behind

    run(act())


def test_a_node_that_is_cut_off_takes_what_it_knows_for_the_end_of_nothing(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster:
            await until_spread(cluster)
            lonely, other = cluster.nodes[0], cluster.nodes[1]
            async with client_of(cluster, 1) as client:
                cache = await filled(client)
                asked = (await cache.info()).id
                with closing(await dial("127.0.0.1", lonely.port)) as connection:
                    lonely.cut_off()
                    key = next(key for n in range(1_000) if cluster.leader((key := f"new{n}").encode()) is other.node)
                    made = await cache.put(key, 1, timeout_ms=60_000)
                    poll = pb.Poll(cache_id=asked, max_events=1_000)
                    for wait_ms in (0, 0, 200):
                        polled = (await connection.request(Message(poll=poll), timeout_ms=30_000)).message.poll_answer
                        assert polled.last_id < made.id
                        assert not polled.end
                        poll.after, poll.wait_ms = polled.last_id, wait_ms
                    assert not polled.events, "it has had all that this node shows"
                    with suppress(NotPrimary):
                        ends = await connection.request(Message(log_ends=pb.LogEnds(cache_id=asked)), timeout_ms=30_000)
                        assert ends.message.log_ends_answer.is_behind
                    with pytest.raises(Unavailable):
                        async for _ in connection.stream(Message(watch=pb.Watch(poll=poll))):
                            pass
                    lonely.join_again()

    run(act())


def test_a_follower_begins_with_the_last_ones_and_goes_on(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await filled(client)
            every = [event async for event in cache.events()]
            async with asyncio.timeout(60):
                found = []
                async for event in cache.events(tail=3, follow=True):
                    found.append(event)
                    if len(found) == 3:
                        news = await cache.put("news", 1)
                    if len(found) == 4:
                        break
            assert (found[:3], found[3].id) == (every[-3:], news.id)

    run(act())


def test_there_are_no_last_events_of_nothing(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("c")
            assert [event async for event in cache.events(tail=3)] == []
            with pytest.raises(InvalidArgument):
                await cache.log_ends(tail=3, segments=[SEGMENTS])
            request = pb.LastEvents(cache_id=(await cache.info()).id, events=7, upto=1, segments=[SEGMENTS])
            with pytest.raises(InvalidArgument, match=f"segment {SEGMENTS} of {SEGMENTS}"):
                await ask(cluster, request)
            quiet = await client.create_cache("quiet", events=False)
            with pytest.raises(NoEvents):
                await quiet.log_ends(tail=3)

    run(act())
