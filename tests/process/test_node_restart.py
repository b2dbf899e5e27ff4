"""What must survive kill -9: results of idempotent producers, retention, lifespans, counters, dropped caches."""

import asyncio
import json

import pytest

import eventlog
from eventlog.batch.build import Columns, build_write
from eventlog.errors import CacheDropped, CacheRecreated, EventsTrimmed, PositionMismatch
from eventlog.transport.connect import connect
from eventlog.transport.greeting import GreetingOptions
from eventlog.wire.eventlog_pb2 import Message
from tests.process.nodes import RETENTION_WHEN_TOLD, NodeProcess

import numpy as np  # isort: skip


async def raw_write(
    address: str, *, cache_id: int, producer: int, sequence: int, keys: list[bytes], kind: int = 0
) -> tuple[bytes, list[str]]:
    """Send one frame as a producer would; return the answer's ids and kinds, and the codes of refused blocks."""
    host, port = address.rsplit(":", 1)
    connection = await connect(host, int(port), options=GreetingOptions(producer_id=producer))
    frame = build_write(
        Columns(kinds=np.full(len(keys), kind, np.uint8), keys=keys, values=[b"1" if kind == 0 else b""] * len(keys)), segments=256
    )
    frame.table["sequence"] = sequence
    message = Message()
    message.write.cache_id, message.write.producer_id, message.write.blocks = cache_id, producer, len(frame.table)
    reply = await connection.request(message, *frame.buffers, timeout_ms=60_000)
    connection.close()
    await connection.wait_closed()
    answer = reply.message.write_answer
    body = bytes(reply.body) or answer.id.to_bytes(8, "little") + bytes([answer.kind])
    return body, [refusal.error.code for refusal in answer.refusals]


def events_of(node: NodeProcess, cache: str, *options: str) -> list[dict]:
    return [json.loads(line) for line in node.command("consume", cache, *options).stdout.splitlines()]


@pytest.mark.parametrize("format_", ["json", "bytes"])
@pytest.mark.parametrize("state", [True, False])
def test_a_block_sent_again_after_a_kill_gets_its_first_answer(tmp_path, format_, state):
    keys = [b"key-%d" % number for number in range(40)]
    with NodeProcess(tmp_path) as node:
        node.command("cache", "create", "c", "--format", format_, "--state" if state else "--no-state")
        first = asyncio.run(raw_write(node.address, cache_id=1, producer=77, sequence=0, keys=keys))
        removed = asyncio.run(raw_write(node.address, cache_id=1, producer=78, sequence=0, keys=[b"nothing"], kind=2))
        node.kill()
        node.start()
        assert asyncio.run(raw_write(node.address, cache_id=1, producer=77, sequence=0, keys=keys)) == first
        assert asyncio.run(raw_write(node.address, cache_id=1, producer=78, sequence=0, keys=[b"nothing"], kind=2)) == removed
        _, codes = asyncio.run(raw_write(node.address, cache_id=1, producer=77, sequence=2, keys=keys))
        assert set(codes) == {"SEQUENCE_GAP"}
        _, codes = asyncio.run(raw_write(node.address, cache_id=1, producer=79, sequence=1, keys=keys))
        assert set(codes) == {"PRODUCER_UNKNOWN"}
        assert len(events_of(node, "c")) == len(keys) + (0 if state else 1)
        node.kill()
        node.start()  # and once more, from the stored table instead of the log
        assert asyncio.run(raw_write(node.address, cache_id=1, producer=77, sequence=0, keys=keys)) == first


def test_what_retention_removed_stays_removed_and_the_state_does_not_suffer(tmp_path):
    async def fill(address: str) -> None:
        async with eventlog.connect(address) as client:
            cache = await client.create_cache("c", format="json", retain_events=100)
            for low in range(0, 1_000, 50):
                await cache.put_many([(f"key-{number % 300}", number) for number in range(low, low + 50)])

    async def read(address: str) -> tuple[EventsTrimmed, list[int], dict[str, int]]:
        async with eventlog.connect(address) as client:
            cache = client.cache("c")
            with pytest.raises(EventsTrimmed) as caught:
                async for _ in cache.events(from_id=1):
                    pass
            kept = [event.value async for event in cache.events(from_id=0)]
            state = {f"key-{number}": (await cache.get(f"key-{number}")).value for number in range(300)}
            return caught.value, kept, state

    with NodeProcess(tmp_path, environment=RETENTION_WHEN_TOLD) as node:
        asyncio.run(fill(node.address))
        dry = [json.loads(line) for line in node.command("admin", "retention", "run", "c", "--dry-run", "--json").stdout.splitlines()]
        done = [json.loads(line) for line in node.command("admin", "retention", "run", "c", "--json").stdout.splitlines()]
        assert dry == done, "a dry run tells exactly what a run removes"
        node.kill()
        node.start()
        error, kept, state = asyncio.run(read(node.address))
        removed = done[-1]["removed"]
        assert removed == sum(row["removed"] for row in done[:-1])
        assert 100 <= len(kept) == 1_000 - removed <= 110 + 256
        assert error.lost == removed
        assert sorted(kept)[-100:] == list(range(900, 1_000))
        assert state == {f"key-{number % 300}": number for number in range(1_000)}
        again = [json.loads(line) for line in node.command("admin", "retention", "run", "c", "--json").stdout.splitlines()]
        assert again[-1]["removed"] == 0


def test_a_running_reader_is_told_when_retention_passes_it(tmp_path):
    async def run(node: NodeProcess) -> None:
        async with eventlog.connect(node.address) as client:
            cache = await client.create_cache("c", format="json", retain_events=10)
            await cache.put_many([(f"a{number}", number) for number in range(50)])
            first = await cache.poll(after=0, max_events=5)
            for _ in range(20):
                await cache.put_many([(f"b{number}", number) for number in range(50)])
            await asyncio.to_thread(node.command, "admin", "retention", "run", "c")
            with pytest.raises(EventsTrimmed):
                await cache.poll(position=first.position, max_events=5)

    with NodeProcess(tmp_path) as node:
        asyncio.run(run(node))


def test_lifespans_end_after_a_kill_and_leave_an_expired_event(tmp_path):
    async def write(address: str) -> None:
        async with eventlog.connect(address) as client:
            cache = await client.create_cache("c", format="json")
            await cache.put("short", 1, lifespan_ms=300)
            await cache.put("long", 2, lifespan_ms=600_000)
            await cache.put("ever", 3)

    async def read(address: str) -> tuple[list, list[str]]:
        async with eventlog.connect(address) as client:
            cache = client.cache("c")
            gone = [(await cache.get(key)) is None for key in ("short", "long", "ever")]
            kinds = []
            async for event in cache.events(from_id=0, follow=True):
                kinds.append((event.key, event.kind))
                if event.kind == "EXPIRED":
                    break
            return gone, kinds

    with NodeProcess(tmp_path) as node:
        asyncio.run(write(node.address))
        node.kill()
        node.start()
        gone, kinds = asyncio.run(asyncio.wait_for(read(node.address), 60))
        assert gone[1:] == [False, False]
        assert kinds[-1] == ("short", "EXPIRED")
        assert json.loads(node.command("size", "c", "--json").stdout)["size"] == 2
        assert node.command("get", "c", "short", ok=False).returncode == 1


def test_a_dropped_cache_is_gone_after_a_kill_and_its_readers_are_told(tmp_path):
    async def drop(address: str) -> str:
        async with eventlog.connect(address) as client:
            cache = await client.create_cache("c", format="json")
            await cache.put_many([(f"k{number}", number) for number in range(500)])
            reader = asyncio.create_task(anext(aiter(cache.events(from_id=(await cache.put("last", 1)).id, follow=True))))
            await asyncio.sleep(0)
            position = (await cache.poll(max_events=1)).position
            await client.drop_cache("c")
            with pytest.raises(CacheDropped):
                await asyncio.wait_for(reader, 60)
            return position

    async def come_back(address: str, position: str) -> None:
        async with eventlog.connect(address) as client:
            with pytest.raises(CacheRecreated):
                await client.cache("c").poll(position=position)
            with pytest.raises(PositionMismatch):
                await (await client.create_cache("another")).poll(position=position)

    with NodeProcess(tmp_path) as node:
        position = asyncio.run(drop(node.address))
        node.kill()
        node.start()
        assert node.command("consume", "c", ok=False).returncode == 1
        node.command("cache", "create", "c")
        node.command("put", "c", "k", "1")
        assert [event["key"] for event in events_of(node, "c")] == ["k"]
        assert json.loads(node.command("size", "c", "--json").stdout)["size"] == 1
        asyncio.run(come_back(node.address, position))
