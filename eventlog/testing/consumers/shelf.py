"""The internal cache of groups as coordinators see it: one place that is written by compare-and-set, and whoever leads it now.

That a segment of a cache behaves like this while nodes fail is what the other simulator is for.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from eventlog.batch.entries import Entry
from eventlog.errors import NotPrimary, OutcomeUnknown, VersionMismatch
from eventlog.testing.sim.scheduler import Scheduler

_STALE_US_MAX: Final = 900_000  # for so long who led may believe that it still does
Rows = dict[bytes, tuple[int, bytes]]


class Shelf:
    """Rows by key, (version, value); `kept` hears of each write. `unknown`: the chance that a write is done or lost, and nobody knows."""

    def __init__(self, scheduler: Scheduler, chance: random.Random, *, delay_us: int, unknown: float) -> None:
        self.scheduler = scheduler
        self.chance = chance
        self.delay_us = delay_us
        self.unknown = unknown
        self.leader = 1
        self.epoch = 1
        self.rows: Rows = {}
        self.kept: list[Callable[[Mapping[bytes, bytes]], None]] = []
        self._version = 0
        self._frozen: dict[int, Rows] = {}  # what those who led have had since
        self._until_us: dict[int, int] = {}
        self._epochs: dict[int, int] = {}

    def move(self, to: int) -> None:
        """Have another node lead; the one before may not have heard of it for a while."""
        if to != self.leader:
            self._frozen[self.leader] = dict(self.rows)
            self._epochs[self.leader] = self.epoch
            self.epoch += 1
            self._until_us[self.leader] = self.scheduler.now_us + self.chance.randrange(_STALE_US_MAX)
            self.leader = to

    def believes(self, host: int) -> bool:
        """Return whether a node takes itself for the leader."""
        return host == self.leader or self.scheduler.now_us < self._until_us.get(host, 0)

    def term(self, host: int) -> int:
        """Return the epoch in which a node takes itself for the leader, 0 where it does not."""
        if host == self.leader:
            return self.epoch
        return self._epochs[host] if self.believes(host) else 0

    def scan(self, host: int, prefix: bytes) -> Rows:
        rows = self.rows if host == self.leader else self._frozen.get(host, {})
        return {key: row for key, row in sorted(rows.items()) if key.startswith(prefix)}

    def put(self, host: int, puts: Mapping[bytes, bytes], expect: Mapping[bytes, int | None]) -> dict[bytes, int]:
        """Write at once.

        Raises:
            NotPrimary: the node does not lead.
            VersionMismatch: a key has another version than was expected.
        """
        if host != self.leader:
            raise NotPrimary(segment=0)
        for key, version in expect.items():
            found = self.rows.get(key, (0, b""))[0]
            if found != (version or 0):
                raise VersionMismatch(key=key.decode(errors="replace"), expected=version or 0, found=found)
        self._version += 1
        for key, value in puts.items():
            self.rows[key] = self._version, value
        for hear in self.kept:
            hear(puts)
        return dict.fromkeys(puts, self._version)


class HostInner:
    """The shelf as one node reaches it: takes the place of `eventlog.node.consumers.inner.Inner`."""

    def __init__(self, shelf: Shelf, host: int) -> None:
        self._shelf = shelf
        self._host = host

    def segment(self, key: bytes) -> int:
        del key
        return 0

    def leads(self, route: bytes) -> bool:
        del route
        return self._shelf.believes(self._host)

    def term(self, route: bytes) -> int:
        del route
        return self._shelf.term(self._host)

    async def refresh(self) -> None:
        """Make sure that this node leads. Raises NotPrimary."""
        await self._wait()
        if self._host != self._shelf.leader:
            raise NotPrimary(segment=0)

    async def scan(self, cache: str, prefix: bytes) -> list[tuple[bytes, Entry]]:
        del cache
        await self._wait()
        rows = self._shelf.scan(self._host, prefix)
        return [(key, Entry(version=version, expiry=0, schema_id=None, value=value)) for key, (version, value) in rows.items()]

    async def commit(
        self,
        cache: str,
        route: bytes,
        *,
        puts: Mapping[bytes, bytes],
        removes: Iterable[bytes] = (),
        expect: Mapping[bytes, int | None] | None = None,
        term: int | None = None,
        deadline_ms: int = 0,
    ) -> dict[bytes, int]:
        del cache, removes, deadline_ms
        shelf = self._shelf
        await self._wait()
        if term is not None and self.term(route) != term:
            raise NotPrimary(segment=0)
        if shelf.chance.random() < shelf.unknown:
            if shelf.chance.random() < 0.5:
                shelf.put(self._host, puts, expect or {})
            raise OutcomeUnknown(outcome="unknown", why="nobody answered")
        versions = shelf.put(self._host, puts, expect or {})
        await self._wait()
        return versions

    async def _wait(self) -> None:
        await asyncio.sleep(self._shelf.delay_us * (0.5 + self._shelf.chance.random()) / 1e6)
