"""Faults of a group's home, the segment that its coordinator leads: it changes hands right while a commit is being written.

Either its primary is parted from all but the metadata, so that what it tries again comes to the next one late; or it gets the segment
back after another one took commits, and a member dies, whose segments are to be given on.
"""

from collections.abc import Callable
from typing import Final

from eventlog.control.records import SegmentRecord
from eventlog.groups.record import route_of
from tests.sim.cluster.operating import Operators
from tests.sim.cluster.world import ClusterHost, ClusterWorld
from tests.sim.network import both_ways

_STRUCK: Final = 0.3  # of the commits
_BETWEEN_US: Final = 1_000_000  # two strikes, at least
_AFTER_US: Final = (0, 300, 1_000, 5_000, 20_000)
_PARTED_US: Final = (300_000, 1_000_000, 2_000_000)
_LENT_US: Final = (100_000, 300_000, 1_000_000)
_BACK_US: Final = (10_000, 100_000, 300_000)  # until it has the segment again


class Home:
    """`people` are the names of the hosts that members are on; `bereave` ends the process of one of them."""

    def __init__(self, world: ClusterWorld, group: str, *, people: Callable[[], list[str]], bereave: Callable[[], None]) -> None:
        self._world = world
        self._group = route_of(group)
        self._people = people
        self._bereave = bereave
        self._operators = Operators(world)
        self._ready_us = 0

    def commits(self) -> None:
        """Hear that a member is about to commit, and perhaps strike while that is being written."""
        world = self._world
        if world.is_over or world.scheduler.now_us < self._ready_us or world.chance.random() > _STRUCK:
            return
        self._ready_us = world.scheduler.now_us + _BETWEEN_US
        world.scheduler.after(world.chance.choice(_AFTER_US), self._strike)

    def primary(self) -> ClusterHost | None:
        """Return the host that leads it, by the metadata; None where that is not known."""
        record = self._record()
        return None if record is None else self._world.host_of(record.primary)

    def _record(self) -> SegmentRecord | None:
        node = next((host.node for host in self._world.hosts if host.node is not None), None)
        segment = node.inner.segment(self._group) if node is not None else None
        return self._world.record(segment) if segment is not None else None

    def _strike(self) -> None:
        record = self._record()
        if record is None or self._world.is_over:
            return
        segment, primary = record.segment, self._world.host_of(record.primary)
        self._operators.move_segment(segment, but=(record.primary,))
        if self._world.chance.random() < 0.5:
            self._part(primary)
        else:
            others = tuple(owner for owner in record.owners if owner != record.primary)
            self._world.scheduler.after(self._world.chance.choice(_LENT_US), lambda: self._give_back(segment, others))

    def _part(self, primary: ClusterHost) -> None:
        """Have a host reach nobody but the metadata for a while; what it sends meanwhile arrives afterwards."""
        world, network = self._world, self._world.network
        world.reached["home parted from its members"] += 1
        others = [*(host.name for host in world.hosts if host is not primary), *self._people()]
        ways = both_ways(primary.name, others)
        network.cut_ways(ways)
        for other in others:
            network.reset(primary.name, other)

        def mend() -> None:
            if not world.is_over:
                network.mend_ways(ways)

        world.scheduler.after(world.chance.choice(_PARTED_US), mend)

    def _give_back(self, segment: int, others: tuple[int, ...]) -> None:
        self._world.reached["home given back"] += 1
        self._operators.move_segment(segment, but=others)
        self._world.scheduler.after(self._world.chance.choice(_BACK_US), self._bereave)
