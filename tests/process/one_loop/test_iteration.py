"""Iterations over three nodes on one loop: asked as an application asks, and as one that forges."""

import asyncio
import os
from contextlib import closing

import numpy as np
import pytest

import eventlog
from eventlog.errors import BadMessage, InvalidArgument, IterationExpired, NoState
from eventlog.hashing import hash_key, segment_of
from eventlog.ids import time_of
from eventlog.node.copying.replicate_in import IncomingAppends
from eventlog.transport.connect import connect as dial
from eventlog.wire.eventlog_pb2 import IterationNext, IterationStart, Message, StateCursor
from tests.process.one_loop.clients import address, fill
from tests.process.one_loop.cluster import SEGMENTS, Cluster, with_cluster


def contents(cluster):
    return {key.decode(): value for key, (value, _) in cluster.acknowledged.items()}


async def read_all(cache, **options):
    """Return keys with values; a key that comes twice fails."""
    found = {}
    async with cache.entries(**options) as rows:
        async for key, value in rows:
            assert key not in found, key
            found[key] = value
    return found


def test_every_entry_comes_once_by_one_stream_or_many_in_batches_of_any_size(tmp_path):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        async with eventlog.connect(address(cluster.nodes[0])) as client:
            cache = await client.cache("c")
            assert await read_all(cache) == {}
            await fill(cluster, 500)
            wanted = contents(cluster)
            for options in ({}, {"parallel": 5}, {"batch_size": 7}, {"batch_bytes": 40, "prefetch": 1}, {"parallel": 100, "batch_size": 1}):
                assert await read_all(cache, **options) == wanted, options
            chosen = await read_all(cache, segments=[0, 6])
            assert chosen == {key: value for key, value in wanted.items() if hash_key(key.encode()) >> 61 in (0, 6)}
            assert await read_all(cache, prefix="k0001") == {f"k{n:05}": b"1" for n in range(10, 20)}
            assert len(await read_all(cache, limit=33)) == 33
            async with cache.entries(batch_size=50) as rows:
                sizes = [len(batch) async for batch in rows.batches()]
            assert sum(sizes) == 500
            assert max(sizes) == 50
            assert {key: entry.version for key, entry in await cache.entries()} == {
                key.decode(): version for key, (_, version) in cluster.acknowledged.items()
            }

    with_cluster(tmp_path, act)


def test_columns_are_those_of_the_entries(tmp_path):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 50)
        async with eventlog.connect(address(cluster.nodes[0])) as client:
            cache = await client.cache("c")
            stored = await cache.put("soon", b"gone", lifespan_ms=3_600_000)
            async with cache.entries(metadata=True) as rows:
                entry = {key: entry async for key, entry in rows}["soon"]
            assert entry.version == stored.id
            assert entry.expires_ms > 3_600_000
            async with cache.entries() as rows:
                batches = [batch async for batch in rows.batches()]
            table = {row.pop("key"): row for batch in batches for row in batch.arrow(include=()).to_pylist()}
            assert table["soon"]["id"] == stored.id
            version = cluster.acknowledged[b"k00007"][1]
            assert (table["k00007"]["value"], table["k00007"]["id"]) == (b"1", version)
            assert (table["k00007"]["segment"], table["k00007"]["offset"]) == (hash_key(b"k00007") >> 61, -1)
            assert (table["k00007"]["kind"], table["k00007"]["time"].timestamp()) == ("STATE", time_of(version) / 1000)
            assert all(np.array_equal(batch.expiry, np.zeros(len(batch))) for batch in batches)

    with_cluster(tmp_path, act)


def test_what_is_written_meanwhile_neither_repeats_nor_hides_an_entry(tmp_path):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 300)
        stays = {key for key in contents(cluster) if int(key[1:]) % 3}
        async with eventlog.connect(address(cluster.nodes[1]), read_ahead_bytes=2_000) as client:
            cache = await client.cache("c")
            seen: list[str] = []
            async with cache.entries(batch_size=5, prefetch=1, batch_bytes=64) as rows:
                async for key, _ in rows:
                    seen.append(key)
                    if len(seen) % 20 == 0:
                        for running in cluster.nodes:
                            running.node.state_reads.pins.close()
                        await cache.put_many([(f"k{len(seen) + n:05}", b"2") for n in range(9)])
                        await cache.remove(f"k{len(seen) // 3 * 3:05}")
            assert len(seen) == len(set(seen))
            assert stays <= set(seen)

    with_cluster(tmp_path, act)


def test_a_killed_primary_costs_no_entry_and_repeats_none(tmp_path):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 400)
        async with eventlog.connect(*map(address, cluster.nodes)) as client:
            cache = await client.cache("c")
            found: dict[str, bytes] = {}
            async with cache.entries(batch_size=10, batch_bytes=100, prefetch=1, parallel=2) as rows:
                async for key, value in rows:
                    assert key not in found
                    found[key] = value
                    if len(found) == 60:
                        await next(running for running in cluster.nodes if len(running.node.iterations)).kill()
            assert found == contents(cluster)

    with_cluster(tmp_path, act)


def test_a_node_that_leads_nothing_of_it_has_it_read_elsewhere(tmp_path):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 200)
        async with eventlog.connect(address(cluster.nodes[2]), routing="any") as client:
            cache = await client.cache("c")
            assert await read_all(cache, batch_size=9) == contents(cluster)
            local = await read_all(cache, scope="local")
            leads = cluster.nodes[2].node.replicas.serving
            assert local == {key: value for key, value in contents(cluster).items() if leads[hash_key(key.encode()) >> 61]}
            with pytest.raises(InvalidArgument):
                await read_all(cache, scope="nowhere")

    with_cluster(tmp_path, act)


@pytest.mark.parametrize(("parallel", "segments"), [(1, None), (5, None), (1, [1, 3])])
def test_entries_come_straight_from_each_primary_or_from_copies_where_the_client_is(tmp_path, parallel, segments):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 300, value=b"v" * 1_000)

        async def times_sent(routing: str) -> float:
            """Return how often each byte of the values was sent, by any node to anybody."""
            async with eventlog.connect(*map(address, cluster.nodes), routing=routing) as client:
                cache = await client.cache("c")
                while routing == "direct" and client.usage.connections < len(cluster.nodes):
                    await read_all(cache)  # connections are opened when they are wanted
                before = cluster.sent_bytes
                found = await read_all(cache, parallel=parallel, segments=segments)
                return (cluster.sent_bytes - before) / sum(map(len, found.values()))

        assert await times_sent("direct") < 1.4
        assert await times_sent("any") < 1.4

    with_cluster(tmp_path, act)


def test_a_copy_is_read_with_all_that_was_acknowledged_before(tmp_path, monkeypatch):
    follow = IncomingAppends.follow

    def follow_late(self, segments, watermarks):
        asyncio.get_running_loop().call_later(0.1, follow, self, segments.copy(), watermarks.copy())

    async def act(cluster: Cluster):
        await cluster.create_cache()
        monkeypatch.setattr(IncomingAppends, "follow", follow_late)
        readers = [eventlog.connect(address(running), routing="any") for running in cluster.nodes]
        async with eventlog.connect(address(cluster.nodes[0])) as client, readers[1] as one, readers[2] as other:
            writing = await client.cache("c")
            for key in (f"k{number}" for number in range(2 * SEGMENTS)):
                segment = segment_of(hash_key(key.encode()), SEGMENTS)
                await writing.put(key, b"new")
                found = await asyncio.gather(*(read_all(reader.cache("c"), segments=[segment]) for reader in (one, other)))
                assert [entries.get(key) for entries in found] == [b"new"] * 2
        monkeypatch.undo()

    with_cluster(tmp_path, act)


def test_batches_are_not_sent_before_there_is_credit_for_them(tmp_path):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 300, value=b"x" * 1_000)
        async with eventlog.connect(address(cluster.nodes[0])) as client:
            cache = await client.cache("c")
            before = cluster.sent_bytes
            async with cache.entries(batch_size=10, batch_bytes=10_000, prefetch=2) as rows:
                await anext(aiter(rows))
                await asyncio.sleep(0.2)  # nothing tells of what is not sent
                assert cluster.sent_bytes - before < 100_000, "of 300,000 bytes of values"
                rest = [key async for key, _ in rows]
            assert len(rest) == 299

    with_cluster(tmp_path, act)


@pytest.mark.parametrize("events", [True, False])
def test_segments_are_read_in_their_order_whoever_leads_them(tmp_path, events):
    async def act(cluster: Cluster):
        await cluster.create_cache(events=events)
        await cluster.until(cluster.is_spread)
        await fill(cluster, 100)
        node = cluster.nodes[0].node
        cache_id = node.caches.named("c").cache_id
        with closing(await dial("127.0.0.1", cluster.nodes[0].port)) as connection:
            message = Message(iteration_start=IterationStart(cache_id=cache_id, batch_entries=10))
            began = (await connection.request(message, timeout_ms=30_000)).message.iteration_start_answer
            stream = connection.stream(Message(iteration_next=IterationNext(iteration_id=began.iteration_id)))
            batches = [item.message.stream_item.iteration_batch async for item in stream]
        read = [cursor.segment for batch in batches for cursor in batch.cursors]
        assert sum(batch.entries for batch in batches) == 100
        assert read == sorted(read)
        assert set(read) == set(range(SEGMENTS))

    with_cluster(tmp_path, act)


def test_forged_and_forgotten_iterations_are_named_and_can_be_resumed(tmp_path):
    async def act(cluster: Cluster):
        await cluster.create_cache()
        await fill(cluster, 100)
        node = cluster.nodes[0].node
        cache_id = node.caches.named("c").cache_id
        with closing(await dial("127.0.0.1", cluster.nodes[0].port)) as connection:

            async def start(**fields):
                message = Message(iteration_start=IterationStart(**{"cache_id": cache_id, "batch_entries": 10} | fields))
                return (await connection.request(message, timeout_ms=30_000)).message.iteration_start_answer

            async def some(iteration_id, batches):
                stream = connection.stream(Message(iteration_next=IterationNext(iteration_id=iteration_id, batches=batches)))
                return [item.message.stream_item.iteration_batch async for item in stream]

            for forged in (b"", b"x", os.urandom(16), os.urandom(1_000)):
                with pytest.raises(IterationExpired):
                    await some(forged, 1)
            began = await start()
            assert len(began.iteration_id) == 16
            batches = await some(began.iteration_id, 3)
            assert [batch.entries for batch in batches] == [10, 10, 10]
            more = await some(began.iteration_id, 2)
            node.iterations.end(began.iteration_id)
            with pytest.raises(IterationExpired):
                await some(began.iteration_id, 1)
            cursors = {cursor.segment: cursor for batch in batches + more for cursor in batch.cursors}
            left = [segment for segment in range(SEGMENTS) if not (segment in cursors and cursors[segment].finished)]
            bits = sum(1 << segment for segment in left).to_bytes(1, "little")
            again = await start(segments=bits, cursors=[cursors[segment] for segment in left if segment in cursors])
            rest = await some(again.iteration_id, 0)
            assert sum(batch.entries for batch in rest) == 50
            assert rest[-1].end
            for bad in (
                {"segments": b"\x00"},
                {"segments": b"\x01\x01"},
                {"cursors": [StateCursor(segment=99, key=b"k", pin=1)]},
                {"cursors": [StateCursor(segment=1, key=b"k" * 5_000, pin=1)]},
                {"segments": b"\x02", "cursors": [StateCursor(segment=0, key=b"k", pin=1)]},
                {"scope_parameters": b"[1", "scope": "x"},
            ):
                with pytest.raises((BadMessage, InvalidArgument)):
                    await start(**bad)
        async with eventlog.connect(address(cluster.nodes[0])) as client:
            flat = await client.create_cache("flat", format="bytes", state=False)
            with pytest.raises(NoState):
                await read_all(flat)

    with_cluster(tmp_path, act)
