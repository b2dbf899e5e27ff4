"""How the cluster is, as one node sees it, and what its operator should do next."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from eventlog.control.appointment import held_alone
from eventlog.control.controller import Controller, Situation
from eventlog.control.metastores.location import Location
from eventlog.control.operators import why_not_removed
from eventlog.control.placement import may_be_evened_out
from eventlog.control.records import ClusterSettings, NodeRecord, SegmentRecord
from eventlog.errors import MetadataLost
from eventlog.ids import TIME_SHIFT, FlakeClock, time_of
from eventlog.limits import LEASE_RENEW_MS, STALLED_MS
from eventlog.node.cluster.controller import ControllerLoop
from eventlog.node.cluster.managed import Managed
from eventlog.node.cluster.metadata import NodeLease
from eventlog.node.cluster.peers import Peers
from eventlog.node.cluster.serving import Availability
from eventlog.node.copying.replicate import Replicas
from eventlog.read.watermark import LowWatermark
from eventlog.wire import eventlog_pb2 as pb

_NAMED_MAX = 5
_UNANSWERED_MS = 3 * LEASE_RENEW_MS


class HealthGround(Protocol):
    """What this module needs of the node."""

    cluster: str
    location: Location
    number: int
    clock: FlakeClock
    low: LowWatermark
    segments: int
    replicas: Replicas
    peers: Peers
    managed: Managed | None
    controller: ControllerLoop
    availability: Availability
    lease: NodeLease

    def now_2020(self) -> int: ...


class ClusterHealth:
    """The health of the cluster, as this node tells it."""

    def __init__(self, node: HealthGround) -> None:
        self._node = node

    async def status(self) -> pb.StatusAnswer:
        """Return the health of the cluster: of segments as their primaries tell it, of nodes as this one sees them."""
        serving = await self._node.availability.ask()
        situation = self._node.controller.situation()
        view = situation.view
        records = [found.record for found in view.segments.values()]
        unwritable, unreadable = int((~serving.writable).sum()), int((~serving.readable).sum())
        under_replicated = sum(is_under_replicated(situation, segment) for segment in records)
        missing = [member.name for member in view.members.values() if self.member_state(situation, member) not in ("live", "draining")]
        is_cut_off = self._is_cut_off()
        is_read = not any(member.unreadable for member in view.members.values())
        is_whole = not under_replicated and not serving.full and not missing and is_read and not is_cut_off and not self._silent()
        low = self._node.low.limit()
        return pb.StatusAnswer(
            cluster=self._node.cluster,
            health="unavailable"
            if unwritable or unreadable or (is_cut_off and self._issues_nothing())
            else "ok"
            if is_whole
            else "degraded",
            controller=_name(situation, view.controller.record.node) if view.controller else "",
            metastore=str(self._node.location).partition(":")[0],
            nodes=len(view.members),
            nodes_live=len(view.members) - len(missing),
            segments=self._node.segments,
            without_primary=int((~serving.led).sum()),
            under_replicated=under_replicated,
            low_watermark=low,
            low_watermark_age_ms=max(self._node.clock.physical_ms() - time_of(low), 0) if low else 0,
            held_by=self._held_by(situation),
            rebalance=view.rebalance.record.state if view.rebalance else "idle",
            advice=list(self.advice(situation, serving.full)),
            unwritable=unwritable,
            unreadable=unreadable,
            missing=sorted(missing),
        )

    def member_state(self, situation: Situation, member: NodeRecord) -> str:
        """Return live, suspect (not reached, and not known to be dead), down or draining."""
        if member.number in situation.dead:
            return "down"
        if member.number not in self._reached():
            return "suspect"
        return "draining" if member.draining else "live"

    def _reached(self) -> set[int]:
        return {self._node.number, *self._node.peers.incarnations}

    def _held_by(self, situation: Situation) -> str:
        """Return which segment the low watermark waits for, and its primary, empty while it moves."""
        below = self._node.now_2020() - STALLED_MS << TIME_SHIFT
        held = self._node.low.holders(None, below=below)
        if not len(held):
            return ""
        found = situation.view.segments.get(int(held[0]))
        return f"segment {held[0]} of {_name(situation, found.record.primary)}" if found else f"segment {held[0]}"

    def _is_cut_off(self) -> bool:
        """Return whether the metadata store has not answered for a while."""
        return asyncio.get_running_loop().time() - self._node.lease.renewed_s > _UNANSWERED_MS / 1000

    def _silent(self) -> tuple[str, ...]:
        """Return the nodes whose members of an etcd of the cluster's own do not answer."""
        return self._node.managed.silent if self._node.managed else ()

    def _issues_nothing(self) -> bool:
        """Return whether this node leads segments and has used up its lease of ids."""
        clock = self._node.clock
        return bool(self._node.replicas.serving.any()) and time_of(clock.ceiling) <= max(time_of(clock.last), clock.physical_ms())

    def advice(self, situation: Situation, full: Mapping[int, int]) -> Iterator[str]:
        """Yield what the operator should do, most pressing first. `full` are the members whose disk is full, with the bytes left."""
        records = [found.record for _, found in sorted(situation.view.segments.items())]
        yield from about_full_disks(situation, full)
        if self._is_cut_off():
            writes = "writes have stopped" if self._issues_nothing() else "writes will stop within seconds"
            failure = self._node.lease.failure
            if isinstance(failure, MetadataLost):
                rebuild = "with all nodes stopped: eventlog admin metastore rebuild --data DIR... --to META"
                yield f"{writes}, reading goes on: {failure}; {rebuild}"
            else:
                store = f"the metadata store, {self._node.location}, does not answer" + (f" ({failure.why})" if failure else "")
                yield f"{store}: {writes}, reading goes on; see that it runs, has room, and is reached from here"
        yield from about_what_stands_still(situation, records)
        if silent := self._silent():
            yield f"etcd of {', '.join(silent)} does not answer; the metadata need most of its members: see etcd.log in the data directory"
        yield from about_unreached(situation, self._reached())
        yield from about_members(situation, records)
        yield from about_copies(situation, records)
        for segment, why in sorted(self._node.controller.differences.items())[:_NAMED_MAX]:
            yield f"segment {segment} does not move because {why}: eventlog admin segments --verify"


def is_under_replicated(situation: Situation, segment: SegmentRecord) -> bool:
    """Return whether fewer copies of a segment are in sync and there than are to be kept."""
    return _copies(situation, segment) < situation.view.replicas


def _copies(situation: Situation, segment: SegmentRecord) -> int:
    return sum(situation.is_here(replica) for replica in segment.in_sync)


def _name(situation: Situation, number: int) -> str:
    found = situation.view.nodes.get(number)
    return found.record.name if found else str(number)


# ---------------------------------------------------------------- what to do next


def about_full_disks(situation: Situation, full: Mapping[int, int]) -> Iterator[str]:
    """Yield what to do where disks are full: a node that has one takes no writes, and no more of what others write."""
    others = [member for number, member in situation.view.members.items() if member.holds_data and number not in {*full, *situation.dead}]
    for number, free_bytes in sorted(full.items()):
        name = _name(situation, number)
        room = f", or move what it holds to others: eventlog admin drain {name}" if others else ""
        yield f"the data disk of {name} has {free_bytes} bytes left, so it takes no writes: free space, lower retention{room}"


def about_what_stands_still(situation: Situation, records: list[SegmentRecord]) -> Iterator[str]:
    if not records:
        yield "no node holds data: start one that joins without --gateway"
    if lost := [segment for segment in records if _is_lost(situation, segment)]:
        names = _away(situation, lost, " or ")
        yield f"{_counted(lost)} no primary: start {names}; if gone for good: eventlog admin force-primary --all-lost --dry-run"
    if short := [segment for segment in records if situation.is_led(segment) and _copies(situation, segment) < segment.min_in_sync]:
        names = _away(situation, short, " or ")
        yield f"{_counted(short)} too few in-sync replicas to be written: start {names}, or eventlog admin remove what is gone for good"


def about_unreached(situation: Situation, reached: Collection[int]) -> Iterator[str]:
    for member in situation.view.members.values():
        if member.number not in reached and member.number not in situation.dead:
            yield f"node {member.name} is not reached from here, and may be up: see that it runs, and ask other nodes whether they reach it"


def about_members(situation: Situation, records: list[SegmentRecord]) -> Iterator[str]:
    view, members = situation.view, situation.view.members.values()
    wanted = view.settings.record.replicas if view.settings else ClusterSettings().replicas
    left = sum(member.holds_data for member in members)
    if left < wanted and any(member.draining for member in members):
        yield f"draining leaves {left} of the {wanted} nodes that {wanted} replicas need: add nodes, or eventlog admin drain --cancel NODE"
    for number in sorted(situation.dead & view.members.keys()):
        name, is_removable = _name(situation, number), not why_not_removed(situation, view.members[number])
        yield f"node {name} is down: start it again" + (f"; if it is gone for good: eventlog admin remove {name}" if is_removable else "")
    for member in situation.view.members.values():
        if member.unreadable and member.number not in situation.dead:
            yield _about_unreadable(situation, member)
        if member.draining and not any(member.number in segment.owners for segment in records):
            yield f"node {member.name} holds nothing: eventlog admin remove {member.name}, or stop it"


def _about_unreadable(situation: Situation, member: NodeRecord) -> str:
    others = [other.number for other in situation.view.members.values() if not other.unreadable and other.number not in situation.dead]
    if held_alone(situation.view, member.number, others=others):
        return f"node {member.name} met a damaged file, and no other node that is up has all that it holds: start those, or add one"
    return f"node {member.name} met a damaged file: look at its disk, then start it again; the others fill it"


def about_copies(situation: Situation, records: list[SegmentRecord]) -> Iterator[str]:
    if any(segment.target for segment in records):
        yield "segments are moving: eventlog admin rebalance status"
    elif not situation.dead and any(is_under_replicated(situation, segment) for segment in records):
        yield "copies are being made: eventlog admin status --wait 10m"
    elif not situation.dead and _is_uneven(situation, records):
        yield "nodes hold unequal shares: eventlog admin rebalance plan"


def _away(situation: Situation, segments: list[SegmentRecord], joined: str) -> str:
    """Return the names of those that hold what is committed in the segments and are not there."""
    away = {replica.node for segment in segments for replica in segment.in_sync if not situation.is_here(replica)}
    return joined.join(_name(situation, number) for number in sorted(away)) or "the node that led them"


def _is_lost(situation: Situation, segment: SegmentRecord) -> bool:
    """Return whether nobody leads a segment and nobody can take it over."""
    if situation.is_led(segment):
        return False
    return Controller().successor(situation, segment, dict.fromkeys(situation.view.members, 0)) is None


def _counted(segments: list[SegmentRecord]) -> str:
    named = ", ".join(str(segment.segment) for segment in segments[:_NAMED_MAX])
    more = f" and {len(segments) - _NAMED_MAX} more" if len(segments) > _NAMED_MAX else ""
    return f"segment {named} has" if len(segments) == 1 else f"segments {named}{more} have"


def _is_uneven(situation: Situation, records: list[SegmentRecord]) -> bool:
    holders = [member for member in situation.view.members.values() if member.holds_data]
    owners = {segment.segment: segment.owners for segment in records}
    return may_be_evened_out(holders, owners, replicas=situation.view.replicas)
