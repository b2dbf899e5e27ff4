"""The one layout of events as columns, and the header that the log puts before it. Pure bytes: nothing is read or written here.

A *block* holds events of one cache and segment as columns; clients build blocks, the log stores them as *sections* of a stored
value, answers carry them. All numbers are little-endian, every column starts at a multiple of 8 and is padded with zeros:

    count u32 | bitmap u32 | key bytes u32 | value bytes u32 | length u32 of each optional column, padded
    kinds u8[count] | key offsets i32[count + 1] | keys | value offsets i32[count + 1] | values | optional columns

A *stored value* is a 40-byte header, the section lengths, an optional producer table, and the sections; its ids are one run.
Frozen by the golden vectors in `tests/golden/`; a change raises `FORMAT`.
"""

from dataclasses import dataclass
from struct import Struct

import numpy as np

from eventlog.batch.marks import BLOCK_HEAD_BYTES, COLUMNS_KNOWN, TABLE_ROW_BYTES
from eventlog.checksum import crc32c
from eventlog.errors import CorruptData, UnsupportedFormat

FORMAT = 1

HAS_PRODUCERS = 1  # flag of a stored value
OUTCOMES = 1 << 31  # flag in a producer row's `submitted`: as many events as items, but not of each item one; outcomes follow

BLOCK_HEAD = np.dtype([("count", "<u4"), ("bitmap", "<u4"), ("key_bytes", "<u4"), ("value_bytes", "<u4")])
TABLE = np.dtype([("segment", "<u2"), ("reserved", "<u2"), ("count", "<u4"), ("length", "<u4"), ("sequence", "<u4")])
RUN = np.dtype(
    [
        ("segment", "<u2"),
        ("reserved", "<u2"),
        ("count", "<u4"),
        ("base", "<i8"),
        ("first_offset", "<i8"),
        ("epoch", "<u4"),
        ("reserved2", "<u4"),
    ]
)
VALUE_HEAD = np.dtype(
    [
        ("crc", "<u4"),
        ("format", "u1"),
        ("flags", "u1"),
        ("sections", "<u2"),
        ("epoch", "<u4"),
        ("count", "<u4"),
        ("bitmap", "<u4"),
        ("kinds", "u1"),  # bit k for kind k: a reader of some kinds skips values by their headers
        ("reserved", "u1"),
        ("producers", "<u2"),
        ("base", "<i8"),
        ("first_offset", "<i8"),
    ]
)
PRODUCER = np.dtype([("producer", "<u8"), ("sequence", "<u4"), ("first", "<u4"), ("count", "<u4"), ("submitted", "<u4")])

VALUE_HEAD_BYTES = VALUE_HEAD.itemsize
SECTIONS_MAX = (1 << 16) - 1
assert (BLOCK_HEAD.itemsize, TABLE.itemsize) == (BLOCK_HEAD_BYTES, TABLE_ROW_BYTES)
assert (RUN.itemsize, VALUE_HEAD_BYTES, PRODUCER.itemsize) == (32, 40, 24)

_HEAD = Struct("<IBBHIIIBBHqq")
_PLACE = Struct(">HI")


@dataclass(slots=True, kw_only=True)  # one a group: `frozen` ones take longer to make
class ValueHead:
    """The header of a stored value, checked."""

    flags: int
    sections: int
    epoch: int
    count: int
    bitmap: int
    kinds: int
    producers: int
    base: int
    first_offset: int

    @property
    def last_id(self) -> int:
        """Id of the last event; of an empty value, the id it stands at."""
        return self.base + (max(self.count, 1) - 1 << 10)


def place_seed(segment: int, cache: int) -> int:
    """Return the checksum's start for a value of `segment` and `cache`: a value put elsewhere fails its check."""
    return int(crc32c(_PLACE.pack(segment, cache)))


def read_head(data: bytes | memoryview, *, where: str) -> ValueHead:
    """Return the header of a stored value without checking its checksum.

    Raises:
        CorruptData: shorter than a header.
        UnsupportedFormat: written by a newer version.
    """
    if len(data) < VALUE_HEAD_BYTES:
        raise CorruptData(where=where, why=f"a stored value of {len(data)} bytes is shorter than its header")
    _, form, flags, sections, epoch, count, bitmap, kinds, _, producers, base, offset = _HEAD.unpack_from(data)
    if form != FORMAT:
        raise UnsupportedFormat(what=where, found=form, known=str(FORMAT))
    if bitmap & ~COLUMNS_KNOWN or flags & ~HAS_PRODUCERS:
        raise UnsupportedFormat(what=f"{where}, columns", found=bitmap | flags << 16, known=str(COLUMNS_KNOWN))
    return ValueHead(
        flags=flags,
        sections=sections,
        epoch=epoch,
        count=count,
        bitmap=bitmap,
        kinds=kinds,
        producers=producers,
        base=base,
        first_offset=offset,
    )


def checked_head(data: bytes | memoryview, *, segment: int, cache: int) -> ValueHead:
    """Return the header of a stored value whose checksum is right.

    Raises:
        CorruptData: the checksum is wrong.
        UnsupportedFormat: written by a newer version, and undamaged.
    """
    where = f"segment {segment}, cache {cache}"
    if len(data) < VALUE_HEAD_BYTES:
        raise CorruptData(where=where, why=f"a stored value of {len(data)} bytes is shorter than its header")
    if crc32c(memoryview(data)[4:], place_seed(segment, cache)) != int.from_bytes(data[:4], "little"):
        raise CorruptData(where=where, why="the checksum of a stored value is wrong")
    return read_head(data, where=where)


def encode_value(head: ValueHead, *, segment: int, cache: int, sections: list[bytes], producers: bytes = b"") -> bytes:
    """Return one stored value; the write path does the same for many at once in `assemble`."""
    lengths = np.array([len(section) for section in sections], "<u4").tobytes()
    rest = b"".join(
        (
            _HEAD.pack(
                0,
                FORMAT,
                head.flags,
                len(sections),
                head.epoch,
                head.count,
                head.bitmap,
                head.kinds,
                0,
                head.producers,
                head.base,
                head.first_offset,
            )[4:],
            lengths,
            bytes(-len(lengths) % 8),
            producers,
            *sections,
        )
    )
    return int(crc32c(rest, place_seed(segment, cache))).to_bytes(4, "little") + rest
