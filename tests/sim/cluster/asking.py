"""Clients that ask all primaries: a clear, a list of listeners, how far everything goes; and what may be answered.

An answer has seen everything that was acknowledged before it was asked for, or there is no answer. What a forced takeover gave up
may be missing.
"""

import asyncio
from typing import Any, Final

from eventlog.errors import EventLogError
from tests.sim.cluster.clients import ClientHost
from tests.sim.cluster.history import Fate, Logs
from tests.sim.cluster.world import ClusterHost, ClusterWorld

CLEARED: Final = "d"
_EACH_S: Final = 0.06
_ASKED_MAX: Final = 20  # at one node, before another one is gone to
_LISTENERS_MAX: Final = 60


class Asker(ClientHost):
    """Puts entries and clears them, registers listeners and lists them, and has nodes ask how far everything goes."""

    def __init__(self, world: ClusterWorld, number: int) -> None:
        super().__init__(world, number)
        self.number = number
        self._put: dict[str, int] = {}  # entries, each with a number that only what was asked for later exceeds
        self._cleared: dict[str, str] = {}  # entries that a clear must have seen
        self._registered: dict[str, tuple[int, int]] = {}  # listeners: when it was asked for, and when it was there, 0: nobody knows
        self._doubts: list[str] = []
        self._short: list[tuple[int, int]] = []  # events, and how far everything was said to go

    async def run(self) -> None:
        """Ask until it is stopped."""
        world = self.world
        while not self.is_stopped:
            try:
                hosts = world.chance.sample(world.hosts, len(world.hosts))
                async with world.connect_to(hosts, timeout_ms=world.swarm.patience_ms) as client:
                    for _ in range(world.chance.randint(1, _ASKED_MAX)):
                        await self._ask(client)
                        await asyncio.sleep(_EACH_S * world.chance.random())
            except EventLogError as error:
                world.reached[f"question refused: {error.code}"] += 1
                await asyncio.sleep(_EACH_S)

    async def _ask(self, client: Any) -> None:
        chance, cache = self.world.chance, client.cache(CLEARED)
        act = chance.choice((self._fill, self._register, self._clear, self._list, self._list, self._probe))
        await act(client if act in (self._register, self._list) else cache)

    async def _fill(self, cache: Any) -> None:
        keys = [f"{self.number}-{self.world.number()}" for _ in range(4)]
        await asyncio.gather(*(cache.put(key, b"to be cleared") for key in keys))
        self._put |= dict.fromkeys(keys, self.world.number())

    async def _clear(self, cache: Any) -> None:
        before = list(self._put)
        await cache.clear()
        self.world.reached["cleared"] += 1
        self._cleared |= dict.fromkeys(before, self.name)

    async def _register(self, client: Any) -> None:
        if len(self._registered) < _LISTENERS_MAX:
            name, asked = f"{self.number}-{self.world.number()}", self.world.number()
            self._registered[name] = asked, 0
            await client.cache(CLEARED).register(id=name, durable=True)
            self._registered[name] = asked, self.world.number()

    async def _list(self, client: Any) -> None:
        listed = {one.id for one in await client.listeners.list()}
        newest = max((asked for name, (asked, _) in self._registered.items() if name in listed), default=0)
        self.world.reached["listed"] += 1
        for name, (_, there) in self._registered.items():
            if there and there < newest and name not in listed:
                self._doubts.append(f"a list has a listener that was asked for when {name} was there, and not {name}")

    async def _probe(self, _cache: Any) -> None:
        world = self.world
        host: ClusterHost = world.chance.choice(world.hosts)
        node, loop = host.node, host.loop
        if node is None or loop is None or host.is_paused:
            return
        before = max((one.id for one in world.history.appends.values() if one.fate is Fate.ACKNOWLEDGED), default=0)

        def told(end: int | None) -> None:
            world.reached["probe not answered" if end is None else "probe answered"] += 1
            if end is not None and end < before:
                self._short.append((before, end))

        loop.run_now(lambda: node.near.end(told))

    async def settle(self, cache: Any) -> None:
        """Look what is left."""
        self._left = {key async for key, _ in cache.entries()}

    def judge(self, logs: Logs) -> list[str]:
        """Return what must not be."""
        if logs.lost:
            return []
        found = [*self._doubts, *(f"{key} is there, though it was cleared" for key in sorted(self._left & set(self._cleared)))]
        return [*found, *(f"everything was said to go up to {end}, and {id_} was acknowledged before" for id_, end in self._short)]
