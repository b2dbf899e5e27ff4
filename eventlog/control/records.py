"""What the metadata store holds: one frozen struct per kind of record, stored as JSON under the keys below.

    identity          the cluster                      node/<number>     a member, or the tombstone of a number
    cluster-key       what members prove to know
    settings          what operators set for it        segment/<number>  owners, epoch, in-sync set
    controller        appoints and rebalances      lost/<number>     what forced takeovers of a segment gave up
    rebalance         the rebalancing under way        cache/<name>      a cache and its options
    cache-next        the next cache id                cache-dropped/<id>  the name of a cache that was dropped
    writer/<token>    the nonce of a process's last commit
    moved             where the records were copied to: this store is not the cluster's any more

Decoding is strict: an unknown field is from a newer version that means something by it. A field added later has a default, so that
older records stay readable.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Generic, Literal, TypeVar

import msgspec

from eventlog.errors import CorruptData
from eventlog.ids import ID_MAX
from eventlog.limits import NODE_NUMBER_MAX, REPLICAS_DEFAULT, REPLICAS_MAX, RETAIN_BYTES_DEFAULT, RETAIN_TIME_MS_DEFAULT, SEGMENTS_MAX

IDENTITY_KEY = "identity"
MOVED_KEY = "moved"
CLUSTER_KEY = "cluster-key"
NODE_PREFIX = "node/"
SEGMENT_PREFIX = "segment/"
LOST_PREFIX = "lost/"
SETTINGS_KEY = "settings"
CONTROLLER_KEY = "controller"
REBALANCE_KEY = "rebalance"
CACHE_PREFIX = "cache/"
CACHE_NEXT_KEY = "cache-next"
CACHE_DROPPED_PREFIX = "cache-dropped/"
CACHES_SCOPE = "cache"  # caches, the counter and the dropped ones in one listing

CacheId = Annotated[int, msgspec.Meta(ge=1, lt=1 << 32)]  # 0 is the log's own, for epoch marks
EventId = Annotated[int, msgspec.Meta(ge=0, le=ID_MAX)]
Number = Annotated[int, msgspec.Meta(ge=1, le=NODE_NUMBER_MAX)]
Segment = Annotated[int, msgspec.Meta(ge=0, lt=SEGMENTS_MAX)]
Secret = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Weight = Annotated[int, msgspec.Meta(ge=1, le=100)]
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Limit = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]  # 0: none
Format = Literal["json", "bytes", "avro"]


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whatever is stored."""


class ClusterIdentity(Record, frozen=True, kw_only=True):
    """The cluster. Written once a store; `segments` is a power of two. `copies` counts how often the records moved to another store."""

    cluster: str
    segments: Positive
    created_ms: int
    copies: Count = 0


class ClusterKey(Record, frozen=True, kw_only=True):
    """What a node proves to know before others take it for a member. A node that can read it is one: it is kept in this store alone.

    While it is being replaced, `previous` is valid beside it; that ends `overlap_ms` after the members have heard of the new one.
    """

    key: Secret
    previous: Secret | None = None
    overlap_ms: Count = 0

    def __repr__(self) -> str:  # for logs and errors, which are not to tell it
        return f"ClusterKey(overlap_ms={self.overlap_ms})"


class Moved(Record, frozen=True, kw_only=True):
    """The records went to another store, named as `--meta` takes it."""

    to: str


class NodeRecord(Record, frozen=True, kw_only=True):
    """A member. Never deleted: once removed, it stays as the tombstone of its number.

    Every id and promise issued under this number is below `ceiling`. `incarnation` names the data directory that the number
    belongs to. `removed_id` is 0 for a member, else an id of the time of its removal. The directory's log has reached `acknowledged`:
    one that does not is an older copy. `session` is new with every process: a term of primary belongs to one. Nodes of one
    `host_label`, and of one `rack`, fail together; an empty label is a host or rack of its own. A node of weight 2 holds twice as much
    as one of weight 1, a `gateway` nothing; one that is `draining` is being emptied. One that is `unreadable` has met a damaged file in
    this directory: it leads nothing that another one can lead.
    """

    number: Number
    name: str
    address: str
    incarnation: str
    ceiling: EventId
    acknowledged: EventId = 0
    removed_id: EventId = 0
    session: str = ""
    host_label: str = ""
    rack: str = ""
    weight: Weight = 1
    gateway: bool = False
    draining: bool = False
    unreadable: bool = False

    @property
    def is_member(self) -> bool:
        """Return whether no operator removed it."""
        return not self.removed_id

    @property
    def holds_data(self) -> bool:
        """Return whether segments may be placed on it: a member that is neither a gateway nor being emptied."""
        return self.is_member and not self.gateway and not self.draining

    @property
    def is_leaving(self) -> bool:
        """Return whether others are to lead what it leads."""
        return self.draining or self.unreadable

    @property
    def replica(self) -> "ReplicaRecord":
        """Return what an in-sync set calls it now."""
        return ReplicaRecord(node=self.number, incarnation=self.incarnation)


class ReplicaRecord(Record, frozen=True, kw_only=True):
    """A member of an in-sync set: not a node alone, since a node that lost its disk comes back as another incarnation."""

    node: Number
    incarnation: str


class SegmentRecord(Record, frozen=True, kw_only=True):
    """Which nodes hold a segment. Changed only by a commit that expects its revision; `epoch` only grows.

    The first of `owners` is primary, for `epoch` and for the process `session` alone. It stamps and promises only above `floor`, which
    is at or above the ceiling of every earlier primary. An owner that is not in sync catches up. `target` are the owners that the
    segment is moving to, the primary first; empty: it is not moving. `nonce` is new with every change.
    """

    segment: Segment
    owners: Annotated[tuple[Number, ...], msgspec.Meta(min_length=1)]
    epoch: Positive
    in_sync: Annotated[tuple[ReplicaRecord, ...], msgspec.Meta(min_length=1)]
    floor: EventId
    min_in_sync: Positive
    nonce: str
    session: str = ""
    target: tuple[Number, ...] = ()

    @property
    def primary(self) -> int:
        """Return the number of the node that alone accepts writes."""
        return self.owners[0]


class ClusterSettings(Record, frozen=True, kw_only=True):
    """What operators set. `replicas` is how many copies a segment shall have, where there are as many members."""

    replicas: Annotated[int, msgspec.Meta(ge=1, le=REPLICAS_MAX)] = REPLICAS_DEFAULT


class ControllerRecord(Record, frozen=True, kw_only=True):
    """The node that appoints primaries and moves segments. Two at once are harmless: every change expects the record that it changes."""

    node: Number
    session: str
    nonce: str


class LostRange(Record, frozen=True, kw_only=True):
    """Ids in `(after, upto]` of a segment may have been shown, and are gone since `epoch`, whose primary was forced."""

    epoch: Positive
    after: EventId
    upto: EventId


class LostRanges(Record, frozen=True, kw_only=True):
    """All that forced takeovers of a segment gave up, in order; kept as long as the cluster lives."""

    segment: Segment
    ranges: tuple[LostRange, ...]


class RebalanceRecord(Record, frozen=True, kw_only=True):
    """The last rebalancing. Where it stands is in the segments' `target`.

    `throttle_bytes` is what its copies together may take a second, 0: no limit. `moves_done` is known of one that was cancelled.
    """

    state: Literal["running", "cancelled", "done"]
    moves_total: Count
    bytes_total: Count
    throttle_bytes: Count
    started_ms: Count
    nonce: str
    moves_done: Count = 0


class CacheOptions(Record, frozen=True, kw_only=True):
    """How a cache behaves. Limits and lifespans of 0 are none; `schema` is the text of one, or empty.

    Values are checked by the schema before they are written if `validate`.
    `retain_bytes` counts one replica's. Keys are UTF-8 unless `bytes_keys`, and hashed up to their first 0x00 if `route_by_prefix`.
    `promote` holds paths with commas between them, `wait_listeners` the listeners that writers wait for. `archive` is where
    one of its events is, a path or an address: told to readers, and looked at by no node.
    """

    format: Format = "json"
    schema: str = ""
    events: bool = True
    state: bool = True
    before: bool = True
    bytes_keys: bool = False
    retain_time_ms: Limit = RETAIN_TIME_MS_DEFAULT
    retain_bytes: Limit = RETAIN_BYTES_DEFAULT
    retain_events: Limit = 0
    lifespan_ms: Limit = 0
    route_by_prefix: bool = False
    promote: str = ""
    wait_listeners: str = ""
    wait_ms: Limit = 0
    wait_proceeds: bool = False
    validate: bool = False
    archive: str = ""

    @property
    def promoted(self) -> tuple[str, ...]:
        """Fields of the values that are stored as columns beside them, as paths: `value.customer`."""
        return tuple(filter(None, self.promote.split(",")))


class CacheRecord(Record, frozen=True, kw_only=True):
    """A cache; `options` hold from `from_id` on."""

    id: CacheId
    name: str
    options: CacheOptions
    from_id: EventId


class CacheNext(Record, frozen=True, kw_only=True):
    """The id of the next cache; every lower one has been given out."""

    id: CacheId


class CacheDroppedRecord(Record, frozen=True, kw_only=True):
    """A cache that is gone: a position or a request that still has its id is refused by name."""

    name: str


class Remembered(Record, frozen=True, kw_only=True):
    """What a data directory knows of its cluster, so that a lost or older metadata store is named. `node` is 0 before joining.

    `revision` was that of the store to which the records came by `copies` moves. `store` is the incarnation under which the store was
    made, where it lost something since: then the directory goes on as another incarnation, with what is left.
    """

    cluster: str
    incarnation: str
    node: Annotated[int, msgspec.Meta(ge=0, le=NODE_NUMBER_MAX)]
    revision: Annotated[int, msgspec.Meta(ge=0)]
    copies: Count = 0
    store: str = ""


Kind = TypeVar("Kind", bound=Record)


@dataclass(frozen=True, slots=True)
class Versioned(Generic[Kind]):
    """A record as it was at a revision of its key."""

    record: Kind
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPlan:
    """What to commit: all of `puts` and `deletes` if each key of `expect` still has its revision (0: is not there)."""

    expect: Mapping[str, int]
    puts: Mapping[str, bytes]
    deletes: tuple[str, ...] = ()


def encode(record: Record) -> bytes:
    """Return the JSON of a record; fields with their default are written too, so that defaults may change."""
    return msgspec.json.encode(record)


def decode(data: bytes, kind: type[Kind], *, where: str) -> Kind:
    """Return the record.

    Raises:
        CorruptData: it is not one of this kind; says where in it.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptData(where=f"metadata {where}", why=str(error)) from error


def node_key(number: int) -> str:
    """Return where a member's record lies."""
    return f"{NODE_PREFIX}{number}"


def segment_key(segment: int) -> str:
    """Return where a segment's record lies."""
    return f"{SEGMENT_PREFIX}{segment}"


def lost_key(segment: int) -> str:
    """Return where the lost ranges of a segment lie."""
    return f"{LOST_PREFIX}{segment}"


def cache_key(name: str) -> str:
    """Return where a cache's record lies."""
    return f"{CACHE_PREFIX}{name}"


def dropped_key(cache_id: int) -> str:
    """Return where the name of a dropped cache lies."""
    return f"{CACHE_DROPPED_PREFIX}{cache_id}"
