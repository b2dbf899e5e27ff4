"""Blocks and stored values seen as columns, without copying their bytes."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from eventlog.batch.layout import HAS_PRODUCERS, OUTCOMES, PRODUCER, VALUE_HEAD_BYTES, ValueHead, checked_head
from eventlog.batch.marks import ABSENT, BEFORE, BLOCK_HEAD_BYTES, COLUMNS_KNOWN, EXPIRY, HEADERS, PROMOTED, REFUSED, SCHEMA_ID, pad8
from eventlog.errors import CorruptData, UnsupportedFormat

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Strings:
    """A column of byte strings: item i is `data[offsets[i]:offsets[i + 1]]`."""

    offsets: npt.NDArray[np.int32]
    data: memoryview

    def to_list(self) -> list[bytes]:
        """Return every item as bytes."""
        data = bytes(self.data)
        ends = self.offsets.tolist()
        return [data[low:high] for low, high in pairwise(ends)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block, its columns as views into its bytes."""

    count: int
    bitmap: int
    kinds: npt.NDArray[np.uint8]
    keys: Strings
    values: Strings
    expiry: npt.NDArray[np.int64] | None
    before: Strings | None
    headers: Strings | None
    schema_ids: npt.NDArray[np.uint32] | None
    nbytes: int
    promoted: memoryview | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRow:
    """Which submitted block became which events of the value: `[first, first + count)`; `outcomes` where some did not."""

    producer: int
    sequence: int
    first: int
    count: int
    submitted: int
    outcomes: bytes | None


@dataclass(frozen=True, kw_only=True)
class StoredValue:
    """A stored value whose checksum was right."""

    segment: int
    cache: int
    head: ValueHead
    blocks: tuple[Block, ...]
    producers: tuple[ProducerRow, ...]

    @cached_property
    def ids(self) -> npt.NDArray[np.int64]:
        """Id of every event."""
        return self.head.base + (np.arange(self.head.count, dtype=np.int64) << 10)


class _ColumnReader:
    """Reads columns one after the other; never past the end."""

    __slots__ = ("at", "data", "fail")

    def __init__(self, data: memoryview, fail: str) -> None:
        self.data = data
        self.at = 0
        self.fail = fail

    def take(self, size: int) -> memoryview:
        end = self.at + (size + 7 & ~7)
        if end > len(self.data):
            raise CorruptData(where=self.fail, why=f"a column of {size} bytes at {self.at} passes the end of {len(self.data)} bytes")
        view = self.data[self.at : self.at + size]
        if any(self.data[self.at + size : end]):
            raise CorruptData(where=self.fail, why=f"padding at {self.at + size} is not zero")
        self.at = end
        return view

    def strings(self, count: int, size: int) -> Strings:
        offsets = np.frombuffer(self.take(4 * (count + 1)), "<i4")
        if offsets[0] != 0 or offsets[-1] != size or (count and int(np.diff(offsets).min()) < 0):
            raise CorruptData(where=self.fail, why="offsets do not rise from 0 to the size of their column")
        return Strings(offsets, self.take(size))


def decode_block(data: Buffer, *, where: str = "block") -> Block:
    """Return the block at the start of `data`.

    Raises:
        CorruptData: lengths, offsets or padding contradict each other.
        UnsupportedFormat: a column that this version does not know.
    """
    view = memoryview(data).cast("B")
    if len(view) < BLOCK_HEAD_BYTES:
        raise CorruptData(where=where, why=f"a block of {len(view)} bytes is shorter than its head")
    count, bitmap, key_bytes, value_bytes = np.frombuffer(view[:BLOCK_HEAD_BYTES], "<u4").tolist()
    if bitmap & ~COLUMNS_KNOWN:
        raise UnsupportedFormat(what=f"{where}, columns", found=bitmap, known=str(COLUMNS_KNOWN))
    cursor = _ColumnReader(view, where)
    cursor.at = BLOCK_HEAD_BYTES
    sizes = np.frombuffer(cursor.take(4 * bitmap.bit_count()), "<u4").tolist()
    kinds = np.frombuffer(cursor.take(count), np.uint8)
    keys = cursor.strings(count, key_bytes)
    values = cursor.strings(count, value_bytes)
    expiry = before = headers = schema_ids = None
    promoted = None
    for bit in (EXPIRY, BEFORE, HEADERS, SCHEMA_ID, PROMOTED):
        if not bitmap & bit:
            continue
        size = sizes.pop(0)
        start = cursor.at
        if bit == PROMOTED:
            promoted = cursor.take(size)
        elif bit == EXPIRY:
            expiry = np.frombuffer(cursor.take(8 * count), "<i8")
        elif bit == SCHEMA_ID:
            schema_ids = np.frombuffer(cursor.take(4 * count), "<u4")
        else:
            inner = size - pad8(4 * (count + 1))
            if inner < 0:
                raise CorruptData(where=where, why="an optional column is shorter than its offsets")
            column = cursor.strings(count, inner)
            before, headers = (column, headers) if bit == BEFORE else (before, column)
        if cursor.at - start != pad8(size):
            raise CorruptData(where=where, why="an optional column has another length than its head says")
    return Block(
        count=count,
        bitmap=bitmap,
        kinds=kinds,
        keys=keys,
        values=values,
        expiry=expiry,
        before=before,
        headers=headers,
        schema_ids=schema_ids,
        nbytes=cursor.at,
        promoted=promoted,
    )


def decode_value(segment: int, cache: int, data: Buffer) -> StoredValue:
    """Return a stored value as columns, its checksum and structure checked.

    Raises:
        CorruptData: checksum, lengths or counts are wrong.
        UnsupportedFormat: written by a newer version.
    """
    where = f"segment {segment}, cache {cache}"
    view = memoryview(data).cast("B")
    head = checked_head(view, segment=segment, cache=cache)
    cursor = _ColumnReader(view, where)
    cursor.at = VALUE_HEAD_BYTES
    lengths = np.frombuffer(cursor.take(4 * head.sections), "<u4").tolist()
    producers = _producers(cursor, head.producers) if head.flags & HAS_PRODUCERS else ()
    blocks = []
    for length in lengths:
        block = decode_block(cursor.take(length), where=where)
        if block.nbytes != length:
            raise CorruptData(where=where, why=f"a section of {length} bytes holds a block of {block.nbytes}")
        blocks.append(block)
    if sum(block.count for block in blocks) != head.count or cursor.at != len(view):
        raise CorruptData(where=where, why="counts or lengths of sections contradict the header")
    return StoredValue(segment=segment, cache=cache, head=head, blocks=tuple(blocks), producers=producers)


def _producers(cursor: _ColumnReader, rows: int) -> tuple[ProducerRow, ...]:
    table = np.frombuffer(cursor.take(PRODUCER.itemsize * rows), PRODUCER).tolist()
    ragged = [row[4] & ~OUTCOMES if row[4] != row[3] else 0 for row in table]
    outcomes = bytes(cursor.take(sum(ragged)))
    found, at = [], 0
    for (producer, sequence, first, count, sent), size in zip(table, ragged, strict=True):
        submitted = sent & ~OUTCOMES
        own = outcomes[at : at + size] if size else None
        at += size
        if own is not None and submitted - own.count(ABSENT) - own.count(REFUSED) > count:
            raise CorruptData(where=cursor.fail, why="a producer row claims more events than it has")
        found.append(ProducerRow(producer=producer, sequence=sequence, first=first, count=count, submitted=submitted, outcomes=own))
    return tuple(found)
