"""What the metadata store holds: one frozen struct per kind of record, stored as JSON under the keys below.

    identity          the cluster                      node/<number>     a member, or the tombstone of a number
    segment/<number>  owners, epoch, in-sync set       cache/<name>      a cache and its options
    cache-next        the next cache id                writer/<token>    the nonce of a process's last commit

Decoding is strict: an unknown field is from a newer version that means something by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Generic, Literal, TypeVar

import msgspec

from eventlog.errors import CorruptData
from eventlog.ids import ID_MAX
from eventlog.limits import NODE_NUMBER_MAX, RETAIN_BYTES_DEFAULT, RETAIN_TIME_MS_DEFAULT, SEGMENTS_MAX

IDENTITY_KEY = "identity"
NODE_PREFIX = "node/"
SEGMENT_PREFIX = "segment/"
CACHE_PREFIX = "cache/"
CACHE_NEXT_KEY = "cache-next"
CACHES_SCOPE = "cache"  # caches and the counter in one listing

CacheId = Annotated[int, msgspec.Meta(ge=1, lt=1 << 32)]  # 0 is the log's own, for epoch marks
EventId = Annotated[int, msgspec.Meta(ge=0, le=ID_MAX)]
Number = Annotated[int, msgspec.Meta(ge=1, le=NODE_NUMBER_MAX)]
Segment = Annotated[int, msgspec.Meta(ge=0, lt=SEGMENTS_MAX)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Limit = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]  # 0: none
Format = Literal["json", "bytes", "avro"]


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whatever is stored."""


class Identity(Record, frozen=True, kw_only=True):
    """The cluster. Written once; `segments` is a power of two."""

    cluster: str
    segments: Positive
    created_ms: int


class NodeRecord(Record, frozen=True, kw_only=True):
    """A member. Never deleted: once removed, it stays as the tombstone of its number.

    Every id and promise issued under this number is below `ceiling`. `incarnation` names the data directory that the number
    belongs to. `removed_id` is 0 for a member, else an id of the time of its removal. The directory's log has reached `acknowledged`:
    one that does not is an older copy.
    """

    number: Number
    name: str
    address: str
    incarnation: str
    ceiling: EventId
    acknowledged: EventId = 0
    removed_id: EventId = 0


class Replica(Record, frozen=True, kw_only=True):
    """A member of an in-sync set: not a node alone, since a node that lost its disk comes back as another incarnation."""

    node: Number
    incarnation: str


class SegmentRecord(Record, frozen=True, kw_only=True):
    """Who holds a segment. Changed only by a commit that expects its revision; `epoch` only grows.

    The first of `owners` is primary, for `epoch` alone. It stamps and promises only above `floor`, which is at or above the ceiling
    of every earlier primary. `nonce` is new with every change.
    """

    segment: Segment
    owners: Annotated[tuple[Number, ...], msgspec.Meta(min_length=1)]
    epoch: Positive
    in_sync: Annotated[tuple[Replica, ...], msgspec.Meta(min_length=1)]
    floor: EventId
    min_in_sync: Positive
    nonce: str

    @property
    def primary(self) -> int:
        """Return the number of the node that alone accepts writes."""
        return self.owners[0]


class CacheOptions(Record, frozen=True, kw_only=True):
    """How a cache behaves. Limits and lifespans of 0 are none; `schema` is the text of one, or empty.

    `retain_bytes` counts one replica's. Keys are UTF-8 unless `bytes_keys`, and hashed up to their first 0x00 if `route_by_prefix`.
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


class CacheRecord(Record, frozen=True, kw_only=True):
    """A cache; `options` hold from `from_id` on."""

    id: CacheId
    name: str
    options: CacheOptions
    from_id: EventId


class CacheNext(Record, frozen=True, kw_only=True):
    """The id of the next cache; every lower one has been given out."""

    id: CacheId


class Remembered(Record, frozen=True, kw_only=True):
    """What a data directory knows of its cluster, so that a lost or older metadata store is named. `node` is 0 before joining."""

    cluster: str
    incarnation: str
    node: Annotated[int, msgspec.Meta(ge=0, le=NODE_NUMBER_MAX)]
    revision: Annotated[int, msgspec.Meta(ge=0)]


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


def cache_key(name: str) -> str:
    """Return where a cache's record lies."""
    return f"{CACHE_PREFIX}{name}"
