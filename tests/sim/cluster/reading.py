"""Readers in every way there is, each a process with the product's client that keeps where it is, and goes on from there.

One has a filter, one reads the state and then what happens after it, one makes a query's entries of its changes, and one iterates. Into the
cache that they read several events are written at once, of every kind: entries come, change, are removed, and expire.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, ClassVar, Final

from tests.sim.cluster.applications import Application, until
from tests.sim.cluster.world import ClusterWorld

CACHE: Final = "r"
_KEYS: Final = tuple(f"{letter}{number}" for letter in "ab" for number in range(8))
_STEADY: Final = tuple(f"s{number}" for number in range(8))
_GONE: Final = ("REMOVED", "EXPIRED")
_WRITERS: Final = 2
_TOGETHER: Final = 5
_WRITE_S: Final = 0.3
_LIFESPANS_MS: Final = (None, None, None, 200, 1_000)
_SESSION_S: Final = (0.2, 4.0)
_PIECES: Final = (0, 1, 1, 300)  # bytes that an answer should have; 0: as the node likes
_SLOW_S: Final = 0.02
_CATCH_UP_S: Final = 30.0
Wanted = Callable[[Any], bool]
FILTERS: Final[dict[str, Wanted]] = {
    "value.n = 3": lambda event: event.value == {"n": 3},
    "value.n >= 2 AND key LIKE 'a%'": lambda event: event.key.startswith("a") and (event.value or {"n": 0})["n"] >= 2,
    "kind = 'REMOVED'": lambda event: event.kind == "REMOVED",
    "kind = 'EXPIRED'": lambda event: event.kind == "EXPIRED",
    "": lambda _: True,
}
QUERIES: Final = ("value.n = 3", "value.n >= 2 AND key LIKE 'a%'")  # of the filters


class Readers:
    """All of them, and those who write."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        chance = world.chance
        self.filtered = [Filtered(world, 101 + number, where) for number, where in enumerate(chance.sample(sorted(FILTERS), 2))]
        self.followers: list[StateFirst | Querying] = [StateFirst(world, 111), Querying(world, 112, chance.choice(QUERIES))]
        self.clients = [
            *self.filtered,
            *self.followers,
            Iterating(world, 121),
            *(Writer(world, number + 151) for number in range(_WRITERS)),
        ]

    async def begin(self, client: Any) -> None:
        """Make the cache, with entries that nobody changes."""
        cache = await client.create_cache(CACHE, format="json", before=True)
        await cache.put_many([(key, {"n": 0}) for key in _STEADY])

    async def judge(self, client: Any) -> None:
        """Demand that each of them arrives at what the log says; what is left to expire does so meanwhile."""

        async def left() -> str:
            log = [event async for event in client.cache(CACHE).events()]
            state: dict[str, tuple[int, Any]] = {}
            for event in log:
                if event.kind in _GONE:
                    state.pop(event.key, None)
                else:
                    state[event.key] = event.id, event.value
            wrong = [reader.differs(log) for reader in self.filtered] + [reader.differs(state) for reader in self.followers]
            return next(filter(None, wrong), "")

        if why := await until(left, seconds=_CATCH_UP_S):
            self.world.history.violate(why)


class Writer(Application):
    """Writes several events at once, of which those of a segment are stored as one value."""

    what: ClassVar[str] = "writer"
    mishap_ms: ClassVar[int] = 0

    async def act(self, client: Any) -> None:
        """Put and remove."""
        chance, cache = self.world.chance, client.cache(CACHE)
        while not self.is_stopped:
            keys = chance.sample(_KEYS, chance.randint(1, _TOGETHER))
            if chance.random() < 0.5:
                await cache.put_many([(key, {"n": chance.randrange(4)}) for key in keys], lifespan_ms=chance.choice(_LIFESPANS_MS))
            else:
                await asyncio.gather(*(self._write(cache, key) for key in keys))
            await asyncio.sleep(chance.random() * _WRITE_S)

    async def _write(self, cache: Any, key: str) -> None:
        chance = self.world.chance
        if chance.random() < 0.5:
            await cache.remove(key)
        else:
            await cache.put(key, {"n": chance.randrange(4)}, lifespan_ms=chance.choice(_LIFESPANS_MS))


class _Session(Application):
    """Reads for a while, at one node for as long as it answers, and then goes on from the place that it kept."""

    is_endless: ClassVar[bool] = True

    async def act(self, client: Any) -> None:
        world = self.world
        try:
            async with asyncio.timeout(world.chance.uniform(*_SESSION_S)):
                await self.read(client.cache(CACHE))
        except TimeoutError:
            world.reached[f"{self.what} went on"] += 1

    @abstractmethod
    async def read(self, cache: Any) -> None:
        """Read on and on."""

    async def _think(self) -> None:
        if not self.world.is_over:
            await asyncio.sleep(self.world.chance.random() * _SLOW_S)


class Filtered(_Session):
    """Reads what matches, each event once."""

    what: ClassVar[str] = "filtered reader"

    def __init__(self, world: ClusterWorld, number: int, where: str) -> None:
        super().__init__(world, number)
        self._where = where
        self._position: str | None = None
        self.seen: list[int] = []

    async def read(self, cache: Any) -> None:
        options: dict[str, Any] = {"where": self._where} if self._where else {}
        batches = cache.event_batches(position=self._position, follow=True, max_bytes=self.world.chance.choice(_PIECES), **options)
        async with aclosing(batches) as found:
            async for batch in found:
                self.seen += [event.id for event in batch]
                self._position = batch.position
                await self._think()

    def differs(self, log: list[Any]) -> str:
        """Say in what it has seen something else than what matches; "" where it has not."""
        wanted = [event.id for event in log if FILTERS[self._where](event)]
        if self.seen == wanted:
            return ""
        missed, more = set(wanted) - set(self.seen), set(self.seen) - set(wanted)
        again = len(self.seen) - len(set(self.seen))
        return f"who reads {self._where!r} missed {sorted(missed)[:3]} of {len(wanted)}, saw {sorted(more)[:3]} beside, and {again} again"


class StateFirst(_Session):
    """Reads the entries that there are, and then what happens; now and then it begins anew."""

    what: ClassVar[str] = "state reader"

    def __init__(self, world: ClusterWorld, number: int) -> None:
        super().__init__(world, number)
        self._position: str | None = None
        self._entries: dict[str, tuple[int, Any]] = {}

    async def read(self, cache: Any) -> None:
        if not self.world.is_over and self.world.chance.random() < 0.3:
            self._position = None
        if self._position is None:
            self._entries.clear()
        events = cache.event_batches(position=self._position, state_first=True, follow=True, max_bytes=self.world.chance.choice(_PIECES))
        async with aclosing(events) as found:
            async for batch in found:
                for event in batch:
                    self.take(event)
                    self._position = event.position
                await self._think()

    def take(self, event: Any) -> None:
        """Make what an entry or an event says."""
        violate, known = self.world.history.violate, self._entries.get(event.key, (0, None))[0]
        if event.kind == "STATE":
            if known:
                violate(f"entry {event.key} was told twice with the state")
        elif event.id <= known:
            if not event.maybe_repeated:
                violate(f"event {event.id} of {event.key} was told again: its version {known} is known")
            return
        elif (event.kind == "CREATED") == bool(known):
            violate(f"{event.key} was {event.kind} at {event.id}, and its version {known} was known")
        if event.kind in _GONE:
            self._entries.pop(event.key, None)
        else:
            self._entries[event.key] = event.id, event.value

    def differs(self, state: dict[str, tuple[int, Any]]) -> str:
        """Say what of the state it does not have, or has beside it."""
        wrong = sorted(key for key in {*self._entries, *state} if self._entries.get(key) != state.get(key))
        return f"state and what came after it are not the state: {len(wrong)} keys differ, the first {wrong[0]}" if wrong else ""


class Querying(_Session):
    """Makes the matching entries of JOINED, UPDATED and LEFT alone."""

    what: ClassVar[str] = "query"

    def __init__(self, world: ClusterWorld, number: int, where: str) -> None:
        super().__init__(world, number)
        self._where = where
        self._position: str | None = None
        self._entries: dict[str, Any] = {}

    async def read(self, cache: Any) -> None:
        async with cache.continuous_query(self._where, position=self._position) as changes:
            if self._position is None:
                self._entries.clear()
            async for change in changes:
                self.take(change)
                await self._think()

    def take(self, change: Any) -> None:
        """Make what a change says."""
        is_there = change.key in self._entries
        if is_there != (change.change in ("UPDATED", "LEFT")):
            self.world.history.violate(f"a query was told {change.change} of {change.key}, which is {is_there or 'not'} in it")
        if change.change == "LEFT":
            self._entries.pop(change.key, None)
        else:
            self._entries[change.key] = change.value
        self._position = change.position

    def differs(self, state: dict[str, tuple[int, Any]]) -> str:
        """Say what matches and is not there, or is there and does not match."""
        matches = FILTERS[self._where]
        wanted = {key: value for key, (_, value) in state.items() if matches(SimpleNamespace(key=key, value=value))}
        wrong = sorted(key for key in {*self._entries, *wanted} if self._entries.get(key) != wanted.get(key))
        return f"a query {self._where!r} has {len(wrong)} other entries than match, the first {wrong[0]}" if wrong else ""


class Iterating(Application):
    """Iterates over all entries: what is there all the time is met once, and nothing twice."""

    what: ClassVar[str] = "iteration"

    async def act(self, client: Any) -> None:
        world, chance = self.world, self.world.chance
        while not self.is_stopped:
            met: set[str] = set()
            async with client.cache(CACHE).entries(batch_size=chance.choice((1, 2, 5))) as rows:
                async for key, _ in rows:
                    if key in met:
                        world.history.violate(f"an iteration met {key} twice")
                    met.add(key)
                    await asyncio.sleep(chance.random() * _SLOW_S)
            if missed := set(_STEADY) - met:
                world.history.violate(f"an iteration missed {sorted(missed)}")
            world.reached["iterated"] += 1
            await asyncio.sleep(chance.random())
