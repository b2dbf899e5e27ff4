"""Entries of a real node: many large values at once."""

import asyncio

import eventlog
from eventlog.limits import GROUP_BYTES_MAX, MIB
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


def test_what_an_option_lets_in_can_be_read_with_what_was_there_before_and_promoted_fields(tmp_path):
    async def run(address: str) -> None:
        async with eventlog.connect(address) as client:
            cache = await client.create_cache("c", promote=["value.text"])
            size = 12 * MIB
            for letter in "ab":
                await cache.put("k", {"text": letter * size})
            _, changed = [event async for event in cache.events()]
            assert (changed.value["text"], changed.before["text"]) == ("b" * size, "a" * size)
            _, matched = [event async for event in cache.events(where="value.text <> 'none'")]
            assert matched.id == changed.id

    with NodeProcess(tmp_path, "--segments", "1", "--value-max", "13MiB") as node:
        asyncio.run(run(node.address))
