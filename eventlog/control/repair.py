"""Who should own a segment and does not, and who does and should not. Repair is never put off; balance is."""

from collections.abc import Mapping

import msgspec

from eventlog.control.placement import place
from eventlog.control.records import SegmentRecord
from eventlog.control.rules import SegmentRules, disown, own, settle
from eventlog.control.view import ClusterView


def repaired(view: ClusterView, segments: Mapping[int, SegmentRecord], *, dead: frozenset[int], nonce: str) -> list[SegmentRecord]:
    """Return the records of led segments whose owners change.

    Removed members leave; missing owners are added, which then catch up; of too many the ones without a whole copy leave first, and
    an in-sync one only while all that stay are in sync. A segment on a member that is being emptied gets a target instead.
    """
    removed = {number for number, found in view.nodes.items() if not found.record.is_member}
    holders = {number for number, node in view.members.items() if node.holds_data}
    after = {
        number: settle(disown(segment, removed, replicas=view.replicas, nonce=nonce), view.replicas, staying=holders, nonce=nonce)
        for number, segment in segments.items()
    }
    if all(_is_complete(segment, holders, view.replicas) for segment in after.values()):
        return [segment for number, segment in after.items() if segment != segments[number]]
    now = {number: found.record.target or found.record.owners for number, found in view.segments.items()}
    now |= {number: segment.target or segment.owners for number, segment in after.items()}
    members = [node for node in view.members.values() if node.holds_data]
    wanted = place(members, now, replicas=view.replicas, level=False, barred=dead)
    changed = []
    for number, segment in after.items():
        if not _is_complete(segment, holders, view.replicas):
            segment = _with_owners(segment, wanted[number], holders=holders, replicas=view.replicas, nonce=nonce)  # noqa: PLW2901 - the next state of the same
        if segment != segments[number]:
            changed.append(segment)
    return changed


def _is_complete(segment: SegmentRecord, holders: set[int], replicas: int) -> bool:
    return bool(segment.target) or (len(segment.owners) == replicas and holders.issuperset(segment.owners))


def _with_owners(segment: SegmentRecord, wanted: tuple[int, ...], *, holders: set[int], replicas: int, nonce: str) -> SegmentRecord:
    if not holders.issuperset(segment.owners):
        may_leave = len(wanted) == replicas  # else there would be fewer copies than now; it waits for another member
        return msgspec.structs.replace(segment, target=wanted, nonce=nonce) if may_leave else segment
    if added := [owner for owner in wanted if owner not in segment.owners]:
        return own(segment, (*segment.owners, *added), nonce=nonce)
    in_sync = {replica.node for replica in segment.in_sync}
    too_many = len(segment.owners) - len(wanted)
    if too_many <= 0:
        return segment  # some are missing, and nobody can take them
    if surplus := [owner for owner in segment.owners if owner not in in_sync][-too_many:]:
        return own(segment, tuple(owner for owner in segment.owners if owner not in surplus), nonce=nonce)
    keeps = (segment.primary, *(owner for owner in wanted if owner != segment.primary))[: len(wanted)]
    left = [replica for replica in segment.in_sync if replica.node in keeps]
    if in_sync.issuperset(keeps) and SegmentRules.keeps_minimum(segment, left):
        return own(segment, keeps, nonce=nonce)
    return segment
