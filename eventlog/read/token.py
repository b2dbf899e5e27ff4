"""The one token of a position, the same in polls, commits, checkpoints and files: binary, and as printable text.

Of many segments it is long, and most of it is alike: where it is a line of what people and shells handle there is a short text of it.

Binary, little-endian:

    version u8 = 1 | flags u8 | cluster bytes u8 | 0 u8 | segments n u16 | 0 u16 | cache u32 | cluster, UTF-8
    scalar:       id i64
    per segment:  [bitmap of the segments, u8 * ceil(n / 8), unless it is all of them] | ids i64 | next offsets i64 | epochs u32
    [steps:        count u32, then each: segment u16 | pin i64 | key bytes u16 | key]
    [acknowledged: count u32, then each: segment u16 | first id i64 | last id i64]
    [unread:       bitmap of the segments whose state is still being read, u8 * ceil(n / 8)]
    CRC32C u32 of all before

One position has one token: what could be written in two ways is refused in all but one.
"""

import binascii
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from struct import Struct
from typing import Any

import numpy as np

from eventlog.arrays import Ints
from eventlog.checksum import crc32c
from eventlog.limits import FRAME_HEADER_BYTES_MAX
from eventlog.read.position import Acknowledged, PinStep, Position, SegmentPositions, bad_token, checked

VERSION = 1

_PER_SEGMENT, _SUBSET, _STEPS, _ACKNOWLEDGED, _UNREAD = 1, 2, 4, 8, 16
_FLAGS = _PER_SEGMENT | _SUBSET | _STEPS | _ACKNOWLEDGED | _UNREAD
_HEAD = Struct("<BBBBHHI")
_STEP = Struct("<HqH")
_RANGE = Struct("<Hqq")
_CRC = Struct("<I")
_ID = Struct("<q")


def encode(position: Position) -> bytes:
    """Return the binary token."""
    cluster = position.cluster.encode()
    at, flags, body = position.at, 0, []
    if isinstance(at, SegmentPositions):
        flags |= _PER_SEGMENT
        if len(at.of) != position.segments:
            flags |= _SUBSET
            body.append(_bitmap(at.of, position.segments))
        body += [at.ids.astype("<i8").tobytes(), at.offsets.astype("<i8").tobytes(), at.epochs.astype("<u4").tobytes()]
    else:
        body.append(_ID.pack(at))
    if position.steps:
        flags |= _STEPS
        body.append(len(position.steps).to_bytes(4, "little"))
        for step in position.steps:
            body += [_STEP.pack(step.segment, step.pin, len(step.key)), step.key]
    if position.acknowledged:
        flags |= _ACKNOWLEDGED
        body.append(len(position.acknowledged).to_bytes(4, "little"))
        body += [_RANGE.pack(done.segment, done.first, done.last) for done in position.acknowledged]
    if position.unread:
        flags |= _UNREAD
        body.append(_bitmap(np.array(position.unread), position.segments))
    data = b"".join((_HEAD.pack(VERSION, flags, len(cluster), 0, position.segments, 0, position.cache_id), cluster, *body))
    return data + _CRC.pack(crc32c(data))


def is_unread(data: bytes) -> bool:
    """Return whether the binary token, if it is one, stands inside a state read."""
    return len(data) > 1 and data[0] == VERSION and bool(data[1] & _UNREAD)


def decode(data: bytes) -> Position:
    """Return the position of a binary token.

    Raises:
        BadMessage: not a token, damaged, or not the one way to write this position.
    """
    if len(data) < _HEAD.size + _CRC.size:
        raise bad_token(f"{len(data)} bytes are too few")
    version, flags, cluster_bytes, zero, segments, zero_too, cache_id = _HEAD.unpack_from(data)
    if version != VERSION:
        raise bad_token(f"version {version} is not known")
    if crc32c(data[: -_CRC.size]) != _CRC.unpack_from(data, len(data) - _CRC.size)[0]:
        raise bad_token("its checksum is wrong")
    if zero or zero_too or flags & ~_FLAGS or flags & (_PER_SEGMENT | _SUBSET) == _SUBSET:
        raise bad_token("it has flags that are not known")
    cursor = _TokenReader(data[: -_CRC.size], _HEAD.size)
    try:
        cluster = cursor.take(cluster_bytes).decode()
        at = _read_segments(cursor, segments, subset=bool(flags & _SUBSET)) if flags & _PER_SEGMENT else cursor.unpack(_ID)[0]
        steps = _read_steps(cursor) if flags & _STEPS else ()
        acknowledged = _read_acknowledged(cursor) if flags & _ACKNOWLEDGED else ()
        unread = tuple(_read_bitmap(cursor, segments).tolist()) if flags & _UNREAD else ()
    except UnicodeDecodeError as error:
        raise bad_token(str(error)) from error
    if cursor.at != len(cursor.data):
        raise bad_token(f"{len(cursor.data) - cursor.at} bytes too many")
    if flags & _UNREAD and not unread:
        raise bad_token("it names unread segments and has none")
    found = Position(cluster=cluster, cache_id=cache_id, segments=segments, at=at, steps=steps, acknowledged=acknowledged, unread=unread)
    return checked(found)


class _TokenReader:
    """Reads a token from front to back."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def take(self, size: int) -> bytes:
        low, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise bad_token("it ends in the middle")
        return self.data[low : self.at]

    def unpack(self, struct: Struct) -> tuple[Any, ...]:
        return struct.unpack(self.take(struct.size))

    def ints(self, kind: str, count: int) -> Ints:
        return np.frombuffer(self.take(count * np.dtype(kind).itemsize), kind).astype(np.int64)


def _read_segments(cursor: _TokenReader, segments: int, *, subset: bool) -> SegmentPositions:
    of = np.arange(segments)
    if subset:
        of = _read_bitmap(cursor, segments)
        if not 0 < len(of) < segments or int(of[-1]) >= segments:
            raise bad_token("its set of segments is empty, whole, or passes the last segment")
    return SegmentPositions(of=of, ids=cursor.ints("<i8", len(of)), offsets=cursor.ints("<i8", len(of)), epochs=cursor.ints("<u4", len(of)))


def _read_bitmap(cursor: _TokenReader, segments: int) -> Ints:
    bits = np.unpackbits(np.frombuffer(cursor.take(-(-segments // 8)), np.uint8), bitorder="little")
    return np.flatnonzero(bits)


def _read_steps(cursor: _TokenReader) -> tuple[PinStep, ...]:
    steps = []
    for _ in range(int.from_bytes(cursor.take(4), "little")):
        segment, pin, size = cursor.unpack(_STEP)
        steps.append(PinStep(segment=segment, pin=pin, key=cursor.take(size)))
    if not steps:
        raise bad_token("it names steps and has none")
    return tuple(steps)


def _read_acknowledged(cursor: _TokenReader) -> tuple[Acknowledged, ...]:
    count = int.from_bytes(cursor.take(4), "little")
    rows = _RANGE.iter_unpack(cursor.take(count * _RANGE.size))
    if not count:
        raise bad_token("it names acknowledged ranges and has none")
    return tuple(Acknowledged(segment=segment, first=first, last=last) for segment, first, last in rows)


def _bitmap(of: Ints, segments: int) -> bytes:
    bits = np.zeros(segments, np.uint8)
    bits[of] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def to_text(position: Position) -> str:
    """Return the binary token as base64url without padding. It begins with a letter, so it is never taken for an id."""
    return urlsafe_b64encode(encode(position)).rstrip(b"=").decode()


def from_text(text: str) -> Position:
    """Return the position of a printable token.

    Raises:
        BadMessage: not one.
    """
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (UnicodeEncodeError, binascii.Error) as error:
        raise bad_token("it is not base64url") from error
    position = decode(data)
    if to_text(position) != text:
        raise bad_token("it is not written canonically")
    return position


def to_short_text(position: Position) -> str:
    """Return the binary token, compressed (RFC 1950), as base64url without padding."""
    return urlsafe_b64encode(zlib.compress(encode(position))).rstrip(b"=").decode()


def from_short_text(text: str) -> Position:
    """Return the position of a short text.

    Raises:
        BadMessage: not one.
    """
    try:
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)), FRAME_HEADER_BYTES_MAX)
    except (UnicodeEncodeError, binascii.Error, zlib.error) as error:
        raise bad_token("it is not compressed, or not base64url") from error
    if not unpacking.eof or unpacking.unused_data:
        raise bad_token("it is cut off, too long, or followed by something")
    return decode(data)
