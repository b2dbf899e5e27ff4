"""Many blocks seen at once, gathered and not walked: the sections of stored values, or blocks as they are.

`find_sections` says where their columns lie in one buffer, `unfold` takes whole values apart with their producer rows: what
`views.decode_value` says one by one. These values are believed: their checksums were checked when they were made or received. Values whose
producer rows are ragged (some items became no event) are told by `is_ragged` and have neither sections nor rows; the others are by far
the most.

Promoted fields are the optional column that says what some fields of the values hold, so that these need not be read:

    fields u32 | 0 u32 | (name hash u32, bytes u32) of each field | of each field: offsets i32[count + 1] | JSON texts, padded

A field is known by the hash of its path, as cache options spell it. An item is the field's JSON in its shortest form (msgspec's), empty
where the value has no such field.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from struct import Struct

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from eventlog.arrays import Ints, Mask
from eventlog.batch.layout import PRODUCER, VALUE_HEAD, VALUE_HEAD_BYTES
from eventlog.batch.marks import BEFORE, BLOCK_HEAD_BYTES, EXPIRY, HEADERS, PROMOTED, SCHEMA_ID, pad8
from eventlog.ids import ID_STEP

OPTIONAL = (EXPIRY, BEFORE, HEADERS, SCHEMA_ID, PROMOTED)
_BITS = np.array([bitmap.bit_count() for bitmap in range(32)], np.int64)
_PRODUCER_WORDS = PRODUCER.itemsize // 4
_LENGTHS_AT = VALUE_HEAD_BYTES // 4
_HEAD = Struct("<II")


@dataclass(frozen=True, kw_only=True, eq=False)
class SectionPlaces:
    """Blocks with wanted events, in the order of the answer: events `[lows, lows + counts)` of each; positions are bytes.

    `sizes` is how many events a block holds in all.
    """

    words: npt.NDArray[np.uint32]
    starts: Ints
    sizes: Ints
    bitmaps: Ints
    key_bytes: Ints
    value_bytes: Ints
    lows: Ints
    counts: Ints

    @cached_property
    def bitmap(self) -> int:
        """Return the optional columns that some block has."""
        return int(np.bitwise_or.reduce(self.bitmaps)) if len(self.bitmaps) else 0

    @cached_property
    def kinds_at(self) -> Ints:
        """Return where the kinds of each block begin."""
        return self.starts + BLOCK_HEAD_BYTES + pad8s(4 * _BITS[self.bitmaps])

    @cached_property
    def key_offsets_at(self) -> Ints:
        """Return where the offsets of its keys begin."""
        return self.kinds_at + pad8s(self.sizes)

    @cached_property
    def offsets_room(self) -> Ints:
        """Return the bytes that offsets take, padded."""
        return pad8s(4 * (self.sizes + 1))

    @cached_property
    def keys_at(self) -> Ints:
        return self.key_offsets_at + self.offsets_room

    @cached_property
    def value_offsets_at(self) -> Ints:
        return self.keys_at + pad8s(self.key_bytes)

    @cached_property
    def values_at(self) -> Ints:
        return self.value_offsets_at + self.offsets_room

    @cached_property
    def optional(self) -> dict[int, tuple[Ints, npt.NDArray[np.bool_], Ints]]:
        """Return of each optional column that some block has where it begins, which blocks have it, and its length (else 0)."""
        found: dict[int, tuple[Ints, npt.NDArray[np.bool_], Ints]] = {}
        at = self.values_at + pad8s(self.value_bytes)
        rank = (self.starts + BLOCK_HEAD_BYTES) >> 2
        for bit in OPTIONAL:
            if not self.bitmap & bit:
                continue
            has = self.bitmaps & bit != 0
            length = np.where(has, self.words[np.where(has, rank, 0)], 0).astype(np.int64)
            found[bit] = at, has, length
            rank = rank + has
            at = at + pad8s(length)
        return found


def find_sections(words: npt.NDArray[np.uint32], *, starts: Ints, lengths: Ints, lows: Ints, highs: Ints) -> SectionPlaces:
    """Return the sections of stored values at `starts`, `lengths` bytes each, with events `[lows, highs)` of each value."""
    in_value = (words[(starts >> 2) + 1] >> 16).astype(np.int64)
    value_of = np.arange(len(starts)).repeat(in_value)
    first = in_value.cumsum() - in_value
    own_lengths = words[((starts + VALUE_HEAD_BYTES) >> 2)[value_of] + np.arange(len(value_of)) - first[value_of]].astype(np.int64)
    # sections end where their value ends; what stands before them (lengths, producers) need not be looked at
    running = own_lengths.cumsum()
    totals = running[first + in_value - 1] if len(starts) else running
    begins = running - own_lengths + (starts + lengths - totals)[value_of]
    heads = words[(begins >> 2)[:, None] + np.arange(4)].astype(np.int64)
    sizes = heads[:, 0]
    ends = sizes.cumsum()
    before = ends - sizes - (ends - sizes)[first][value_of]
    section_lows = np.maximum(lows[value_of] - before, 0)
    counts = np.minimum(highs[value_of] - before, sizes) - section_lows
    table = np.stack((begins, sizes, heads[:, 1], heads[:, 2], heads[:, 3], section_lows, counts))
    if np.count_nonzero(counts <= 0):
        table = table[:, counts > 0]
    return SectionPlaces(
        words=words,
        starts=table[0],
        sizes=table[1],
        bitmaps=table[2],
        key_bytes=table[3],
        value_bytes=table[4],
        lows=table[5],
        counts=table[6],
    )


def pad8s(sizes: Ints) -> Ints:
    """Return sizes rounded up to multiples of 8."""
    return (sizes + 7) & ~7


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unfolded:
    """Sections and rows of values in their order. `value` and `row_value` say of which value each is; `words` are all bytes as u32.

    `at`: where a section begins in `joined`; `counts`: its events; `bases`: the id of the first. `rows`: PRODUCER records.
    """

    joined: bytes
    words: npt.NDArray[np.uint32]
    heads: npt.NDArray[np.void]
    is_ragged: npt.NDArray[np.bool_]
    value: Ints
    at: Ints
    counts: Ints
    bases: Ints
    rows: npt.NDArray[np.void]
    row_value: Ints

    @property
    def kinds_at(self) -> Ints:
        """Return where the kinds of each section begin in `joined`."""
        bitmaps = self.words[self.at // 4 + 1]
        found: Ints = self.at + BLOCK_HEAD_BYTES + pad8s(4 * np.bitwise_count(bitmaps).astype(np.int64))
        return found

    def kinds(self) -> npt.NDArray[np.uint8]:
        """Return the kinds of all events, section by section."""
        octets = np.frombuffer(self.joined, np.uint8)
        return octets[spread(self.kinds_at, self.counts)]


def heads_of(data: Sequence[bytes]) -> npt.NDArray[np.void]:
    """Return the headers of stored values."""
    return np.frombuffer(b"".join([value[:VALUE_HEAD_BYTES] for value in data]), VALUE_HEAD)


def unfold(data: Sequence[bytes], heads: npt.NDArray[np.void]) -> Unfolded:
    """Return the sections of stored values, each of which is whole; `heads` are their headers."""
    joined = b"".join(data)
    words = np.frombuffer(joined, "<u4")
    sizes = np.fromiter(map(len, data), np.int64, len(data))
    starts = (sizes.cumsum() - sizes) // 4
    sections, producers = heads["sections"].astype(np.int64), heads["producers"].astype(np.int64)
    rows_at = starts + _LENGTHS_AT + ((sections + 1) & ~1)
    rows, row_value = _rows(words, rows_at, producers)
    is_ragged = np.zeros(len(data), bool)
    is_ragged[row_value[rows["count"] != rows["submitted"]]] = True
    if np.count_nonzero(is_ragged):
        sections = np.where(is_ragged, 0, sections)
        kept = ~is_ragged[row_value]
        rows, row_value = rows[kept], row_value[kept]
    value = np.arange(len(data)).repeat(sections)
    lengths = words[spread(starts + _LENGTHS_AT, sections)].astype(np.int64)
    at = (rows_at + producers * _PRODUCER_WORDS)[value] * 4 + before(lengths, sections)
    counts = words[at // 4].astype(np.int64)
    return Unfolded(
        joined=joined,
        words=words,
        heads=heads,
        is_ragged=is_ragged,
        value=value,
        at=at,
        counts=counts,
        bases=heads["base"][value] + before(counts, sections) * ID_STEP,
        rows=rows,
        row_value=row_value,
    )


def _rows(words: npt.NDArray[np.uint32], rows_at: Ints, producers: Ints) -> tuple[npt.NDArray[np.void], Ints]:
    of_value = np.arange(len(producers)).repeat(producers)
    found = np.ascontiguousarray(words[spread(rows_at, producers * _PRODUCER_WORDS)])
    return found.view(PRODUCER), of_value


def spread(firsts: Ints, counts: Ints) -> Ints:
    """Return `firsts[i], firsts[i] + 1, ...`, `counts[i]` of them, for all i back to back."""
    ends: Ints = counts.cumsum()
    found: Ints = (firsts - (ends - counts)).repeat(counts) + np.arange(int(ends[-1]) if len(ends) else 0)
    return found


def before(amounts: Ints, members: Ints) -> Ints:
    """Return for each of some amounts the sum of those before it in its group; `members` are the sizes of the groups."""
    sums = amounts.cumsum() - amounts
    filled = members[members > 0]
    firsts = filled.cumsum() - filled
    found: Ints = sums - sums[firsts].repeat(filled)
    return found


def firsts_of_runs(numbers: Ints) -> Ints:
    """Return where each run of one and the same number begins."""
    begins = np.ones(len(numbers), bool)
    np.not_equal(numbers[1:], numbers[:-1], out=begins[1:])
    firsts: Ints = begins.nonzero()[0]
    return firsts


def field_hash(path: str) -> int:
    """Return what a field is known by in the column: names would cost more than the values in blocks of four events."""
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


def find_field(sections: SectionPlaces, path: str, at: Ints, has: Mask) -> tuple[Ints, Mask]:
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
