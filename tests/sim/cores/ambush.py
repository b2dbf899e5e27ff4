"""Faults that do not come by the clock but wait for a delicate moment: a log was cut, a set grew or shrank, a term began.

Most protocol bugs need a failure within the few milliseconds in which something is half done; chance alone seldom hits them.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from eventlog.control.records import SEGMENT_PREFIX, SegmentRecord
from tests.sim.cores.clients import primary_of
from tests.sim.cores.node import Host
from tests.sim.cores.operating import Operators
from tests.sim.cores.world import JOINING, World
from tests.sim.metadata import METADATA_HOST, Place

_AFTER_US: Final = (0, 0, 0, 500, 5_000, 50_000)
_CHANCES: Final = {"appended": 0.02}
_CHANCE: Final = 0.4
_ALONE: Final = 0.4
_STRANDED: Final = 0.7
_STRAND_US: Final = (2_000, 20_000, 100_000, 300_000)
_TURNED_AGAIN: Final = 0.7
_TURNED_US: Final = 200_000
_FAVOURITES: Final = ("", "appended", "cut", "cut", "grown", "grown", "shrunk", "appointed")
_RARE: Final = "cut again"  # in one epoch: seldom enough to be struck always
_SLOW_US: Final = 1_000_000  # for so long a commit is on its way while others wait behind it
_UNHEARD_US: Final = (2_500_000, 4_500_000)  # until a node gives up asking what became of a commit, and some writes more


class Ambush:
    """`acts` are what may happen to a host, the first of them a crash, the last that it is cut off; `host_of` finds where a node runs."""

    def __init__(
        self, world: World, hosts: Mapping[int, Host], *, host_of: Callable[[int], int], acts: tuple[Callable[[Host], None], ...]
    ) -> None:
        self._world = world
        self._hosts = hosts
        self._host_of = host_of
        self._acts = acts
        self._crash, self._cut_off = acts[0], acts[-1]
        self._ready_us = 0
        self.is_over = True

    def start(self, *, mean_ms: int) -> None:
        """Lie in wait from now on, mostly for one kind of moment; between two ambushes pass about `mean_ms`."""
        self.is_over = False
        self._favourite = self._world.random.choice(_FAVOURITES)
        self._mean_us = mean_ms * 1000
        self._world.moments.append(self._moment)
        self._world.store.committed.append(self._committed)

    def _committed(self, puts: Mapping[str, bytes], before: Mapping[str, bytes]) -> None:
        for key, value in puts.items():
            if not key.startswith(SEGMENT_PREFIX) or key not in before:
                continue
            new, old = (msgspec.json.decode(data, type=SegmentRecord) for data in (value, before[key]))
            if new.epoch != old.epoch:
                self._moment("appointed", new.segment, 0)
            elif len(new.in_sync) > len(old.in_sync):
                joined = next(replica.node for replica in new.in_sync if replica not in old.in_sync)
                self._turn_again(self._host_of(joined))
                self._moment("grown", new.segment, self._host_of(joined))
            elif len(new.in_sync) < len(old.in_sync):
                self._moment("shrunk", new.segment, 0)

    def _turn_again(self, host: int) -> None:
        """Let what once turned a stream to a host round come again now that it counts: it may be lost no more."""
        deliver, chance = self._world.turned.get(host), self._world.random
        if deliver is not None and not self.is_over and chance.random() < _TURNED_AGAIN:
            self._world.scheduler.after(int(chance.random() * _TURNED_US), deliver)

    def _moment(self, what: str, segment: int, host: int) -> None:
        if what == JOINING:
            return  # `Unheard` waits for it
        world = self._world
        is_rare = what == _RARE
        likely = 1.0 if is_rare or what == self._favourite else _CHANCES.get(what, _CHANCE) / (5 if self._favourite else 1)
        if self.is_over or (world.scheduler.now_us < self._ready_us and not is_rare) or world.random.random() > likely:
            return
        self._ready_us = world.scheduler.now_us + int(self._mean_us * (0.2 + world.random.random()))
        act, delay_us = world.random.choice(self._acts), world.random.choice(_AFTER_US)
        world.reached[f"ambush: {what}"] += 1
        if is_rare:
            self._leave_alone_with(segment, host)
        elif what == "grown" and world.random.random() < _STRANDED:
            self._strand(segment, host)
        else:
            world.scheduler.after(delay_us, lambda: self._strike(act, segment, host))

    def _strike(self, act: Callable[[Host], None], segment: int, host: int) -> None:
        """Hit the primary, or whoever the moment was about, or another of the set; or all of the set but the one with the least."""
        record = primary_of(self._world, segment)
        if self.is_over or record is None:
            return
        if self._world.random.random() < _ALONE and len(record.in_sync) > 1:
            self._leave_alone(record)
            return
        primary = self._host_of(record.primary)
        others = [self._host_of(replica.node) for replica in record.in_sync if self._host_of(replica.node) != primary]
        if host and host != primary:
            others.append(host)
        hit = self._world.random.choice(others) if others and self._world.random.random() < 0.3 else primary
        self._world.note(f"ambush {hit}")
        act(self._hosts[hit])

    def _strand(self, segment: int, host: int) -> None:
        """Part who has just joined a set from the others, and a little later leave it alone: nothing may be committed without it."""
        self._cut_off(self._hosts[host])
        self._world.scheduler.after(self._world.random.choice(_STRAND_US), lambda: self._leave_alone_with(segment, host))

    def _leave_alone_with(self, segment: int, host: int) -> None:
        """Leave the one with the shortest log alone, if the set that it is of has this host."""
        record = primary_of(self._world, segment)
        if not self.is_over and record is not None and any(self._host_of(replica.node) == host for replica in record.in_sync):
            self._leave_alone(record)

    def _leave_alone(self, record: SegmentRecord) -> None:
        """Take down all of an in-sync set but the one with the shortest log: it has to have everything that was ever committed."""
        members = [self._hosts[self._host_of(replica.node)] for replica in record.in_sync]
        left = min(members, key=lambda host: (host.disk.end(record.segment), host.number))
        self._world.reached["left alone with the shortest log"] += 1
        self._world.note(f"left alone {left.number}")
        for host in members:
            if host is not left:
                self._crash(host)


class Unheard:
    """Sets that grow, or were to grow, in a way that their primary cannot know of. Who joins is parted from it, and is to lead soon.

    Either the commit is done, and the primary hears of nothing any more; or the proposal waits behind another commit, and by its turn
    the record is another. `cut_ways` parts hosts for a while, `host_of` finds where a node runs.
    """

    def __init__(
        self,
        world: World,
        operators: Operators,
        *,
        host_of: Callable[[int], int],
        cut_ways: Callable[..., None],
    ) -> None:
        self._world = world
        self._operators = operators
        self._host_of = host_of
        self._cut_ways = cut_ways
        self._wanted = ""
        self._slowed: tuple[int, int] | None = None
        self.is_over = False

    def start(self) -> None:
        self._world.moments.append(self._moment)
        self._world.store.committed.append(self._committed)

    def wait(self) -> bool:
        """Wait for the next set that grows; return False where that is done already."""
        is_new = not self._wanted
        self._wanted = self._wanted or self._world.random.choice(("committed", JOINING))
        return is_new

    def _committed(self, puts: Mapping[str, bytes], before: Mapping[str, bytes]) -> None:
        if self._wanted != "committed" or self.is_over:
            return
        for key in puts:
            if not key.startswith(SEGMENT_PREFIX) or key not in before:
                continue
            new, old = (msgspec.json.decode(data, type=SegmentRecord) for data in (puts[key], before[key]))
            joined = [replica.node for replica in new.in_sync if replica not in old.in_sync]
            if joined and new.epoch == old.epoch and joined[0] != new.primary:
                self._keep_from_hearing(new, joined[0])
                return

    def _keep_from_hearing(self, record: SegmentRecord, joined: int) -> None:
        self._wanted = ""
        self._world.reached["growth that its primary did not hear of"] += 1
        primary, other = self._host_of(record.primary), self._host_of(joined)
        for_us = self._world.random.randint(*_UNHEARD_US)
        self._part(primary, other, METADATA_HOST, for_us=for_us)
        others = tuple(owner for owner in record.owners if owner != joined)
        self._world.scheduler.after(for_us, lambda: self._operators.move_segment(record.segment, but=others))

    def _moment(self, what: str, segment: int, host: int) -> None:
        """Hold up the first commit that lets a replica join; make void what waits behind it to let the same one join elsewhere."""
        record = primary_of(self._world, segment)
        if what != JOINING or self._wanted != JOINING or self.is_over or record is None:
            return
        primary = self._host_of(record.primary)
        if self._slowed != (primary, host):
            self._slowed = primary, host
            self._world.store.faults.slow_us = {primary: _SLOW_US}
            self._world.scheduler.after(2 * _SLOW_US, self._be_quick_again)
            return
        self._wanted, self._slowed = "", None
        self._world.reached["proposal void when its turn came"] += 1
        self._part(primary, host, for_us=2 * _SLOW_US)
        self._operators.rewrite(segment)
        self._operators.lead_when_in_sync(segment, host)

    def _be_quick_again(self) -> None:
        self._slowed = None
        self._world.store.faults.slow_us = {}

    def _part(self, one: Place, *others: Place, for_us: int) -> None:
        self._cut_ways([way for other in others for way in ((one, other), (other, one))], for_us=for_us)
