"""Making lost metadata again from the copies that nodes keep in their data directories.

Each node keeps the records as it last saw them, a second late at most, leases ten seconds. So what is made from the copies of all nodes
may lack the last change; three things are set so that this cannot lose an acknowledged event in silence: of a segment the record of the
highest epoch wins, and the newest within that; every epoch is raised far above what any log can hold; every ceiling above what any clock
can have issued.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from eventlog.control.metastore import Listing
from eventlog.control.metastores.resolving import WRITER_PREFIX
from eventlog.control.records import (
    CLUSTER_KEY,
    IDENTITY_KEY,
    LOST_PREFIX,
    NODE_PREFIX,
    SEGMENT_PREFIX,
    ClusterIdentity,
    NodeRecord,
    SegmentRecord,
    decode,
    encode,
)
from eventlog.errors import CorruptData, InvalidArgument, WrongCluster

EPOCHS_RAISED = 1_000


class KeptItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One record as it was seen."""

    key: str
    value: bytes
    revision: int


class Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a node keeps: what the store held at `revision`."""

    revision: int
    items: tuple[KeptItem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyChoice:
    """Of a segment whose copies differ: the copy that was taken, and what it says."""

    segment: int
    taken_from: str
    epoch: int
    owners: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltRecords:
    """The records to put, the identity among them, and the choices that were made on the way."""

    identity: ClusterIdentity
    records: Mapping[str, bytes]
    choices: Sequence[CopyChoice]


def encode_kept(listing: Listing) -> bytes:
    """Return the copy of what a store holds. The cluster key is in no copy: a rebuilt store gets a new one."""
    items = [
        KeptItem(key=item.key, value=item.value, revision=item.revision)
        for item in listing.items
        if item.key != CLUSTER_KEY and not item.key.startswith(WRITER_PREFIX)
    ]
    return msgspec.json.encode(Kept(revision=listing.revision, items=tuple(items)))


def decode_kept(data: bytes, *, where: str) -> Kept:
    """Return a copy.

    Raises:
        CorruptData: it is none.
    """
    try:
        return msgspec.json.decode(data, type=Kept)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptData(where=where, why=str(error)) from error


def rebuild(copies: Mapping[str, Kept], *, ceiling: int) -> RebuiltRecords:
    """Return the records that follow from the copies of all nodes, by directory; `ceiling` is above every id that may be out.

    Raises:
        InvalidArgument: there is no copy.
        WrongCluster: they are of different clusters.
        CorruptData: a record in them is damaged.
    """
    if not copies:
        raise InvalidArgument(why="there is no copy of the records to rebuild from")
    order = sorted(copies, key=lambda name: _rank(copies[name], name), reverse=True)
    newest = copies[order[0]]
    identity = _identity(newest, order[0])
    for name in order[1:]:
        if (theirs := _identity(copies[name], name).cluster) != identity.cluster:
            raise WrongCluster(where=name, theirs=theirs, ours=identity.cluster)
    records = {item.key: item.value for item in newest.items if item.key != IDENTITY_KEY}
    choices = []
    for key in sorted({item.key for kept in copies.values() for item in kept.items}):
        found = {name: item for name in order for item in copies[name].items if item.key == key}
        if key.startswith(SEGMENT_PREFIX):
            record, choice = _segment(found)
            records[key] = encode(record)
            choices += [choice] if choice else []
        elif key.startswith((NODE_PREFIX, LOST_PREFIX)):
            records[key] = max(found.values(), key=lambda item: item.revision).value
        if key.startswith(NODE_PREFIX):
            node = decode(records[key], NodeRecord, where=key)
            records[key] = encode(msgspec.structs.replace(node, ceiling=max(node.ceiling, ceiling)))
    return RebuiltRecords(identity=msgspec.structs.replace(identity, copies=identity.copies + 1), records=records, choices=choices)


def _rank(kept: Kept, name: str) -> tuple[int, int]:
    return _identity(kept, name).copies, kept.revision


def _identity(kept: Kept, name: str) -> ClusterIdentity:
    for item in kept.items:
        if item.key == IDENTITY_KEY:
            return decode(item.value, ClusterIdentity, where=name)
    raise CorruptData(where=name, why="the copy of the records has no identity")


def _segment(found: Mapping[str, KeptItem]) -> tuple[SegmentRecord, CopyChoice | None]:
    decoded = {name: decode(item.value, SegmentRecord, where=f"{name}, {item.key}") for name, item in found.items()}
    name = max(found, key=lambda name: (decoded[name].epoch, found[name].revision))
    record = decoded[name]
    choice = None
    if len({(one.epoch, one.owners, one.in_sync) for one in decoded.values()}) > 1:
        in_sync = tuple(replica.node for replica in record.in_sync)
        choice = CopyChoice(segment=record.segment, taken_from=name, epoch=record.epoch, owners=record.owners, in_sync=in_sync)
    return msgspec.structs.replace(record, epoch=record.epoch + EPOCHS_RAISED, session=""), choice
