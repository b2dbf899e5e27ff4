"""One run: a cluster is made, clients work, faults come, everything heals, and the history is judged."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from eventlog.control.records import LOST_PREFIX, SEGMENT_PREFIX, LostRanges, SegmentRecord, decode
from tests.sim.cores.checks import Logs, check
from tests.sim.cores.clients import Follower, Writer, primary_of
from tests.sim.cores.history import Fate, Value
from tests.sim.cores.mischief import Mischief
from tests.sim.cores.node import Host
from tests.sim.cores.swarm import Swarm, choose
from tests.sim.cores.world import FIRST_CLIENT, Trace, World

_HEAL_MS: Final = 10_000  # progress is demanded within it
_QUIET_MS: Final = 30_000  # and then, without writes, agreement
_STEP_US: Final = 100_000
_COMPARE_US: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a seed. `violations` are of the history, `errors` what processes died of unexpectedly."""

    seed: int
    swarm: Swarm
    violations: tuple[str, ...]
    errors: tuple[str, ...]
    reached: Counter[str]
    simulated_ms: int
    trace: int
    acknowledged: int
    cpu_s: float
    lines: tuple[str, ...] = ()

    @property
    def told(self) -> tuple[str, ...]:
        """Return what there is to say of it."""
        return *self.violations[:3], *self.errors[:3]


class Cluster:
    """Hosts, clients and faults of one run."""

    def __init__(self, swarm: Swarm, *, chance: random.Random, trace: Trace) -> None:
        self.world = World(swarm, chance=chance, trace=trace)
        self.hosts = {number: Host(self.world, number) for number in range(1, swarm.nodes + 1)}
        clients = iter(range(FIRST_CLIENT, FIRST_CLIENT + swarm.writers + swarm.readers))
        self.writers = [Writer(self.world, host=next(clients), find=self.primary_host) for _ in range(swarm.writers)]
        self.readers = [Follower(self.world, host=next(clients), holders=self.holder_hosts) for _ in range(swarm.readers)]
        self.mischief = Mischief(self.world, self.hosts)

    def primary_host(self, segment: int) -> int:
        """Return whom a client takes for the primary: mostly right, once there is one."""
        record = primary_of(self.world, segment)
        if record is None or self.world.random.random() < 0.05:
            return self.world.random.choice(list(self.hosts))
        return self.mischief.host_of(record.primary)

    def holder_hosts(self, segment: int) -> list[int]:
        """Return who may be asked for a segment's events."""
        record = primary_of(self.world, segment)
        return [self.mischief.host_of(owner) for owner in record.owners] if record else []

    def run(self) -> None:
        """Run both phases."""
        scheduler = self.world.scheduler
        for number, host in self.hosts.items():
            scheduler.after(number * 20_000, host.start)
        for writer in self.writers:
            scheduler.after(200_000, writer.start)
        for reader in self.readers:
            scheduler.after(200_000, reader.start)
        self.mischief.start()
        scheduler.run(self.world.swarm.faults_ms * 1000)
        self.mischief.stop()
        if self._progresses():
            self._settle()

    def _progresses(self) -> bool:
        """Demand that every segment acknowledges again."""
        appends, scheduler = self.world.history.appends, self.world.scheduler
        first = self.world.number()  # tokens from here on are asked for after the healing
        deadline_us = scheduler.now_us + _HEAL_MS * 1000
        missing = set(range(self.world.swarm.segments))
        while missing and scheduler.now_us < deadline_us:
            for writer in self.writers:
                writer.wanted = tuple(sorted(missing))
            scheduler.run(scheduler.now_us + _STEP_US)
            missing -= {append.segment for token, append in appends.items() if token > first and append.fate is Fate.ACKNOWLEDGED}
        if missing:
            records = {segment: primary_of(self.world, segment) for segment in sorted(missing)}
            self.world.history.violate(f"{_HEAL_MS} ms after the healing nothing was acknowledged in {records}")
        return not missing

    def _settle(self) -> None:
        """Stop writing, and demand that all owners are in sync and equal, and that readers come to the end."""
        for writer in self.writers:
            writer.is_stopped = True
        scheduler = self.world.scheduler
        deadline_us = scheduler.now_us + _QUIET_MS * 1000
        why = "nothing happened"
        while why and scheduler.now_us < deadline_us:
            scheduler.run(scheduler.now_us + _STEP_US)
            why = self._unsettled()
            if why and scheduler.now_us % _COMPARE_US < _STEP_US:
                self._compare()
        if why:
            self.world.history.violate(f"{_QUIET_MS} ms after the last write: {why}")

    def _compare(self) -> None:
        """Have every node read all that it holds, as an operator does who compares copies: what is damaged comes to light."""
        for host in self.hosts.values():
            node = host.node
            if node is not None and node.state is not None:
                node.process.run(node.mending.read_all)

    def _unsettled(self) -> str:
        logs = self.logs()
        for segment, final in logs.final.items():
            record = primary_of(self.world, segment)
            assert record is not None, "it acknowledged"
            out = set(record.owners) - {replica.node for replica in record.in_sync}
            if out:
                return f"nodes {sorted(out)} of segment {segment} are not in sync"
            for host, log in logs.replicas[segment].items():
                if list(log) != list(final):
                    return f"host {host} holds {len(log)} values of segment {segment}, the primary {len(final)}"
            last = max((value.last for value in final if value.tokens), default=0)
            for reader in self.readers:
                if reader.position < last:
                    return f"reader {reader.reader} stands at {reader.position}, segment {segment} ends at {last}"
        return ""

    def logs(self) -> Logs:
        """Return the logs as they are: the primary's up to its end, and those of all owners."""
        final, replicas = {}, {}
        for item in self.world.store.list(SEGMENT_PREFIX).items:
            record = primary_of(self.world, int(item.key.removeprefix(SEGMENT_PREFIX)))
            assert isinstance(record, SegmentRecord), "it was listed"
            final[record.segment] = tuple(self._log(record.primary, record.segment))
            replicas[record.segment] = {self.mischief.host_of(owner): tuple(self._log(owner, record.segment)) for owner in record.owners}
        lost = [decode(item.value, LostRanges, where=item.key) for item in self.world.store.list(LOST_PREFIX).items]
        return Logs(final=final, replicas=replicas, lost={ranges.segment: ranges.ranges for ranges in lost})

    def _log(self, node: int, segment: int) -> Sequence[Value]:
        """Return a log as whoever reads it sees it; what is damaged is nothing that was ever written."""
        disk = self.hosts[self.mischief.host_of(node)].disk
        return [disk.read(segment, value) or replace(value, tokens=()) for value in disk.log(segment)]


def run_seed(seed: int, *, keep_lines: bool = False) -> Verdict:
    """Run a seed and judge it."""
    begun = time.process_time()
    chance = random.Random(seed)
    swarm = choose(chance, seed=seed)
    trace = Trace(keep=keep_lines)
    cluster = Cluster(swarm, chance=chance, trace=trace)
    cluster.run()
    world = cluster.world
    violations = check(world.history, cluster.logs())
    return Verdict(
        seed=seed,
        swarm=swarm,
        violations=tuple(violations),
        errors=tuple(world.errors),
        reached=world.reached,
        simulated_ms=world.scheduler.now_us // 1000,
        trace=trace.sum,
        acknowledged=world.history.acknowledged,
        cpu_s=time.process_time() - begun,
        lines=tuple(trace.lines or ()),
    )
