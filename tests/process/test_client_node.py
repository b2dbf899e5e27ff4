"""Writing and reading by the client against a node of its own process."""

import asyncio
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import eventlog
from eventlog.errors import (
    BadBlock,
    BadValue,
    InvalidArgument,
    KeyExists,
    VersionMismatch,
)
from eventlog.hashing import hash_key, segment_of
from eventlog.ids import time_of
from tests.process.nodes import NodeProcess
from tests.process.one_node import SEGMENTS, using


def test_entries_are_put_read_replaced_and_removed(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("entries")
        first = await cache.put("k", {"n": 1}, headers={"trace": b"t"})
        assert (first.kind, first.previous) == ("CREATED", None)
        second = await cache.put("k", {"n": 2}, previous=True)
        assert (second.kind, second.previous) == ("MODIFIED", {"n": 1})
        entry = await cache.get("k")
        assert entry is not None
        assert (entry.value, entry.version, entry.expires_ms) == ({"n": 2}, second.id, None)
        third = await cache.replace("k", {"n": 3}, if_version=entry.version)
        removed = await cache.remove("k", previous=True, if_version=third.id)
        assert (removed.kind, removed.previous) == ("REMOVED", {"n": 3})
        assert await cache.get("k") is None
        nothing = await cache.remove("k")
        assert (nothing.id, nothing.kind) == (None, None)
        assert [event.headers async for event in cache.events()] == [{"trace": b"t"}, {}, {}, {}]

    using(node, test)


def test_the_log_says_who_has_connected(node: NodeProcess) -> None:
    async def act() -> None:
        async with eventlog.connect(node.address, name="billing\nERROR forged " + "x" * 200):
            pass

    asyncio.run(act())
    (line,) = [line for line in node.log_text().splitlines() if "client_connected name='billing" in line]
    assert "'billing\\nERROR forged xxx" in line
    assert len(line) < 250


def test_a_null_is_a_value(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("nulls")
        await cache.put("k", None)
        entry = await cache.get("k")
        assert entry is not None
        assert entry.value is None
        assert (await cache.put("k", 1, previous=True)).previous is None

    using(node, test)


def test_conditions_that_do_not_hold_refuse_and_change_nothing(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("conditions")
        stored = await cache.put("k", 1, if_absent=True)
        with pytest.raises(KeyExists) as exists:
            await cache.put("k", 2, if_absent=True)
        assert (exists.value.key, exists.value.version) == ("k", stored.id)
        for attempt in (
            cache.put("k", 2, if_version=stored.id + 1),
            cache.replace("k", 2, if_version=stored.id + 1),
            cache.remove("k", if_version=stored.id + 1),
            cache.replace("none", 2),
            cache.put("none", 2, if_version=stored.id),
        ):
            with pytest.raises(VersionMismatch):
                await attempt
        for wrong in (cache.put("k", 1, if_version=0), cache.put("k", 1, if_version=1, if_absent=True), cache.remove("k", if_version=-1)):
            with pytest.raises(InvalidArgument):
                await wrong
        with pytest.raises(InvalidArgument, match="put with if_absent"):
            await cache.remove("k", if_version=0)
        assert [event.id async for event in cache.events()] == [stored.id]

    using(node, test)


def test_many_are_answered_in_the_order_of_the_pairs(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("many")
        keys = [f"k{n}" for n in range(300)]
        stored = await cache.put_many([(key, n) for n, key in enumerate(keys)])
        assert stored.kinds == ["CREATED"] * 300
        by_id = {event.id: event.key async for event in cache.events()}
        assert [by_id[id_] for id_ in stored.ids] == keys
        mixed = await cache.put_many({"k1": 5, "none": eventlog.REMOVE, "k2": eventlog.REMOVE, "new": 1})
        assert mixed.kinds == ["MODIFIED", None, "REMOVED", "CREATED"]
        assert mixed.ids[1] is None
        assert (await cache.remove_many(["k3", "k2"])).kinds == ["REMOVED", None]
        assert len(await cache.put_many([])) == 0
        assert await cache.size() == 299

    using(node, test)


def test_one_key_written_many_times_at_once_ends_with_the_last(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("order")
        single = await asyncio.gather(*(cache.put("k", n) for n in range(200)))
        assert [stored.id for stored in single] == sorted(stored.id for stored in single)
        many = await cache.put_many([("k", n) for n in range(200, 400)])
        assert many.ids == sorted(many.ids)
        assert [event.value async for event in cache.events()] == list(range(400))
        entry = await cache.get("k")
        assert entry is not None
        assert entry.value == 399

    using(node, test)


def test_writes_of_many_caches_at_once_find_their_caches(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        caches = [await client.create_cache(f"mixed{n}", format="bytes") for n in range(4)]
        await asyncio.gather(*(cache.put(f"{cache.name}-{n}", b"v") for n in range(50) for cache in caches))
        for cache in caches:
            assert sorted([event.key async for event in cache.events()]) == sorted(f"{cache.name}-{n}" for n in range(50))

    using(node, test)


def test_bytes_go_in_and_come_out(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("bytes", format="bytes", key_format="bytes")
        await cache.put(b"\xff\x00", b"\x00" * 100_000)
        entry = await cache.get(b"\xff\x00")
        assert entry is not None
        assert entry.value == bytes(100_000)
        assert await cache.keys() == [b"\xff\x00"]
        with pytest.raises(BadValue):
            await cache.put(b"k", "text")
        with pytest.raises(InvalidArgument):
            await cache.put("text", b"")

    using(node, test)


def test_arrow_goes_in_and_comes_out(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("arrow")
        batch = pa.record_batch([pa.array([f"k{n}" for n in range(100)]), pa.array([{"n": n} for n in range(100)])], names=["key", "value"])
        stored = await cache.put_arrow(batch)
        table = pa.Table.from_batches([found.arrow() async for found in cache.event_batches()])
        assert sorted(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == sorted(
            (f"k{n}", f'{{"n":{n}}}') for n in range(100)
        )
        assert table["id"].to_pylist() == sorted(stored.ids)
        raw = pa.table({"id": ["k1", "k2"], "json": ['{"x":1}', None]})
        assert (await cache.put_arrow(raw, key="id", value="json")).kinds == ["MODIFIED", "REMOVED"]

    using(node, test)


def test_ready_json_is_stored_as_it_is(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("raw")
        await cache.put("k", msgspec.Raw(b'{ "a" : 1 }'))
        entry = await cache.get("k")
        assert entry is not None
        assert (entry.value, entry.value_bytes) == ({"a": 1}, b'{ "a" : 1 }')

    using(node, test)


def test_a_lifespan_without_state_is_refused_and_its_neighbours_are_written(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("no-lifespans", state=False)
        sent = [cache.put("k", number, lifespan_ms=1_000 if number % 2 else None) for number in range(6)]
        done = await asyncio.gather(*sent, return_exceptions=True)
        assert all(isinstance(found, BadBlock) and "a lifespan needs state" in str(found) for found in done[1::2])
        with pytest.raises(BadBlock, match="a lifespan needs state"):
            await cache.put_many([("a", 1), ("b", 2)], lifespan_ms=50)
        assert [event.value async for event in cache.events()] == [0, 2, 4]

    using(node, test)


def test_a_lifespan_ends_an_entry(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("lifespans")
        await cache.put("k", 1, lifespan_ms=3_600_000)
        entry = await cache.get("k")
        assert entry is not None
        assert entry.expires_ms is not None
        await cache.put("k", 1, lifespan_ms=50)
        await cache.put_many([("a", 1), ("b", 2)], lifespan_ms=50)
        seen = []
        async for event in cache.events(follow=True):
            seen.append((event.key, event.kind))
            if sum(kind == "EXPIRED" for _, kind in seen) == 3:
                break
        assert await cache.get("k") is None
        assert await cache.size() == 0

    using(node, test)


def test_keys_and_entries_are_streamed_whole(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("rows", format="bytes")
        values = {f"{'a' if n % 3 else 'b'}{n}": b"%d" % n * 50 for n in range(5_000)}
        await cache.put_many(values)
        assert sorted(await cache.keys()) == sorted(values)
        assert sorted(await cache.keys("b")) == sorted(key for key in values if key.startswith("b"))
        assert len(await cache.keys(limit=17)) == 17
        found = {key: entry.value async for key, entry in cache.entries()}
        assert found == values
        wanted = [*values, "none"] * 3
        assert [entry and entry.value async for entry in cache.get_many(wanted)] == [values.get(key) for key in wanted]
        assert await cache.get_many([]) == []
        async for _ in cache.keys():
            break  # an answer not taken to its end
        assert await cache.size() == 5_000
        assert await cache.clear() == 5_000
        assert (await cache.size(), await cache.keys()) == (0, [])

    using(node, test, read_ahead_bytes=20_000)


def test_reads_begin_and_end_where_they_are_told(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("ranges")
        ids: list[Any] = []
        for n in range(20):
            ids += (await cache.put_many([(f"k{m}", n) for m in range(5)])).ids
        ids.sort()

        async def read(**options: Any) -> list[int]:
            return [event.id async for event in cache.events(**options)]

        assert await read() == await read(from_id="earliest") == await read(from_id=0) == ids
        assert await read(from_id=ids[40]) == await read(from_id=str(ids[40])) == ids[41:]
        assert await read(from_id=ids[10], until_id=ids[20]) == ids[11:21]
        assert await read(from_id=ids[20], until_id=ids[20]) == await read(from_id="latest") == []
        assert await read(until_id=ids[-1] * 2) == ids
        moment = time_of(ids[50])
        assert await read(from_time=moment) == [id_ for id_ in ids if time_of(id_) >= moment]
        tokens = {event.id: event.position async for event in cache.events()}
        assert await read(position=tokens[ids[33]]) == await read(from_id=tokens[ids[33]]) == ids[34:]
        segments = {segment_of(hash_key(b"k%d" % m), SEGMENTS) for m in (0, 1)}
        some = [event async for event in cache.events(segments=segments)]
        assert {event.segment for event in some} == segments
        assert len(some) >= 40

    using(node, test)


def test_batches_and_objects_are_the_same_events(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("batches", format="bytes")
        for part in range(30):
            await cache.put_many([(f"k{n}", b"%d" % part * 40) for n in range(500)])
        events = [event async for event in cache.events()]
        assert [event.id for event in events] == sorted({event.id for event in events})
        columns: list[tuple[Any, ...]] = []
        async for batch in cache.event_batches(max_bytes=200_000):
            rows = (batch.ids.tolist(), batch.segments.tolist(), batch.offsets.tolist(), batch.keys.to_list(), batch.values.to_list())
            columns += zip(*rows, strict=True)
        assert columns == [(event.id, event.segment, event.offset, event.key_bytes, event.value_bytes) for event in events]
        by_segment = [event async for batch in cache.event_batches(order="segment") for event in batch]
        assert sorted(event.id for event in by_segment) == [event.id for event in events]
        for segment in range(SEGMENTS):
            own = [event.offset for event in events if event.segment == segment]
            assert own == list(range(len(own)))

    using(node, test)


def test_large_values_of_one_segment_come_as_stored(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("large", format="bytes", state=False)
        stored: list[Any] = []
        for n in range(6):
            stored += (await cache.put_many([("one key", bytes([n]) * 30_000)] * 10)).ids
        events = [event async for event in cache.events()]
        assert [event.id for event in events] == stored
        assert [event.value for event in events] == [bytes([n]) * 30_000 for n in range(6) for _ in range(10)]

    using(node, test)


def test_a_follower_sees_what_happens_and_starts_with_what_did(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("follow")
        await cache.put("before", 0)
        seen: asyncio.Queue[str] = asyncio.Queue()

        async def follow(**options: Any) -> None:
            async for event in cache.events(follow=True, **options):
                seen.put_nowait(event.key)
                if event.key == "end":
                    return

        reader = asyncio.create_task(follow())
        assert await seen.get() == "before"
        for n in range(5):
            await cache.put(f"k{n}", n)
            assert await seen.get() == f"k{n}"
        await cache.put("end", 0)
        await reader
        polling = asyncio.create_task(follow(from_id="earliest", poll_interval_ms=5))
        assert [await seen.get() for _ in range(8)] == ["end", "before", *(f"k{n}" for n in range(5)), "end"]
        await polling

    using(node, test)


def test_a_reader_left_early_leaves_the_connection_usable(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("early", format="bytes")
        await cache.put_many([(f"k{n}", bytes(100)) for n in range(20_000)])
        for _ in range(20):
            async for _ in cache.events():
                break
        assert len([event async for event in cache.events()]) == 20_000

    using(node, test, read_ahead_bytes=50_000)
