"""Clients, each on a host of its own: writers that append, and readers that follow everything. They believe what they are told."""

import asyncio
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final

from eventlog.errors import EventLogError, PositionDiverged
from eventlog.hashing import hash_key, segment_of
from tests.sim.cluster.history import Fate, Reader
from tests.sim.cluster.world import ClusterWorld
from tests.sim.host import HostLoop

CACHE: Final = "c"
TRIMMED: Final = "t"
KEPT_EVENTS: Final = 4
_TRIMMED_KEYS: Final = 20
_TRIM_S: Final = 0.3
_AGAIN_S: Final = 0.1
_PENDING_MAX: Final = 10
_READ_S: Final = (0.2, 3.0)  # until a reader leaves its node for another one


class ClientHost(ABC):
    """Where one client runs, with a client of the product's. `is_stopped`: it is to do nothing any more.

    One that `is_endless` goes on to the run's end: it is to be given what the others wrote last.
    """

    is_endless: ClassVar[bool] = False

    def __init__(self, world: ClusterWorld, number: int) -> None:
        self.world = world
        self.name = f"10.0.2.{number}"
        self.loop: HostLoop = world.client_loop(self.name)
        self.is_stopped = False
        self.is_done = False

    def start(self) -> None:
        """Begin what the client does."""
        self.loop.process.after(0, lambda: self.loop.run_now(lambda: self.loop.start(self._run())))

    async def _run(self) -> None:
        await self.run()
        self.is_done = True

    @abstractmethod
    async def run(self) -> None:
        """Do it until it is stopped."""


class Writer(ClientHost):
    """Appends again and again, whatever became of what it appended before; so many answers and no more may be missing."""

    def __init__(self, world: ClusterWorld, number: int) -> None:
        super().__init__(world, number)
        self.wanted: tuple[int, ...] = ()  # the segments to append to, all of them when it is empty

    async def run(self) -> None:
        """Append until it is stopped."""
        world = self.world
        while not self.is_stopped:
            try:
                async with world.connect(timeout_ms=world.swarm.patience_ms) as client:
                    await self._write(client.cache(CACHE))
            except EventLogError as error:
                world.reached[f"writer: {error.code}"] += 1
                await asyncio.sleep(_AGAIN_S)

    async def _write(self, cache: Any) -> None:
        pending: dict[asyncio.Task[None], None] = {}
        while not self.is_stopped:
            if len(pending) < _PENDING_MAX:
                task = asyncio.create_task(self._append(cache))
                pending[task] = None
                task.add_done_callback(pending.pop)
            await asyncio.sleep(self.world.swarm.think_us / 1e6 * 2 * self.world.chance.random())
        await asyncio.gather(*pending)

    async def _append(self, cache: Any) -> None:
        world = self.world
        segments = world.swarm.segments
        wanted = world.chance.choice(self.wanted or range(segments))
        token = world.number()
        while segment_of(hash_key(b"%d" % token), segments) != wanted:
            token = world.number()
        world.history.invoke(token, wanted)
        append = world.history.appends[token]
        try:
            done = await cache.put(f"{token}", (b"%d" % token).ljust(world.swarm.value_bytes))
        except EventLogError as error:
            append.fate = Fate.UNKNOWN if error.outcome == "unknown" else Fate.FAILED
            world.reached[f"{error.code}, {error.outcome}"] += 1
        else:
            world.history.acknowledge(token, done.id)


class Trimmer(ClientHost):
    """Writes to a cache that keeps little, and has retention run: who was away then lacks what is gone, and gets a copy."""

    async def run(self) -> None:
        """Write and trim until it is stopped."""
        world = self.world
        while not self.is_stopped:
            try:
                async with world.connect(timeout_ms=world.swarm.patience_ms) as client:
                    cache = client.cache(TRIMMED)
                    while not self.is_stopped:
                        await asyncio.gather(*(cache.put(f"{number}", b"%d" % world.number()) for number in range(_TRIMMED_KEYS)))
                        world.reached["retention"] += bool((await client.run_retention(TRIMMED)).removed)
                        await asyncio.sleep(_TRIM_S * world.chance.random())
            except EventLogError as error:
                world.reached[f"trimmer: {error.code}"] += 1
                await asyncio.sleep(_AGAIN_S)


class Follower(ClientHost):
    """Reads everything in the order of ids, at one node for a while and then at another, from where it is."""

    is_endless: ClassVar[bool] = True

    def __init__(self, world: ClusterWorld, number: int) -> None:
        super().__init__(world, number)
        self.number = number
        self.reader = Reader()
        self._begin()

    def _begin(self) -> None:
        self.reader = Reader()
        self.world.history.readers.append(self.reader)

    async def run(self) -> None:
        """Read until it is stopped."""
        world = self.world
        while not self.is_stopped:
            try:
                async with asyncio.timeout(world.chance.uniform(*_READ_S)):
                    await self._read()
            except TimeoutError:
                world.reached["reader: went elsewhere"] += 1
            except PositionDiverged:
                world.reached["reader: told of what was given up"] += 1
                self._begin()
            except EventLogError as error:
                world.reached[f"reader: {error.code}"] += 1
            await asyncio.sleep(_AGAIN_S * world.chance.random())

    async def _read(self) -> None:
        world, reader = self.world, self.reader
        hosts = world.chance.sample(world.hosts, len(world.hosts))
        async with world.connect_to(hosts, timeout_ms=world.swarm.patience_ms) as client:
            cache = client.cache(CACHE)
            async for event in cache.events(from_id=reader.position or None, follow=True):
                world.history.read(reader, event.id, int(event.key))
