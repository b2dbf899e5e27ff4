"""Forcing a replica that was not in sync to take over: which could, what each lacks, and the commit that is asked for with open eyes."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from eventlog.control import operators
from eventlog.control.appointment import primary_of
from eventlog.control.controller import Situation
from eventlog.control.operators import Forced
from eventlog.control.records import CommitPlan
from eventlog.control.rules import SegmentRules
from eventlog.errors import InvalidArgument, OperationRefused
from eventlog.node.cluster.controller import ControllerLoop
from eventlog.node.cluster.peers import Peers
from eventlog.node.cluster.rebalance import SegmentReports
from eventlog.wire import eventlog_pb2 as pb

Ends = Mapping[int, tuple[int, int]]  # node number -> the last id of its log of a segment, and the last known as committed


class ForcingGround(Protocol):
    """What this module needs of the node."""

    number: int
    peers: Peers
    controller: ControllerLoop
    segment_reports: SegmentReports


class Forcing:
    """Has replicas lead that were not in sync, where an operator accepts the loss."""

    def __init__(self, node: ForcingGround) -> None:
        self._node = node

    async def force(self, asked: pb.ForcePrimary) -> list[pb.ForcedReplica]:
        """Return the replicas of the segments asked for, the chosen ones marked, which lead when this returns, unless it is a dry run.

        Where a node is named, its replicas alone.

        Raises:
            OperationRefused: a segment needs no force or has nobody to be forced, or the loss was not accepted.
            InvalidArgument: a node or a segment is not there.
        """
        situation = self._node.controller.situation()
        segments = _lost(situation) if asked.all_lost else _named(situation, asked.segments)
        ends = await self._ends(situation)
        only = operators.member_named(situation.view, asked.node).number if asked.node else 0
        candidates = [candidate for segment in segments for candidate in candidates_of(situation, segment, ends.get(segment, {}), only)]
        if asked.dry_run:
            return candidates
        if not asked.accept_data_loss:
            raise OperationRefused(
                what="forcing a primary", why="it gives committed events up: look with --dry-run, then --accept-data-loss"
            )
        chosen = {candidate.segment: candidate for candidate in candidates if candidate.chosen}
        for segment in segments:
            if segment not in chosen:
                unable = [candidate for candidate in candidates if candidate.segment == segment and candidate.why_not]
                raise OperationRefused(what=f"forcing a primary of segment {segment}", why=_whys(unable) or "nobody that answers holds it")
        await self._commit(situation, chosen)
        return candidates

    async def _commit(self, situation: Situation, chosen: Mapping[int, pb.ForcedReplica]) -> None:
        numbers = {member.name: number for number, member in situation.view.members.items()}
        epochs = {segment: situation.view.segments[segment].record.epoch for segment in chosen}

        def next_plan(now: Situation, nonce: str) -> CommitPlan | None:
            left = [
                Forced(segment=segment, node=numbers[replica.node], end=replica.last_id, committed=replica.committed)
                for segment, replica in chosen.items()
                if now.view.segments[segment].record.epoch == epochs[segment]
            ]
            return operators.force(now, left, nonce=nonce)[0] if left else None

        await self._node.controller.operate(next_plan)

    async def _ends(self, situation: Situation) -> Mapping[int, Ends]:
        ends: dict[int, dict[int, tuple[int, int]]] = {}
        for number in sorted({self._node.number, *self._node.peers.incarnations} & set(situation.view.members)):
            for segment in await self._node.segment_reports.at(number):
                ends.setdefault(segment.segment, {})[number] = segment.last_id, segment.high_watermark
        return ends


def _whys(unable: Iterable[pb.ForcedReplica]) -> str:
    """Return each reason once, with the nodes that it keeps from leading."""
    names: dict[str, list[str]] = {}
    for candidate in unable:
        names.setdefault(candidate.why_not, []).append(candidate.node)
    return "; ".join(f"{why} ({', '.join(who)})" for why, who in names.items())


def _named(situation: Situation, segments: Iterable[int]) -> list[int]:
    for segment in segments:
        if segment not in situation.view.segments:
            raise InvalidArgument(why=f"there is no segment {segment}")
    return sorted(set(segments))


def _lost(situation: Situation) -> list[int]:
    """Return the segments that nobody leads and nobody in sync can take over."""
    view = situation.view
    return [number for number, found in sorted(view.segments.items()) if not operators.why_not_needed(situation, found.record)]


def candidates_of(situation: Situation, segment: int, ends: Ends, only: int) -> list[pb.ForcedReplica]:
    view = situation.view
    record = view.segments[segment].record
    floor = SegmentRules.next_floor(record, primary_of(view, record).record)
    found = []
    for owner in sorted({*record.owners, only} - {0}):
        member = view.members.get(owner)
        answered = ends.get(owner)
        why = operators.why_not_forced(situation, record, member) or ("the node does not answer" if answered is None else "")
        name, (end, committed) = member.name if member else str(owner), answered or (0, 0)
        found.append(pb.ForcedReplica(segment=segment, node=name, last_id=end, committed=committed, upto=max(floor, end), why_not=why))
    able = [candidate for candidate in found if not candidate.why_not]
    longest = max(able, key=lambda candidate: candidate.last_id, default=None)
    if only:
        found = [candidate for candidate in found if candidate.node == view.members[only].name]
        able = [candidate for candidate in found if not candidate.why_not]
    for candidate in able:
        if longest is not None and candidate.last_id < longest.last_id:
            candidate.longer = longest.node
        candidate.chosen = bool(only) or candidate is longest
    return found
