"""Entries as they stream in answer to `get_many` and `keys`: columns of numbers, then one block of keys and values.

versions i64[count] (0: no entry) | [applied ids, deadlines, lifespans: i64[count] each] | block of kind STATE

Without arrays: rows are tuples before and after, and a command that prints keys needs no more than this.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from struct import Struct, pack, unpack_from
from typing import NamedTuple

from eventlog.batch.marks import BLOCK_HEAD_BYTES, pad8
from eventlog.errors import CorruptData, UnsupportedFormat
from eventlog.events import Kind

_HEAD = Struct("<IIII")  # count, optional columns, bytes of keys, bytes of values
_METADATA_COLUMNS = 3
_STATE = bytes([Kind.STATE])


class EntryRow(NamedTuple):
    """One key and its entry; `version` is 0 where there is none.

    Metadata, 0 unless they were asked for: everything of the key's segment up to `applied_id` is in the answer; the entry expires at
    `expires_ms` since 1970, in `lifespan_ms` by the clock of the node that read it; 0 for never.
    """

    key: bytes
    value: bytes
    version: int
    applied_id: int = 0
    expires_ms: int = 0
    lifespan_ms: int = 0


def encode_rows(rows: Sequence[EntryRow], *, has_metadata: bool) -> tuple[bytes, bytes]:
    """Return the numbers and the block of some rows, at least one: the block is the same bytes as `build_blocks` makes."""
    keys, values, *columns = zip(*rows, strict=True)
    count = len(rows)
    numbers = b"".join(pack(f"<{count}q", *column) for column in (columns if has_metadata else columns[:1]))
    (key_offsets, key_data), (value_offsets, value_data) = _column(keys), _column(values)
    head = _HEAD.pack(count, 0, len(key_data), len(value_data))
    parts = (_STATE * count, key_offsets, key_data, value_offsets, value_data)
    return numbers, head + b"".join(part.ljust(pad8(len(part)), b"\0") for part in parts)


def _column(items: Sequence[bytes]) -> tuple[bytes, bytes]:
    return pack(f"<{len(items) + 1}i", *accumulate(map(len, items), initial=0)), b"".join(items)


def decode_rows(body: memoryview, *, count: int, has_metadata: bool) -> list[EntryRow]:
    """Return the rows of an item.

    Raises:
        CorruptData: lengths contradict each other.
        UnsupportedFormat: the block has columns that rows have not.
    """
    columns = 1 + _METADATA_COLUMNS * has_metadata
    at = 8 * count * columns
    if len(body) < at + BLOCK_HEAD_BYTES:
        raise CorruptData(where="answer", why=f"{count} rows do not fit {len(body)} bytes")
    numbers = [unpack_from(f"<{count}q", body, 8 * count * column) for column in range(columns)]
    own, bitmap, key_bytes, value_bytes = _HEAD.unpack_from(body, at)
    if bitmap:
        raise UnsupportedFormat(what="columns of an answer", found=bitmap, known="0")
    if own != count:
        raise CorruptData(where="answer", why=f"{own} rows in an item of {count}")
    at += BLOCK_HEAD_BYTES + pad8(count)
    keys, at = _items(body, at, count, key_bytes)
    values, at = _items(body, at, count, value_bytes)
    if at > len(body):
        raise CorruptData(where="answer", why=f"a block that ends at {at} in {len(body)} bytes")
    return list(map(EntryRow, keys, values, *numbers))


def _items(body: memoryview, at: int, count: int, size: int) -> tuple[list[bytes], int]:
    """Return the items of a column, and where the next one begins. Raises CorruptData."""
    begin = at + pad8(4 * (count + 1))
    if begin + size > len(body):
        raise CorruptData(where="answer", why=f"a column of {size} bytes at {begin} passes the end of {len(body)} bytes")
    ends = unpack_from(f"<{count + 1}i", body, at)
    if ends[0] != 0 or ends[-1] != size or sorted(ends) != [*ends]:
        raise CorruptData(where="answer", why="offsets do not rise from 0 to the size of their column")
    data = bytes(body[begin : begin + size])
    return [data[low:high] for low, high in pairwise(ends)], begin + pad8(size)
