"""A client that writes while nodes of a real cluster die or stand still: no error is seen, nothing acknowledged is lost or doubled."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eventlog
from tests.process.clusters import ClusterProcesses

WRITERS = 6


class Writers:
    """Tasks that put and remember what was acknowledged, and the longest time that one of them stood still."""

    def __init__(self, cache: eventlog.Cache) -> None:
        self._cache = cache
        self._is_over = False
        self.acknowledged: dict[int, tuple[str, Any]] = {}
        self.longest_ms = 0
        self._tasks = [asyncio.create_task(self._write(writer)) for writer in range(WRITERS)]

    async def _write(self, writer: int) -> None:
        number = 0
        while not self._is_over:
            began = time.monotonic()
            if writer % 2:
                pairs = [(f"w{writer}-{row}", number) for row in range(20)]
                stored = await self._cache.put_many(pairs)
                self.acknowledged.update(zip((id_ or 0 for id_ in stored.ids), pairs, strict=True))
            else:
                one = await self._cache.put(f"w{writer}", number)
                self.acknowledged[one.id or 0] = (f"w{writer}", number)
            self.longest_ms = max(self.longest_ms, int((time.monotonic() - began) * 1000))
            number += 1

    async def some(self, events: int = 400) -> None:
        """Return when so many more events are acknowledged, or a writer failed."""
        goal = len(self.acknowledged) + events
        while len(self.acknowledged) < goal and not any(task.done() for task in self._tasks):  # noqa: ASYNC110 -- theirs to say
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        """Stop writing; raises what a writer met."""
        self._is_over = True
        await asyncio.gather(*self._tasks)


async def check(client: eventlog.Client, cache: eventlog.Cache, acknowledged: dict[int, tuple[str, Any]]) -> None:
    """Demand that every acknowledged event is there once, and the entries are those of the last of each key."""
    await client.wait_for(cache, max(acknowledged), timeout_ms=60_000)
    events = [event async for event in cache.events()]
    assert Counter(event.id for event in events) == Counter(dict.fromkeys(acknowledged, 1))
    assert {event.id: (event.key, event.value) for event in events} == acknowledged
    assert [event.id for event in events] == sorted(acknowledged)
    last = {event.key: event.value for event in events}
    assert {key: entry.value for key, entry in await cache.entries()} == last
    assert await cache.size() == len(last)


@pytest.mark.parametrize("how", ["kill", "pause"])
@pytest.mark.parametrize("routing", ["direct", "any"])
def test_a_node_lost_under_load_is_not_noticed_by_the_application(tmp_path: Path, how: str, routing: str) -> None:
    async def main(cluster: ClusterProcesses, lose: Callable[[int], None]) -> int:
        # The client's first address is that of the node that is lost, so that it loses its road home, too.
        async with eventlog.connect(*cluster.addresses[1:], *cluster.addresses[:1], routing=routing, timeout_ms=60_000) as client:
            cache = await client.create_cache("c")
            writers = Writers(cache)
            await writers.some()
            await asyncio.to_thread(lose, 1)
            await writers.some()
            await writers.end()
            await check(client, cache, writers.acknowledged)
            return writers.longest_ms

    with ClusterProcesses(tmp_path) as cluster:
        cluster.spread()
        longest_ms = asyncio.run(main(cluster, cluster.kill if how == "kill" else cluster.pause))
    print(f"{how}, {routing}: the longest write took {longest_ms} ms")


def test_a_client_that_reaches_one_port_only_has_the_whole_cluster(tmp_path: Path) -> None:
    async def main(cluster: ClusterProcesses) -> None:
        for address in cluster.addresses:
            async with eventlog.connect(address, routing="any") as client:
                cache = await client.create_cache("c", if_exists="use")
                pairs = {f"{address} {n}": n for n in range(200)}
                await cache.put_many(pairs)
                assert [entry and entry.value for entry in await cache.get_many(list(pairs))] == list(pairs.values())
                entry = await cache.get(next(iter(pairs)))
                assert entry is not None
                assert set(await cache.keys(address)) == set(pairs)
                assert len(await cache.entries(address, limit=50)) == 50
                assert await cache.size() == 200
                assert (await cache.put("once", 1, if_absent=True)).kind == "CREATED"
                assert await cache.clear() == 201
                assert await cache.size() == 0

    with ClusterProcesses(tmp_path, segments=32) as cluster:
        cluster.spread()
        asyncio.run(main(cluster))
