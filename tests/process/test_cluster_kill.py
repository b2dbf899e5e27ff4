"""kill -9 of members under load: nothing acknowledged is lost, no writer sees an error, and who returns has the same log."""

import asyncio
import time

import pytest

import eventlog
from eventlog.errors import OutcomeUnknown, TimedOut
from tests.process.clusters import ClusterProcesses


class Writers:
    """Writers of one key each a put, again and again; `acknowledged` is what they were told."""

    def __init__(self, addresses: list[str], count: int = 16, *, patient: bool = False) -> None:
        self.addresses = addresses
        self.count = count
        self.patient = patient  # a cluster that is down for longer than a write waits is no fault
        self.acknowledged: dict[str, int] = {}
        self.longest_s = 0.0
        self._going = True

    async def run(self) -> None:
        async with eventlog.connect(*self.addresses, timeout_ms=60_000) as client:
            cache = await client.create_cache("c", format="json")
            await asyncio.gather(*(self._write(cache, writer) for writer in range(self.count)))

    async def _write(self, cache: eventlog.Cache, writer: int) -> None:
        number = 0
        while self._going:
            key, begun = f"{writer}-{number}", time.monotonic()
            try:
                event = await cache.put(key, number)
            except (TimedOut, OutcomeUnknown):
                if not self.patient:
                    raise
                continue  # of this one nobody knows; the next put of the key decides
            self.longest_s = max(self.longest_s, time.monotonic() - begun)
            self.acknowledged[key] = event.id
            number += 1

    async def reach(self, count: int, running: "asyncio.Task[None]") -> None:
        """Wait until so many more writes were acknowledged."""
        goal = len(self.acknowledged) + count
        async with asyncio.timeout(60):
            while len(self.acknowledged) < goal:
                assert not running.done(), str(running.exception())
                await asyncio.sleep(0.01)

    def stop(self) -> None:
        self._going = False


async def everything(address: str) -> dict[str, int]:
    """Return the id of every key's entry."""
    async with eventlog.connect(address) as client:
        cache = client.cache("c")
        return {str(key): entry.version async for key, entry in cache.entries()}


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_member_costs_no_acknowledged_write_and_returns_with_the_same_log(tmp_path, victim):
    async def act(cluster: ClusterProcesses) -> Writers:
        writers = Writers([node.address for node in cluster.nodes])
        running = asyncio.create_task(writers.run())
        await writers.reach(500, running)
        await asyncio.to_thread(cluster.kill, victim)
        await writers.reach(500, running)
        await asyncio.to_thread(cluster.start)
        await writers.reach(500, running)
        writers.stop()
        await running
        return writers

    with ClusterProcesses(tmp_path) as cluster:
        writers = asyncio.run(act(cluster))
        cluster.settle()
        for node in cluster.nodes:
            assert asyncio.run(everything(node.address)) == writers.acknowledged
            check = node.command("admin", "check")
            assert b"0 problems" in check.stdout or not check.stdout.count(b"problem:"), check.stdout
        print(f"longest write {writers.longest_s * 1000:.0f} ms")


def test_a_whole_cluster_that_was_killed_comes_back_with_everything_acknowledged(tmp_path):
    async def act(cluster: ClusterProcesses) -> Writers:
        writers = Writers([node.address for node in cluster.nodes], patient=True)
        running = asyncio.create_task(writers.run())
        await writers.reach(500, running)
        for index in range(3):
            await asyncio.to_thread(cluster.kill, index)
        await asyncio.to_thread(cluster.start)
        await writers.reach(300, running)
        writers.stop()
        await running
        return writers

    with ClusterProcesses(tmp_path) as cluster:
        writers = asyncio.run(act(cluster))
        cluster.settle()
        for node in cluster.nodes:
            assert asyncio.run(everything(node.address)) == writers.acknowledged
