"""One segment on its way to other owners. Where it stands is in its record alone: whoever is controller takes the next step."""

from collections.abc import Collection

import msgspec

from eventlog.control.appointment import primary_of
from eventlog.control.records import Replica, SegmentRecord
from eventlog.control.rules import appoint, own
from eventlog.control.view import ClusterView


def next_move(
    view: ClusterView,
    segment: SegmentRecord,
    *,
    here: Collection[Replica],
    verified: Collection[Replica],
    may_begin: bool,
    nonce: str,
) -> SegmentRecord:
    """Return the record after the next step towards its target, or as it is while it has to wait.

    `here` are the in-sync replicas that answer, `verified` those whose copy was found equal to the primary's. Owners are added first
    and leave last, in the commit that ends the move: there are never fewer whole copies than before.
    """
    holders = {number for number, node in view.members.items() if node.holds_data}
    if not holders.issuperset(segment.target) or len(segment.target) != view.replicas:
        # Planned before a member left, or before the number of replicas was changed.
        return msgspec.structs.replace(segment, target=(), nonce=nonce)
    if missing := [owner for owner in segment.target if owner not in segment.owners]:
        is_short = len(segment.owners) < view.replicas  # a lost copy is made again at once, whatever else moves
        return own(segment, (*segment.owners, *missing), nonce=nonce) if may_begin or is_short else segment
    replica_of = {replica.node: replica for replica in here}
    if not all(owner in replica_of for owner in segment.target):
        return segment
    leaving = [owner for owner in segment.owners if owner not in segment.target]
    copies = [replica_of[owner] for owner in segment.target if owner != segment.primary]
    if leaving and not all(replica in verified for replica in copies):
        return segment
    return _arrived(view, segment, leaving, nonce=nonce)


def _arrived(view: ClusterView, segment: SegmentRecord, leaving: Collection[int], *, nonce: str) -> SegmentRecord:
    first = segment.target[0]
    if first != segment.primary:
        gone = [replica for replica in segment.in_sync if replica.node in leaving]
        target, before = segment.target, primary_of(view, segment).record
        segment = appoint(segment, view.members[first], old_primary=before, nonce=nonce, gone=gone)
        segment = own(segment, target, nonce=nonce)
    else:
        segment = own(segment, segment.target, nonce=nonce)
    return msgspec.structs.replace(segment, target=())
