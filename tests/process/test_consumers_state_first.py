"""State, then tail, where retention has passed the place at which the tail begins. `test_consumers_faults` has the other faults."""

import asyncio
from pathlib import Path

import pytest

import eventlog
from eventlog.errors import EventsTrimmed
from tests.process.nodes import NodeProcess


def test_retention_that_passes_a_place_in_the_state_is_told_when_the_tail_begins(tmp_path: Path) -> None:
    async def run(node: NodeProcess) -> None:
        async with eventlog.connect(node.address) as client:
            cache = await client.create_cache("c", format="json", retain_events=100)
            await cache.put_many([(f"k{number}", {"n": number}) for number in range(300)])
            answer = await cache.poll(state_first=True, max_events=150)
            for turn in range(10):
                await cache.put_many([(f"k{number}", {"n": turn}) for number in range(300)])
            async with asyncio.timeout(60):
                while (await cache.log_ends()).events > 2_000:
                    await asyncio.to_thread(node.command, "admin", "retention", "run", "c")
            with pytest.raises(EventsTrimmed):
                async for _ in cache.events(position=answer.position):
                    pass

    with NodeProcess(tmp_path / "data") as node:
        asyncio.run(run(node))
