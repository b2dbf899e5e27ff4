"""What operators ask for, as commits: settings, draining, replacing, removing, rebalancing, forcing a replica to take over.

Each function returns the next commit, None when nothing is left to commit; what follows from it (copies, moves) is the controller's.
All may be called again after a failure and go on where the last call stopped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from eventlog.control.appointment import RECORDS_PER_COMMIT_MAX, commit_of, primary_of
from eventlog.control.controller import Controller, Situation, plan_rebalance
from eventlog.control.membership import tombstone
from eventlog.control.records import (
    CLUSTER_KEY,
    REBALANCE_KEY,
    SETTINGS_KEY,
    ClusterKey,
    ClusterSettings,
    CommitPlan,
    LostRange,
    LostRanges,
    NodeRecord,
    RebalanceRecord,
    SegmentRecord,
    encode,
    lost_key,
    node_key,
    segment_key,
)
from eventlog.control.rules import SegmentRules
from eventlog.control.view import ClusterView
from eventlog.errors import InvalidArgument, OperationRefused
from eventlog.limits import REPLICAS_MAX

SEGMENTS_NAMED_MAX = 10
FORCED_PER_COMMIT_MAX = RECORDS_PER_COMMIT_MAX // 2  # a lost range goes with each


def member_named(view: ClusterView, name: str) -> NodeRecord:
    """Return the member of this name or number.

    Raises:
        InvalidArgument: there is none; names those there are.
    """
    found = view.named(name)
    if found is None:
        raise InvalidArgument(why=f"there is no node {name!r}; there are {', '.join(node.name for node in view.members.values())}")
    return found


def set_replicas(view: ClusterView, replicas: int) -> CommitPlan | None:
    """Set how many copies segments shall have.

    Raises:
        InvalidArgument: nobody can have so many or few.
    """
    if not 1 <= replicas <= REPLICAS_MAX:
        raise InvalidArgument(why=f"replicas {replicas} is not from 1 to {REPLICAS_MAX}")
    found = view.settings
    if found is not None and found.record.replicas == replicas:
        return None
    return CommitPlan(
        expect={SETTINGS_KEY: found.revision if found else 0}, puts={SETTINGS_KEY: encode(ClusterSettings(replicas=replicas))}
    )


def rotate_key(view: ClusterView, fresh: bytes, *, overlap_ms: int) -> CommitPlan | None:
    """Make `fresh` the cluster key; the one before goes on to hold beside it.

    Raises:
        OperationRefused: the last replacement is not over: a third key would be known to some members alone.
    """
    found = view.key
    if found is not None and found.record.key == fresh:
        return None
    if found is not None and found.record.previous is not None:
        raise OperationRefused(what="replacing the cluster key", why="the one before is still valid: try again when it has ended")
    record = ClusterKey(key=fresh, previous=found.record.key if found else None, overlap_ms=overlap_ms)
    return CommitPlan(expect={CLUSTER_KEY: found.revision if found else 0}, puts={CLUSTER_KEY: encode(record)})


def end_previous_key(view: ClusterView) -> CommitPlan | None:
    """End the cluster key that was replaced."""
    found = view.key
    if found is None or found.record.previous is None:
        return None
    record = msgspec.structs.replace(found.record, previous=None)
    return CommitPlan(expect={CLUSTER_KEY: found.revision}, puts={CLUSTER_KEY: encode(record)})


# ---------------------------------------------------------------- emptying and replacing


def drain(situation: Situation, node: NodeRecord) -> CommitPlan | None:
    """Begin to empty a member.

    Raises:
        OperationRefused: nobody else that is up can take what it holds.
    """
    others = [other for other in situation.view.members.values() if other.holds_data and other.number != node.number]
    if all(other.number in situation.dead for other in others):
        why = "no other member that holds data is up: bring one back first" if others else "no other member holds data; add one first"
        raise OperationRefused(what=f"draining {node.name}", why=why)
    return _mark_draining(situation.view, node, draining=True)


def undrain(view: ClusterView, node: NodeRecord, *, nonce: str) -> CommitPlan | None:
    """Stop to empty a member; segments on their way to others stay, the rest stops where it is."""
    if plan := _mark_draining(view, node, draining=False):
        return plan
    held = [found.record for found in view.segments.values() if node.number in found.record.owners]
    leaving = [segment for segment in held if segment.target and node.number not in segment.target]
    return commit_of(view, [msgspec.structs.replace(segment, target=(), nonce=nonce) for segment in leaving])


def replace(situation: Situation, old: NodeRecord, new: NodeRecord, *, nonce: str) -> CommitPlan | None:
    """Begin to move everything of one member, dead or alive, to another.

    Raises:
        OperationRefused: the other cannot hold data, or is down.
    """
    view = situation.view
    if new.number == old.number:
        raise OperationRefused(what=f"replacing {old.name}", why="it cannot take its own place: name another node")
    if not new.holds_data:
        raise OperationRefused(what=f"replacing {old.name}", why=f"{new.name} is {'a gateway' if new.gateway else 'being drained'}")
    if new.number in situation.dead:
        raise OperationRefused(what=f"replacing {old.name}", why=f"{new.name} is down: start it, or name another node")
    changed = []
    for found in view.segments.values():
        segment = found.record
        holding = segment.target or segment.owners
        if old.number in segment.owners and old.number in holding and new.number not in (*segment.owners, *holding):
            target = tuple(new.number if owner == old.number else owner for owner in holding)
            changed.append(msgspec.structs.replace(segment, target=target, nonce=nonce))
    return commit_of(view, changed) or _mark_draining(view, old, draining=True)


def _mark_draining(view: ClusterView, node: NodeRecord, *, draining: bool) -> CommitPlan | None:
    found = view.nodes[node.number]
    if found.record.draining == draining:
        return None
    key = node_key(node.number)
    return CommitPlan(expect={key: found.revision}, puts={key: encode(msgspec.structs.replace(found.record, draining=draining))})


# ---------------------------------------------------------------- removing


def remove(situation: Situation, node: NodeRecord, *, removed_id: int, nonce: str) -> CommitPlan | None:
    """Return the next commit that removes a member: others lead its segments, which folds its ceiling into their floors; then it goes.

    Raises:
        OperationRefused: it is up and owns segments, or nobody else that is up holds what was committed in some; names them.
    """
    view = situation.view
    if node.number not in view.members:
        return None
    if why := why_not_removed(situation, node):
        raise OperationRefused(what=f"removing {node.name}", why=why)
    if plan := hand_over(situation, node, nonce=nonce):
        return plan
    found, key = view.nodes[node.number], node_key(node.number)
    return CommitPlan(expect={key: found.revision}, puts={key: encode(tombstone(found.record, removed_id=removed_id))})


def why_not_removed(situation: Situation, node: NodeRecord) -> str:
    """Return why a member cannot be removed, empty when it can."""
    owned = [found.record for _, found in sorted(situation.view.segments.items()) if node.number in found.record.owners]
    if owned and node.number not in situation.dead:
        return f"it is up and holds {len(owned)} segments: first eventlog admin drain {node.name}"
    if alone := [segment for segment in owned if {replica.node for replica in segment.in_sync} == {node.number}]:
        return f"it alone holds what was committed in {_listed(alone)}: bring it back, or give that up with eventlog admin force-primary"
    if stuck := [segment for segment in owned if _needs(situation, segment, node)]:
        return f"every other node that holds what was committed in {_listed(stuck)} is down: bring it back first"
    return ""


def _needs(situation: Situation, segment: SegmentRecord, node: NodeRecord) -> bool:
    """Return whether nobody that answers has what was committed in a segment, and the member might."""
    others = [replica for replica in segment.in_sync if replica.node != node.number]
    is_holder = len(others) < len(segment.in_sync) or segment.primary == node.number
    return is_holder and not any(situation.is_here(replica) for replica in others)


def hand_over(situation: Situation, node: NodeRecord, *, nonce: str) -> CommitPlan | None:
    """Return the next commit that gives what a member leads, which is about to stop, to those in sync; what nobody can take it keeps."""
    view = situation.view
    without = Situation(view=view, dead=situation.dead | {node.number})
    records = Controller().appointments(without, nonce)
    return commit_of(view, (record for record in records if view.segments[record.segment].record.primary == node.number))


def _listed(segments: Sequence[SegmentRecord]) -> str:
    named = ", ".join(str(segment.segment) for segment in segments[:SEGMENTS_NAMED_MAX])
    more = f" and {len(segments) - SEGMENTS_NAMED_MAX} more" if len(segments) > SEGMENTS_NAMED_MAX else ""
    return f"segment {named}" if len(segments) == 1 else f"segments {named}{more}"


# ---------------------------------------------------------------- rebalancing


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceStart:
    """What a new rebalancing is told: bytes to be copied, the most of them a second (0: no limit), and the time (since 1970)."""

    bytes_total: int
    throttle_bytes: int
    now_ms: int


def start_rebalance(situation: Situation, start: RebalanceStart, *, nonce: str) -> CommitPlan | None:
    """Begin to even out load; None when it is even.

    Raises:
        OperationRefused: one is running.
    """
    found = situation.view.rebalance
    if found is not None and found.record.state == "running":
        raise OperationRefused(what="rebalancing", why="one is running: eventlog admin rebalance status, or cancel")
    moves = plan_rebalance(situation)
    if not moves:
        return None
    record = RebalanceRecord(
        state="running",
        moves_total=len(moves),
        bytes_total=start.bytes_total,
        throttle_bytes=start.throttle_bytes,
        started_ms=start.now_ms,
        nonce=nonce,
    )
    return CommitPlan(expect={REBALANCE_KEY: found.revision if found else 0}, puts={REBALANCE_KEY: encode(record)})


def bytes_to_copy(situation: Situation, sizes: Mapping[int, int]) -> int:
    """Return how many bytes a rebalancing begun now would copy; `sizes` are those of a segment's one copy."""
    segments = situation.view.segments
    plan = plan_rebalance(situation)
    return sum(copied_bytes(segments[number].record, target, sizes.get(number, 0)) for number, target in plan.items())


def copied_bytes(segment: SegmentRecord, target: tuple[int, ...], nbytes: int) -> int:
    """Return what is copied when a segment of `nbytes` bytes moves: to nodes without a copy in sync."""
    return nbytes * len(set(target) - {replica.node for replica in segment.in_sync})


def cancel_rebalance(situation: Situation, *, nonce: str) -> CommitPlan | None:
    """Stop where it is: nothing begins any more, half-made copies go, whole ones leave as surplus; moves off drained members go on.

    Raises:
        OperationRefused: none was started, or it has ended.
    """
    view = situation.view
    found = view.rebalance
    if found is None or found.record.state == "done":
        raise OperationRefused(what="cancelling", why="no rebalancing is running")
    if found.record.state == "running":
        left = sum(bool(segment.record.target) for segment in view.segments.values()) + len(plan_rebalance(situation))
        record = msgspec.structs.replace(found.record, state="cancelled", moves_done=max(found.record.moves_total - left, 0), nonce=nonce)
        return CommitPlan(expect={REBALANCE_KEY: found.revision}, puts={REBALANCE_KEY: encode(record)})
    holders = {number for number, node in view.members.items() if node.holds_data}
    moving = [segment.record for segment in view.segments.values() if segment.record.target and not _is_leaving(segment.record, holders)]
    return commit_of(view, [msgspec.structs.replace(segment, target=(), nonce=nonce) for segment in moving])


def _is_leaving(segment: SegmentRecord, holders: set[int]) -> bool:
    return any(owner not in holders for owner in segment.owners if owner not in segment.target)


# ---------------------------------------------------------------- forcing


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced:
    """A replica that shall take over although it may lack committed events.

    Its log ends with `end`, and is known to be committed up to `committed`.
    """

    segment: int
    node: int
    end: int
    committed: int


def why_not_needed(situation: Situation, segment: SegmentRecord) -> str:
    """Return why nobody has to be forced to lead a segment, empty when somebody has."""
    if situation.is_led(segment):
        return f"segment {segment.segment} has a primary"
    if Controller().successor(situation, segment, dict.fromkeys(situation.view.members, 0)) is not None:
        return f"segment {segment.segment} has an in-sync replica that is up, which takes over by itself"
    return ""


def why_not_forced(situation: Situation, segment: SegmentRecord, node: NodeRecord | None) -> str:
    """Return why a replica need not or cannot be forced, empty when it can."""
    if why := why_not_needed(situation, segment):
        return why
    if node is None or node.number in situation.dead:
        return "the node does not answer"
    if node.number not in segment.owners:
        return f"{node.name} does not hold segment {segment.segment}"
    return ""


def force(situation: Situation, forced: Sequence[Forced], *, nonce: str) -> tuple[CommitPlan, Mapping[int, LostRange]]:
    """Return the commit that makes the first of these replicas primaries, and the ranges of ids that it gives up.

    At most `FORCED_PER_COMMIT_MAX`, and fewer where the primaries before and after are very many.

    Lost is what is above the committed part of the forced log, up to whatever the old primary may have issued; its successor issues above
    that. A tail that is not known to be committed stays in the log, but it may have been cut elsewhere while readers went on: one that
    has passed it never saw it, and is told.

    Raises:
        OperationRefused: one of them need not or cannot be forced.
    """
    view = situation.view
    records: list[SegmentRecord] = []
    lost: dict[int, LostRange] = {}
    for one in forced[:FORCED_PER_COMMIT_MAX]:
        segment, node = view.segments[one.segment].record, view.members.get(one.node)
        if why := why_not_forced(situation, segment, node):
            raise OperationRefused(what="forcing a primary", why=why)
        assert node is not None, "refused above"
        record = forced_record(view, segment, node, nonce)
        lost[one.segment] = LostRange(epoch=record.epoch, after=min(one.committed, one.end), upto=max(record.floor, one.end))
        records.append(record)
    plan = commit_of(view, records)
    assert plan is not None, "there was something to force"
    lost = {segment: range_ for segment, range_ in lost.items() if segment_key(segment) in plan.puts}
    expect, puts = dict(plan.expect), dict(plan.puts)
    for segment_number, range_ in lost.items():
        found = view.lost.get(segment_number)
        expect[lost_key(segment_number)] = found.revision if found else 0
        puts[lost_key(segment_number)] = encode(LostRanges(segment=segment_number, ranges=(*view.lost_ranges(segment_number), range_)))
    return CommitPlan(expect=expect, puts=puts), lost


def forced_record(view: ClusterView, segment: SegmentRecord, node: NodeRecord, nonce: str) -> SegmentRecord:
    """Return the record with the replica as primary and alone in sync: what the others hold counts no more than what it holds."""
    return msgspec.structs.replace(
        segment,
        owners=(node.number, *(owner for owner in segment.owners if owner != node.number)),
        in_sync=(node.replica,),
        min_in_sync=1,
        epoch=SegmentRules.next_epoch(segment),
        floor=SegmentRules.next_floor(segment, primary_of(view, segment).record),
        session=node.session,
        target=(),
        nonce=nonce,
    )
