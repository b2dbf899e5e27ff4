"""One run: a cluster is made, clients work, faults come, everything heals, and the history is judged."""

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from eventlog.errors import EventLogError
from tests.sim import machine
from tests.sim.cluster.applications import Party
from tests.sim.cluster.asking import CLEARED, Asker, Told
from tests.sim.cluster.clients import CACHE, KEPT_EVENTS, TRIMMED, Follower, Trimmer, Writer
from tests.sim.cluster.grouping import Group
from tests.sim.cluster.history import Fate, Logs
from tests.sim.cluster.mirroring import Mirrored
from tests.sim.cluster.mischief import Mischief
from tests.sim.cluster.nearing import Near
from tests.sim.cluster.reading import Readers
from tests.sim.cluster.swarm import Fault, choose
from tests.sim.cluster.working import Work
from tests.sim.cluster.world import ClusterHost, ClusterWorld
from tests.sim.report import Verdict, judge
from tests.sim.world import read_all_of

_START_S: Final = 30.0
_JUDGE_S: Final = 240.0
_HEAL_MS: Final = 10_000  # progress is demanded within it
_QUIET_MS: Final = 30_000  # and then, without writes, agreement
_CALM_US: Final = 2_000_000  # until what nobody waits for any more has come, or never comes
_STEP_US: Final = 100_000
_FIRST: Final = 1  # the number of the cache that is written to


def run_seed(seed: int, about: str = "") -> Verdict:
    """Run a seed and judge it; the process's clocks and chance must be the machine's of a simulation."""

    def play() -> Cluster:
        with tempfile.TemporaryDirectory(prefix="eventlog-sim-") as directory:
            cluster = Cluster(seed, Path(directory), about)
            machine.begin(seed, lambda: cluster.world.scheduler.now_us)
            try:
                cluster.play()
            finally:
                machine.end()
            return cluster

    return judge(seed, play)


def parties_of(world: ClusterWorld) -> list[Party]:
    """Return who does what a run is about."""
    match world.swarm.about:
        case "groups":
            return [Group(world, members=world.swarm.members)]
        case "work":
            return [Work(world, workers=world.swarm.members)]
        case "near":
            return [Near(world, readers=world.swarm.members)]
        case "reading":
            return [Readers(world)]
        case "mirroring":
            return [Mirrored(world)]
        case _:
            return []


class Cluster:
    """Hosts, clients and faults of one seed."""

    def __init__(self, seed: int, directory: Path, about: str = "") -> None:
        self.swarm = choose(random.Random(seed), about)
        self.world = ClusterWorld(seed, directory, self.swarm)
        self.writers = [Writer(self.world, number + 1) for number in range(self.swarm.writers)]
        self.readers = [Follower(self.world, number + 51) for number in range(self.swarm.readers)]
        self.told = Told()
        self.askers = [Asker(self.world, number + 81, self.told) for number in range(self.swarm.askers)]
        self.trimmers = [Trimmer(self.world, number + 91) for number in range(self.swarm.trimmers)]
        self.parties = parties_of(self.world)
        parties = [client for party in self.parties for client in party.clients]
        self.clients = [*self.writers, *self.readers, *self.askers, *self.trimmers, *parties]
        self.mischief = Mischief(self.world)

    @property
    def violations(self) -> Sequence[str]:
        """What must not be."""
        return self.world.history.violations

    @property
    def reached(self) -> Counter[str]:
        """How often what happened."""
        return self.world.reached

    @property
    def simulated_ms(self) -> int:
        """How long it was."""
        return self.world.scheduler.now_us // 1000

    @property
    def acknowledged(self) -> int:
        """How many events were."""
        return self.world.history.acknowledged

    def play(self) -> None:
        """Run both phases, and judge."""
        world = self.world
        try:
            self._play()
        except (EventLogError, TimeoutError) as error:
            world.history.violate(f"it came to no end: {error!r}")
        for broken in world.errors:
            world.history.violate(f"something broke: {broken!r}")

    def _play(self) -> None:
        world = self.world
        world.run(self._begin, seconds=_START_S)
        for client in self.clients:
            client.start()
        world.begin_faults()
        self.mischief.start()
        world.scheduler.run(world.scheduler.now_us + self.swarm.faults_ms * 1000)
        self.mischief.stop()
        if self._progresses():
            self._settle()
            world.run(self._judge, seconds=_JUDGE_S)

    async def _begin(self, world: Any) -> None:
        for host in self.world.hosts:
            host.start()
            while host.node is None:  # noqa: ASYNC110 - of a simulation
                await asyncio.sleep(0.02)
        async with world.connect() as client:
            await client.create_cache(CACHE, format="bytes")
            for party in self.parties:
                await party.begin(client)
            if self.askers:
                await client.create_cache(CLEARED, format="bytes")
            if self.trimmers:
                made = await client.create_cache(TRIMMED, format="bytes", retain_events=KEPT_EVENTS)
                self.world.history.trimmed = (await made.info()).id

    def _progresses(self) -> bool:
        """Demand that every segment acknowledges again."""
        history, scheduler = self.world.history, self.world.scheduler
        first = self.world.number()  # tokens from here on are asked for after the healing
        deadline_us = scheduler.now_us + _HEAL_MS * 1000
        missing = set(range(self.swarm.segments))
        while missing and scheduler.now_us < deadline_us:
            for writer in self.writers:
                writer.wanted = tuple(sorted(missing))
            scheduler.run(scheduler.now_us + _STEP_US)
            missing -= {one.segment for token, one in history.appends.items() if token > first and one.fate is Fate.ACKNOWLEDGED}
        if missing:
            records = {segment: self.world.record(segment) for segment in sorted(missing)}
            history.violate(f"{_HEAL_MS} ms after the healing nothing was acknowledged in {records}")
        return not missing

    def _settle(self) -> None:
        """Stop writing, and demand that all owners are in sync and equal, and that readers come to the end."""
        ending = [client for client in self.clients if not client.is_endless]
        for client in ending:
            client.is_stopped = True
        scheduler = self.world.scheduler
        deadline_us = scheduler.now_us + _QUIET_MS * 1000
        why = "nothing happened"
        scheduler.run(scheduler.now_us + _CALM_US)
        while why and scheduler.now_us < deadline_us:
            self._read_everything()
            scheduler.run(scheduler.now_us + _STEP_US)
            why = "a client waits for an answer" if not all(client.is_done for client in ending) else self._unsettled()
        if why:
            self.world.history.violate(f"{_QUIET_MS} ms after the last write: {why}")

    def _read_everything(self) -> None:
        """Have each node read all that it has, as readers would in time: where something of it is damaged, it asks for a sound copy."""
        for host in self.world.hosts:
            if Fault.BIT in self.swarm.intervals_ms and host.node is not None and host.loop is not None:
                host.loop.run_now(partial(read_all_of, host.node))

    def _unsettled(self) -> str:
        world, last = self.world, 0
        for segment in range(self.swarm.segments):
            record = world.record(segment)
            assert record is not None, "it acknowledged"
            out = set(record.owners) - {replica.node for replica in record.in_sync}
            if out:
                return f"nodes {sorted(out)} of segment {segment} are not in sync"
            logs = {owner: _events(world.host_of(owner), segment) for owner in record.owners}
            final = logs[record.primary]
            for owner, log in logs.items():
                if log != final:
                    return f"node {owner} holds {len(log)} values of segment {segment}, the primary {len(final)}"
            last = max(last, *(value.last for value in final), 0)
        for reader in self.readers:
            if reader.reader.position < last:
                return f"reader {reader.number} stands at {reader.reader.position}, the log ends at {last}"
        return ""

    async def _judge(self, world: Any) -> None:
        async with world.connect() as client:
            events = {event.id: int(event.key) async for event in client.cache(CACHE).events()}
            for party in self.parties:
                await party.judge(client)
            if self.askers:
                self.told.left = {key async for key, _ in client.cache(CLEARED).entries()}
        records = [self.world.record(segment) for segment in range(self.swarm.segments)]
        final = {record.segment: self.world.host_of(record.primary).log(record.segment) for record in records if record is not None}
        logs = Logs(final=final, events=events, lost=self.world.lost())
        for violation in self.told.judge(logs):
            self.world.history.violate(violation)
        self.world.history.check(logs)


def _events(host: ClusterHost, segment: int) -> list[Any]:
    """Return what a log has; each node forgets marks of terms that it needs no more."""
    return [value for value in host.log(segment) if value.cache == _FIRST]
