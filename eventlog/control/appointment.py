"""Appointing primaries. Every term of a primary begins here: a new cluster's, a takeover's, and a restarted node's own.

In one commit per at most 100 segments: the segment gets the new primary under the next epoch and a floor at or above the ceiling of
the old one, and the old primary's record is expected and rewritten unchanged. So the ceiling cannot rise unseen between reading and
committing, and the old primary's next raise conflicts. The floor never falls: with two failovers in quick succession the last
primary's ceiling alone would say too little.
"""

from collections.abc import Iterable

import msgspec

from eventlog.control.metastore import OPERATIONS_MAX
from eventlog.control.records import CommitPlan, NodeRecord, Replica, SegmentRecord, Versioned, encode, node_key, segment_key
from eventlog.control.view import ClusterView
from eventlog.errors import CorruptData, LostDisk

RECORDS_PER_COMMIT_MAX = 100
OLD_PRIMARIES_PER_COMMIT_MAX = 20
assert RECORDS_PER_COMMIT_MAX + OLD_PRIMARIES_PER_COMMIT_MAX < OPERATIONS_MAX, "and the writer's own key"


def segments_to_start(view: ClusterView, node: NodeRecord, *, segments: int) -> list[int]:
    """Return the segments that a starting node is to be appointed to: its own ones, and those of a new cluster.

    Raises:
        LostDisk: of its own ones, this data directory does not hold all that was acknowledged.
    """
    unassigned = [segment for segment in range(segments) if segment not in view.segments]
    own = sorted(number for number, segment in view.segments.items() if segment.record.primary == node.number)
    foreign = [segment for segment in own if not is_electable(view.segments[segment].record, node)]
    if foreign:
        where = f"segments {foreign[0]} to {foreign[-1]}" if len(foreign) > 1 else f"segment {foreign[0]}"
        raise LostDisk(where=where, why=f"their events were acknowledged by another data directory of node {node.number} ({node.name})")
    return own + unassigned


def is_electable(segment: SegmentRecord, node: NodeRecord) -> bool:
    """Return whether this incarnation of the node holds every committed event of the segment."""
    return Replica(node=node.number, incarnation=node.incarnation) in segment.in_sync


def next_appointments(view: ClusterView, node: NodeRecord, *, segments: Iterable[int], nonce: str) -> CommitPlan | None:
    """Return the commit that appoints `node` to the first of `segments` that it does not lead under `nonce`; None when it leads all.

    `nonce` is one per round of appointments: after a commit call again with the view after it. Every segment in `segments` that has
    a record must be one for which the node is electable.
    """
    expect: dict[str, int] = {}
    puts: dict[str, bytes] = {}
    for segment in _one_commit(view, [segment for segment in segments if not _is_done(view, segment, nonce)]):
        found = view.segments.get(segment)
        key = segment_key(segment)
        expect[key] = found.revision if found else 0
        puts[key] = encode(_appoint(view, found.record, node, nonce) if found else _create(segment, node, nonce))
        if found:
            old = _old_primary(view, found.record)
            expect[node_key(old.record.number)] = old.revision
            puts[node_key(old.record.number)] = encode(old.record)
    return CommitPlan(expect=expect, puts=puts) if puts else None


def _one_commit(view: ClusterView, segments: list[int]) -> list[int]:
    """Return as many of the segments as fit one commit with the records of their old primaries."""
    chosen: list[int] = []
    old_primaries: set[int] = set()
    for segment in segments[:RECORDS_PER_COMMIT_MAX]:
        if found := view.segments.get(segment):
            old_primaries.add(found.record.primary)
        if len(old_primaries) > OLD_PRIMARIES_PER_COMMIT_MAX:
            break
        chosen.append(segment)
    return chosen


def _is_done(view: ClusterView, segment: int, nonce: str) -> bool:
    found = view.segments.get(segment)
    return found is not None and found.record.nonce == nonce


def _create(segment: int, node: NodeRecord, nonce: str) -> SegmentRecord:
    replica = Replica(node=node.number, incarnation=node.incarnation)
    # Nobody has issued ids in it; the floor is that of the number, which may have been another member's.
    return SegmentRecord(
        segment=segment, owners=(node.number,), epoch=1, in_sync=(replica,), floor=node.ceiling, min_in_sync=1, nonce=nonce
    )


def _appoint(view: ClusterView, segment: SegmentRecord, node: NodeRecord, nonce: str) -> SegmentRecord:
    assert is_electable(segment, node), "only a member of the in-sync set becomes primary"
    others = tuple(owner for owner in segment.owners if owner != node.number)
    return msgspec.structs.replace(
        segment,
        owners=(node.number, *others),
        epoch=segment.epoch + 1,
        floor=max(segment.floor, _old_primary(view, segment).record.ceiling),
        nonce=nonce,
    )


def _old_primary(view: ClusterView, segment: SegmentRecord) -> Versioned[NodeRecord]:
    found = view.nodes.get(segment.primary)
    if found is None:
        raise CorruptData(where=f"metadata {node_key(segment.primary)}", why=f"segment {segment.segment} names it, and it is not there")
    return found
