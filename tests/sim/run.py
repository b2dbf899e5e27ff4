"""One run: writers, a reader that follows, and faults by chance; afterwards quiet, and what everybody saw must fit the log."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eventlog.errors import EventLogError
from eventlog.segment.keys import parse_log_key
from tests.sim.world import Host, World

NODES = 3
WRITERS = 3
KEYS = 3  # of each writer
FAULTS = (4, 9)
BETWEEN_S = (0.2, 3.0)
FAULT_S = (0.1, 7.0)  # beyond what a lease lasts
THINK_S = 0.4
READS = 0.4
MEMBERS = 2
QUIET_S = 60.0
RUN_S = 600.0


@dataclass(slots=True, kw_only=True)
class Written:
    """One put or removal, as its writer saw it: `id` None where nobody said what became of it."""

    key: str
    value: bytes | None
    id: int | None = None
    is_refused: bool = False


@dataclass(slots=True)
class History:
    """What clients saw."""

    written: list[Written] = field(default_factory=list)
    followed: list[tuple[int, str, bytes]] = field(default_factory=list)
    consumed: Counter[int] = field(default_factory=Counter)  # ids, by the members of a group
    reached: Counter[str] = field(default_factory=Counter)


class Run:
    """One seed. `violations` are what must not be."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.world = World(seed, directory, nodes=NODES)
        self.history = History()
        self.violations: list[str] = []
        self._is_over = False
        self._stage = "start"

    def play(self) -> None:
        """Play it to its end, and judge."""
        try:
            self.world.run(self._story, seconds=RUN_S)
        except (AssertionError, EventLogError, TimeoutError) as error:
            self.violations.append(f"it came to no end: {self._stage}: {error!r}")
        self.violations += [f"something broke: {error!r}" for error in self.world.errors]

    async def _story(self, world: World) -> None:
        first, *others = world.hosts
        first.start()
        await self._until(lambda: first.started is not None)
        for host in others:
            host.start()
        await self._until(lambda: all(host.started for host in world.hosts))
        async with world.connect() as client:
            cache = await client.create_cache("c", format="bytes")
            readers = [asyncio.create_task(self._follow(cache)), *(asyncio.create_task(self._consume(cache)) for _ in range(MEMBERS))]
            writers = [asyncio.create_task(self._write(cache, number)) for number in range(WRITERS)]
            self._stage = "faults"
            await self._faults()
            self._stage = "the last writes"
            self._is_over = True
            async with asyncio.timeout(QUIET_S):
                await asyncio.gather(*writers)
                self._stage = "reading the log"
                events = await self._settled(cache)
                self._stage = "the reader that follows"
                await self._caught_up(len(events))
                self._stage = "the members of a group"
                await self._until(lambda: {event.id for event in events} <= self.history.consumed.keys())
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            await self._judge(cache, events)
            self._stage = "equal copies"
            await self._until(self._are_copies_equal)

    async def _until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(QUIET_S):
            while not is_so():
                if self.world.errors:
                    raise TimeoutError(f"something broke: {self.world.errors[0]!r}")
                await asyncio.sleep(0.02)

    # ------------------------------------------------------------ clients

    async def _write(self, cache: Any, number: int) -> None:
        chance, count = self.world.chance, 0
        while not self._is_over:
            count += 1
            key = f"k{number}-{chance.randrange(KEYS)}"
            one = Written(key=key, value=None if chance.random() < 0.15 else f"{number}.{count}".encode())
            self.history.written.append(one)
            work: Awaitable[Any] = cache.remove(key) if one.value is None else cache.put(key, one.value)
            try:
                one.id = (await work).id
            except EventLogError as error:
                one.is_refused = error.outcome != "unknown"
                self.history.reached[f"{error.code}, {error.outcome}"] += 1
            else:
                self.history.reached["written"] += 1
                if chance.random() < READS:
                    await self._read_back(cache, one)
            await asyncio.sleep(chance.random() * THINK_S)

    async def _read_back(self, cache: Any, one: Written) -> None:
        """Look whether an entry is what was written last: nobody else writes to its key."""
        try:
            entry = await cache.get(one.key)
        except EventLogError as error:
            self.history.reached[f"get: {error.code}"] += 1
            return
        found = None if entry is None else entry.value_bytes
        if found != one.value and not any(other.id is None and other.key == one.key for other in self.history.written):
            self.violations.append(f"{one.key} was read as {found!r} after {one.value!r} was acknowledged")

    async def _follow(self, cache: Any) -> None:
        async for event in cache.events(follow=True):
            self.history.followed.append((event.id, event.key, event.value_bytes))

    async def _consume(self, cache: Any) -> None:
        """Be a member of a group, again and again: what it was given counts, committed or not."""
        while True:
            try:
                async with cache.consumer(group="g") as consumer:
                    async for event in consumer:
                        self.history.consumed[event.id] += 1
                        await consumer.commit(event)
            except EventLogError as error:
                self.history.reached[f"member: {error.code}"] += 1
                await asyncio.sleep(0.2)

    async def _settled(self, cache: Any) -> list[Any]:
        """Read the whole log, once everything is back."""
        await self._until(lambda: all(host.started for host in self.world.hosts))
        while True:
            try:
                await cache.put("last", b"")
                found = [event async for event in cache.events()]
            except EventLogError:
                await asyncio.sleep(0.5)
                continue
            if found and found[-1].key == "last":
                return found
            await asyncio.sleep(0.2)

    async def _caught_up(self, count: int) -> None:
        await self._until(lambda: len(self.history.followed) >= count)

    # ------------------------------------------------------------ faults

    async def _faults(self) -> None:
        chance = self.world.chance
        for _ in range(chance.randint(*FAULTS)):
            await asyncio.sleep(chance.uniform(*BETWEEN_S))
            host = chance.choice(self.world.hosts)
            fault = chance.choice((self._crash, self._pause, self._cut, self._jump, self._blackout))
            if host.started is None or any(other.started is None for other in self.world.hosts):
                continue  # a second one would leave no majority
            self.history.reached[fault.__name__.removeprefix("_")] += 1
            await fault(host, chance.uniform(*FAULT_S))
        for host in self.world.hosts:
            host.clock_off_ms = 0

    async def _crash(self, host: Host, seconds: float) -> None:
        host.crash()
        await asyncio.sleep(seconds)
        host.start()
        await self._until(lambda: host.started is not None)

    async def _blackout(self, _host: Host, seconds: float) -> None:
        for host in self.world.hosts:
            host.crash()
        await asyncio.sleep(seconds)
        for host in self.world.hosts:
            host.start()
        await self._until(lambda: all(host.started for host in self.world.hosts))

    async def _pause(self, host: Host, seconds: float) -> None:
        assert host.loop is not None
        host.loop.process.pause()
        await asyncio.sleep(seconds)
        self.world.scheduler.after(0, host.loop.process.resume)  # not in the middle of what runs here

    async def _cut(self, host: Host, seconds: float) -> None:
        others = [other.name for other in self.world.hosts if other is not host]
        self.world.network.cut(host.name, others)
        await asyncio.sleep(seconds)
        self.world.network.heal(host.name, others)

    async def _jump(self, host: Host, seconds: float) -> None:
        host.clock_off_ms = self.world.chance.choice((-3_600_000, -2_000, 2_000, 3_600_000))
        await asyncio.sleep(seconds)

    # ------------------------------------------------------------ judging

    async def _judge(self, cache: Any, events: list[Any]) -> None:
        log = [(event.id, event.key, event.value_bytes) for event in events]
        ids = [id_ for id_, _, _ in log]
        if ids != sorted(set(ids)):
            self.violations.append("the log is not in the order of its ids, or has one twice")
        if self.history.followed != log:
            both = zip(self.history.followed, log, strict=False)
            first = next((pair for pair in both if pair[0] != pair[1]), (len(self.history.followed), len(log)))
            self.violations.append(f"who followed saw another log: {first}")
        if unknown := self.history.consumed.keys() - set(ids):
            self.violations.append(f"a member of a group was given {sorted(unknown)[:3]}, which are not in the log")
        self._judge_writes(events)
        for key in sorted({event.key for event in events}):
            last = next(event for event in reversed(events) if event.key == key)
            entry = await cache.get(key)
            expected = None if last.kind in ("REMOVED", "EXPIRED") else last.value_bytes
            if (None if entry is None else entry.value_bytes) != expected:
                self.violations.append(f"the entry of {key} is not what its last event left")

    def _judge_writes(self, events: list[Any]) -> None:
        at = {event.id: event for event in events}
        places: dict[bytes, list[int]] = {}
        for event in events:
            if event.kind not in ("REMOVED", "EXPIRED"):
                places.setdefault(event.value_bytes, []).append(event.id)
        last: dict[str, int] = {}
        for one in self.history.written:
            if one.id is not None:
                event = at.get(one.id)
                if event is None:
                    self.violations.append(f"event {one.id} of {one.key} was acknowledged and is not in the log")
                elif event.key != one.key or (one.value is not None and event.value_bytes != one.value):
                    self.violations.append(f"event {one.id} is not what was written under it")
                if one.id < last.get(one.key, 0):
                    self.violations.append(f"event {one.id} of {one.key} stands before one that was acknowledged earlier")
                last[one.key] = one.id
            found = [] if one.value is None else places.get(one.value, [])
            if len(found) > 1:
                self.violations.append(f"{one.value!r} was written {len(found)} times")
            if found and one.is_refused:
                self.violations.append(f"{one.value!r} was refused and is in the log")

    def _are_copies_equal(self) -> bool:
        """Return whether all copies of all logs are the same bytes, as they are as soon as all have what was committed last.

        Markers of terms (cache 0) are no events: each node forgets those that it needs no more.
        """
        stores = [host.started.node.store for host in self.world.hosts if host.started is not None]
        logs = [store.read_log(b"", b"\xff" * 8, bytes_max=1 << 30) for store in stores]
        rows = [[pair for pair in log if parse_log_key(pair[0])[1]] for log in logs]
        return len(rows) == NODES and all(one == rows[0] for one in rows)
