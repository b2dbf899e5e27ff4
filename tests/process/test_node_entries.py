"""Entries of a real node: many large values at once."""

import asyncio

import eventlog
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
