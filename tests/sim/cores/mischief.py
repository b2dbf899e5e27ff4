"""Making faults happen, and making good again."""

from collections.abc import MutableMapping
from typing import Final

from eventlog.control.metastore import Listing
from eventlog.control.records import ReplicaRecord
from eventlog.control.rules import SegmentRules
from eventlog.control.view import PREFIXES, ClusterView, read_view
from tests.sim.cluster.swarm import Fault
from tests.sim.cores.ambush import Ambush, Unheard
from tests.sim.cores.chaining import Chaining
from tests.sim.cores.clients import primary_of
from tests.sim.cores.lying import Liars
from tests.sim.cores.node import Host
from tests.sim.cores.operating import Operators
from tests.sim.cores.world import World
from tests.sim.metadata import METADATA_HOST, Place, StoreFaults

_AWAY_MS: Final = (20, 200, 1_000, 3_000)  # how long a fault lasts: each as likely, doubled at most
_JUMPS_MS: Final = (-3_600_000, -5_000, -300, 300, 4_000, 15_000)
_GIVEN_UP_US: Final = 2_000_000
_LEFT_OUT_US: Final = 1_300_000  # until a set has shrunk by who is away
_COPIES_MIN: Final = 2  # a set of one may shrink to the one whose disk was just lost
_AHEAD_MS_MAX: Final = 25_000  # ids from further ahead than a minute are refused: readers would wait for so long


class Mischief:
    """Faults of the kinds and at the rates that the run has."""

    def __init__(self, world: World, hosts: MutableMapping[int, Host]) -> None:
        self._world = world
        self._hosts = hosts
        self._is_over = False
        self._host_of: dict[int, int] = {}
        self._operators = Operators(world, hosts, look=self.view, host_of=self.host_of)
        self._chaining = Chaining(world, hosts, host_of=self.host_of, move=self._operators.move_segment)
        self._ambush = Ambush(world, hosts, host_of=self.host_of, acts=(self.crash, self.crash, self._pause, self._cut_off))
        self._liars = Liars(world, hosts, part=self._make_zombie)
        self._unheard = Unheard(world, self._operators, host_of=self.host_of, cut_ways=self._cut_ways)
        self._acts = {
            Fault.CRASH: lambda: self.crash(self._any()),
            Fault.CRASH_PRIMARY: self._crash_primary,
            Fault.CRASH_ALL: self._crash_all,
            Fault.PAUSE: lambda: self._pause(self._any()),
            Fault.PAUSE_PRIMARY: lambda: self._pause(self._primary()),
            Fault.CUT: self._cut,
            Fault.CUT_ONE_WAY: self._cut_one_way,
            Fault.CLOCK: self._jump,
            Fault.DISK: self._lose_disk,
            Fault.STORE_OUT: self._store_out,
            Fault.ZOMBIE: self._plan_zombie,
            Fault.CHAIN: self._chaining.chain,
            Fault.MOVE: self._operators.move,
            Fault.MEMBER: self._operators.change_owners,
            Fault.JOIN: self._operators.add_member,
            Fault.DRAIN: self._operators.drain,
            Fault.REMOVE: self._operators.remove,
            Fault.FORCE: self._lose_all,
            Fault.BIT: self._flip_bit,
            Fault.DEAF: self._deafen,
            Fault.STALL: self._stall,
            Fault.STRANGER: self._liars.stranger,
            Fault.LIAR: self._liars.member,
            Fault.UNHEARD: self._let_join_unheard,
        }

    def start(self) -> None:
        for kind, mean_ms in self._world.swarm.intervals_ms.items():
            if kind is Fault.AMBUSH:
                self._ambush.start(mean_ms=mean_ms)
            else:
                self._plan(kind)
            if kind is Fault.UNHEARD:
                self._unheard.start()

    def _plan(self, kind: Fault) -> None:
        mean_us = self._world.swarm.intervals_ms[kind] * 1000
        self._world.scheduler.after(300_000 + int(mean_us * self._world.random.expovariate(1)), lambda: self._act(kind))

    def _act(self, kind: Fault) -> None:
        if not self._is_over:
            self._world.note(f"fault {kind.value}")
            self._world.reached[f"fault: {kind.value}"] += 1
            self._acts[kind]()
            self._plan(kind)

    def stop(self) -> None:
        """Make everything good again, except that clocks stay as wrong as they are."""
        self._is_over = self._ambush.is_over = self._operators.is_over = self._chaining.is_over = True
        self._liars.is_over = self._unheard.is_over = True
        self._world.note("heal")
        self._world.network.heal()
        self._world.store.faults = StoreFaults()
        self._world.closes_up = True
        for host in self._hosts.values():
            self._resume(host)
            host.disk.stall(0)
            if host.number not in self._operators.gone:
                host.start()

    # ------------------------------------------------------------ who

    def host_of(self, node: int) -> int:
        """Return where the node of this number runs."""
        host = self._host_of.get(node)
        if host is None:  # a number stays where it is: its record is never deleted
            host = self._host_of[node] = int(self.view().nodes[node].record.name[1:])
        return host

    def view(self) -> ClusterView:
        """Return the cluster as the metadata store has it now."""
        listings: dict[str, Listing] = {prefix: self._world.store.list(prefix) for prefix in PREFIXES}
        return read_view(listings)

    def _any(self) -> Host:
        return self._hosts[self._world.random.choice(list(self._hosts))]

    def _primary(self) -> Host:
        record = primary_of(self._world, self._world.random.randrange(self._world.swarm.segments))
        return self._any() if record is None else self._hosts[self.host_of(record.primary)]

    def _away_us(self) -> int:
        return int(self._world.random.choice(_AWAY_MS) * 1000 * (1 + self._world.random.random()))

    # ------------------------------------------------------------ processes and disks

    def crash(self, host: Host) -> None:
        host.crash()
        self._restart(host, after_us=self._away_us())

    def _crash_primary(self) -> None:
        segment = self._world.random.randrange(self._world.swarm.segments)
        record = primary_of(self._world, segment)
        if record is None:
            return
        self.crash(self._hosts[self.host_of(record.primary)])
        if self._world.random.random() < 0.5:
            self._world.scheduler.after(int(self._world.random.random() * 1_500_000), lambda: self._crash_successor(segment, record.epoch))

    def _crash_successor(self, segment: int, epoch: int) -> None:
        record = primary_of(self._world, segment)
        if record is not None and record.epoch > epoch and not self._is_over:
            self._world.reached["failover twice in a row"] += 1
            self.crash(self._hosts[self.host_of(record.primary)])

    def _crash_all(self) -> None:
        for host in self._hosts.values():
            self.crash(host)

    def _pause(self, host: Host) -> None:
        if host.node is None or host.node.process.is_paused:
            return
        host.node.process.pause()
        self._world.scheduler.after(self._away_us(), lambda: self._resume(host))

    def _resume(self, host: Host) -> None:
        if host.node is not None:
            host.node.process.resume()

    def _lose_disk(self) -> None:
        """Empty a disk, unless a set might then shrink to members that have all lost theirs: the loss of fewer must be survived.

        With members being emptied fewer copies may be wanted soon: a set shrinks to as many as are left of them.
        """
        host = self._any()
        records = [primary_of(self._world, segment) for segment in range(self._world.swarm.segments)]
        view = self.view()
        disks = {self.host_of(number): number for number in view.nodes}
        for record in records:
            if record is None:
                return
            minimum = min(record.min_in_sync, SegmentRules.majority(view.replicas))
            if minimum < _COPIES_MIN:
                return
            kept = [replica for replica in record.in_sync if replica.node in view.members and replica.node != disks.get(host.number)]
            whole = [replica for replica in kept if self._is_whole(replica)]  # that of a removed member is about to be emptied
            if len(record.in_sync) - len(whole) >= minimum:
                return
        host.lose_disk()
        self._restart(host, after_us=self._away_us())

    def _lose_all(self) -> None:
        """Take down all that hold what was committed in some segment, for so long that an operator gives it up; some for ever."""
        record = primary_of(self._world, self._world.random.randrange(self._world.swarm.segments))
        if record is None or len(record.owners) == len(record.in_sync):
            return  # somebody must be left to be forced
        self._operators.begin_forcing()
        for replica in record.in_sync:
            host = self._hosts[self.host_of(replica.node)]
            if self._world.random.random() < 0.5:
                host.lose_disk()
            else:
                host.crash()
            self._restart(host, after_us=_GIVEN_UP_US + self._away_us())

    def _flip_bit(self) -> None:
        """Damage a stored value that another in-sync disk has for good, and that is nowhere else damaged; half of the time a late one.

        That other disk is not about to be let go by a move: copies are compared before the switch, not in it.
        """
        chance, segment = self._world.random, self._world.random.randrange(self._world.swarm.segments)
        record = primary_of(self._world, segment)
        nodes = {self.host_of(replica.node): replica.node for replica in record.in_sync} if record else {}
        if record is None or len(nodes) < _COPIES_MIN:
            return
        (one, _), (other, number) = chance.sample([(self._hosts[host].disk, number) for host, number in nodes.items()], 2)
        if record.target and number not in record.target:
            return
        kept = min(disk.applied.get(segment, 0) for disk in (one, other))
        values = [value for value in one.log(segment) if value.tokens and value.last <= kept]
        if values:
            value = chance.choice(values[-5:] if chance.random() < 0.5 else values)
            if not any((segment, value.base) in host.disk.damaged for host in self._hosts.values()):
                one.flip(segment, value, chance=chance)
                self._world.reached["bit flipped"] += 1

    def _restart(self, host: Host, *, after_us: int) -> None:
        """Have a process again a little later, unless its member was removed meanwhile."""

        def start() -> None:
            if host.number not in self._operators.gone:
                host.start()

        self._world.scheduler.after(after_us, start)

    def _is_whole(self, replica: ReplicaRecord) -> bool:
        return self._hosts[self.host_of(replica.node)].disk.incarnation == replica.incarnation

    def _stall(self) -> None:
        self._any().disk.stall(self._world.scheduler.now_us + self._away_us())

    def _jump(self) -> None:
        host = self._any()
        has_lease = host.node is not None and host.node.state is not None and host.node.state.clock.ceiling > 0
        if has_lease:  # without a ceiling to begin above, a clock that is an hour late would keep readers waiting for an hour
            host.wall.offset_ms = min(host.wall.offset_ms + self._world.random.choice(_JUMPS_MS), _AHEAD_MS_MAX)

    # ------------------------------------------------------------ network and metadata store

    def _cut(self) -> None:
        chance = self._world.random
        everybody: list[Place] = [METADATA_HOST, *self._hosts]
        some = [host for host in everybody if chance.random() < 0.5]
        ways = [(a, b) for a in some for b in everybody if b not in some]
        self._cut_ways([*ways, *((b, a) for a, b in ways)])

    def _cut_one_way(self) -> None:
        chance = self._world.random
        one: Place = self._any().number
        everybody: list[Place] = [METADATA_HOST, *self._hosts]
        others = [host for host in everybody if host != one]
        chosen = others if chance.random() < 0.5 else [chance.choice(others)]
        self._cut_ways([(one, other) if chance.random() < 0.5 else (other, one) for other in chosen])

    def _cut_off(self, host: Host) -> None:
        """Part a host from all other hosts, one way or both."""
        others = [other for other in self._hosts if other != host.number]
        away: list[tuple[Place, Place]] = [(host.number, other) for other in others]
        back: list[tuple[Place, Place]] = [(other, host.number) for other in others]
        self._cut_ways(self._world.random.choice((away, back, [*away, *back])))

    def _cut_ways(self, ways: list[tuple[Place, Place]], *, for_us: int = 0) -> None:
        for source, target in ways:
            self._world.network.cut(source, target)

        def mend() -> None:
            if not self._is_over:
                for source, target in ways:
                    self._world.network.mend(source, target)

        self._world.scheduler.after(for_us or self._away_us(), mend)

    def _let_join_unheard(self) -> None:
        """Have a member of a set leave it and join again, and its primary not know of that."""
        record = primary_of(self._world, self._world.random.randrange(self._world.swarm.segments))
        backups = [replica.node for replica in record.in_sync if replica.node != record.primary] if record else []
        if self._unheard.wait() and backups:
            host = self._hosts[self.host_of(self._world.random.choice(backups))]
            host.crash()
            self._restart(host, after_us=_LEFT_OUT_US)

    def _plan_zombie(self) -> None:
        """Let a primary live on among clients alone, mostly with an in-sync set so small that it can propose nothing."""
        record = primary_of(self._world, self._world.random.randrange(self._world.swarm.segments))
        if record is None:
            return
        zombie = self.host_of(record.primary)
        backups = [host for replica in record.in_sync if (host := self.host_of(replica.node)) != zombie]
        if backups and self._world.random.random() < 0.7:
            backup = self._hosts[self._world.random.choice(backups)]
            backup.crash()
            self._restart(backup, after_us=1_000_000 + self._away_us() // 4)
            self._world.scheduler.after(900_000, lambda: self._make_zombie(zombie))
        else:
            self._make_zombie(zombie)

    def _make_zombie(self, zombie: int) -> None:
        """Part a host from all others; half of the time the metadata store answers it, but tells it nothing."""
        if self._is_over:
            return
        deaf = self._world.store.faults.deaf
        hosts: list[Place] = [host for host in self._hosts if host != zombie]
        if self._world.random.random() < 0.5:
            deaf.add(zombie)
            self._world.scheduler.after(8_000_000, lambda: deaf.discard(zombie))
        else:
            hosts.append(METADATA_HOST)
        self._cut_ways([way for other in hosts for way in ((zombie, other), (other, zombie))], for_us=8_000_000)

    def _deafen(self) -> None:
        """Let a host hear of no change, as when its watch is behind; what it asks is answered."""
        host, deaf = self._any().number, self._world.store.faults.deaf
        if host not in deaf:
            deaf.add(host)
            self._world.scheduler.after(2 * self._away_us(), lambda: deaf.discard(host))

    def _store_out(self) -> None:
        self._world.store.faults.is_out = True

        def back() -> None:
            self._world.store.faults.is_out = False

        self._world.scheduler.after(2 * self._away_us(), back)
