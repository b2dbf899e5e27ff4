"""What may happen to a segment's record: each rule that the promises hang on is one method, each change one function.

    appoint     another term of primary: the next epoch, a floor above all earlier terms, the gone taken out of the set
    shrink      replicas leave the in-sync set            grow      one that has caught up joins it
    own         other owners                              settle    another least size of the in-sync set

The rules are docs/protocol.md, "Clock and ids" and "Replication and failover"; each stands alone, so that the simulator can leave
one out and see its checkers find the damage.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from eventlog.control.records import NodeRecord, ReplicaRecord, SegmentRecord
from eventlog.errors import NotEnoughReplicas, NotPrimary


class SegmentRules:
    """The rules; none of them knows time or chance."""

    @staticmethod
    def majority(replicas: int) -> int:
        """Return how many of the effective replicas must be in sync."""
        return replicas // 2 + 1

    @staticmethod
    def may_lead(segment: SegmentRecord, node: NodeRecord) -> bool:
        """Return whether this node, as the data directory that it is now, holds every committed event."""
        return node.replica in segment.in_sync

    @staticmethod
    def is_served(segment: SegmentRecord, primary: NodeRecord) -> bool:
        """Return whether the term belongs to the process that the primary is now: it does not survive a process."""
        return segment.session == primary.session

    @staticmethod
    def next_epoch(segment: SegmentRecord) -> int:
        """Return the epoch of the next term; two terms of one node have different ones as well."""
        return segment.epoch + 1

    @staticmethod
    def next_floor(segment: SegmentRecord, old_primary: NodeRecord) -> int:
        """Return the floor of the next term: above whatever the old primary may issue, and its predecessors issued."""
        return max(segment.floor, old_primary.ceiling)

    @staticmethod
    def keeps_minimum(segment: SegmentRecord, left: Sequence[ReplicaRecord]) -> bool:
        """Return whether an in-sync set is large enough to be all there is."""
        return len(left) >= segment.min_in_sync

    @staticmethod
    def is_of_term(segment: SegmentRecord, epoch: int) -> bool:
        """Return whether a change that the primary of `epoch` wants is still its to make."""
        return segment.epoch == epoch


def appoint(
    segment: SegmentRecord, node: NodeRecord, *, old_primary: NodeRecord, nonce: str, gone: Collection[ReplicaRecord] = ()
) -> SegmentRecord:
    """Return the record with `node` as primary of the next term.

    The commit must expect and rewrite the record of `old_primary`. Of `gone`, as many as the least size allows leave the set.
    """
    assert SegmentRules.may_lead(segment, node), "only a member of the in-sync set becomes primary"
    assert old_primary.number == segment.primary, "the ceiling that counts is that of the present primary"
    others = tuple(owner for owner in segment.owners if owner != node.number)
    return msgspec.structs.replace(
        without(segment, [replica for replica in gone if replica != node.replica], nonce=nonce),
        owners=(node.number, *others),
        epoch=SegmentRules.next_epoch(segment),
        floor=SegmentRules.next_floor(segment, old_primary),
        session=node.session,
        nonce=nonce,
    )


def without(segment: SegmentRecord, gone: Iterable[ReplicaRecord], *, nonce: str) -> SegmentRecord:
    """Return the record with as many of `gone` out of the in-sync set as its least size allows, the primary last."""
    ordered = sorted((replica for replica in gone if replica in segment.in_sync), key=lambda replica: replica.node == segment.primary)
    left = list(segment.in_sync)
    for replica in ordered:
        fewer = [other for other in left if other != replica]
        if fewer and SegmentRules.keeps_minimum(segment, fewer):
            left = fewer
    return segment if len(left) == len(segment.in_sync) else msgspec.structs.replace(segment, in_sync=tuple(left), nonce=nonce)


def shrink(segment: SegmentRecord, gone: Collection[ReplicaRecord], *, epoch: int, nonce: str) -> SegmentRecord:
    """Return the record with `gone` out of the in-sync set, as the primary of `epoch` wants it.

    Raises:
        NotPrimary: the term is over.
        NotEnoughReplicas: the set would be too small; nothing may be acknowledged instead.
    """
    if not SegmentRules.is_of_term(segment, epoch):
        raise NotPrimary(segment=segment.segment)
    left = tuple(replica for replica in segment.in_sync if replica not in gone)
    if not SegmentRules.keeps_minimum(segment, left):
        raise NotEnoughReplicas(segment=segment.segment, have=len(left), need=segment.min_in_sync)
    assert any(replica.node == segment.primary for replica in left), "a primary does not put itself out"
    return msgspec.structs.replace(segment, in_sync=left, nonce=nonce)


def grow(segment: SegmentRecord, joined: ReplicaRecord, *, epoch: int, nonce: str) -> SegmentRecord:
    """Return the record with a replica in sync that has caught up; an earlier incarnation of its node leaves.

    Raises:
        NotPrimary: the term is over, or the node does not own the segment any more.
    """
    if not SegmentRules.is_of_term(segment, epoch) or joined.node not in segment.owners:
        raise NotPrimary(segment=segment.segment)
    others = tuple(replica for replica in segment.in_sync if replica.node != joined.node)
    return msgspec.structs.replace(segment, in_sync=(*others, joined), nonce=nonce)


def own(segment: SegmentRecord, owners: Sequence[int], *, nonce: str) -> SegmentRecord:
    """Return the record with other owners, the primary still the first; a former owner leaves the in-sync set too.

    Raises:
        NotEnoughReplicas: the in-sync set would be too small without them.
    """
    assert owners[0] == segment.primary, "another primary needs a term of its own"
    left = tuple(replica for replica in segment.in_sync if replica.node in owners)
    if len(left) < len(segment.in_sync) and not SegmentRules.keeps_minimum(segment, left):
        raise NotEnoughReplicas(segment=segment.segment, have=len(left), need=segment.min_in_sync)
    return msgspec.structs.replace(segment, owners=tuple(owners), in_sync=left, nonce=nonce)


def settle(segment: SegmentRecord, replicas: int, *, staying: Collection[int], nonce: str) -> SegmentRecord:
    """Return the record with the least size that `replicas` effective ones ask for, as far as the set has grown to it.

    It falls only when as many of the set are `staying`: while those that are being emptied are all there is, no fewer of them will do.
    """
    wanted = SegmentRules.majority(replicas)
    if wanted < segment.min_in_sync and sum(replica.node in staying for replica in segment.in_sync) < wanted:
        return segment
    # Below the majority it only rises: a set that lost members to faults must not be taken for one that needs fewer.
    minimum = max(min(segment.min_in_sync, wanted), min(len(segment.in_sync), wanted))
    return segment if minimum == segment.min_in_sync else msgspec.structs.replace(segment, min_in_sync=minimum, nonce=nonce)


def disown(segment: SegmentRecord, removed: Collection[int], *, replicas: int, nonce: str) -> SegmentRecord:
    """Return the record without members that an operator removed: these may leave fewer behind than a fault may.

    Nothing changes while one of them is primary, or while they alone hold what is committed.
    """
    left = tuple(replica for replica in segment.in_sync if replica.node not in removed)
    if segment.primary in removed or not left:
        return segment
    owners = tuple(owner for owner in segment.owners if owner not in removed)
    if owners == segment.owners:
        return segment
    minimum = min(segment.min_in_sync, SegmentRules.majority(replicas))
    return msgspec.structs.replace(segment, owners=owners, in_sync=left, min_in_sync=min(minimum, len(left)), nonce=nonce)
