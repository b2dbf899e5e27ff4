"""Node numbers: which node holds which, and which a new one gets; and the lease of ids that a member holds.

A number belongs to a data directory, known by its incarnation token. Numbers never used go first, the smallest at once; then those
of removed members, the longest removed first. A tombstone keeps its ceiling, and so does the node that gets the number after it: ids of
the two never meet.

The lease is that ceiling in the node's record, below which it may issue ids and promise low watermarks. It rises by commits that expect
the record's revision. A node that appoints another primary in this one's stead rewrites that record, so the next raise conflicts; before it
is tried again the node must see what it still leads and drop the rest, or it would stamp below the floor that its successor was given.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from eventlog.control.records import CommitPlan, NodeRecord, SegmentRecord, Versioned, encode, node_key
from eventlog.errors import BadConfig, MemberReplaced, NodeNumbersExhausted
from eventlog.limits import NODE_NUMBER_MAX

NAME_CHARACTERS_MAX = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLabels:
    """What decides where segments are placed; see `NodeRecord`."""

    host_label: str = ""
    rack: str = ""
    weight: int = 1
    gateway: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """The process that joins: `session` is its own, `incarnation` its data directory's, and `number`, 0 for one that never was a member."""

    name: str
    address: str
    incarnation: str
    session: str
    number: int = 0
    labels: NodeLabels = NodeLabels()


def plan_join(nodes: Mapping[int, Versioned[NodeRecord]], joining: Joining) -> tuple[NodeRecord, CommitPlan]:
    """Return this data directory's record as it is after joining, and the commit that makes it so.

    The directory's own number is found again by `incarnation`, another directory under the same name takes over the member as a
    new incarnation; else a free number is taken. The ceiling stays as it was: issue only above it.

    Raises:
        BadConfig: the name is empty, too long, or another member's, while this directory is a member already.
        MemberReplaced: this directory's member was removed, or is another directory's; its data are of no other number.
        NodeNumbersExhausted: no number is free.
    """
    name, labels = joining.name, joining.labels
    if not 0 < len(name) <= NAME_CHARACTERS_MAX or not name.isprintable():
        raise BadConfig(option="node_name", why=f"{name!r} is not 1 to {NAME_CHARACTERS_MAX} printable characters")
    member = _own_number(nodes, name=name, incarnation=joining.incarnation)
    number = member or free_number(nodes)
    _check_not_replaced(nodes, joining, number)
    found = nodes.get(number)
    is_same = found is not None and found.record.incarnation == joining.incarnation
    record = NodeRecord(
        number=number,
        name=name,
        address=joining.address,
        incarnation=joining.incarnation,
        ceiling=found.record.ceiling if found else 0,
        acknowledged=found.record.acknowledged if found and is_same else 0,
        session=joining.session,
        host_label=labels.host_label,
        rack=labels.rack,
        weight=labels.weight,
        gateway=labels.gateway,
        draining=found.record.draining if found and member else False,
        unreadable=found.record.unreadable if found and is_same else False,
    )
    key = node_key(number)
    return record, CommitPlan(expect={key: found.revision if found else 0}, puts={key: encode(record)})


def _own_number(nodes: Mapping[int, Versioned[NodeRecord]], *, name: str, incarnation: str) -> int | None:
    members = [node.record for node in nodes.values() if not node.record.removed_id]
    same_directory = [record.number for record in members if record.incarnation == incarnation]
    same_name = [record.number for record in members if record.name == name]
    if same_directory and same_name not in ([], same_directory):
        raise BadConfig(option="node_name", why=f"{name!r} is node {same_name[0]}; this data directory is node {same_directory[0]}")
    return next(iter(same_directory + same_name), None)


def _check_not_replaced(nodes: Mapping[int, Versioned[NodeRecord]], joining: Joining, number: int) -> None:
    removed = [node.record for node in nodes.values() if node.record.removed_id and node.record.incarnation == joining.incarnation]
    if removed:
        raise MemberReplaced(number=removed[0].number, name=removed[0].name)
    if joining.number not in (0, number):
        raise MemberReplaced(number=joining.number, name=joining.name)


def free_number(nodes: Mapping[int, Versioned[NodeRecord]]) -> int:
    """Return the number that a new member gets.

    Raises:
        NodeNumbersExhausted: all belong to members.
    """
    unused = next((number for number in range(1, NODE_NUMBER_MAX + 1) if number not in nodes), None)
    if unused is not None:
        return unused
    tombstones = [node.record for node in nodes.values() if node.record.removed_id]
    if not tombstones:
        raise NodeNumbersExhausted(limit=NODE_NUMBER_MAX)
    return min(tombstones, key=lambda record: (record.removed_id, record.number)).number


def tombstone(record: NodeRecord, *, removed_id: int) -> NodeRecord:
    """Return what is left of a member that an operator removed; `removed_id` > 0 is an id of now."""
    assert removed_id > 0, "0 says that it is a member"
    return msgspec.structs.replace(record, removed_id=removed_id)


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


def check_own(found: Versioned[NodeRecord], *, number: int, name: str, incarnation: str, session: str) -> Versioned[NodeRecord]:
    """Return the record read again after a conflict, if it is still this process's; one on a copy of the directory has another session.

    Raises:
        MemberReplaced: it is not; this process must stop.
    """
    if found.record.removed_id or (found.record.incarnation, found.record.session) != (incarnation, session):
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
