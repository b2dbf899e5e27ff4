"""Faults that do not come by the clock but wait for a delicate moment: a log was cut, a set grew or is about to, a term began.

Most protocol bugs need a failure within the few milliseconds in which something is half done; chance alone seldom hits them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from eventlog.control.records import SEGMENT_PREFIX, SegmentRecord
from tests.sim.cluster.operating import Operators
from tests.sim.cluster.world import ClusterHost, ClusterWorld, grown
from tests.sim.metadata import METADATA_HOST
from tests.sim.network import both_ways

_AFTER_US: Final = (0, 0, 0, 500, 5_000, 50_000)
_CHANCES: Final = {"appended": 0.02}
_CHANCE: Final = 0.4
_ALONE: Final = 0.4
_STRANDED: Final = 0.7
_TORN: Final = 0.5
_STRAND_US: Final = (2_000, 20_000, 100_000, 300_000)
_ISOLATE_US: Final = (50_000, 200_000, 600_000)
_PARTED_US: Final = 1_500_000  # until sets have shrunk by who is parted
_DOWN_US: Final = 50_000
_ALONE_US: Final = 3_000_000  # until who is alone leads
_TORN_US: Final = 900_000  # less than it takes a set to shrink
_RARE: Final = "cut again"  # in one epoch: seldom enough to be struck always
_COMMITTED: Final = "committed"  # the moment in which a set has grown ...
_JOINING: Final = "joining"  # ... and in which that is proposed
_SLOW_US: Final = 1_000_000  # for so long a commit is on its way while others wait behind it ...
_VOID_US: Final = (20_000, 100_000, 400_000)  # ... and so long after it what waits is made void
_APPOINTED_US: Final = 1_000_000  # until who leads next has heard of it
_UNHEARD_US: Final = (2_500_000, 4_500_000)  # until a node gives up asking what became of a commit, and some writes more


class Ambush:
    """`acts` are what may happen to a host, the first of them a crash, the last that it is cut off; `cut_ways` parts hosts for a while."""

    def __init__(self, world: ClusterWorld, *, acts: tuple[Callable[[ClusterHost], None], ...], cut_ways: Callable[..., None]) -> None:
        self._world = world
        self._cut_ways = cut_ways
        self._acts = acts
        self._crash, self._cut_off = acts[0], acts[-1]
        self._ready_us = 0
        self._growing: tuple[int, ClusterHost] | None = None  # which set may grow by whom, though that one is cut off
        self._tearing: dict[int, tuple[ClusterHost, ClusterHost, int]] = {}  # segment -> primary, who is to get less, until when
        self._torn: set[int] = set()  # segments whose primary went when one backup had more than another

    def start(self, *, mean_ms: int) -> None:
        """Lie in wait from now on, mostly for one kind of moment; between two ambushes pass about `mean_ms`."""
        self._favourite = self._world.swarm.ambush
        self._mean_us = mean_ms * 1000
        self._world.moments.append(self._moment)
        self._world.metadata.committed.append(self._committed)
        self._world.metadata.asked.append(self._asked)

    def _asked(self, _host: str, puts: Mapping[str, bytes]) -> None:
        for new, joined in self._world.growing(puts):
            self._moment("growing", new.segment, self._world.host_of(joined))

    def _committed(self, puts: Mapping[str, bytes], before: Mapping[str, bytes]) -> None:
        for key, value in puts.items():
            if not key.startswith(SEGMENT_PREFIX) or key not in before:
                continue
            new, old = (msgspec.json.decode(data, type=SegmentRecord) for data in (value, before[key]))
            if new.epoch != old.epoch:
                if new.segment in self._torn:
                    self._torn.discard(new.segment)
                    self._isolate(new.segment)
                else:
                    self._moment("appointed", new.segment, None)
            elif len(new.in_sync) > len(old.in_sync):
                joined = self._world.host_of(next(replica.node for replica in new.in_sync if replica not in old.in_sync))
                if self._growing == (new.segment, joined):
                    self._growing = None
                    leave = partial(self._leave_alone_with, new.segment, joined, for_us=_ALONE_US)
                    self._world.scheduler.after(self._world.chance.choice(_STRAND_US), leave)
                else:
                    self._moment("grown", new.segment, joined)
            elif len(new.in_sync) < len(old.in_sync):
                self._moment("shrunk", new.segment, None)

    def _moment(self, what: str, segment: int, host: ClusterHost | None) -> None:
        world = self._world
        if what == "appended" and segment in self._tearing:
            self._see_torn(segment, host)
        is_rare = what == _RARE
        likely = 1.0 if is_rare or what == self._favourite else _CHANCES.get(what, _CHANCE) / (5 if self._favourite else 1)
        if self._world.is_over or (world.scheduler.now_us < self._ready_us and not is_rare) or world.chance.random() > likely:
            return
        self._ready_us = world.scheduler.now_us + int(self._mean_us * (0.2 + world.chance.random()))
        act, delay_us = world.chance.choice(self._acts), world.chance.choice(_AFTER_US)
        world.reached[f"ambush: {what}"] += 1
        if is_rare and host is not None:
            world.scheduler.after(0, lambda: self._leave_alone_with(segment, host))
        elif what == "growing" and host is not None:
            self._growing = segment, host
            world.chance.choice((partial(self._part, host), partial(host.take_down, for_us=_DOWN_US)))()
        elif what == "grown" and host is not None and world.chance.random() < _STRANDED:
            self._strand(segment, host)
        elif what == "appended" and world.chance.random() < _TORN:
            self._tear(segment)
        else:
            world.scheduler.after(delay_us, lambda: self._strike(act, segment, host))

    def _strike(self, act: Callable[[ClusterHost], None], segment: int, about: ClusterHost | None) -> None:
        """Hit the primary, or whoever the moment was about, or another of the set; or all of the set but the one with the least."""
        record = self._world.record(segment)
        if self._world.is_over or record is None:
            return
        if self._world.chance.random() < _ALONE and len(record.in_sync) > 1:
            self._leave_alone(record)
            return
        primary = self._world.host_of(record.primary)
        others = [host for replica in record.in_sync if (host := self._world.host_of(replica.node)) is not primary]
        if about is not None and about is not primary:
            others.append(about)
        act(self._world.chance.choice(others) if others and self._world.chance.random() < 0.3 else primary)

    def _tear(self, segment: int) -> None:
        """Let a backup get what another one does not, and take the primary down right then; and who leads next, as soon as it does."""
        world, record = self._world, self._world.record(segment)
        backups = [world.host_of(replica.node) for replica in record.in_sync if replica.node != record.primary] if record else []
        if record is not None and len(backups) > 1:
            primary, other = world.host_of(record.primary), world.chance.choice(backups)
            self._cut_ways([(primary.name, other.name)], for_us=_TORN_US)
            self._tearing[segment] = primary, other, world.scheduler.now_us + _TORN_US

    def _see_torn(self, segment: int, host: ClusterHost | None) -> None:
        primary, other, until_us = self._tearing[segment]
        if self._world.scheduler.now_us > until_us:
            del self._tearing[segment]
        elif host is not primary and host is not other:
            del self._tearing[segment]
            self._torn.add(segment)
            self._world.scheduler.after(0, lambda: primary.take_down(for_us=_ALONE_US))

    def _isolate(self, segment: int) -> None:
        """Part who leads from all others, and a little later take it down."""
        record = self._world.record(segment)
        if not self._world.is_over and record is not None:
            primary = self._world.host_of(record.primary)
            self._part(primary)
            self._world.reached["new primary that nobody heard of"] += 1
            for_us = self._world.chance.choice(_ISOLATE_US)
            self._world.scheduler.after(for_us, lambda: primary.take_down(for_us=_ALONE_US))

    def _part(self, host: ClusterHost) -> None:
        """Part a host from all other hosts, both ways, until sets have shrunk by it."""
        others = [other.name for other in self._world.hosts if other is not host]
        self._cut_ways(both_ways(host.name, others), for_us=_PARTED_US)

    def _strand(self, segment: int, host: ClusterHost) -> None:
        """Part who has just joined a set from the others, and a little later leave it alone: nothing may be committed without it."""
        self._cut_off(host)
        self._world.scheduler.after(self._world.chance.choice(_STRAND_US), lambda: self._leave_alone_with(segment, host))

    def _leave_alone_with(self, segment: int, host: ClusterHost, *, for_us: int = 0) -> None:
        """Leave the one with the shortest log alone, if the set that it is of has this host."""
        record = self._world.record(segment)
        if not self._world.is_over and record is not None and any(self._world.host_of(replica.node) is host for replica in record.in_sync):
            self._leave_alone(record, for_us=for_us)

    def _leave_alone(self, record: SegmentRecord, *, for_us: int = 0) -> None:
        """Take down all of an in-sync set but the one with the shortest log: it has to have everything that was ever committed."""
        members = [self._world.host_of(replica.node) for replica in record.in_sync]
        left = min(members, key=lambda host: (host.end(record.segment), host.number))
        self._world.reached["left alone with the shortest log"] += 1
        for host in members:
            if host is not left:
                host.take_down(for_us=for_us) if for_us else self._crash(host)


class Unheard:
    """Sets that grow, or were to grow, in a way that their primary cannot know of. Who joins is parted from it, and is to lead soon.

    Either the commit is done, and the primary hears of nothing any more; or the proposal waits behind another commit, and by its turn
    the record is another. `cut_ways` parts hosts for a while.
    """

    def __init__(self, world: ClusterWorld, operators: Operators, *, cut_ways: Callable[..., None]) -> None:
        self._world = world
        self._operators = operators
        self._cut_ways = cut_ways
        self._wanted = ""

    def start(self) -> None:
        self._world.metadata.asked.append(self._asked)
        self._world.metadata.committed.append(self._committed)

    def wait(self) -> None:
        """Wait for the next set that grows, unless that is done already."""
        self._wanted = self._wanted or self._world.chance.choice((_COMMITTED, _JOINING))

    def _committed(self, puts: Mapping[str, bytes], before: Mapping[str, bytes]) -> None:
        if self._wanted != _COMMITTED or self._world.is_over:
            return
        for new, joined in grown(puts, before):
            if joined != new.primary:
                self._keep_from_hearing(new, joined)
                return

    def _keep_from_hearing(self, record: SegmentRecord, joined: int) -> None:
        self._wanted = ""
        self._world.reached["growth that its primary did not hear of"] += 1
        primary, other = self._world.host_of(record.primary), self._world.host_of(joined)
        for_us = self._world.chance.randint(*_UNHEARD_US)
        self._cut_ways(both_ways(primary.name, [METADATA_HOST]), for_us=for_us)
        self._cut_ways(both_ways(primary.name, [other.name]), for_us=for_us + _APPOINTED_US)
        others = tuple(owner for owner in record.owners if owner != joined)
        self._world.scheduler.after(for_us, lambda: self._operators.move_segment(record.segment, but=others))

    def _asked(self, host: str, puts: Mapping[str, bytes]) -> None:
        """Hold up a commit that lets a replica join; make void what waits behind it to let the same one join elsewhere."""
        if self._wanted != _JOINING or self._world.is_over:
            return
        for _, joined in self._world.growing(puts):
            self._wanted = ""
            self._world.metadata.faults.slow_us = {host: _SLOW_US}
            self._world.scheduler.after(_SLOW_US, self._be_quick_again)
            self._world.scheduler.after(self._world.chance.choice(_VOID_US), partial(self._make_void, host, joined))
            return

    def _make_void(self, host: str, joined: int) -> None:
        """Part the one that joins from its primary, and write anew the records of what it is to join yet."""
        world = self._world
        if world.is_over:
            return
        other = world.host_of(joined).name
        self._cut_ways(both_ways(host, [other]), for_us=3 * _SLOW_US)
        world.network.reset(host, other)
        for segment, found in world.view().segments.items():
            record = found.record
            is_to_join = joined in record.owners and not any(replica.node == joined for replica in record.in_sync)
            if is_to_join and world.host_of(record.primary).name == host:
                world.reached["proposal void when its turn came"] += 1
                self._operators.rewrite(segment)
                self._operators.lead_when_in_sync(segment, joined)

    def _be_quick_again(self) -> None:
        self._world.metadata.faults.slow_us = {}
