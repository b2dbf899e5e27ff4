"""Successors that may promise less than what was promised before them, and have issued less.

Either there are two failovers in a row, from a primary that promised much by way of one that may promise less to one that has issued
little: it may issue nothing at or below what the first one promised, though the lease of the one between never got there. Or a primary
that promised much is succeeded by the word of a controller that has heard of none of its leases for a while.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from eventlog.control.records import SegmentRecord
from eventlog.ids import EPOCH_MS, TIME_SHIFT
from tests.sim.cluster.world import AHEAD_MS_MAX, ClusterWorld

_LOOK_US: Final = 10_000
_LOOKS: Final = 300  # for three in sync, a lease by the new clock, and a promise
_APART_MS: Final = (0, 4_000, 10_000)  # the slowest, who is between; the last; the first: a lease is 5 s, and 5 s ahead is believed
_LATE_US: Final = 7_000_000  # two leases, and more
_DOWN_US: Final = 3_000_000
_CHAIN: Final = 3
_MARGIN: Final = 20 << TIME_SHIFT  # 20 ms of ids: a marker, an event, and what a clock goes on meanwhile


class Chaining:
    """`move(segment, but)` lets another member of its set lead a segment, none of those in `but`."""

    def __init__(self, world: ClusterWorld, *, move: Callable[[int, tuple[int, ...]], None]) -> None:
        self._world = world
        self._move = move
        self._looks = 0
        self._strike = self._appoint_two

    def chain(self) -> None:
        """Wait for three in sync; let the one with the fastest clock lead, and as soon as it has promised enough, strike."""
        is_waiting, self._looks = self._looks > 0, _LOOKS
        if not is_waiting:
            self._strike = self._world.chance.choice((self._appoint_two, self._have_it_appointed_late))
            self._look(frozenset())

    def _look(self, prepared: frozenset[int]) -> None:
        """Strike where that tells something; prepare the segments that have three in sync, each once, for a later look."""
        self._looks -= 1
        self._have_promises_made()
        for segment in range(self._world.swarm.segments):
            record = self._world.record(segment)
            issued = self._issued(record) if record is not None else {}
            if record is None or len(issued) < _CHAIN or record.primary not in issued:
                continue
            if self._strike(record, issued):
                self._looks = 0
                return
            if segment not in prepared:
                prepared |= {segment}
                self._prepare(record, list(issued))
        if self._looks > 0 and not self._world.is_over:
            self._world.scheduler.after(_LOOK_US, lambda: self._look(prepared))

    def _issued(self, record: SegmentRecord) -> dict[int, tuple[int, int]]:
        """Return the lease, and the last id or promise, of those in a set that run."""
        return {
            replica.node: (node.clock.ceiling, max(node.clock.last, (node.clock.physical_ms() - EPOCH_MS) << TIME_SHIFT))
            for replica in record.in_sync
            if (node := self._world.host_of(replica.node).node) is not None
        }

    def _have_promises_made(self) -> None:
        """Have all ask all others for promises, as when somebody begins to read."""
        for host in self._world.hosts:
            if host.node is not None and host.loop is not None and not host.is_paused:
                host.loop.run_now(host.node.closing.refresh)

    def _have_it_appointed_late(self, record: SegmentRecord, issued: dict[int, tuple[int, int]]) -> bool:
        """Take the primary down once the controller has heard of nothing for longer than a lease, if others are behind its promise."""
        world, primary = self._world, self._world.host_of(record.primary)
        controller = world.controller()
        promised = 0 if primary.node is None else int(primary.node.low.limits[record.segment])
        others = [last for node, (_, last) in issued.items() if node != record.primary]
        if controller in (None, primary) or max(others) + _MARGIN >= promised:
            return False
        deaf = world.metadata.faults.deaf
        deaf.add(controller.name)
        world.reached["failover by a controller that heard of no lease"] += 1
        world.scheduler.after(_LATE_US - _LOOK_US, self._have_promises_made)
        world.scheduler.after(_LATE_US, partial(primary.take_down, for_us=_DOWN_US))
        world.scheduler.after(_LATE_US + _DOWN_US, lambda: deaf.discard(controller.name))
        return True

    def _appoint_two(self, record: SegmentRecord, issued: dict[int, tuple[int, int]]) -> bool:
        """Appoint two in the same moment, if the lease of the first, the ids of the second and the log all end below what was promised."""
        segment, primary = record.segment, self._world.host_of(record.primary)
        promised = 0 if primary.node is None else int(primary.node.low.limits[segment])
        others = [node for node in issued if node != record.primary]
        between = min(others, key=lambda node: (issued[node][0], node))
        last = min((node for node in others if node != between), key=lambda node: (issued[node][1], node))
        if max(issued[between][0], issued[last][1], primary.end(segment)) + _MARGIN >= promised:
            return False
        self._world.reached["failover of a successor with a lesser lease"] += 1
        self._lead(segment, between, issued)
        self._lead(segment, last, issued)
        return True

    def _prepare(self, record: SegmentRecord, nodes: list[int]) -> None:
        """Set clocks ahead where they are too close to each other, and let the fastest lead.

        One that is far ahead of most is not believed: so the last is ahead of the one between, too.
        """
        hosts = {node: self._world.host_of(node) for node in nodes}
        nodes = sorted(nodes, key=lambda node: (hosts[node].clock_off_ms, node))
        base_ms = hosts[nodes[0]].clock_off_ms
        for node in nodes:
            apart_ms = _APART_MS[(node != nodes[0]) + (node == nodes[-1])]
            hosts[node].clock_off_ms = max(hosts[node].clock_off_ms, min(base_ms + apart_ms, AHEAD_MS_MAX))
        if record.primary != nodes[-1]:
            self._lead(record.segment, nodes[-1], nodes)

    def _lead(self, segment: int, node: int, others: Collection[int]) -> None:
        self._move(segment, tuple(other for other in others if other != node))
