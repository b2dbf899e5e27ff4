"""Near caches at three nodes in this process: what a client is told, and what it then serves."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from eventlog.client.cache import Cache
from eventlog.client.near.near_cache import NearCache
from eventlog.client.near.table import MISS
from eventlog.clock import now_s
from eventlog.errors import (
    ClientClosed,
    EventLogError,
    InvalidArgument,
    NoEvents,
    NoState,
    Overloaded,
    PrimariesMissing,
    VersionMismatch,
)
from eventlog.hashing import hash_key
from eventlog.limits import NEAR_ENTRIES_MAX
from eventlog.transport.connect import connect as dial
from eventlog.wire.eventlog_pb2 import Message, NearInterest, NearWatch
from tests.process.one_loop.clients import client_of, stopped, until
from tests.process.one_loop.cluster import SEGMENTS, Cluster, with_cluster

STALENESS_MS = 20_000


async def kept(near: NearCache, key: str) -> object:
    """Read until it is served from memory, and return what is."""
    async with asyncio.timeout(60):
        while near.peek(key, "miss") == "miss":
            await near.get(key)
            await asyncio.sleep(0.005)
    return near.peek(key)


def with_near(tmp_path: Path, act, *, options: dict[str, object] | None = None, **near_options: object) -> None:
    async def run(cluster: Cluster) -> None:
        async with client_of(cluster) as client, client_of(cluster) as other:
            cache = await client.create_cache("c", **({"format": "json"} | (options or {})))
            async with cache.near(**({"max_staleness_ms": STALENESS_MS} | near_options)) as near:
                await act(cluster, near, cache, await other.cache("c"))

    with_cluster(tmp_path, run)


def test_what_was_read_is_served_from_memory_until_somebody_writes_it(tmp_path: Path):
    async def act(cluster: Cluster, near: NearCache, cache: Cache, other: Cache) -> None:
        keys = [f"k{number}" for number in range(3 * SEGMENTS)]
        stored = {key: await other.put(key, {"n": 0}) for key in keys}
        for key in keys:
            entry = await kept(near, key)
            assert (entry.value, entry.version) == ({"n": 0}, stored[key].id)
        hits, invalidations = near.statistics.hits, near.statistics.invalidations
        assert [await near.get(key) for key in keys] == await near.get_many(keys)
        assert near.statistics.hits == hits + 2 * len(keys)
        written = [await other.put(key, {"n": 1}) for key in keys[::2]]
        await until(lambda: near.statistics.invalidations == invalidations + len(written))
        assert [key for key in keys if near.peek(key) is None] == keys[::2]
        assert [entry.value["n"] for entry in await near.get_many(keys)] == [1 - row % 2 for row in range(len(keys))]

    with_near(tmp_path, act)


def test_removals_expiry_and_clearing_are_told_and_absence_is_kept(tmp_path: Path):
    async def act(cluster: Cluster, near: NearCache, cache: Cache, other: Cache) -> None:
        assert await kept(near, "a") is None
        await other.put("a", 1)
        await until(lambda: near.peek("a", "miss") == "miss")
        assert (await kept(near, "a")).value == 1
        await other.remove("a")
        await until(lambda: near.peek("a", "miss") == "miss")
        await other.put("b", 2, lifespan_ms=400)
        while await near.get("b") is not None:  # noqa: ASYNC110 -- time itself is waited for
            await asyncio.sleep(0.01)
        for key in "cd":
            await other.put(key, 3)
            await kept(near, key)
        await other.clear()
        await until(lambda: near.peek("c", "miss") == near.peek("d", "miss") == "miss")
        assert await near.get_many("abcd") == [None] * 4

    with_near(tmp_path, act)


def test_own_writes_are_read_whichever_way_they_were_made(tmp_path: Path):
    async def act(cluster: Cluster, near: NearCache, cache: Cache, other: Cache) -> None:
        for number in range(20):
            await near.put("a", number)
            assert (await near.get("a")).value == number
            await cache.put("a", -number)
            assert (await near.get("a")).value == -number
            await kept(near, "a")
        await near.put_many([("a", 100), ("b", 101)])
        assert [entry.value for entry in await near.get_many("ab")] == [100, 101]
        await kept(near, "b")
        await (await cache.send_columns([b"b"], [b"102"]))
        assert (await near.get("b")).value == 102
        await near.replace("b", 103, if_version=(await near.get("b")).version)
        assert (await near.get("b")).value == 103
        await kept(near, "b")
        await near.remove("a")
        assert await near.get("a") is None
        await near.remove_many(["b"])
        assert await near.get("b") is None
        await near.put("c", 1)
        await kept(near, "c")
        assert await near.clear() == 1
        assert await near.get("c") is None

    with_near(tmp_path, act)


def test_what_was_written_is_read_once_before_it_is_held_for_long(tmp_path: Path):
    async def act(cluster: Cluster, near: NearCache, cache: Cache, other: Cache) -> None:
        await kept(near, "a")
        await near.put("a", 1)
        await until(lambda: near.peek("a", "miss") == "miss" and near.is_fresh, within_s=10)
        assert (await kept(near, "a")).value == 1

    with_near(tmp_path, act, max_staleness_ms=1_000)


def test_only_writes_to_keys_that_are_held_are_sent(tmp_path: Path):
    async def act(cluster: Cluster, near: NearCache, cache: Cache, other: Cache) -> None:
        watching = [node for node in cluster.up if node.near.digests]
        assert watching == []
        await kept(near, "a")
        assert [node.near.digests for node in cluster.up if node.near.digests] == [1]
        digest = hash_key(b"a").to_bytes(8, "little")
        watch = Message(near_watch=NearWatch(cache_id=cluster.up[0].caches.named("c").cache_id, latest=True, digests=1))
        connection = await dial("127.0.0.1", cluster.nodes[0].port)
        stream = connection.stream(watch, digest, credit_bytes=1 << 20)
        assert (await anext(stream)).message.stream_item.near_item.digests == 0
        for number in range(50):
            await other.put(f"other{number}", number)
        stored = await other.put("a", 1)
        item = await anext(stream)
        assert (item.message.stream_item.near_item.digests, bytes(item.body)) == (1, digest + stored.id.to_bytes(8, "little"))
        await until(lambda: near.peek("a", "miss") == "miss")
        connection.close()
        await connection.wait_closed()

    with_near(tmp_path, act)


def test_keys_that_made_room_are_not_watched_any_more(tmp_path: Path):
    async def act(cluster: Cluster, near: NearCache, cache: Cache, other: Cache) -> None:
        for number in range(40):
            await near.get(f"k{number}")
        await until(lambda: sum(node.near.digests for node in cluster.up) == 10)
        assert near.statistics.entries <= 10

    with_near(tmp_path, act, max_entries=10)


def test_after_the_death_of_its_node_it_goes_on_with_what_it_has(tmp_path: Path):
    async def act(cluster: Cluster, near: NearCache, cache: Cache, other: Cache) -> None:
        for key in "abcdefgh":
            await other.put(key, 1)
            await kept(near, key)
        (serving,) = [running for running in cluster.nodes if running.node.near.digests]
        await serving.kill()
        await other.put("a", 2)
        await until(lambda: near.peek("a", "miss") == "miss")
        await until(lambda: sum(node.near.digests for node in cluster.up) == 8)
        assert near.statistics.resets == 0
        assert [near.peek(key).value for key in "bcdefgh"] == [1] * 7
        assert (await near.get("a")).value == 2

    with_near(tmp_path, act)


def test_it_forgets_everything_when_retention_has_passed_its_place(tmp_path: Path):
    async def act(cluster: Cluster, near: NearCache, cache: Cache, other: Cache) -> None:
        await other.put("a", 1)

        async def live(stand_still) -> None:
            async with client_of(cluster) as own, (await own.cache("c")).near(max_staleness_ms=STALENESS_MS) as away:
                await kept(away, "a")
                stand_still()
                await until(lambda: away.statistics.resets == 1)
                assert (await kept(away, "a")).value == 1

        async with stopped(live) as go_on:
            for number in range(200):
                await other.put(f"k{number}", number)
            for node in cluster.up:
                node.caches.named("c").trimmed_ids[:] = node.low.limit()
                node.caches.named("c").trimmed_offsets[:] = 10
            for running in cluster.nodes:
                for connection in running.server.connections:
                    connection.abort()
            await go_on()

    with_near(tmp_path, act)


def test_with_a_primary_out_of_reach_nothing_is_served_from_memory(tmp_path: Path):
    async def act(cluster: Cluster, near: NearCache, cache: Cache, other: Cache) -> None:
        await other.put("a", 1)
        await kept(near, "a")
        (serving,) = [node for node in cluster.up if node.near.digests]
        others = [running for running in cluster.nodes if running.node is not serving]
        answers: list[int | EventLogError] = []
        serving.how_far.end(answers.append)
        await until(lambda: len(answers) == 1)
        assert isinstance(answers[0], int)
        for running in others:
            running.cut_off()
        await until(lambda: not serving.peers.incarnations)
        serving.how_far.end(answers.append)
        await until(lambda: len(answers) == 2)
        assert isinstance(answers[1], PrimariesMissing)
        for running in others:
            running.join_again()
        await until(lambda: len(serving.peers.incarnations) == 2)

    with_near(tmp_path, act)


def test_a_cache_without_events_or_without_entries_has_no_near_cache(tmp_path: Path):
    async def run(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            silent = await client.create_cache("silent", events=False)
            with pytest.raises(NoEvents):
                await silent.near().__aenter__()
            log = await client.create_cache("log", state=False)
            with pytest.raises(NoState):
                await log.near().__aenter__()
            for wrong in ({"max_entries": 0}, {"max_bytes": -1}, {"max_staleness_ms": 0}, {"max_entries": NEAR_ENTRIES_MAX + 1}):
                with pytest.raises(InvalidArgument):
                    log.near(**wrong)

    with_cluster(tmp_path, run)


def test_before_it_is_entered_and_after_it_is_left_it_is_not_open(tmp_path: Path):
    async def run(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            cache = await client.create_cache("c")
            near = cache.near(max_staleness_ms=STALENESS_MS)
            with pytest.raises(InvalidArgument, match="not open"):
                await near.get("k")
            async with near:
                await near.put("k", 1)
                await kept(near, "k")
            for call in (near.get("k"), near.get_many(["k", "l"]), near.put("k", 2), near.remove("k"), near.clear()):
                with pytest.raises(ClientClosed):
                    await call
            assert near.peek("k", MISS) is MISS
            assert (await cache.get("k")).value == 1
            await near.__aexit__()

    with_cluster(tmp_path, run)


def test_forged_interest_is_refused(tmp_path: Path):
    async def run(cluster: Cluster) -> None:
        connection = await dial("127.0.0.1", cluster.nodes[0].port)
        with pytest.raises(InvalidArgument, match="no such watch"):
            await connection.request(Message(near_interest=NearInterest(watch=77)))
        connection.close()

    with_cluster(tmp_path, run)


def test_one_near_cache_has_no_more_watched_than_it_may_whatever_it_says_that_it_removes(tmp_path: Path):
    def digests(*ranges: range) -> bytes:
        return b"".join(np.array(list(one), "<u8").tobytes() for one in ranges)

    async def run(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            cache_id = (await (await client.create_cache("c")).info()).id
        readers = cluster.nodes[0].node.near
        readers.entries_max = 100
        connection = await dial("127.0.0.1", cluster.nodes[0].port)
        async with connection.stream(Message(near_watch=NearWatch(cache_id=cache_id, digests=101)), digests(range(101))) as crowded:
            with pytest.raises(Overloaded, match="one near cache"):
                await anext(aiter(crowded))
        async with connection.stream(Message(near_watch=NearWatch(cache_id=cache_id, digests=90)), digests(range(90))) as watch:
            await anext(aiter(watch))
            for added, removed, kept in (
                (range(90, 100), range(0), 100),
                (range(100, 150), range(1000, 1050), 100),  # none of these is watched
                (range(100, 150), range(50), 100),
                (range(0), range(50, 150), 0),
            ):
                change = NearInterest(watch=watch.number, added=len(added), removed=len(removed))
                asked = connection.request(Message(near_interest=change), digests(added, removed))
                if removed.start == 1000:
                    with pytest.raises(Overloaded, match="one near cache"):
                        await asked
                else:
                    await asked
                assert readers.digests == kept
        connection.close()

    with_cluster(tmp_path, run)


def test_what_is_written_through_it_is_served_from_memory_until_somebody_else_writes(tmp_path: Path):
    async def act(cluster: Cluster, near: NearCache, cache: Cache, other: Cache) -> None:
        await near.put("k", {"n": 0})
        await kept(near, "k")
        misses = near.statistics.misses
        stored = await near.put("k", {"n": 1, "list": (1, 2)})
        entry = near.peek("k")
        assert (entry.value, entry.version) == ({"n": 1, "list": [1, 2]}, stored.id)
        again = await near.replace("k", {"n": 2}, if_version=stored.id)
        assert near.peek("k").version == again.id
        assert await cache.get("k") == near.peek("k")
        assert near.statistics.misses == misses
        with pytest.raises(VersionMismatch):
            await near.replace("k", {"n": 3}, if_version=stored.id)
        await near.put("k", {"n": 4}, lifespan_ms=60_000)
        assert near.peek("k") is None, "the node says when it expires"
        newest = await other.put("k", {"n": 5})
        await until(lambda: (found := near.peek("k")) is None or found.version == newest.id)
        assert (await near.get("k")).version == newest.id

    with_near(tmp_path, act)


def test_what_memory_lacks_of_many_is_read_at_once_and_kept(tmp_path: Path):
    async def act(cluster: Cluster, near: NearCache, cache: Cache, other: Cache) -> None:
        keys = [f"k{number}" for number in range(3 * SEGMENTS)]
        await other.put_many([(key, {"n": row}) for row, key in enumerate(keys)])
        await other.put("brief", {"n": -1}, lifespan_ms=60_000)
        asked = [*keys, "brief", "none", keys[0]]
        entries = await near.get_many(asked)
        assert [entry and entry.value["n"] for entry in entries] == [*range(len(keys)), -1, None, 0]
        assert entries[-3] == await cache.get("brief")
        assert entries[-3].expires_ms is not None

        def missing() -> list[str]:
            return [key for key in asked if near.peek(key, "miss") == "miss"]

        async with asyncio.timeout(60):
            while missing():
                await near.get_many(missing())
        assert [near.peek(key) for key in asked] == entries == await near.get_many(asked)
        later = now_s() + 70  # the tail vouches for longer, the lifespan does not
        assert (near._table.find("brief", later), near._table.find("k0", later)) == (MISS, entries[0])
        await other.put_many([(key, {"n": 0}) for key in keys])
        await until(lambda: missing() == [*keys, keys[0]])

    with_near(tmp_path, act, max_staleness_ms=200_000)
