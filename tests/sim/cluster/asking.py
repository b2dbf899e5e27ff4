"""Clients that ask all primaries: a clear, a list of listeners, how far everything goes; and what may be answered.

An answer has seen everything that was acknowledged before it was asked for, or there is no answer. What a forced takeover gave up
may be missing.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from eventlog.errors import EventLogError
from tests.sim.cluster.clients import ClientHost
from tests.sim.cluster.history import Fate, Logs
from tests.sim.cluster.world import ClusterHost, ClusterWorld

CLEARED: Final = "d"
_EACH_S: Final = 0.06
_ASKED_MAX: Final = 20  # at one node, before another one is gone to
_LISTENERS_MAX: Final = 200
_IN_A_ROW: Final = 3


@dataclass(slots=True)
class Told:
    """What all who ask were told so far."""

    entries: set[str] = field(default_factory=set)
    cleared: set[str] = field(default_factory=set)  # entries that a clear must have seen
    listeners: dict[str, tuple[int, int]] = field(default_factory=dict)  # when it was asked for, and when it was there, 0: nobody knows
    doubts: list[str] = field(default_factory=list)
    short: list[tuple[int, int]] = field(default_factory=list)  # events, and how far everything was said to go
    left: set[str] = field(default_factory=set)  # entries in the end

    def judge(self, logs: Logs) -> list[str]:
        """Return what must not be."""
        if logs.lost:
            return []
        found = [*self.doubts, *(f"{key} is there, though it was cleared" for key in sorted(self.left & self.cleared))]
        return [*found, *(f"everything was said to go up to {end}, and {id_} was acknowledged before" for id_, end in self.short)]


class Asker(ClientHost):
    """Puts entries and clears them, registers listeners and lists them, and asks how far everything goes."""

    def __init__(self, world: ClusterWorld, number: int, told: Told) -> None:
        super().__init__(world, number)
        self.number = number
        self._told = told

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
        register, look = (self._register, self._register), (self._list, self._list, self._probe, self._probe, self._ends)
        act = chance.choice((self._fill, *register, self._clear, *look))
        await act(client if act == self._list else cache)

    async def _fill(self, cache: Any) -> None:
        keys = [f"{self.number}-{self.world.number()}" for _ in range(4)]
        await asyncio.gather(*(cache.put(key, b"to be cleared") for key in keys))
        self._told.entries.update(keys)

    async def _clear(self, cache: Any) -> None:
        before = set(self._told.entries)
        await cache.clear()
        self.world.reached["cleared"] += 1
        self._told.cleared |= before

    async def _register(self, cache: Any) -> None:
        """Register some listeners, each when the one before it is there."""
        listeners = self._told.listeners
        for _ in range(_IN_A_ROW if len(listeners) < _LISTENERS_MAX else 0):
            name, asked = f"{self.number}-{self.world.number()}", self.world.number()
            listeners[name] = asked, 0
            await cache.register(id=name, durable=True)
            listeners[name] = asked, self.world.number()

    async def _list(self, client: Any) -> None:
        listeners = self._told.listeners
        before = {name for name, (_, there) in listeners.items() if there}
        listed = {one.id for one in await client.listeners.list()}
        newest = max((asked for name, (asked, _) in listeners.items() if name in listed), default=0)
        self.world.reached["listed"] += 1
        for name in sorted(before - listed):
            self._told.doubts.append(f"a list does not have {name}, which was there before")
        for name, (_, there) in listeners.items():
            if there and there < newest and name not in listed:
                self._told.doubts.append(f"a list has a listener that was asked for when {name} was there, and not {name}")

    async def _ends(self, cache: Any) -> None:
        before = self._last_acknowledged()
        ends = await cache.log_ends()
        self.world.reached["end told"] += not ends.is_behind
        if not ends.is_behind and ends.last_id < before:
            self._told.short.append((before, ends.last_id))

    def _last_acknowledged(self) -> int:
        return max((one.id for one in self.world.history.appends.values() if one.fate is Fate.ACKNOWLEDGED), default=0)

    async def _probe(self, _cache: Any) -> None:
        world, told = self.world, self._told
        host: ClusterHost = world.chance.choice(world.hosts)
        node, loop = host.node, host.loop
        if node is None or loop is None or host.is_paused:
            return
        before = self._last_acknowledged()

        def heard(end: int | EventLogError) -> None:
            if isinstance(end, EventLogError):
                world.reached["probe not answered"] += 1
                return
            world.reached["probe answered"] += 1
            if end < before:
                told.short.append((before, end))

        loop.run_now(lambda: node.how_far.end(heard))
