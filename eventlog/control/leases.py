"""The lease of ids: a ceiling in the node's record, below which it may issue ids and promise low watermarks.

The ceiling rises by commits that expect the record's revision. Whoever appoints another primary in this node's stead rewrites that
record, so the next raise conflicts; before it is tried again the node must see what it still leads and drop the rest, or it would
stamp below the floor that its successor was given.
"""

from collections.abc import Mapping

import msgspec

from eventlog.control.records import CommitPlan, NodeRecord, SegmentRecord, Versioned, encode, node_key
from eventlog.errors import MemberReplaced


def plan_ceiling(
    own: Versioned[NodeRecord], ceiling: int, *, acknowledged: int = 0, unreadable: bool = False
) -> tuple[NodeRecord, CommitPlan]:
    """Return the record with another ceiling, and the commit that makes it so; `acknowledged` only rises, `unreadable` stays."""
    record = msgspec.structs.replace(
        own.record,
        ceiling=ceiling,
        acknowledged=max(own.record.acknowledged, acknowledged),
        unreadable=own.record.unreadable or unreadable,
    )
    key = node_key(record.number)
    return record, CommitPlan(expect={key: own.revision}, puts={key: encode(record)})


def check_own(found: Versioned[NodeRecord], *, number: int, name: str, incarnation: str) -> Versioned[NodeRecord]:
    """Return the record read again after a conflict, if it is still this data directory's.

    Raises:
        MemberReplaced: it is not; this process must stop.
    """
    if found.record.removed_id or found.record.incarnation != incarnation:
        raise MemberReplaced(number=number, name=name)
    return found


def lost_segments(led: Mapping[int, int], segments: Mapping[int, Versioned[SegmentRecord]], *, number: int) -> tuple[int, ...]:
    """Return those of the segments in `led` (segment -> epoch of one's own term) that have moved to another term since."""
    return tuple(sorted(segment for segment, epoch in led.items() if _is_lost(segments.get(segment), epoch, number)))


def _is_lost(found: Versioned[SegmentRecord] | None, epoch: int, number: int) -> bool:
    """Return whether a record shows that the term is over; one of an earlier epoch was read before the term began."""
    if found is None or found.record.epoch > epoch:
        return True
    return found.record.epoch == epoch and found.record.primary != number
