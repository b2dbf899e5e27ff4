"""Sets of segments and rows of places as they go over the wire: see GroupBeat and CommitGroup in the schema."""

from collections.abc import Collection, Mapping

import numpy as np

from eventlog.consume.membership.positions import Place
from eventlog.consume.position import EPOCH_MAX, ID_MAX, OFFSET_UNKNOWN
from eventlog.errors import BadMessage

PLACE_ROW = np.dtype([("segment", "<u2"), ("zero", "<u2"), ("epoch", "<u4"), ("id", "<i8"), ("next_offset", "<i8")])


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
