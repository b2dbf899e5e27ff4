"""Entries of a real node: many large values at once."""

import asyncio

import eventlog
from eventlog.limits import GROUP_BYTES_MAX
from tests.process.nodes import NodeProcess

VALUE_BYTES = 900_000
COUNT = 40


def test_values_that_do_not_fit_one_frame_together_are_read_together(tmp_path):
    async def run(address: str) -> None:
        async with eventlog.connect(address) as client:
            cache = await client.create_cache("c", format="bytes")
            keys = [f"k{number}" for number in range(COUNT)]
            for number, key in enumerate(keys):
                await cache.put(key, bytes([number]) * VALUE_BYTES)
            entries = await cache.get_many([*keys, "none"])
            assert [entry.value for entry in entries[:COUNT]] == [bytes([number]) * VALUE_BYTES for number in range(COUNT)]
            assert entries[COUNT] is None

    with NodeProcess(tmp_path) as node:
        asyncio.run(run(node.address))


def test_large_entries_are_cleared_in_groups_that_readers_can_take(tmp_path):
    async def run(address: str) -> None:
        async with eventlog.connect(address) as client:
            cache = await client.create_cache("c")
            for number in range(COUNT):
                await cache.put(f"k{number}", "v" * VALUE_BYTES)
            before = await client.check("c")
            assert await cache.clear() == COUNT
            after = await client.check("c")
            assert after.values - before.values >= COUNT * VALUE_BYTES // GROUP_BYTES_MAX
            removed = [event async for event in cache.events(where="kind = 'REMOVED'")]
            assert [len(event.before) for event in removed] == [VALUE_BYTES] * COUNT

    with NodeProcess(tmp_path, "--segments", "1") as node:
        asyncio.run(run(node.address))
