"""Building blocks from keys and values: many small blocks at once, with no work per block but a handful of list steps.

Clients use it for what they write, the primary for blocks that it must change (before-images, dropped or added events). The table in
front of the blocks of a write, a row a block by rising segment, is made and read here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.layout import TABLE
from eventlog.batch.marks import BEFORE, BLOCK_HEAD_BYTES, EXPIRY, HEADERS, PROMOTED, TABLE_ROW_BYTES, pad8
from eventlog.batch.sections import add_promoted, pad8s
from eventlog.hashing import HASH_BITS, hash_keys, route_bytes

_PADS = tuple(bytes(n) for n in range(8))
_BITS = np.array([bitmap.bit_count() for bitmap in range(16)], np.int64)
ROW = Struct("<HHIII")  # one row of TABLE, where there are few: an array of one row takes several times as long to make and to ask
assert ROW.size == TABLE_ROW_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Events to be laid out, in the order of their blocks. Optional columns: None where no event has one."""

    kinds: npt.NDArray[np.uint8]
    keys: Sequence[bytes]
    values: Sequence[bytes]
    expiry: Ints | None = None
    before: Sequence[bytes] | None = None
    headers: Sequence[bytes] | None = None
    promoted: Mapping[str, Sequence[bytes]] | None = None

    @property
    def bitmap(self) -> int:
        """Return which optional columns are there."""
        return (
            (EXPIRY if self.expiry is not None else 0)
            | (BEFORE if self.before is not None else 0)
            | (HEADERS if self.headers is not None else 0)
            | (PROMOTED if self.promoted else 0)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFrame:
    """The body of one write: `table`, then `blocks`. Row i of the blocks is item `order[i]` of what was given."""

    table: npt.NDArray[np.void]
    blocks: bytes
    order: Ints

    @property
    def nbytes(self) -> int:
        """Return the size of the body in bytes."""
        return self.table.nbytes + len(self.blocks)

    @property
    def buffers(self) -> list[bytes]:
        """Return the body as it goes on the wire; call it after the sequences are filled in."""
        return [self.table.tobytes(), self.blocks]


def segments_of(keys: Sequence[bytes], *, segments: int, by_prefix: bool = False) -> Ints:
    """Return the segment of each key as int64."""
    routes = [route_bytes(key, by_prefix=True) for key in keys] if by_prefix else keys
    hashes = np.array(hash_keys(routes), np.uint64)
    return (hashes >> np.uint64(HASH_BITS + 1 - segments.bit_length())).astype(np.int64) if segments > 1 else np.zeros(len(keys), np.int64)


def build_write(columns: Columns, *, segments: int, by_prefix: bool = False) -> WriteFrame:
    """Return the body of a write: one block a segment, segments rising, items of a segment in the order given.

    Kinds are CREATED for a put and REMOVED for a removal. The table's `sequence` column is left 0. Items of different segments lose their
    order: a stored value then needs one header and one base id, and segments may have different primaries anyway.
    """
    placed = segments_of(columns.keys, segments=segments, by_prefix=by_prefix)
    order = np.argsort(placed, kind="stable")
    ordered = placed[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    counts = np.diff(starts, append=len(ordered))
    sorted_columns = columns if len(starts) == 1 else take(columns, order)
    blocks, lengths = build_blocks(sorted_columns, counts)
    table = np.zeros(len(starts), TABLE)
    table["segment"], table["count"], table["length"] = ordered[starts], counts, lengths
    return WriteFrame(table=table, blocks=blocks, order=order)


def take(columns: Columns, order: Ints) -> Columns:
    """Return the same events in another order."""
    rows = order.tolist()

    def pick(column: Sequence[bytes] | None) -> list[bytes] | None:
        return None if column is None else [column[row] for row in rows]

    return Columns(
        kinds=columns.kinds[order],
        keys=[columns.keys[row] for row in rows],
        values=[columns.values[row] for row in rows],
        expiry=None if columns.expiry is None else columns.expiry[order],
        before=pick(columns.before),
        headers=pick(columns.headers),
    )


def build_blocks(columns: Columns, counts: Ints) -> tuple[bytes, Ints]:
    """Return blocks back to back, and the length of each; block i holds the next `counts[i]` events."""
    blocks = len(counts)
    bitmap = columns.bitmap & ~PROMOTED
    ends = np.cumsum(counts)
    variable = [column for column in (columns.keys, columns.values, columns.before, columns.headers) if column is not None]
    lengths = [np.fromiter(map(len, column), np.int64, len(column)) for column in variable]
    offsets = [_Offsets(length, counts, ends) for length in lengths]

    optional_head = pad8(4 * int(_BITS[bitmap]))
    kinds_room = pad8s(counts)
    offsets_room = pad8s(4 * (counts + 1))
    expiry_room = 8 * counts if columns.expiry is not None else np.zeros(blocks, np.int64)
    # numbers of a block: [head, kinds, key offsets], [value offsets], [expiry, before offsets], [headers offsets]
    rooms = [BLOCK_HEAD_BYTES + optional_head + kinds_room + offsets_room] + [offsets_room] * (len(variable) - 1)
    expiry_after = 2 if len(variable) > 2 else None
    if expiry_after is not None:
        rooms[expiry_after] = rooms[expiry_after] + expiry_room
    elif columns.expiry is not None:
        rooms.append(expiry_room)
    room_ends = np.cumsum(np.stack(rooms, axis=1).ravel()).reshape(blocks, len(rooms))
    numbers = np.zeros(int(room_ends[-1, -1]) if blocks else 0, np.uint8)
    words = numbers.view("<i4")
    starts = room_ends - np.stack(rooms, axis=1)

    _put_heads(words, starts[:, 0], bitmap=bitmap, counts=counts, offsets=offsets)
    kinds_at = starts[:, 0] + BLOCK_HEAD_BYTES + optional_head
    numbers[_spread(kinds_at, counts, ends)] = columns.kinds
    for index, offset in enumerate(offsets):
        offset.write(words, room_ends[:, index] - offsets_room)
    if columns.expiry is not None:
        at = starts[:, expiry_after if expiry_after is not None else len(variable)]
        numbers.view("<i8")[_spread(at >> 3, counts, ends)] = columns.expiry
    data = _weave(numbers.tobytes(), room_ends, columns=variable, offsets=offsets, ends=ends)
    sizes = np.sum(np.stack(rooms, axis=1), axis=1) + sum(pad8s(offset.totals) for offset in offsets)
    return add_promoted(data, sizes, counts, columns.promoted) if columns.promoted else (data, sizes)


class _Offsets:
    """The offsets column of every block, from the lengths of all items."""

    __slots__ = ("flat", "positions", "sizes", "totals")

    def __init__(self, lengths: Ints, counts: Ints, ends: Ints) -> None:
        running = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        block_base = running[ends - counts]
        self.totals = running[ends] - block_base
        sizes = self.sizes = counts + 1
        size_ends = np.cumsum(sizes)
        self.positions = np.arange(int(size_ends[-1]) if len(sizes) else 0) - np.repeat(size_ends - sizes, sizes)
        self.flat = running[self.positions + np.repeat(ends - counts, sizes)] - np.repeat(block_base, sizes)

    def write(self, words: npt.NDArray[np.int32], at: Ints) -> None:
        words[np.repeat(at >> 2, self.sizes) + self.positions] = self.flat


def _put_heads(words: npt.NDArray[np.int32], at: Ints, *, bitmap: int, counts: Ints, offsets: list[_Offsets]) -> None:
    word = at >> 2
    words[word] = counts
    words[word + 1] = bitmap
    words[word + 2] = offsets[0].totals
    words[word + 3] = offsets[1].totals
    next_word = word + 4
    if bitmap & EXPIRY:
        words[next_word] = 8 * counts
        next_word = next_word + 1
    for offset in offsets[2:]:
        words[next_word] = pad8s(4 * (counts + 1)) + offset.totals
        next_word = next_word + 1


def _weave(numbers: bytes, room_ends: Ints, *, columns: list[Sequence[bytes]], offsets: list[_Offsets], ends: Ints) -> bytes:
    """Return numbers and bytes of all blocks in their order, as one join of pieces."""
    pieces: list[bytes] = []
    pads = [(-offset.totals & 7).tolist() for offset in offsets]
    cuts = room_ends.tolist()
    position = 0
    low = 0
    for block, high in enumerate(ends.tolist()):
        row = cuts[block]
        for index, column in enumerate(columns):
            pieces.append(numbers[position : row[index]])
            pieces += column[low:high]
            pieces.append(_PADS[pads[index][block]])
            position = row[index]
        if position != row[-1]:
            pieces.append(numbers[position : row[-1]])
            position = row[-1]
        low = high
    return b"".join(pieces)


def _spread(at: Ints, counts: Ints, ends: Ints) -> Ints:
    """Return `at[i], at[i] + 1, ...`, `counts[i]` of them, for each i in turn."""
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(at - (ends - counts), counts) + np.arange(total)


class Table:
    """The rows as they came, which are not looked at any closer: `read_table` reads those of another process.

    `events` and `nbytes` are of all blocks together; `only` is the segment of a table of one row, -1 of any other.
    """

    __slots__ = ("_rows", "data", "events", "nbytes", "only")

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = data
        self._rows: npt.NDArray[np.void] | None = None
        if len(data) == ROW.size:
            self.only, _, self.events, self.nbytes, _ = ROW.unpack(data)
        else:
            self.only = -1
            self.events = int(self.rows["count"].sum(dtype=np.int64))
            self.nbytes = int(self.rows["length"].sum(dtype=np.int64))

    @classmethod
    def of(cls, rows: npt.NDArray[Any]) -> "Table":
        return cls(rows.tobytes())

    def __len__(self) -> int:
        return len(self.data) // ROW.size

    @property
    def rows(self) -> npt.NDArray[np.void]:
        """Return the rows as an array of TABLE."""
        if self._rows is None:
            self._rows = np.frombuffer(self.data, TABLE)
        return self._rows

    @property
    def segments(self) -> npt.NDArray[np.uint16]:
        return self.rows["segment"]

    def segment_list(self) -> list[int]:
        return [self.only] if self.only >= 0 else self.segments.tolist()


def read_table(body: memoryview, blocks: int) -> tuple[Table, memoryview]:
    """Return the table of a write's body and the blocks behind it.

    Raises:
        ValueError: the table does not fit the body, its lengths do not add up, or its segments do not rise.
    """
    size = blocks * ROW.size
    if not 0 < size <= len(body):
        raise ValueError(f"a table of {blocks} blocks does not fit a body of {len(body)} bytes")
    table = Table(body[:size])
    if table.nbytes != len(body) - size:
        raise ValueError("the lengths of the blocks do not add up to the body")
    if blocks > 1 and np.count_nonzero(table.segments[1:] <= table.segments[:-1]):
        raise ValueError("segments of the blocks do not rise")
    return table, body[size:]
