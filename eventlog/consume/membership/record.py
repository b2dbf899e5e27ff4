"""How a group is written into the internal cache of groups. Everything of a group lies in one segment, so a write of it is atomic.

    key    name, UTF-8 | 0x00 | cache u32 | tag u8 | (segment u16)      big-endian
    tag g  the group: MessagePack of version, state
    tag p  a committed position: version u8 | epoch u32 | id i64 | next offset i64 | generation i64 | time ms i64 | metadata, UTF-8
    tag w  what is known of events above the position of a work group's segment: see `consume.work.record`

Holders and targets are stored as indexes into the members, plus one; 0 is nobody.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from eventlog.consume.membership.positions import Committed, Place
from eventlog.consume.membership.values import NOBODY, AssignorName, GroupState, Member, Mode
from eventlog.errors import CorruptData, UnsupportedFormat
from eventlog.ids import ID_MAX

VERSION = 1
GROUPS_CACHE = "__groups"

Tag = Literal["g", "p", "w"]
_PLACE = Struct(">BIqqqq")
_NUMBER = Struct(">IB")


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


def encode_committed(committed: Committed) -> bytes:
    """Return a committed position as it is stored."""
    place = committed.place
    head = _PLACE.pack(VERSION, place.epoch, place.id, place.next_offset, committed.generation, committed.time_ms)
    return head + committed.metadata.encode()


def decode_committed(data: bytes) -> Committed:
    """Return a committed position that was stored. Raises as `decode_group`."""
    _check_version(data)
    if len(data) < _PLACE.size:
        raise CorruptData(where=GROUPS_CACHE, why=f"{len(data)} bytes are no committed position")
    _, epoch, id_, next_offset, generation, time_ms = _PLACE.unpack_from(data)
    place = Place(id=id_, next_offset=next_offset, epoch=epoch)
    return Committed(place=place, generation=generation, time_ms=time_ms, metadata=data[_PLACE.size :].decode())


def _check_version(data: bytes) -> None:
    if not data or data[0] != VERSION:
        raise UnsupportedFormat(what="a group", found=data[0] if data else 0, known=str(VERSION))
