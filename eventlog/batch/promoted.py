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

from eventlog.batch.sections import Sections, pad8s

Ints = npt.NDArray[np.int64]
_HEAD = Struct("<II")
FIELDS_MAX = 8


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


def find_field(sections: Sections, path: str, at: Ints) -> tuple[Ints, Ints] | None:
    """Return where offsets and texts of a field begin in each block, whose columns begin at `at`; None unless all blocks have it."""
    words, hashed = sections.words, field_hash(path)
    low = at >> 2
    fields = words[low].astype(np.int64)
    offsets_at = np.zeros(len(low), np.int64)
    found = np.zeros(len(low), bool)
    begins = at + _HEAD.size * (fields + 1)
    for rank in range(int(fields.max(initial=0))):
        has = rank < fields
        row = np.where(has, low + 2 + 2 * rank, 0)
        own = has & (words[row] == hashed)
        offsets_at = np.where(own, begins, offsets_at)
        found |= own
        begins = begins + sections.offsets_room + pad8s(np.where(has, words[row + 1], 0).astype(np.int64))
    return (offsets_at, offsets_at + sections.offsets_room) if bool(found.all()) else None
