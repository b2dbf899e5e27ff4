"""A cache whose entries change all the time, on a cluster to which things happen: for reads of all entries."""

import asyncio
import random
from collections.abc import Callable

import eventlog
from eventlog.errors import EventLogError, KeyExists, VersionMismatch
from tests.process.clusters import ClusterProcesses

ENTRIES = 800
BUSY_S = 60


class Changing:
    """Writers that put and remove keys until told to end. Keys that begin with `s` stay as they are."""

    def __init__(self, cache: eventlog.Cache) -> None:
        self._cache = cache
        self._chance = random.Random(5)
        self._is_ended = asyncio.Event()
        self._news = asyncio.Event()
        self.writes = 0
        self.last_id = 0

    async def fill(self) -> None:
        """Write what is there at the beginning."""
        for prefix in "sc":
            await self._cache.put_many([(f"{prefix}{number:05}", {"n": number}) for number in range(ENTRIES)])

    async def run(self) -> None:
        await asyncio.gather(*(self._write() for _ in range(3)))

    async def _write(self) -> None:
        while not self._is_ended.is_set():
            key = f"c{self._chance.randrange(2 * ENTRIES):05}"
            try:
                if self._chance.random() < 0.3:
                    stored = await self._cache.remove(key)
                else:
                    stored = await self._cache.put(key, {"n": self.writes})
            except (KeyExists, VersionMismatch):
                raise
            except EventLogError:
                continue
            self.last_id = max(self.last_id, stored.id or 0)
            self.writes += 1
            self._news.set()
            await asyncio.sleep(0.003)

    async def more(self, count: int = 60) -> None:
        """Wait for further writes."""
        wanted = self.writes + count
        async with asyncio.timeout(BUSY_S):
            while self.writes < wanted:
                self._news.clear()
                await self._news.wait()

    def end(self) -> None:
        self._is_ended.set()


def faults(cluster: ClusterProcesses) -> list[tuple[str, Callable[[], object], Callable[[], object]]]:
    """Return faults by name, each with what makes it good again."""

    def restart() -> None:
        cluster.start()
        cluster.settle()

    def wake() -> None:
        cluster.resume(0)
        cluster.settle()

    def most_primaries() -> int:
        found = cluster.primaries(0)
        return max(set(found), key=found.count)

    return [
        ("the serving node is killed", lambda: cluster.kill(0), restart),
        ("the serving node is silent for clients and nodes", lambda: cluster.pause(0), wake),
        ("the node with most primaries is killed", lambda: cluster.kill(most_primaries()), restart),
        (
            "segments move",
            lambda: cluster.command("admin", "drain", "n2", node=2),
            lambda: cluster.command("admin", "drain", "n2", "--cancel", node=2),
        ),
    ]
