"""What clients do in a run, each until it is cancelled, and what must be true of what each was told.

A client notes what it sees; once everything has come to rest, `settle` waits until it has had all that is in the log, and `judge` yields
what must not be. The real client tries again by itself, so an error here is one that an application would see.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

from eventlog.errors import EventLogError, EventsTrimmed

KEYS = 3  # of each writer
THINK_S = 0.4
AUDIT_S = 0.6
READS = 0.4
ONCE = 0.25
STEADY = tuple(f"s{number}" for number in range(12))  # entries that nobody changes
NEAR_STALENESS_MS = 1_500
RETAINED = 10
_GONE = ("REMOVED", "EXPIRED")
Read = tuple[int, str, int]  # when it was asked for, the key, and the version; 0: nothing


@dataclass(slots=True, kw_only=True)
class Written:
    """One put or removal, as its writer saw it: `id` None where nobody said what became of it."""

    key: str
    value: bytes | None
    id: int | None = None
    is_refused: bool = False
    acknowledged_us: int = 0


@dataclass(slots=True, kw_only=True)
class Program:
    """What the clients of a run share. `now_us` is the virtual time, which no fault touches."""

    client: Any
    cache: Any
    chance: random.Random
    now_us: Callable[[], int]
    until: Callable[[Callable[[], object]], Awaitable[None]]
    is_over: bool = False
    publishing: asyncio.Event = field(default_factory=asyncio.Event)
    written: list[Written] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    async def after(self, what: str, error: EventLogError) -> None:
        """Note an error, and wait a little."""
        self.reached[f"{what}: {error.code}"] += 1
        await asyncio.sleep(0.2)


class Log:
    """The whole log as it is in the end."""

    def __init__(self, events: list[Any]) -> None:
        self.events = events
        self.place = {event.id: number for number, event in enumerate(events)}

    def state(self) -> dict[str, bytes]:
        """Return what the events leave behind."""
        found: dict[str, bytes] = {}
        for event in self.events:
            if event.kind in _GONE:
                found.pop(event.key, None)
            else:
                found[event.key] = event.value_bytes
        return found


class Participant(Protocol):
    """One client of a run."""

    async def run(self) -> None:
        """Do what it does, again and again."""
        ...

    async def settle(self, log: Log) -> None:
        """Return once it has had all that it is to have."""
        ...

    def judge(self, log: Log) -> Iterator[str]:
        """Yield what must not be."""
        ...


class Writer:
    """Puts and removes, and looks whether it reads what it wrote: nobody else writes to its keys.

    `is_wide`: some keys are written once, so that what was lost of them is not made good by what is written later.
    """

    def __init__(self, program: Program, number: int, *, is_wide: bool = False) -> None:
        self._program = program
        self._number = number
        self._is_wide = is_wide

    async def run(self) -> None:
        program, chance, count = self._program, self._program.chance, 0
        while not program.is_over:
            count += 1
            is_once = self._is_wide and chance.random() < ONCE
            key = f"once{self._number}-{count}" if is_once else f"k{self._number}-{chance.randrange(KEYS)}"
            one = Written(key=key, value=None if chance.random() < 0.15 else f"{self._number}.{count}".encode())
            program.written.append(one)
            work = program.cache.remove(key) if one.value is None else program.cache.put(key, one.value)
            try:
                one.id = (await work).id
            except EventLogError as error:
                one.is_refused = error.outcome != "unknown"
                program.reached[f"{error.code}, {error.outcome}"] += 1
            else:
                one.acknowledged_us = program.now_us()
                program.reached["written"] += 1
                if chance.random() < READS:
                    await self._read_back(one)
            await asyncio.sleep(chance.random() * THINK_S)

    async def _read_back(self, one: Written) -> None:
        program = self._program
        try:
            entry = await program.cache.get(one.key)
        except EventLogError as error:
            program.reached[f"get: {error.code}"] += 1
            return
        found = None if entry is None else entry.value_bytes
        if found != one.value and not any(other.id is None and other.key == one.key for other in program.written):
            program.violations.append(f"{one.key} was read as {found!r} after {one.value!r} was acknowledged")

    async def settle(self, log: Log) -> None:
        """It has ended."""

    def judge(self, log: Log) -> Iterator[str]:
        yield from ()


def judge_writes(written: list[Written], log: Log) -> Iterator[str]:
    """Yield what was acknowledged and is not there, is there twice, or stands before what came earlier."""
    places: dict[bytes, list[int]] = {}
    for event in log.events:
        if event.kind not in _GONE:
            places.setdefault(event.value_bytes, []).append(event.id)
    last: dict[str, int] = {}
    for one in written:
        if one.id is not None:
            if one.id not in log.place:
                yield f"event {one.id} of {one.key} was acknowledged and is not in the log"
                continue
            event = log.events[log.place[one.id]]
            if event.key != one.key or (one.value is not None and event.value_bytes != one.value):
                yield f"event {one.id} is not what was written under it"
            if one.id < last.get(one.key, 0):
                yield f"event {one.id} of {one.key} stands before one that was acknowledged earlier"
            last[one.key] = one.id
        found = [] if one.value is None else places.get(one.value, [])
        if len(found) > 1:
            yield f"{one.value!r} was written {len(found)} times"
        if found and one.is_refused:
            yield f"{one.value!r} was refused and is in the log"


def judge_kinds(log: Log) -> Iterator[str]:
    """Yield each event that says something else of the entry before it than the log does: its kind, and the value that it had."""
    state: dict[str, bytes] = {}
    for event in log.events:
        before = state.get(event.key)
        kinds = ("CREATED",) if before is None else ("MODIFIED", *_GONE)
        if event.kind not in kinds or event.before_bytes != before:
            yield f"event {event.id} of {event.key} is {event.kind} of {event.before_bytes!r}, and there was {before!r}"
        if event.kind in _GONE:
            state.pop(event.key, None)
        else:
            state[event.key] = event.value_bytes


class Counting:
    """Adds one to an entry under the condition that nobody else has. Of several that do, no addition is lost."""

    KEY = "count"

    def __init__(self, program: Program) -> None:
        self._program = program

    async def run(self) -> None:
        program = self._program
        while not program.is_over:
            try:
                entry = await program.cache.get(self.KEY)
                if entry is None:
                    await program.cache.put(self.KEY, b"1", if_absent=True)
                else:
                    await program.cache.put(self.KEY, b"%d" % (int(entry.value_bytes) + 1), if_version=entry.version)
            except EventLogError as error:
                await program.after("count", error)
            await asyncio.sleep(program.chance.random() * THINK_S)

    async def settle(self, log: Log) -> None:
        """It has ended."""

    def judge(self, log: Log) -> Iterator[str]:
        counted = [int(event.value_bytes) for event in log.events if event.key == self.KEY]
        if counted != list(range(1, len(counted) + 1)):
            yield f"an entry that is counted up by one had the values {counted}"


class Follower:
    """Follows the log from its beginning: it sees the log, each event once and in order."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.seen: list[tuple[int, str, bytes]] = []

    async def run(self) -> None:
        async for event in self._program.cache.events(follow=True):
            self.seen.append((event.id, event.key, event.value_bytes))

    async def settle(self, log: Log) -> None:
        await self._program.until(lambda: len(self.seen) >= len(log.events))

    def judge(self, log: Log) -> Iterator[str]:
        expected = [(event.id, event.key, event.value_bytes) for event in log.events]
        if self.seen != expected:
            both = zip(self.seen, expected, strict=False)
            yield f"who followed saw another log: {next((pair for pair in both if pair[0] != pair[1]), len(self.seen))}"


class GroupMembers:
    """Members of one group, each again and again: what any of them was given counts, committed or not.

    `is_audited`: it is asked again and again how far the group is: at least as far as a commit said that was acknowledged before.
    """

    def __init__(self, program: Program, *, members: int, is_audited: bool = False) -> None:
        self._program = program
        self._members = members
        self._is_audited = is_audited
        self._committed: dict[int, int] = {}  # by segment, as acknowledged
        self.consumed: Counter[int] = Counter()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as members:
            for _ in range(self._members):
                members.create_task(self._member())
            if self._is_audited:
                members.create_task(self._audit())

    async def _audit(self) -> None:
        program = self._program
        while True:
            await asyncio.sleep(program.chance.random() * AUDIT_S)
            before = dict(self._committed)
            try:
                [found] = await program.client.groups.describe("g", lag=False)
            except EventLogError as error:
                await program.after("audit", error)
                continue
            kept = {segment.segment: segment.id for segment in found.segments}
            for segment, id_ in before.items():
                if kept[segment] < id_:
                    program.violations.append(f"a group had committed {id_} of segment {segment}, and is at {kept[segment]}")
            program.reached["groups audited"] += 1

    async def _member(self) -> None:
        while True:
            try:
                async with self._program.cache.consumer(group="g") as consumer:
                    async for event in consumer:
                        self.consumed[event.id] += 1
                        await consumer.commit(event)
                        self._committed[event.segment] = max(self._committed.get(event.segment, 0), event.id)
            except EventLogError as error:
                await self._program.after("member", error)

    async def settle(self, log: Log) -> None:
        await self._program.until(lambda: log.place.keys() <= self.consumed.keys())

    def judge(self, log: Log) -> Iterator[str]:
        if unknown := self.consumed.keys() - log.place.keys():
            yield f"a member of a group was given {sorted(unknown)[:3]}, which are not in the log"


class Workers:
    """Members of one work group: each event is worked on, and of a key in the order of its events."""

    def __init__(self, program: Program, *, members: int) -> None:
        self._program = program
        self._members = members
        self.handed_out: list[tuple[int, str]] = []
        self.at_work: set[str] = set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as members:
            for _ in range(self._members):
                members.create_task(self._member())

    async def _member(self) -> None:
        program = self._program
        while True:
            try:
                async with program.cache.consumer(group="w", mode="work", max_deliveries=10_000, prefetch=4) as work:
                    async for task in work:
                        self.handed_out.append((task.id, task.key))
                        await asyncio.sleep(program.chance.random() * 0.05)
                        await task.ack()
            except EventLogError as error:
                await program.after("worker", error)

    async def settle(self, log: Log) -> None:
        await self._program.until(lambda: log.place.keys() <= {id_ for id_, _ in self.handed_out})

    def judge(self, log: Log) -> Iterator[str]:
        last: dict[str, int] = {}
        done: set[int] = set()
        for id_, key in self.handed_out:
            if id_ not in log.place:
                yield f"a worker was given {id_}, which is not in the log"
            if id_ not in done and id_ < last.get(key, 0):
                yield f"a worker was given {id_} of {key} behind a later one"
            done.add(id_)
            last[key] = max(last.get(key, 0), id_)


class ListenerReader:
    """Reads by a durable listener in sessions, each from where the one before has acknowledged: some may come again, none is left out."""

    def __init__(self, program: Program, cache: Any, listener: str, *, away_s: float = 0.5) -> None:
        self._program = program
        self._cache = cache
        self._listener = listener
        self._away_s = away_s  # between two sessions, at most
        self.sessions: list[list[int]] = []

    async def run(self) -> None:
        program = self._program
        while True:
            seen: list[int] = []
            self.sessions.append(seen)
            try:
                async with asyncio.timeout(program.chance.uniform(0.1, 4)):
                    async with aclosing(self._cache.events(listener=self._listener, follow=True)) as events:
                        async for event in events:
                            seen.append(event.id)  # noqa: PERF401 -- what came before it is interrupted counts
            except TimeoutError:
                await asyncio.sleep(program.chance.random() * self._away_s)
            except EventsTrimmed as error:
                program.violations.append(f"listener {self._listener} holds events back, and heard {error}")
                return
            except EventLogError as error:
                await program.after("listener", error)

    async def settle(self, log: Log) -> None:
        await self._program.until(lambda: log.events[-1].id in {id_ for seen in self.sessions for id_ in seen})

    def judge(self, log: Log) -> Iterator[str]:
        reach = -1
        for seen in filter(None, self.sessions):
            if unknown := [id_ for id_ in seen if id_ not in log.place]:
                yield f"listener {self._listener} was given {unknown[:3]}, which are not in the log"
                return
            places = [log.place[id_] for id_ in seen]
            if places[0] > reach + 1:
                yield f"listener {self._listener} went on at event {places[0]}, and had {reach} of the log"
            if places != list(range(places[0], places[0] + len(places))):
                yield f"listener {self._listener} left events out between {seen[0]} and {seen[-1]}"
            reach = max(reach, places[-1])


class NearReader:
    """Reads through a near cache of a client of its own, which writes nothing: what it serves was true within its staleness."""

    def __init__(self, program: Program, client: Any, *, writers: int) -> None:
        self._program = program
        self._client = client
        self._writers = writers
        self.read: list[Read] = []

    async def run(self) -> None:
        async with self._client as client:
            while True:
                try:
                    await self._read(client.cache("c"))
                except EventLogError as error:
                    await self._program.after("near", error)

    async def _read(self, cache: Any) -> None:
        program, chance = self._program, self._program.chance
        async with cache.near(max_entries=6, max_staleness_ms=NEAR_STALENESS_MS) as near:
            while True:
                key, hits = f"k{chance.randrange(self._writers)}-{chance.randrange(KEYS)}", near.statistics.hits
                asked_us = program.now_us()
                entry = await near.get(key)
                self.read.append((asked_us, key, 0 if entry is None else entry.version))
                program.reached["served near"] += near.statistics.hits - hits
                await asyncio.sleep(chance.random() * 0.1)

    async def settle(self, log: Log) -> None:
        """It has nothing to catch up with."""

    def judge(self, log: Log) -> Iterator[str]:
        for key, version, last in stale_reads(self.read, self._program.written, log, staleness_ms=NEAR_STALENESS_MS):
            yield f"a near cache served version {version} of {key} long after {last} was acknowledged"


class OtherReader:
    """Reads by a client of its own, which does not hear from those who write where they write: it reads what was acknowledged before."""

    def __init__(self, program: Program, client: Any, *, writers: int) -> None:
        self._program = program
        self._client = client
        self._writers = writers
        self.read: list[Read] = []

    async def run(self) -> None:
        program, chance = self._program, self._program.chance
        async with self._client as client:
            cache = client.cache("c")
            while True:
                key = f"k{chance.randrange(self._writers)}-{chance.randrange(KEYS)}"
                asked_us = program.now_us()
                try:
                    entry = await cache.get(key)
                except EventLogError as error:
                    await program.after("reader", error)
                else:
                    self.read.append((asked_us, key, 0 if entry is None else entry.version))
                await asyncio.sleep(chance.random() * 0.1)

    async def settle(self, log: Log) -> None:
        """It has nothing to catch up with."""

    def judge(self, log: Log) -> Iterator[str]:
        for key, version, last in stale_reads(self.read, self._program.written, log, staleness_ms=0):
            yield f"version {version} of {key} was read after {last} was acknowledged"


def stale_reads(reads: list[Read], written: list[Written], log: Log, *, staleness_ms: int) -> Iterator[tuple[str, int, int]]:
    """Yield key, version and what was acknowledged so long before it was asked for, of each read that is older."""
    removed = {event.key: event.id for event in log.events if event.kind in _GONE}
    of_key: dict[str, list[Written]] = {}
    for one in written:
        if one.id is not None:
            of_key.setdefault(one.key, []).append(one)
    for asked_us, key, version in reads:
        due_us = asked_us - staleness_ms * 1_000
        last = max((one.id or 0 for one in of_key.get(key, ()) if one.acknowledged_us < due_us), default=0)
        if version < last and not (version == 0 and removed.get(key, 0) >= last):
            yield key, version, last


class Iterating:
    """Iterates over all entries: what is there all the time is met once, and nothing twice."""

    def __init__(self, program: Program) -> None:
        self._program = program

    async def run(self) -> None:
        program = self._program
        while True:
            met: Counter[str] = Counter()
            try:
                async with program.cache.entries(batch_size=2) as rows:
                    async for key, _ in rows:
                        met[key] += 1
                        await asyncio.sleep(program.chance.random() * 0.05)
            except EventLogError as error:
                await program.after("iteration", error)
            else:
                program.reached["iterated"] += 1
                if missed := set(STEADY) - met.keys():
                    program.violations.append(f"an iteration missed {sorted(missed)}")
            if twice := [key for key, count in met.items() if count > 1]:
                program.violations.append(f"an iteration met {twice} twice")
            await asyncio.sleep(program.chance.random())

    async def settle(self, log: Log) -> None:
        """What it meets is judged at once."""

    def judge(self, log: Log) -> Iterator[str]:
        yield from ()


class Querying:
    """Makes the matching entries of JOINED, UPDATED and LEFT alone, going on from its last change whenever it is interrupted."""

    PREFIX = "k0"

    def __init__(self, program: Program) -> None:
        self._program = program
        self.made: dict[str, bytes] = {}
        self._position: str | None = None

    async def run(self) -> None:
        program = self._program
        while True:
            try:
                async with asyncio.timeout(program.chance.uniform(0.5, 6)):
                    async with program.cache.continuous_query(f"key LIKE '{self.PREFIX}%'", position=self._position) as changes:
                        if self._position is None:
                            self.made.clear()
                        async for change in changes:
                            self._take(change)
            except TimeoutError:
                program.reached["query went on"] += 1
            except EventLogError as error:
                await program.after("query", error)

    def _take(self, change: Any) -> None:
        is_there = change.key in self.made
        if is_there != (change.change in ("UPDATED", "LEFT")):
            self._program.violations.append(f"a query was told {change.change} of {change.key}, which is {is_there or 'not'} in it")
        if change.change == "LEFT":
            self.made.pop(change.key, None)
        else:
            self.made[change.key] = change.value
        self._position = change.position

    async def settle(self, log: Log) -> None:
        expected = {key: value for key, value in log.state().items() if key.startswith(self.PREFIX)}
        await self._program.until(lambda: self.made == expected)

    def judge(self, log: Log) -> Iterator[str]:
        yield from ()


class Retaining:
    """A second cache, of which few events are kept, but for what a listener holds back; and a reader who begins at its first event.

    Who begins there is told that events are gone, or is given all that there were.
    """

    NAME = "kept-short"
    LISTENER = "holder"

    def __init__(self, program: Program, cache: Any) -> None:
        self._program = program
        self._cache = cache
        self._holder = ListenerReader(program, cache, self.LISTENER, away_s=8)  # long enough for more than is kept without it
        self._acknowledged: list[int] = []
        self._counts: dict[str, int] = {}
        self._left: dict[str, int] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._holder.run())
            tasks.create_task(self._write())
            tasks.create_task(self._trim())
            tasks.create_task(self._read())

    async def _write(self) -> None:
        program, count = self._program, 0
        while not program.is_over:
            count += 1
            key = f"t{count % 5}"
            try:
                self._acknowledged.append((await self._cache.put(key, b"%d" % count)).id)
            except EventLogError as error:
                await program.after("retained", error)
            else:
                self._counts[key] = count
            await asyncio.sleep(program.chance.random() * THINK_S)

    async def _trim(self) -> None:
        while True:
            await asyncio.sleep(self._program.chance.random() * 2)
            try:
                done = await self._program.client.run_retention(self.NAME)
            except EventLogError as error:
                await self._program.after("retention", error)
            else:
                self._program.reached["events trimmed"] += bool(done.removed)

    async def _read(self) -> None:
        program = self._program
        while True:
            await asyncio.sleep(program.chance.random())
            if not self._acknowledged:
                continue
            first, wanted = program.chance.choice(self._acknowledged), self._acknowledged[-1]
            try:
                found = {event.id async for event in self._cache.events(from_id=first, until_id=wanted)}
            except EventsTrimmed:
                program.reached["a reader was told that events are gone"] += 1
            except EventLogError as error:
                await program.after("reader", error)
            else:
                end = max(found, default=first)  # one that does not follow ends early beside a segment that nobody leads
                missed = [id_ for id_ in self._acknowledged if first < id_ <= end and id_ not in found]
                if missed:
                    program.violations.append(f"who read from {first} to {wanted} was not given {missed[:3]}, and was told nothing")

    async def settle(self, log: Log) -> None:
        def is_through() -> bool:
            seen = {id_ for session in self._holder.sessions for id_ in session}
            return not self._acknowledged or self._acknowledged[-1] in seen

        await self._program.until(is_through)
        for key in self._counts:
            entry = await self._cache.get(key)
            self._left[key] = 0 if entry is None else int(entry.value_bytes)

    def judge(self, log: Log) -> Iterator[str]:
        for key, count in self._counts.items():
            if self._left[key] < count:
                yield f"retention left {self._left[key]} in {key}, where {count} was written"
        seen = {id_ for session in self._holder.sessions for id_ in session}
        if missed := [id_ for id_ in self._acknowledged if id_ not in seen]:
            yield f"retention took {missed[:3]} from the listener that holds them back"
