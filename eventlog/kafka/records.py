"""Records of format 2 out of columns: a read is laid out for all partitions in one pass.

A batch is what Kafka stores and sends (Kafka protocol, "Record Batch"):

    base offset i64 | length i32 | leader epoch i32 | magic i8 | crc u32 | attributes i16 | last offset delta i32
    | first timestamp i64 | max timestamp i64 | producer id i64 | producer epoch i16 | base sequence i32 | records i32

and a record in it, all numbers as zigzag varints:

    length | attributes i8 | timestamp delta | offset delta | key length | key | value length | value
    | headers, each: name length | name | value length | value

Up to `LOOP_MAX` records are written one by one, which is cheaper than arrays then. Both ways leave the same bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints, Mask
from eventlog.batch import byte_columns as columns
from eventlog.batch.byte_columns import Bytes, Column, Items
from eventlog.checksum import crc32c
from eventlog.events import Kind, decode_headers

HEAD: Final = Struct(">qiibIhiqqqhii")
LOOP_MAX: Final = 100
TRANSACTIONAL: Final = 0x10
KIND_LETTERS: Final = {Kind.CREATED: b"C", Kind.MODIFIED: b"M", Kind.REMOVED: b"R", Kind.EXPIRED: b"E", Kind.STATE: b"S"}
_CRC_AT, _CRC_FROM = 17, 21
_LENGTH_FROM = 12  # the length counts what follows it
_MAGIC = 2
_SLACK = 16  # the varints of a record's length, deltas and sizes may be this much longer than the least

_ATTRIBUTES = np.zeros((1, 1), np.uint8), np.ones((1, 1), bool)

_OWN_COUNT = 3
_COUNT, _ID, _OFF, _KIND = bytes((2 * _OWN_COUNT,)), b"\x04id\x10", b"\x06off\x18", b"\x08kind\x02"  # each with the length of its value
_FIXED = Struct(">c4sq5siq6sc")
_FIXED_ROW = np.dtype(
    [
        ("count", "S1"),
        ("id_name", "S4"),
        ("id", ">i8"),
        ("off_name", "S5"),
        ("segment", ">i4"),
        ("offset", ">i8"),
        ("kind_name", "S6"),
        ("kind", "u1"),
    ]
)
_LETTERS = {int(kind): letter for kind, letter in KIND_LETTERS.items()}
_LETTER_OF = np.zeros(max(_LETTERS) + 1, np.uint8)
_LETTER_OF[list(_LETTERS)] = [letter[0] for letter in _LETTERS.values()]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EventHeaders:
    """What each record says of its event in its headers: `id`, `off` (segment, offset), `kind`, and behind them the event's `own`.

    `own` is encoded as events have it, empty or null for none; None where no event has any.
    """

    ids: Ints
    segments: Ints
    offsets: Ints
    kinds: npt.NDArray[np.uint8]
    own: Items | None = None

    def column(self) -> Column:
        """Return the encoded headers of each record, with their number in front."""
        matrix = self._matrix()
        found = columns.of_matrix(matrix)
        if self.own is None:
            return found
        own = columns.column_of(self.own)
        rows = np.flatnonzero(columns.sizes_of(own))
        return columns.replaced(found, rows, [_with_own(matrix[row].tobytes(), own[row].as_py()) for row in rows.tolist()])

    def items(self) -> list[bytes]:
        """Return the rows of `column`, made one by one."""
        own = [None] * len(self.ids) if self.own is None else columns.items_of(self.own)
        rows = zip(self.ids.tolist(), self.segments.tolist(), self.offsets.tolist(), self.kinds.tolist(), strict=True)
        fixed = [_FIXED.pack(_COUNT, _ID, id_, _OFF, segment, offset, _KIND, _LETTERS[kind]) for id_, segment, offset, kind in rows]
        return [_with_own(head, more) if more else head for head, more in zip(fixed, own, strict=True)]

    def _matrix(self) -> Bytes:
        rows = np.empty(len(self.ids), _FIXED_ROW)
        rows["count"], rows["id_name"], rows["off_name"], rows["kind_name"] = _COUNT, _ID, _OFF, _KIND
        rows["id"], rows["segment"], rows["offset"] = self.ids, self.segments, self.offsets
        rows["kind"] = _LETTER_OF[self.kinds]
        return rows.view(np.uint8).reshape(len(rows), _FIXED_ROW.itemsize)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Records:
    """Records, one row each. Rows of a partition stand together, in the order in which they are to be written.

    `timestamps` are milliseconds since 1970. `keys` and `values` are null where a record has none.
    """

    partitions: Ints
    timestamps: Ints
    keys: Items
    values: Items
    headers: EventHeaders

    def __len__(self) -> int:
        return len(self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordBatch:
    """Records of one partition, laid out. `first` and `count` are rows of what they were made of."""

    partition: int
    first: int
    count: int
    timestamps: tuple[int, int]
    records: memoryview

    @property
    def nbytes(self) -> int:
        """Return the size of the batch as it is sent."""
        return HEAD.size + len(self.records)

    def sealed(self, *, producer: tuple[int, int] = (-1, -1), sequence: int = -1, is_transactional: bool = False) -> bytearray:
        """Return the bytes of the batch; `producer` is (id, epoch) and `sequence` the number of the first record."""
        data = bytearray(self.nbytes)
        HEAD.pack_into(
            data,
            0,
            0,  # the broker gives the offset
            self.nbytes - _LENGTH_FROM,
            -1,
            _MAGIC,
            0,
            TRANSACTIONAL if is_transactional else 0,
            self.count - 1,
            *self.timestamps,
            *producer,
            sequence,
            self.count,
        )
        data[HEAD.size :] = self.records
        data[_CRC_AT:_CRC_FROM] = crc32c(memoryview(data)[_CRC_FROM:]).to_bytes(4)
        return data


def build_batches(records: Records, *, bytes_max: int) -> list[RecordBatch]:
    """Return the batches of records, each of one partition and of at most `bytes_max`, but for one of a single larger record."""
    assert not np.count_nonzero(records.partitions[1:] < records.partitions[:-1]), "rows of a partition stand together"
    if len(records) <= LOOP_MAX:
        return list(_one_by_one(records, bytes_max - HEAD.size))
    return _in_columns(records, bytes_max - HEAD.size)


def _in_columns(records: Records, room: int) -> list[RecordBatch]:
    keys, values, headers = columns.column_of(records.keys), columns.column_of(records.values), records.headers.column()
    key_sizes, value_sizes, header_sizes = columns.sizes_of(keys), columns.sizes_of(values), columns.sizes_of(headers)
    bounds = list(_cuts(records.partitions, _SLACK + key_sizes + value_sizes + header_sizes, room))
    begins = np.array(bounds[:-1]).repeat(np.diff(bounds))  # of each record's batch
    numbers = (
        varints(records.timestamps - records.timestamps[begins]),
        varints(np.arange(len(records)) - begins),
        varints(np.where(columns.is_there(keys), key_sizes, -1)),
    )
    value_lengths = varints(np.where(columns.is_there(values), value_sizes, -1))
    sizes = 1 + key_sizes + value_sizes + header_sizes + widths(value_lengths)
    for found in numbers:
        sizes += widths(found)
    matrices, masks = zip(varints(sizes), _ATTRIBUTES, *numbers, strict=True)
    count = len(records)
    heads = columns.of_masked(
        np.hstack([np.broadcast_to(matrix, (count, matrix.shape[1])) for matrix in matrices]),
        np.hstack([np.broadcast_to(mask, (count, mask.shape[1])) for mask in masks]),
    )
    data, ends = columns.bytes_of(columns.join(heads, keys, columns.of_masked(*value_lengths), values, headers))
    ends_at, timestamps = ends[bounds].tolist(), records.timestamps
    latest = np.maximum.reduceat(timestamps, bounds[:-1]).tolist()
    return [
        RecordBatch(
            partition=records.partitions.item(low),
            first=low,
            count=high - low,
            timestamps=(timestamps.item(low), last),
            records=data[begin:end],
        )
        for low, high, begin, end, last in zip(bounds[:-1], bounds[1:], ends_at[:-1], ends_at[1:], latest, strict=True)
    ]


def _cuts(partitions: Ints, sizes: Ints, room: int) -> Iterator[int]:
    """Yield where batches begin, and the end."""
    ends = sizes.cumsum()
    firsts = np.flatnonzero(np.diff(partitions, prepend=partitions[0] - 1)).tolist()
    for low, high in zip(firsts, [*firsts[1:], len(partitions)], strict=True):
        at = low
        while at < high:
            yield at
            filled = int(ends.searchsorted((ends.item(at) - sizes.item(at)) + room, side="right"))
            at = min(max(filled, at + 1), high)
    yield len(partitions)


def _one_by_one(records: Records, room: int) -> Iterator[RecordBatch]:
    keys, values, number = columns.items_of(records.keys), columns.items_of(records.values), VARINT
    rows = zip(records.partitions.tolist(), records.timestamps.tolist(), keys, values, records.headers.items(), strict=True)
    data, taken, first, last, begun, latest = bytearray(), 0, 0, -1, 0, 0
    for row, (partition, timestamp, key, value, headers) in enumerate(rows):
        key_size, value_size = -1 if key is None else len(key), -1 if value is None else len(value)
        size = _SLACK + max(key_size, 0) + max(value_size, 0) + len(headers)
        if row and (partition != last or taken + size > room):
            yield RecordBatch(partition=last, first=first, count=row - first, timestamps=(begun, latest), records=memoryview(data))
            data, taken, first = bytearray(), 0, row
        if row == first:
            last, begun, latest = partition, timestamp, timestamp
        taken += size
        latest = max(latest, timestamp)
        lengths = number[timestamp - begun], number[row - first], number[key_size]
        record = b"".join((b"\0", *lengths, key or b"", number[value_size], value or b"", headers))
        data += number[len(record)]
        data += record
    if rows_left := len(records) - first:
        yield RecordBatch(partition=last, first=first, count=rows_left, timestamps=(begun, latest), records=memoryview(data))


def varints(numbers: Ints) -> tuple[Bytes, Mask]:
    """Return numbers as zigzag varints, in the front of the rows of a matrix, and which of its bytes are theirs."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    width = max(1, (int(zigzag.max(initial=0)).bit_length() + 6) // 7)
    shifted = zigzag[:, None] >> np.arange(0, 7 * width, 7, dtype=np.uint64)
    mask = shifted != 0
    mask[:, 0] = True
    matrix = (shifted & np.uint64(0x7F)).astype(np.uint8)
    matrix[:, :-1] |= mask[:, 1:].astype(np.uint8) << 7
    return matrix, mask


def widths(found: tuple[Bytes, Mask]) -> Ints:
    """Return how many bytes each varint has."""
    matrix, mask = found
    return np.ones(len(mask), np.int64) if matrix.shape[1] == 1 else np.count_nonzero(mask, axis=1)


class _Varints(dict[int, bytes]):
    """Numbers of 64 bits as zigzag varints; those that records are full of are kept, the others made when they are asked for."""

    def __missing__(self, number: int) -> bytes:
        left = (number << 1) ^ (number >> 63)
        data = bytearray()
        while left > 0x7F:
            data.append(left & 0x7F | 0x80)
            left >>= 7
        data.append(left)
        return bytes(data)


VARINT: Final = _Varints()
VARINT.update({number: VARINT[number] for number in range(-1, 8_192)})


def _with_own(fixed: bytes, encoded: bytes) -> bytes:
    """Return the headers of a record whose event has some of its own."""
    headers = decode_headers(encoded)
    parts = [VARINT[_OWN_COUNT + len(headers)], fixed[1:]]
    for name, value in headers.items():
        text = name.encode()
        parts += (VARINT[len(text)], text, VARINT[len(value)], value)
    return b"".join(parts)
