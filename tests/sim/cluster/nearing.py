"""Near caches, each in a process of its own with the product's client: they lose the node that tells them of changes, and go on elsewhere.

What is served was true within the staleness that it promises, and never hides what the same client wrote before.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from eventlog.errors import EventLogError
from tests.sim.cluster.applications import Application
from tests.sim.cluster.world import ClusterWorld

CACHE: Final = "n"
_KEYS: Final = 6
_WRITERS: Final = 2
_STALENESS_MS: Final = 1_000
_ENTRIES: Final = (3, 100)
_WRITE_S: Final = 0.2
_READ_S: Final = 0.05
_OWN: Final = 0.05
_REMOVED: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One read: the version, 0: nothing; and what the same client wrote before."""

    asked_us: int
    key: str
    version: int
    own: int


@dataclass(slots=True, kw_only=True)
class Served:
    """What was written and acknowledged, (when, id) by key, and what near caches served; `gone` are the ids of removals."""

    written: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    reads: list[Read] = field(default_factory=list)

    def judge(self, gone: dict[str, list[int]]) -> list[str]:
        """Say what was older than it may be, given the removals of each key in the log."""
        found = []
        for read in self.reads:
            due_us = read.asked_us - _STALENESS_MS * 1000
            last = max((id_ for at, id_ in self.written[read.key] if at < due_us), default=0)
            for least, what in ((last, "long before"), (read.own, "by the same client")):
                if read.version < least and not (read.version == 0 and any(id_ >= least for id_ in gone.get(read.key, ()))):
                    found.append(f"{read.key} was served as of {read.version}, and {least} was acknowledged {what}")
        return found


class Near:
    """Readers through near caches, and writers beside them."""

    def __init__(self, world: ClusterWorld, *, readers: int) -> None:
        self.world = world
        self.served = Served()
        self.clients = [
            *(NearReader(world, number + 101, self.served) for number in range(readers)),
            *(Writer(world, number + 151, self.served) for number in range(_WRITERS)),
        ]

    async def begin(self, client: Any) -> None:
        """Make the cache that is read."""
        await client.create_cache(CACHE, format="bytes")

    async def judge(self, client: Any) -> None:
        """Compare what was served with the log."""
        gone: dict[str, list[int]] = defaultdict(list)
        async for event in client.cache(CACHE).events():
            if event.kind == "REMOVED":
                gone[str(event.key)].append(event.id)
        for what in self.served.judge(gone):
            self.world.history.violate(what)


class Writer(Application):
    """Puts and removes what near caches hold."""

    what: ClassVar[str] = "writer"
    mishap_ms: ClassVar[int] = 0

    def __init__(self, world: ClusterWorld, number: int, served: Served) -> None:
        super().__init__(world, number)
        self._served = served

    async def act(self, client: Any) -> None:
        """Write to one key after the other."""
        world, cache = self.world, client.cache(CACHE)
        while not self.is_stopped:
            key = _key(world)
            is_removed = world.chance.random() < _REMOVED
            done = await (cache.remove(key) if is_removed else cache.put(key, b"%d" % world.number()))
            if done.id:
                self._served.written[key].append((world.scheduler.now_us, done.id))
            await asyncio.sleep(world.chance.random() * _WRITE_S)


class NearReader(Application):
    """Reads through a near cache, and writes through it now and then."""

    what: ClassVar[str] = "near"

    def __init__(self, world: ClusterWorld, number: int, served: Served) -> None:
        super().__init__(world, number)
        self._served = served
        self._own: dict[str, int] = defaultdict(int)

    def died(self) -> None:
        self._own.clear()

    async def act(self, client: Any) -> None:
        """Read until an error, a while at most."""
        world, chance = self.world, self.world.chance
        self._own.clear()
        async with client.cache(CACHE).near(max_entries=chance.choice(_ENTRIES), max_staleness_ms=_STALENESS_MS) as near:
            while not self.is_stopped:
                key, hits, own, asked_us = _key(world), near.statistics.hits, 0, world.scheduler.now_us
                if chance.random() < _OWN:
                    done = await near.put(key, b"%d" % world.number())
                    self._own[key] = done.id
                    self._served.written[key].append((world.scheduler.now_us, done.id))
                    continue
                own = self._own[key]
                try:
                    entry = await near.get(key)
                except EventLogError as error:
                    world.reached[f"near get: {error.code}"] += 1
                else:
                    self._served.reads.append(Read(asked_us=asked_us, key=key, version=0 if entry is None else entry.version, own=own))
                    world.reached["served from memory"] += near.statistics.hits - hits
                await asyncio.sleep(chance.random() * _READ_S)


def _key(world: ClusterWorld) -> str:
    return f"n{world.chance.randrange(_KEYS)}"
