"""What all hosts of a run share: time, the network, the metadata store, chance, and the record of what happened."""

import random
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from zlib import crc32

from eventlog.replication import Replica
from tests.sim.cores.history import History
from tests.sim.cores.network import Network
from tests.sim.cores.packets import Packet, turns_round
from tests.sim.cores.swarm import Swarm
from tests.sim.metadata import SharedStore
from tests.sim.scheduler import Scheduler

FIRST_CLIENT = 100
JOINING = "joining"  # the moment in which it is proposed that a replica joins a set
ERRORS_MAX = 20


class Endpoint(Protocol):
    """Whoever has a place in the network."""

    def receive(self, packet: Packet) -> None:
        """Take a packet that arrived."""
        ...


class Trace:
    """The sum over all that happened, in order; two runs that are the same have the same. The lines are kept where asked for."""

    def __init__(self, *, keep: bool = False) -> None:
        self.sum = 0
        self.lines: list[str] | None = [] if keep else None

    def add(self, line: str) -> None:
        self.sum = crc32(line.encode(), self.sum)
        if self.lines is not None:
            self.lines.append(line)


class World:
    """One run's. `reached` counts the states that make a run interesting."""

    def __init__(self, swarm: Swarm, *, chance: random.Random, trace: Trace) -> None:
        self.swarm = swarm
        self.random = chance
        self.trace = trace
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, chance, swarm.weather)
        self.store = SharedStore(self.scheduler)
        self.store.faults.unknown = swarm.store_unknown
        self.store.faults.delay_us = swarm.store_delay_us
        self.store.faults.watch_delay_us = swarm.watch_delay_us
        self.history = History()
        self.reached: Counter[str] = Counter()
        self.hosts: dict[int, Endpoint] = {}
        self.liars: set[Replica] = set()  # members that lied: for a moment others believe them less than they might
        self.errors: list[str] = []
        self.closes_up = swarm.closes_up  # whether readers ask for promises; it also brings all clocks together
        self.moments: list[Callable[[str, int, int], None]] = []  # hear of (what, segment, host) when something delicate happens
        self.turned: dict[int, Callable[[], None]] = {}  # delivers once more what last turned a stream to this host round
        self._numbers = 0

    def number(self) -> int:
        """Return a number that nobody had before: of a process, a connection, a token."""
        self._numbers += 1
        return self._numbers

    def send(self, source: int, target: int, packet: Packet) -> None:
        """Send a packet to a host. What clients ask and hear is never repeated: they have one connection, and no second try."""
        may_repeat = source < FIRST_CLIENT and target < FIRST_CLIENT
        self.network.send(source, target, lambda: self._deliver(source, target, packet), may_repeat=may_repeat)
        if may_repeat and self.network.weather.echoes and turns_round(packet):
            self.turned[target] = lambda: self._deliver(source, target, packet)
            self.network.echo(source, target, self.turned[target])

    def tell(self, what: str, *, segment: int, host: int) -> None:
        """Say that something delicate happens to a segment at a host."""
        for hear in self.moments:
            hear(what, segment, host)

    def _deliver(self, source: int, target: int, packet: Packet) -> None:
        self.note(f"{source}>{target} {packet.__class__.__name__}")
        self.hosts[target].receive(packet)

    def fail(self, error: Exception, *, where: str) -> None:
        """Note an error that nobody expected. The history is judged without it: a process has died of it, as of a crash."""
        place = traceback.extract_tb(error.__traceback__)
        lines = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in place[-4:]]
        self.complain(f"{where}: {error!r} at {' > '.join(lines)}")
        self.note(f"{where} failed")

    def complain(self, what: str) -> None:
        """Note what a core itself found wrong."""
        if len(self.errors) < ERRORS_MAX:
            self.errors.append(f"{self.scheduler.now_us / 1e6:.3f} {what}")

    def note(self, what: str) -> None:
        self.trace.add(f"{self.scheduler.now_us} {what}")
