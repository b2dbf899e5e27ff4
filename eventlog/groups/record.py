"""What is kept of a consumer group, the fence that a commit has to pass, and how all of it is written into the internal cache of groups.

Everything of a group lies in one segment, so a write of it is atomic.

    key    name, UTF-8 | 0x00 | cache u32 | tag u8 | (segment u16)      big-endian
    tag g  the group: MessagePack of version, state
    tag p  a committed position: version u8 | epoch u32 | id i64 | next offset i64 | generation i64 | time ms i64 | metadata, UTF-8
    tag w  what is known of events above the position of a work group's segment: see `eventlog/groups/work.py`

Holders and targets are stored as indexes into the members, plus one; 0 is nobody.

Sets of segments and rows of places go over the wire as `encode_set` and `encode_places` make them: see GroupBeat and CommitGroup in the
schema.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from eventlog.errors import BadMessage, CorruptData, InvalidArgument, StaleMember, UnsupportedFormat
from eventlog.limits import GROUP_NAME_BYTES_MAX, SESSION_TIMEOUT_MS_DEFAULT, SESSION_TIMEOUT_MS_MAX, SESSION_TIMEOUT_MS_MIN
from eventlog.read.position import EPOCH_MAX, ID_MAX, OFFSET_UNKNOWN

Mode = Literal["read", "work"]
AssignorName = Literal["uniform", "range", "owner"]

NOBODY = ""
"""Stands for a member where a segment has none."""
VERSION = 1
GROUPS_CACHE = "__groups"
Tag = Literal["g", "p", "w"]
_PLACE = Struct(">BIqqqq")
_NUMBER = Struct(">IB")
PLACE_ROW = np.dtype([("segment", "<u2"), ("zero", "<u2"), ("epoch", "<u4"), ("id", "<i8"), ("next_offset", "<i8")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One consumer. `instance` names a static member, which keeps its segments while it restarts; empty: a dynamic one.

    `node` is the number of the node that the member is connected to: segments led there are the nearest to it.
    """

    id: str
    instance: str = ""
    client: str = ""
    node: int = 0
    timeout_ms: int = SESSION_TIMEOUT_MS_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """A group over one cache. Replaced whole by every change of membership, each of which has a generation of its own.

    Indexed by segment: `targets` is to have it, `holders` may be reading it, `given` the generation in which its holder
    got it. Invariants: `members` is sorted by id and holds every target and holder; a segment changes hands only over NOBODY. A
    group of mode `work` assigns nothing: every member may be handed events of every segment, each event `deliveries_max` times at most,
    then it goes into the cache `dead_letters`; one that is not settled within `ack_timeout_ms` is taken from its member, 0 for never.
    `filter` is what its members share, as it came over the wire; empty: every event.
    """

    segments: int
    mode: Mode = "read"
    assignor: AssignorName = "uniform"
    generation: int = 0
    start_id: int = 0
    deliveries_max: int = 0
    dead_letters: str = ""
    filter: bytes = b""
    ack_timeout_ms: int = 0
    members: tuple[Member, ...] = ()
    targets: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    given: tuple[int, ...] = ()

    def member(self, id: str) -> Member | None:
        """Return a member of this id."""
        return next((member for member in self.members if member.id == id), None)

    def instance(self, name: str) -> Member | None:
        """Return the static member of this name."""
        return next((member for member in self.members if name and member.instance == name), None)

    def held(self, id: str) -> frozenset[int]:
        """Return the segments that a member may be reading."""
        return frozenset(segment for segment, holder in enumerate(self.holders) if holder == id)

    def assigned(self, id: str) -> frozenset[int]:
        """Return the segments that a member may go on reading: what it holds and is to keep."""
        pairs = enumerate(zip(self.holders, self.targets, strict=True))
        return frozenset(segment for segment, (holder, target) in pairs if holder == target == id)


def new_group(segments: int, *, mode: Mode = "read", assignor: AssignorName = "uniform", start_id: int = 0) -> GroupState:
    """Return a group without members."""
    count = segments if mode == "read" else 0
    return GroupState(
        segments=segments,
        mode=mode,
        assignor=assignor,
        start_id=start_id,
        targets=(NOBODY,) * count,
        holders=(NOBODY,) * count,
        given=(0,) * count,
    )


def checked_name(name: object) -> str:
    """Return a group's name, if it can be one.

    Raises:
        InvalidArgument: it cannot.
    """
    if not isinstance(name, str) or not name.isprintable() or not 1 <= len(name.encode()) <= GROUP_NAME_BYTES_MAX:
        raise InvalidArgument(why=f"{name!r:.60} is no name for a group: 1 to {GROUP_NAME_BYTES_MAX} bytes of printable text")
    return name


def checked_timeout(timeout_ms: int) -> int:
    """Return a session timeout, if it is within bounds.

    Raises:
        InvalidArgument: it is not.
    """
    if not SESSION_TIMEOUT_MS_MIN <= timeout_ms <= SESSION_TIMEOUT_MS_MAX:
        raise InvalidArgument(why=f"session_timeout_ms is {timeout_ms}: give {SESSION_TIMEOUT_MS_MIN} to {SESSION_TIMEOUT_MS_MAX}")
    return timeout_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a group is in one segment, as in a position: last id done, offset after it, epoch of that event."""

    id: int
    next_offset: int = OFFSET_UNKNOWN
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedPlace:
    """A committed place with what its member said about it; `time_ms` since 1970, `generation` that of the group then."""

    place: Place
    generation: int = 0
    time_ms: int = 0
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Places that a member has done, by segment. `epoch` is the one it was told last when it took the events."""

    member: str
    epoch: int
    places: Mapping[int, Place]
    metadata: str = ""


def check_commit(name: str, state: GroupState, commit: Commit) -> None:
    """Refuse a commit of what is not its member's, or was not for a while since the member took it.

    Raises:
        StaleMember: nothing of the commit counts.
    """
    if state.member(commit.member) is None:
        raise StaleMember(group=name, member=commit.member, why="its session has ended")
    for segment in commit.places:
        if not is_held(state, commit, segment):
            why = f"segment {segment} is not its own any more"
            raise StaleMember(group=name, member=commit.member, why=why)


def is_held(state: GroupState, commit: Commit, segment: int) -> bool:
    """Whether a segment has been the committing member's all the time since it was told the epoch that it commits under."""
    return segment < len(state.holders) and state.holders[segment] == commit.member and state.given[segment] <= commit.epoch


def advance(before: Mapping[int, CommittedPlace], commit: Commit, *, generation: int, time_ms: int) -> dict[int, CommittedPlace]:
    """Return the places that a commit changes. None goes back: a commit that was overtaken by a later one changes nothing."""
    return {
        segment: CommittedPlace(place=place, generation=generation, time_ms=time_ms, metadata=commit.metadata)
        for segment, place in commit.places.items()
        if segment not in before or before[segment].place.id < place.id or before[segment].metadata != commit.metadata
        if segment not in before or before[segment].place.id <= place.id
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKey:
    """What a key of the internal cache says."""

    group: str
    cache_id: int
    tag: Tag
    segment: int = 0


def route_of(group: str) -> bytes:
    """Return what all keys of a group begin with; by it they are routed."""
    return group.encode() + b"\0"


def encode_key(key: RecordKey) -> bytes:
    """Return a key as it is stored."""
    found = route_of(key.group) + _NUMBER.pack(key.cache_id, ord(key.tag))
    return found if key.tag == "g" else found + key.segment.to_bytes(2)


def decode_key(data: bytes) -> RecordKey:
    """Return what `encode_key` was given.

    Raises:
        CorruptData: it was given nothing of the kind.
    """
    name, _, rest = data.partition(b"\0")
    tags: tuple[Tag, ...] = get_args(Tag)
    tag = next((tag for tag in tags if len(rest) > 4 and rest[4] == ord(tag)), None)
    if tag is None or len(rest) != (5 if tag == "g" else 7):
        raise CorruptData(where=GROUPS_CACHE, why=f"{data!r} is no key of a group")
    return RecordKey(group=name.decode(), cache_id=int.from_bytes(rest[:4]), tag=tag, segment=int.from_bytes(rest[5:]))


def encode_group(state: GroupState) -> bytes:
    """Return a group as it is stored."""
    numbers = {NOBODY: 0} | {member.id: number for number, member in enumerate(state.members, 1)}
    fields: dict[str, Any] = {
        "segments": state.segments,
        "mode": state.mode,
        "assignor": state.assignor,
        "generation": state.generation,
        "start": state.start_id,
        "deliveries": state.deliveries_max,
        "dead": state.dead_letters,
        "filter": state.filter,
        "ack": state.ack_timeout_ms,
        "members": [(one.id, one.instance, one.client, one.node, one.timeout_ms) for one in state.members],
        "targets": np.array([numbers[one] for one in state.targets], "<u2").tobytes(),
        "holders": np.array([numbers[one] for one in state.holders], "<u2").tobytes(),
        "given": np.array(state.given, "<i8").tobytes(),
    }
    return bytes((VERSION,)) + msgspec.msgpack.encode(fields)


def decode_group(data: bytes) -> GroupState:
    """Return a group that was stored.

    Raises:
        UnsupportedFormat: a newer node wrote it.
        CorruptData: none did.
    """
    _check_version(data)
    try:
        fields = msgspec.msgpack.decode(data[1:])
        rows = [Member(id=row[0], instance=row[1], client=row[2], node=row[3], timeout_ms=row[4]) for row in fields["members"]]
        names = (NOBODY, *(member.id for member in rows))
        mode: Mode = fields["mode"]
        assignor: AssignorName = fields["assignor"]
        return GroupState(
            segments=fields["segments"],
            mode=mode,
            assignor=assignor,
            generation=fields["generation"],
            start_id=min(fields["start"], ID_MAX),  # a node that let any number in may have kept it
            deliveries_max=fields["deliveries"],
            dead_letters=fields["dead"],
            filter=fields.get("filter", b""),
            ack_timeout_ms=fields.get("ack", 0),
            members=tuple(rows),
            targets=tuple(names[number] for number in np.frombuffer(fields["targets"], "<u2").tolist()),
            holders=tuple(names[number] for number in np.frombuffer(fields["holders"], "<u2").tolist()),
            given=tuple(np.frombuffer(fields["given"], "<i8").tolist()),
        )
    except (ValueError, KeyError, IndexError, TypeError, msgspec.DecodeError) as error:
        raise CorruptData(where=GROUPS_CACHE, why=f"not a group: {error!r}") from error


def encode_committed(committed: CommittedPlace) -> bytes:
    """Return a committed position as it is stored."""
    place = committed.place
    head = _PLACE.pack(VERSION, place.epoch, place.id, place.next_offset, committed.generation, committed.time_ms)
    return head + committed.metadata.encode()


def decode_committed(data: bytes) -> CommittedPlace:
    """Return a committed position that was stored. Raises as `decode_group`."""
    _check_version(data)
    if len(data) < _PLACE.size:
        raise CorruptData(where=GROUPS_CACHE, why=f"{len(data)} bytes are no committed position")
    _, epoch, id_, next_offset, generation, time_ms = _PLACE.unpack_from(data)
    place = Place(id=id_, next_offset=next_offset, epoch=epoch)
    return CommittedPlace(place=place, generation=generation, time_ms=time_ms, metadata=data[_PLACE.size :].decode())


def _check_version(data: bytes) -> None:
    if not data or data[0] != VERSION:
        raise UnsupportedFormat(what="a group", found=data[0] if data else 0, known=str(VERSION))


def encode_set(segments: Collection[int], count: int) -> bytes:
    """Return a set of some of `count` segments as a bitset, little-endian."""
    bits = np.zeros(count, np.uint8)
    bits[list(segments)] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def decode_set(data: bytes, count: int) -> frozenset[int]:
    """Return the segments of a bitset. None at all may be written as nothing.

    Raises:
        BadMessage: it is not one of `count` segments.
    """
    if len(data) > -(-count // 8):
        raise BadMessage(why=f"a set of segments has {len(data)} bytes for {count} of them")
    found = np.flatnonzero(np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")).tolist()
    if found and found[-1] >= count:
        raise BadMessage(why=f"a set of segments holds {found[-1]} of {count}")
    return frozenset(found)


def encode_places(places: Mapping[int, Place]) -> bytes:
    """Return places by segment as rows."""
    rows = np.zeros(len(places), PLACE_ROW)
    for row, segment in enumerate(sorted(places)):
        place = places[segment]
        rows[row] = (segment, 0, place.epoch, place.id, place.next_offset)
    return rows.tobytes()


def decode_places(data: bytes | memoryview, *, rows: int, count: int) -> dict[int, Place]:
    """Return the places in `rows` rows, by segment.

    Raises:
        BadMessage: not so many rows, or one that no place can be.
    """
    if rows > count or len(data) != rows * PLACE_ROW.itemsize:
        raise BadMessage(why=f"{rows} places in {len(data)} bytes, of {count} segments")
    table = np.frombuffer(data, PLACE_ROW)
    found: dict[int, Place] = {}
    for segment, _, epoch, id_, next_offset in table.tolist():
        if segment >= count or segment in found or not 0 <= id_ <= ID_MAX or next_offset < OFFSET_UNKNOWN or epoch > EPOCH_MAX:
            raise BadMessage(why=f"a place of segment {segment} is out of range, or one of two")
        found[segment] = Place(id=id_, next_offset=next_offset, epoch=epoch)
    return found
