"""Appointing primaries. Every term of a primary begins here: a new cluster's, a takeover's, and a restarted node's own.

In one commit per at most 100 segments: the segment gets the new primary under the next epoch and a floor at or above the ceiling of
the old one, and the records of both are expected and rewritten unchanged. So the old primary's ceiling cannot rise unseen between
reading and committing, and its next raise conflicts; the new primary cannot be removed, or be another disk, unseen, and is not removed
by one that has not seen that it leads. The floor never falls: with two failovers in quick succession the last primary's ceiling alone would
say too little.
"""

from collections.abc import Collection, Iterable
from itertools import islice

from eventlog.control.metastore import OPERATIONS_MAX
from eventlog.control.records import CommitPlan, NodeRecord, SegmentRecord, Versioned, encode, node_key, segment_key
from eventlog.control.rules import SegmentRules, appoint
from eventlog.control.view import ClusterView
from eventlog.errors import CorruptData, LostDisk

RECORDS_PER_COMMIT_MAX = 100
PRIMARIES_PER_COMMIT_MAX = 20
assert RECORDS_PER_COMMIT_MAX + PRIMARIES_PER_COMMIT_MAX < OPERATIONS_MAX, "and the writer's own key"


def segments_to_start(view: ClusterView, node: NodeRecord, *, segments: int, accepts_loss: bool = False) -> list[int]:
    """Return the segments that a starting node is to be appointed to: those it led and still may lead, and those of a new cluster.

    What another node can lead as well is left to the controller, should this directory be a new one; with `accepts_loss`, what nobody
    can lead is left to the operator.

    Raises:
        LostDisk: of its own ones, nobody but an earlier data directory of this node holds all that was acknowledged.
    """
    unassigned = [] if node.gateway else [segment for segment in range(segments) if segment not in view.segments]
    led = sorted(number for number, segment in view.segments.items() if segment.record.primary == node.number)
    own = [segment for segment in led if is_electable(view.segments[segment].record, node)]
    lost = [segment for segment in led if {replica.node for replica in view.segments[segment].record.in_sync} == {node.number}]
    lost = [segment for segment in lost if segment not in own]
    if lost and not accepts_loss:
        where = f"segments {lost[0]} to {lost[-1]}" if len(lost) > 1 else f"segment {lost[0]}"
        raise LostDisk(where=where, why=f"their events were acknowledged by another data directory of node {node.number} ({node.name})")
    return own + unassigned


def held_alone(view: ClusterView, number: int, *, others: Collection[int] | None = None) -> list[int]:
    """Return the segments of which no other member, as the data directory that it is now, holds all that was acknowledged.

    `others` are the members that count, if not all of them do.
    """
    now = {node.replica for node in view.members.values() if node.number != number and (others is None or node.number in others)}
    return sorted(
        segment
        for segment, found in view.segments.items()
        if any(replica.node == number for replica in found.record.in_sync) and now.isdisjoint(found.record.in_sync)
    )


def is_electable(segment: SegmentRecord, node: NodeRecord) -> bool:
    """Return whether this incarnation of the node holds every committed event of the segment."""
    return SegmentRules.may_lead(segment, node)


def next_appointments(view: ClusterView, node: NodeRecord, *, segments: Iterable[int], nonce: str) -> CommitPlan | None:
    """Return the commit that appoints `node` to the first of `segments` that it does not lead under `nonce`; None when it leads all.

    `nonce` is one per round of appointments: after a commit call again with the view after it. Every segment in `segments` that has
    a record must be one for which the node is electable.
    """
    changed = []
    for segment in segments:
        found = view.segments.get(segment)
        if found is None:
            changed.append(_create(segment, node, nonce))
        elif found.record.nonce != nonce:
            changed.append(appoint(found.record, node, old_primary=primary_of(view, found.record).record, nonce=nonce))
        if len(changed) == RECORDS_PER_COMMIT_MAX:
            break
    return commit_of(view, changed)


def commit_of(view: ClusterView, changed: Iterable[SegmentRecord], *, records_max: int = RECORDS_PER_COMMIT_MAX) -> CommitPlan | None:
    """Return the commit of the first `records_max` changed records, None without any; no more are asked for.

    It expects what the view shows, and with every new term the records of the old primary and of the new one, which it rewrites. Fewer
    records fit when their primaries are very many.
    """
    expect: dict[str, int] = {}
    puts: dict[str, bytes] = {}
    primaries: dict[int, Versioned[NodeRecord]] = {}
    for record in islice(changed, records_max):
        found = view.segments.get(record.segment)
        if found is None or record.epoch != found.record.epoch:
            more = [primary_of(view, found.record if found else record), primary_of(view, record)]
            if len(primaries.keys() | {primary.record.number for primary in more}) > PRIMARIES_PER_COMMIT_MAX:
                break
            primaries |= {primary.record.number: primary for primary in more}
        expect[segment_key(record.segment)] = found.revision if found else 0
        puts[segment_key(record.segment)] = encode(record)
    for number, primary in primaries.items():
        expect[node_key(number)] = primary.revision
        puts[node_key(number)] = encode(primary.record)
    return CommitPlan(expect=expect, puts=puts) if puts else None


def primary_of(view: ClusterView, segment: SegmentRecord) -> Versioned[NodeRecord]:
    """Return the record of the segment's primary, a tombstone's too.

    Raises:
        CorruptData: there is none.
    """
    found = view.nodes.get(segment.primary)
    if found is None:
        raise CorruptData(where=f"metadata {node_key(segment.primary)}", why=f"segment {segment.segment} names it, and it is not there")
    return found


def _create(segment: int, node: NodeRecord, nonce: str) -> SegmentRecord:
    # Nobody has issued ids in it; the floor is that of the number, which may have been another member's.
    return SegmentRecord(
        segment=segment,
        owners=(node.number,),
        epoch=1,
        in_sync=(node.replica,),
        floor=node.ceiling,
        min_in_sync=1,
        nonce=nonce,
        session=node.session,
    )
