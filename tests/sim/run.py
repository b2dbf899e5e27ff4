"""One run: clients, and faults by chance; afterwards quiet, and what everybody was told must fit the log."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from eventlog.errors import EventLogError, Unavailable
from eventlog.segment.keys import TAG_ENTRY, parse_log_key, parse_state_key
from tests.sim import machine
from tests.sim.clients import (
    RETAINED,
    STEADY,
    Counting,
    Follower,
    GroupMembers,
    Iterating,
    ListenerReader,
    Log,
    NearReader,
    OtherReader,
    Participant,
    Program,
    Querying,
    Retaining,
    Workers,
    Writer,
    judge_kinds,
    judge_writes,
)
from tests.sim.damage import Flips, rot
from tests.sim.report import Verdict, judge
from tests.sim.transacting import Transacting
from tests.sim.world import CLIENT, Host, Shape, World, read_all_of

NODES = 3
WRITERS = 3
FAULTS = (3, 6)
BETWEEN_S = (0.2, 3.0)
AMBUSHED = 0.5
AMBUSH_S = 1.0
PUBLISHING_S = 0.02  # about what a publication takes
FAULT_S = (0.1, 7.0)  # beyond what a lease lasts
DAMAGING: Final = (3, 7, 9)
"""Last digits of the seeds in which disks fail and bits flip as well. The others keep the runs that they had before there was this."""
SUDDEN = 0.3
ROTTEN = (1, 6)  # values
MEMBERS = 2
QUIET_S = 60.0
RUN_S = 600.0
KINDS: Final = ("counting", "workers", "listener", "near", "reader", "iterating", "querying", "retaining", "transacting")
MORE: Final = 3
"""How many kinds of clients a run has beside those that are in each: all of them at once would make it slow."""


def run_seed(seed: int) -> Verdict:
    """Run a seed in a directory of its own and judge it; the process's clocks and chance must be the machine's of a simulation."""

    def play() -> Run:
        with tempfile.TemporaryDirectory(prefix="eventlog-sim-") as directory:
            run = Run(seed, Path(directory))
            machine.begin(seed, lambda: run.world.scheduler.now_us)
            try:
                run.play()
            finally:
                machine.end()
            return run

    return judge(seed, play)


class Run:
    """One seed. `violations` are what must not be."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.world = World(seed, directory, Shape(nodes=NODES))
        self.program: Program | None = None
        self.violations: list[str] = []
        self.is_damaging = seed % 10 in DAMAGING
        self._stage = "start"

    @property
    def reached(self) -> Counter[str]:
        """How often what happened."""
        return Counter() if self.program is None else self.program.reached

    @property
    def simulated_ms(self) -> int:
        """How long it was."""
        return self.world.scheduler.now_us // 1000

    @property
    def acknowledged(self) -> int:
        """How many events were."""
        return self.reached["written"]

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
            cache = await client.create_cache("c", format="bytes", before=True)
            program = self.program = Program(
                client=client, cache=cache, chance=world.chance, now_us=lambda: world.scheduler.now_us, until=self._until
            )
            self.violations = program.violations
            await self._play_with(program, await self._participants(program))

    async def _participants(self, program: Program) -> list[Participant]:
        """Return those of each run, and some of the others by chance, with what they need before there is a fault."""
        client, cache, chance = program.client, program.cache, program.chance
        await cache.put_many([(key, b"steady") for key in STEADY])
        found: list[Participant] = [Writer(program, number, is_wide=self.is_damaging) for number in range(WRITERS)]
        found += [Follower(program), GroupMembers(program, members=MEMBERS, is_audited=self.is_damaging)]
        for kind in chance.sample(KINDS, MORE):
            program.reached[kind] += 1
            match kind:
                case "counting":
                    found += [Counting(program), Counting(program)]
                case "workers":
                    found.append(Workers(program, members=MEMBERS))
                case "listener":
                    await cache.register(id="l", durable=True, from_id="earliest")
                    found.append(ListenerReader(program, cache, "l"))
                case "near":
                    found.append(NearReader(program, self.world.connect(), writers=WRITERS))
                case "reader":
                    found.append(OtherReader(program, self.world.connect(), writers=WRITERS))
                case "iterating":
                    found.append(Iterating(program))
                case "querying":
                    found.append(Querying(program))
                case "transacting":
                    found.append(Transacting(program))
                case _:
                    short = await client.create_cache(Retaining.NAME, format="bytes", retain_events=RETAINED)
                    await short.register(id=Retaining.LISTENER, durable=True, hold=1 << 30)
                    found.append(Retaining(program, short))
        return found

    async def _play_with(self, program: Program, participants: list[Participant]) -> None:
        tasks = [asyncio.create_task(one.run()) for one in participants]
        self._stage = "faults"
        await self._faults(program)
        self._stage = "the last writes"
        program.is_over = True
        async with asyncio.timeout(QUIET_S):
            ending = (Writer, Counting, Transacting)
            await asyncio.gather(*(task for task, one in zip(tasks, participants, strict=True) if isinstance(one, ending)))
        self._stage = "reading the log"
        log = Log(await self._settled(program.cache))
        for one in participants:
            self._stage = f"settling: {type(one).__name__}"
            await one.settle(log)
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                program.violations.append(f"a client ended: {ended!r}")
        await self._judge(program, participants, log)
        self._stage = "equal copies"
        self._read_everything()
        await self._until(self._are_copies_equal)

    async def _until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(QUIET_S):
            while not is_so():
                if self.world.errors:
                    raise TimeoutError(f"something broke: {self.world.errors[0]!r}")
                await asyncio.sleep(0.02)

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

    # ------------------------------------------------------------ faults

    async def _faults(self, program: Program) -> None:
        chance = program.chance
        for _ in range(chance.randint(*FAULTS)):
            await asyncio.sleep(chance.uniform(*BETWEEN_S))
            if chance.random() < AMBUSHED:
                await self._ambush(program)
            host = chance.choice(self.world.hosts)
            faults = [self._crash, self._pause, self._cut, self._jump, self._blackout, self._drain]
            if self.is_damaging:
                faults += 2 * [self._fill, self._fail_sync, self._rot, self._flip]
            fault = chance.choice(faults)
            if host.started is None or any(other.started is None for other in self.world.hosts):
                continue  # a second one would leave no majority
            program.reached[fault.__name__.removeprefix("_")] += 1
            await fault(host, chance.uniform(*FAULT_S))
        for host in self.world.hosts:
            host.clock_off_ms = 0

    async def _ambush(self, program: Program) -> None:
        """Wait for the middle of a publication, if there is any."""
        with suppress(TimeoutError):
            async with asyncio.timeout(AMBUSH_S):
                program.publishing.clear()
                await program.publishing.wait()
                await asyncio.sleep(program.chance.random() * PUBLISHING_S)
                program.reached["ambush"] += 1

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

    async def _drain(self, host: Host, seconds: float) -> None:
        """Have an operator empty a node, and have it back: its copies go and come again."""
        await self._ask_operator(host, cancel=False)
        await asyncio.sleep(seconds)
        await self._ask_operator(host, cancel=True)

    async def _fill(self, host: Host, seconds: float) -> None:
        """Have others take the room on a disk: the reserve, so that the node refuses writes by itself; or at once all there is."""
        disk, chance = host.disk, self.world.chance
        assert disk is not None
        disk.is_short = True
        before = disk.bytes_free
        if chance.random() < SUDDEN:
            disk.bytes_free = -1
        await asyncio.sleep(seconds)
        disk.bytes_free, disk.is_short = before, False
        await self._until(lambda: host.started is not None)

    async def _fail_sync(self, host: Host, seconds: float) -> None:
        """Have a disk fail to write what it was given: nobody knows how much of it is there, and the process ends."""
        assert host.disk is not None
        host.disk.next_sync_fails = "the disk failed"
        await asyncio.sleep(seconds)
        host.disk.next_sync_fails = None
        await self._until(lambda: host.started is not None)

    async def _rot(self, host: Host, seconds: float) -> None:
        """Have bits flip in values that lie on a disk."""
        chance = self.world.chance
        disks = [other.disk for other in self.world.hosts if other.disk is not None and other is not host]
        assert self.program is not None
        assert host.disk is not None
        self.program.reached["rotten"] += rot(host.disk, disks, values=chance.randint(*ROTTEN), chance=chance)
        await asyncio.sleep(seconds)

    async def _flip(self, host: Host, seconds: float) -> None:
        """Have bits flip between all that speak to each other while copies are made."""
        assert self.program is not None
        await self._ask_operator(host, cancel=False)
        await asyncio.sleep(seconds)
        flips = Flips(self.world.chance)
        self.world.network.flips, self.world.network.flipping = flips, frozenset((CLIENT, *(one.name for one in self.world.hosts)))
        await self._ask_operator(host, cancel=True)
        await asyncio.sleep(seconds)
        self.world.network.flips = None
        self.program.reached["flipped, and told by the frame"] += flips.broken
        self.program.reached["flipped"] += flips.fitted

    async def _ask_operator(self, host: Host, *, cancel: bool) -> None:
        assert self.program is not None
        async with asyncio.timeout(QUIET_S):
            while True:
                try:
                    await self.program.client.admin.drain(host.node_name, cancel=cancel)
                except Unavailable as error:
                    await self.program.after("operator", error)
                else:
                    return

    # ------------------------------------------------------------ judging

    async def _judge(self, program: Program, participants: list[Participant], log: Log) -> None:
        ids = [event.id for event in log.events]
        if ids != sorted(set(ids)):
            program.violations.append("the log is not in the order of its ids, or has one twice")
        program.violations += judge_writes(program.written, log)
        program.violations += judge_kinds(log)
        for one in participants:
            program.violations += one.judge(log)
        state = log.state()
        for key in sorted({event.key for event in log.events}):
            entry = await program.cache.get(key)
            if (None if entry is None else entry.value_bytes) != state.get(key):
                program.violations.append(f"the entry of {key} is not what its last event left")

    def _read_everything(self) -> None:
        """Have each node read all that it has, as readers would in time: where something of it is damaged, it asks for a sound copy."""
        if self.is_damaging:
            for host in self.world.hosts:
                assert host.loop is not None
                assert host.started is not None
                host.loop.run_now(partial(read_all_of, host.started.node))

    def _are_copies_equal(self) -> bool:
        """Return whether all copies of all logs and entries are the same bytes, as they are as soon as all have what was committed last.

        Markers of terms (cache 0) are no events: each node forgets those that it needs no more.
        """
        stores = [host.started.node.store for host in self.world.hosts if host.started is not None]
        return len(stores) == NODES and all(_rows_of(store) == _rows_of(stores[0]) for store in stores[1:])


def _rows_of(store: Any) -> list[Any]:
    log = store.read_log(b"", b"\xff" * 8, bytes_max=1 << 30)
    state = store.read_state(b"", b"\xff" * 8, limit=1 << 30)
    entries = [pair for pair in state if parse_state_key(pair[0])[2] == TAG_ENTRY]
    return [pair for pair in log if parse_log_key(pair[0])[1]] + entries
