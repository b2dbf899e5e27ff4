"""The optional column of promoted fields: what some fields of the values hold, beside the values, so that these need not be read.

    fields u32 | 0 u32 | (name hash u32, bytes u32) of each field | of each field: offsets i32[count + 1] | JSON texts, padded

A field is known by the hash of its path, as cache options spell it. An item is the field's JSON in its shortest form (msgspec's), empty
where the value has no such field.
"""

from collections.abc import Mapping, Sequence
from struct import Struct

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from eventlog.batch.marks import BLOCK_HEAD_BYTES, PROMOTED, pad8
from eventlog.batch.sections import Sections, pad8s

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_HEAD = Struct("<II")


def field_hash(path: str) -> int:
    """Return what a field is known by in the column."""
    return xxh3_64_intdigest(path.encode()) & 0xFFFFFFFF


def encode_promoted(fields: Mapping[str, Sequence[bytes]]) -> bytes:
    """Return the column of one block; every field has an item for each event."""
    table: list[bytes] = []
    columns: list[bytes] = []
    for path, items in fields.items():
        offsets = np.zeros(len(items) + 1, "<i4")
        np.cumsum([len(item) for item in items], out=offsets[1:])
        data = b"".join(items)
        table.append(_HEAD.pack(field_hash(path), len(data)))
        columns += (offsets.tobytes(), bytes(-len(offsets) * 4 % 8), data, bytes(-len(data) % 8))
    return b"".join((_HEAD.pack(len(fields), 0), *table, *columns))


def add_promoted(data: bytes, lengths: Ints, counts: Ints, fields: Mapping[str, Sequence[bytes]]) -> tuple[bytes, Ints]:
    """Return blocks without such a column with it, and their lengths; `fields` have the items of all blocks, one after the other."""
    pieces: list[bytes] = []
    sizes: list[int] = []
    low = first = 0
    for length, count in zip(lengths.tolist(), counts.tolist(), strict=True):
        column = encode_promoted({path: items[first : first + count] for path, items in fields.items()})
        head = np.frombuffer(data, "<u4", BLOCK_HEAD_BYTES // 4, low).copy()
        optional = int(head[1]).bit_count()
        head[1] |= PROMOTED
        at, room = low + BLOCK_HEAD_BYTES, 4 * optional
        rest = at + pad8(room)
        pieces += (
            head.tobytes(),
            data[at : at + room],
            len(column).to_bytes(4 if optional & 1 else 8, "little"),
            data[rest : low + length],
        )
        pieces.append(column)
        sizes.append(sum(map(len, pieces[-5:])))
        low, first = low + length, first + count
    return b"".join(pieces), np.array(sizes, np.int64)


def find_field(sections: Sections, path: str, at: Ints, has: Mask) -> tuple[Ints, Mask]:
    """Return where the offsets of a field begin in each block, and which blocks have it; those that `has` have columns, at `at`."""
    words, hashed = sections.words, field_hash(path)
    low = np.where(has, at >> 2, 0)
    fields = np.where(has, words[low], 0).astype(np.int64)
    offsets_at = np.zeros(len(low), np.int64)
    found = np.zeros(len(low), bool)
    begins = at + _HEAD.size * (fields + 1)
    for rank in range(int(fields.max(initial=0))):
        goes_on = rank < fields
        row = np.where(goes_on, low + 2 + 2 * rank, 0)
        own = goes_on & (words[row] == hashed)
        offsets_at = np.where(own, begins, offsets_at)
        found |= own
        begins = begins + sections.offsets_room + pad8s(np.where(goes_on, words[row + 1], 0).astype(np.int64))
    return offsets_at, found
