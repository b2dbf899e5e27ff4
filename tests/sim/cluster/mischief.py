"""Making faults happen, and making good again."""

from contextlib import suppress
from functools import partial
from typing import Final

from eventlog.control.rules import SegmentRules
from eventlog.errors import EventLogError
from eventlog.node.node import Node
from eventlog.replication import Replica
from eventlog.wire.session import Reply
from tests.sim.cluster.ambush import Ambush, Unheard
from tests.sim.cluster.chaining import Chaining
from tests.sim.cluster.lying import Liars
from tests.sim.cluster.operating import Operators
from tests.sim.cluster.swarm import Fault
from tests.sim.cluster.world import ClusterHost, ClusterWorld
from tests.sim.metadata import METADATA_HOST, StoreFaults
from tests.sim.network import Way, both_ways

_AWAY_MS: Final = (20, 200, 1_000, 3_000)  # how long a fault lasts: each as likely, doubled at most
_HEARD_US: Final = 2_500_000
_JUMPS_MS: Final = (-3_600_000, -5_000, -300, 300, 4_000, 15_000)
_GIVEN_UP_US: Final = 2_000_000
_LEFT_OUT_US: Final = 1_300_000  # until a set has shrunk by who is away
_LEFT_ALONE_US: Final = 900_000  # until it leads what it was given
_ZOMBIE_US: Final = 8_000_000
_STALL_US: Final = 1_000_000
_COPIES_MIN: Final = 2  # a set of one may shrink to the one whose disk was just lost


class Mischief:
    """Faults of the kinds and at the rates that the run has."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._operators = Operators(world)
        self._right_us = -_HEARD_US  # since when the clocks of all but one are right
        self._chaining = Chaining(world, move=self._operators.move_segment)
        self._ambush = Ambush(world, acts=(self._crash, self._crash, self._pause, self._cut_off), cut_ways=self._cut_ways)
        self._unheard = Unheard(world, self._operators, cut_ways=self._cut_ways)
        self._liars = Liars(world, part=self._make_zombie)
        self._acts = {
            Fault.CRASH: lambda: self._crash(self._any()),
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
            Fault.RESET: self._reset,
            Fault.STALL: self._stall,
            Fault.STRANGER: self._liars.stranger,
            Fault.LIAR: self._liars.member,
            Fault.ECHO: self._repeat,
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
        self._world.scheduler.after(300_000 + int(mean_us * self._world.chance.expovariate(1)), lambda: self._act(kind))

    def _act(self, kind: Fault) -> None:
        if not self._world.is_over:
            self._world.reached[f"fault: {kind.value}"] += 1
            self._acts[kind]()
            self._plan(kind)

    def stop(self) -> None:
        """Make everything good again, except that clocks stay as wrong as they are."""
        world = self._world
        world.is_over = True
        world.network.mend_all()
        world.network.us_per_kib, world.network.slow_us = 0, {}
        world.metadata.faults = StoreFaults()
        for host in world.hosts:
            host.resume()
            host.stalled_until_us = 0
            host.start()

    # ------------------------------------------------------------ who

    def _any(self) -> ClusterHost:
        return self._world.chance.choice(self._world.hosts)

    def _primary(self) -> ClusterHost:
        record = self._world.any_segment()
        return self._any() if record is None else self._world.host_of(record.primary)

    def _away_us(self) -> int:
        return int(self._world.chance.choice(_AWAY_MS) * 1000 * (1 + self._world.chance.random()))

    # ------------------------------------------------------------ processes and disks

    def _crash(self, host: ClusterHost) -> None:
        host.take_down(for_us=self._away_us())

    def _crash_primary(self) -> None:
        record = self._world.any_segment()
        if record is None:
            return
        self._crash(self._world.host_of(record.primary))
        if self._world.chance.random() < 0.5:
            again_us = int(self._world.chance.random() * 1_500_000)
            self._world.scheduler.after(again_us, lambda: self._crash_successor(record.segment, record.epoch))

    def _crash_successor(self, segment: int, epoch: int) -> None:
        record = self._world.record(segment)
        if record is not None and record.epoch > epoch and not self._world.is_over:
            self._world.reached["failover twice in a row"] += 1
            self._crash(self._world.host_of(record.primary))

    def _crash_all(self) -> None:
        """Take all down; half of the time while a disk is done with nothing, so that it loses all that came meanwhile."""
        chance = self._world.chance
        if chance.random() < 0.5:
            self._any().stalled_until_us = self._world.scheduler.now_us + _STALL_US
            self._world.scheduler.after(chance.randrange(_STALL_US), self._crash_everybody)
        else:
            self._crash_everybody()

    def _crash_everybody(self) -> None:
        for host in self._world.hosts:
            self._crash(host)

    def _pause(self, host: ClusterHost) -> None:
        if not host.is_paused:
            host.pause()
            self._world.scheduler.after(self._away_us(), host.resume)

    def _lose_disk(self) -> None:
        """Empty a disk, unless a set might then shrink to members that have all lost theirs: the loss of fewer must be survived.

        With members being emptied fewer copies may be wanted soon: a set shrinks to as many as are left of them.
        """
        world, host = self._world, self._any()
        view = world.view()
        if len(view.segments) < world.swarm.segments:
            return
        for found in view.segments.values():
            record = found.record
            minimum = min(record.min_in_sync, SegmentRules.majority(view.replicas))
            if minimum < _COPIES_MIN:
                return
            kept = [replica for replica in record.in_sync if replica.node in view.members and world.host_of(replica.node) is not host]
            whole = [replica for replica in kept if world.is_whole(replica)]  # that of a removed member is about to be emptied
            if len(record.in_sync) - len(whole) >= minimum:
                return
        host.lose_disk()
        world.scheduler.after(self._away_us(), host.start)

    def _lose_all(self) -> None:
        """Take down all that hold what was committed in some segment, for so long that an operator gives it up; some for ever."""
        record = self._world.any_segment()
        if record is None or len(record.owners) == len(record.in_sync):
            return  # somebody must be left to be forced
        self._operators.begin_forcing()
        for replica in record.in_sync:
            host = self._world.host_of(replica.node)
            if self._world.chance.random() < 0.5:
                host.lose_disk()
            else:
                host.crash()
            self._world.scheduler.after(_GIVEN_UP_US + self._away_us(), host.start)

    def _flip_bit(self) -> None:
        """Damage a stored value of one disk that all others have for good; a second damaged disk might keep both from starting."""
        one, *others = self._world.hosts
        self._world.reached["bit flipped"] += one.flip_bit([host.disk for host in others if host.disk is not None])

    def _stall(self) -> None:
        self._any().stalled_until_us = self._world.scheduler.now_us + self._away_us()

    def _jump(self) -> None:
        host = self._any()
        if self._world.swarm.one_clock and not self._is_turn_of(host):
            return
        if host.may_jump:
            host.jump(self._world.chance.choice(_JUMPS_MS))

    def _is_turn_of(self, host: ClusterHost) -> bool:
        """Set the clocks of all others right, and return whether they have been for so long that everybody has heard of it."""
        now_us = self._world.scheduler.now_us
        for other in self._world.hosts:
            if other is not host and other.clock_off_ms:
                other.clock_off_ms, self._right_us = 0, now_us
        return now_us >= self._right_us + _HEARD_US

    # ------------------------------------------------------------ network and metadata store

    def _cut(self) -> None:
        chance = self._world.chance
        everybody = [METADATA_HOST, *(host.name for host in self._world.hosts)]
        some = [host for host in everybody if chance.random() < 0.5]
        rest = [host for host in everybody if host not in some]
        self._cut_ways([way for host in some for way in both_ways(host, rest)])

    def _cut_one_way(self) -> None:
        chance = self._world.chance
        one = self._any().name
        others = [host for host in (METADATA_HOST, *(host.name for host in self._world.hosts)) if host != one]
        chosen = others if chance.random() < 0.5 else [chance.choice(others)]
        self._cut_ways([(one, other) if chance.random() < 0.5 else (other, one) for other in chosen])

    def _cut_off(self, host: ClusterHost) -> None:
        """Part a host from all other hosts, one way or both."""
        others = [other.name for other in self._world.hosts if other is not host]
        away = [(host.name, other) for other in others]
        back = [(other, host.name) for other in others]
        self._cut_ways(self._world.chance.choice((away, back, [*away, *back])))

    def _cut_ways(self, ways: list[Way], *, for_us: int = 0) -> None:
        network = self._world.network
        network.cut_ways(ways)

        def mend() -> None:
            if not self._world.is_over:
                network.mend_ways(ways)

        self._world.scheduler.after(for_us or self._away_us(), mend)

    def _reset(self) -> None:
        """Break the connections between two hosts: what is under way is lost."""
        if len(self._world.hosts) > 1:
            one, other = self._world.chance.sample(self._world.hosts, 2)
            self._world.network.reset(one.name, other.name)

    def _repeat(self) -> None:
        """Have something come once more that a host was sent, just now or a while ago; what had a log cut, as often as all else."""
        world, host = self._world, self._any()
        heard_of = [heard for heard in (host.heard, host.heard_cuts) if heard]
        if host.node is None or not heard_of:
            return
        number, said = host.node.number, world.chance.choice(heard_of)
        heard = world.chance.choice((said[-1], world.chance.choice(said)))
        sender = next((one for one in world.hosts if one.node is not None and one.node.core.own == heard.sender), None)
        if sender is not None and sender.node is not None and sender.loop is not None and not sender.is_paused:
            told = partial(_hear_again, sender.node, Replica(number, host.node.core.own.incarnation))
            with suppress(EventLogError):
                sender.loop.run_now(partial(sender.node.peers.post, number, told, heard.message, heard.body))
                world.reached["said again"] += 1

    def _let_join_unheard(self) -> None:
        """Have a member of a set leave it and join again, and its primary not know of that."""
        record = self._world.any_segment()
        self._unheard.wait()
        backups = [replica.node for replica in record.in_sync if replica.node != record.primary] if record else []
        if record is not None and backups and len(record.in_sync) == len(record.owners):
            self._world.host_of(self._world.chance.choice(backups)).take_down(for_us=_LEFT_OUT_US)

    def _plan_zombie(self) -> None:
        """Let a primary live on among clients alone, mostly with an in-sync set so small that it can propose nothing."""
        record = self._world.any_segment()
        if record is None:
            return
        zombie = self._world.host_of(record.primary)
        if self._world.chance.random() < 0.5:
            self._lead_all(zombie)
        backups = [host for replica in record.in_sync if (host := self._world.host_of(replica.node)) is not zombie]
        if backups and self._world.chance.random() < 0.7:
            self._world.chance.choice(backups).take_down(for_us=1_000_000 + self._away_us() // 4)
        self._world.scheduler.after(_LEFT_ALONE_US, lambda: self._make_zombie(zombie))

    def _lead_all(self, host: ClusterHost) -> None:
        """Have a host lead all segments, where it is in sync."""
        if host.node is not None:
            others = tuple(number for number in self._world.view().members if number != host.node.number)
            for segment in range(self._world.swarm.segments):
                self._operators.move_segment(segment, but=others)

    def _make_zombie(self, zombie: ClusterHost) -> None:
        """Part a host from all others; half of the time the metadata store answers it, but tells it nothing."""
        if self._world.is_over:
            return
        deaf = self._world.metadata.faults.deaf
        others = [host.name for host in self._world.hosts if host is not zombie]
        if self._world.chance.random() < 0.5:
            deaf.add(zombie.name)
            self._world.scheduler.after(_ZOMBIE_US, lambda: deaf.discard(zombie.name))
        else:
            others.append(METADATA_HOST)
        self._cut_ways(both_ways(zombie.name, others), for_us=_ZOMBIE_US)

    def _deafen(self) -> None:
        """Let a host hear of no change, as when its watch is behind; what it asks is answered."""
        host, deaf = self._any().name, self._world.metadata.faults.deaf
        if host not in deaf:
            deaf.add(host)
            self._world.scheduler.after(2 * self._away_us(), lambda: deaf.discard(host))

    def _store_out(self) -> None:
        self._world.metadata.faults.is_out = True

        def back() -> None:
            self._world.metadata.faults.is_out = False

        self._world.scheduler.after(2 * self._away_us(), back)


def _hear_again(sender: Node, to: Replica, answer: Reply | EventLogError) -> None:
    """Take what is answered to something that was said once more, as the one who said it does."""
    if isinstance(answer, Reply) and len(answer.body):
        sender.replicas.acknowledged(to, answer.message.replicate_answer.correlation, answer.body)
