"""Iterations and tasks while things go wrong in the middle: every entry that stays is met once, and only a crash repeats work."""

import asyncio
from pathlib import Path

import eventlog
from tests.process.clusters import ClusterProcesses
from tests.process.rows_at_risk import ENTRIES, Changing, faults

IN_THE_MIDDLE = 300


async def iterate(cache: eventlog.Cache, begun: asyncio.Event, go_on: asyncio.Event, *, parallel: int) -> dict[str, int]:
    """Return keys with versions; waits in the middle."""
    found: dict[str, int] = {}
    async with cache.entries(batch_size=20, batch_bytes=2_000, prefetch=1, parallel=parallel, metadata=True) as rows:
        async for key, entry in rows:
            assert key not in found, f"{key} comes twice"
            found[str(key)] = entry.version
            if len(found) == IN_THE_MIDDLE:
                begun.set()
                await go_on.wait()
    return found


async def trial(cluster: ClusterProcesses) -> None:
    async with (
        eventlog.connect(*cluster.addresses) as client,
        eventlog.connect(cluster[2].address, routing="any") as narrow,
    ):
        cache = await client.create_cache("c", format="json")
        changing = Changing(cache)
        await changing.fill()
        writing = asyncio.create_task(changing.run())
        for name, fault, repair in faults(cluster):
            begun, go_on = [asyncio.Event() for _ in range(3)], asyncio.Event()
            tasks = [
                asyncio.create_task(iterate(one, event, go_on, parallel=parallel))
                for one, event, parallel in zip((cache, cache, narrow.cache("c")), begun, (1, 4, 1), strict=True)
            ]
            async with asyncio.timeout(60):
                await asyncio.gather(*(event.wait() for event in begun))
            counting = asyncio.create_task(cache.for_each("count", where="key LIKE 's%'", batch_size=30))
            await asyncio.to_thread(fault)
            await changing.more()
            go_on.set()
            async with asyncio.timeout(60):
                found = await asyncio.gather(*tasks)
                counted = await counting
            await asyncio.to_thread(repair)
            for keys in found:
                assert sum(key.startswith("s") for key in keys) == ENTRIES, name
            assert counted.totals["entries"] == counted.entries
            assert counted.entries == ENTRIES, f"{name}: what was acknowledged is counted once"
        changing.end()
        await writing


def test_a_fault_in_the_middle_of_an_iteration_costs_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        asyncio.run(trial(cluster))
        for node in cluster:
            assert "Traceback" not in node.log_text()
