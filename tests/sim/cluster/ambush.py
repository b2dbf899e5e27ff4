"""Faults that do not come by the clock but wait for a delicate moment: a log was cut, a set grew or shrank, a term began.

Most protocol bugs need a failure within the few milliseconds in which something is half done; chance alone seldom hits them.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from eventlog.control.records import SEGMENT_PREFIX, SegmentRecord
from tests.sim.cluster.operating import Operators
from tests.sim.cluster.world import ClusterHost, ClusterWorld
from tests.sim.metadata import METADATA_HOST
from tests.sim.network import both_ways

_AFTER_US: Final = (0, 0, 0, 500, 5_000, 50_000)
_CHANCES: Final = {"appended": 0.02}
_CHANCE: Final = 0.4
_ALONE: Final = 0.4
_STRANDED: Final = 0.7
_STRAND_US: Final = (2_000, 20_000, 100_000, 300_000)
_FAVOURITES: Final = ("", "appended", "cut", "cut", "grown", "grown", "shrunk", "appointed")
_RARE: Final = "cut again"  # in one epoch: seldom enough to be struck always
_COMMITTED: Final = "committed"  # the moment in which a set has grown ...
_JOINING: Final = "joining"  # ... and in which that is proposed
_SLOW_US: Final = 1_000_000  # for so long a commit is on its way while others wait behind it
_UNHEARD_US: Final = (2_500_000, 4_500_000)  # until a node gives up asking what became of a commit, and some writes more


class Ambush:
    """`acts` are what may happen to a host, the first of them a crash, the last that it is cut off."""

    def __init__(self, world: ClusterWorld, *, acts: tuple[Callable[[ClusterHost], None], ...]) -> None:
        self._world = world
        self._acts = acts
        self._crash, self._cut_off = acts[0], acts[-1]
        self._ready_us = 0

    def start(self, *, mean_ms: int) -> None:
        """Lie in wait from now on, mostly for one kind of moment; between two ambushes pass about `mean_ms`."""
        self._favourite = self._world.chance.choice(_FAVOURITES)
        self._mean_us = mean_ms * 1000
        self._world.moments.append(self._moment)
        self._world.metadata.committed.append(self._committed)

    def _committed(self, puts: Mapping[str, bytes], before: Mapping[str, bytes]) -> None:
        for key, value in puts.items():
            if not key.startswith(SEGMENT_PREFIX) or key not in before:
                continue
            new, old = (msgspec.json.decode(data, type=SegmentRecord) for data in (value, before[key]))
            if new.epoch != old.epoch:
                self._moment("appointed", new.segment, None)
            elif len(new.in_sync) > len(old.in_sync):
                joined = next(replica.node for replica in new.in_sync if replica not in old.in_sync)
                self._moment("grown", new.segment, self._world.host_of(joined))
            elif len(new.in_sync) < len(old.in_sync):
                self._moment("shrunk", new.segment, None)

    def _moment(self, what: str, segment: int, host: ClusterHost | None) -> None:
        world = self._world
        is_rare = what == _RARE
        likely = 1.0 if is_rare or what == self._favourite else _CHANCES.get(what, _CHANCE) / (5 if self._favourite else 1)
        if self._world.is_over or (world.scheduler.now_us < self._ready_us and not is_rare) or world.chance.random() > likely:
            return
        self._ready_us = world.scheduler.now_us + int(self._mean_us * (0.2 + world.chance.random()))
        act, delay_us = world.chance.choice(self._acts), world.chance.choice(_AFTER_US)
        world.reached[f"ambush: {what}"] += 1
        if is_rare and host is not None:
            world.scheduler.after(0, lambda: self._leave_alone_with(segment, host))
        elif what == "grown" and host is not None and world.chance.random() < _STRANDED:
            self._strand(segment, host)
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

    def _strand(self, segment: int, host: ClusterHost) -> None:
        """Part who has just joined a set from the others, and a little later leave it alone: nothing may be committed without it."""
        self._cut_off(host)
        self._world.scheduler.after(self._world.chance.choice(_STRAND_US), lambda: self._leave_alone_with(segment, host))

    def _leave_alone_with(self, segment: int, host: ClusterHost) -> None:
        """Leave the one with the shortest log alone, if the set that it is of has this host."""
        record = self._world.record(segment)
        if not self._world.is_over and record is not None and any(self._world.host_of(replica.node) is host for replica in record.in_sync):
            self._leave_alone(record)

    def _leave_alone(self, record: SegmentRecord) -> None:
        """Take down all of an in-sync set but the one with the shortest log: it has to have everything that was ever committed."""
        members = [self._world.host_of(replica.node) for replica in record.in_sync]
        left = min(members, key=lambda host: (host.end(record.segment), host.number))
        self._world.reached["left alone with the shortest log"] += 1
        for host in members:
            if host is not left:
                self._crash(host)


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
        self._slowed: tuple[str, int] | None = None

    def start(self) -> None:
        self._world.metadata.asked.append(self._asked)
        self._world.metadata.committed.append(self._committed)

    def wait(self) -> bool:
        """Wait for the next set that grows; return False where that is done already."""
        is_new = not self._wanted
        self._wanted = self._wanted or self._world.chance.choice((_COMMITTED, _JOINING))
        return is_new

    def _committed(self, puts: Mapping[str, bytes], before: Mapping[str, bytes]) -> None:
        if self._wanted != _COMMITTED or self._world.is_over:
            return
        for new, joined in _grown(puts, before):
            if joined != new.primary:
                self._keep_from_hearing(new, joined)
                return

    def _keep_from_hearing(self, record: SegmentRecord, joined: int) -> None:
        self._wanted = ""
        self._world.reached["growth that its primary did not hear of"] += 1
        primary, other = self._world.host_of(record.primary), self._world.host_of(joined)
        for_us = self._world.chance.randint(*_UNHEARD_US)
        self._cut_ways(both_ways(primary.name, [other.name, METADATA_HOST]), for_us=for_us)
        others = tuple(owner for owner in record.owners if owner != joined)
        self._world.scheduler.after(for_us, lambda: self._operators.move_segment(record.segment, but=others))

    def _asked(self, host: str, puts: Mapping[str, bytes]) -> None:
        """Hold up the first commit that lets a replica join; make void what waits behind it to let the same one join elsewhere."""
        if self._wanted != _JOINING or self._world.is_over:
            return
        before = {key: item.value for key in puts if (item := self._world.metadata.get(key)) is not None}
        for new, joined in _grown(puts, before):
            if self._slowed != (host, joined):
                self._slowed = host, joined
                self._world.metadata.faults.slow_us = {host: _SLOW_US}
                self._world.scheduler.after(2 * _SLOW_US, self._be_quick_again)
                return
            self._wanted, self._slowed = "", None
            self._world.reached["proposal void when its turn came"] += 1
            self._cut_ways(both_ways(host, [self._world.host_of(joined).name]), for_us=2 * _SLOW_US)
            self._operators.rewrite(new.segment)
            self._operators.lead_when_in_sync(new.segment, joined)
            return

    def _be_quick_again(self) -> None:
        self._slowed = None
        self._world.metadata.faults.slow_us = {}


def _grown(puts: Mapping[str, bytes], before: Mapping[str, bytes]) -> Iterator[tuple[SegmentRecord, int]]:
    """Yield each record whose set grows, with the member that joins."""
    for key, value in puts.items():
        if key.startswith(SEGMENT_PREFIX) and key in before:
            new, old = (msgspec.json.decode(data, type=SegmentRecord) for data in (value, before[key]))
            joined = [replica.node for replica in new.in_sync if replica not in old.in_sync]
            if joined and new.epoch == old.epoch:
                yield new, joined[0]
