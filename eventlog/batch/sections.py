"""Where the columns of many blocks lie in one buffer: the sections of stored values, or blocks as they are. Gathered, not walked."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from eventlog.batch.layout import VALUE_HEAD_BYTES
from eventlog.batch.marks import BEFORE, BLOCK_HEAD_BYTES, EXPIRY, HEADERS, PROMOTED, SCHEMA_ID

Ints = npt.NDArray[np.int64]
OPTIONAL = (EXPIRY, BEFORE, HEADERS, SCHEMA_ID, PROMOTED)
_BITS = np.array([bitmap.bit_count() for bitmap in range(32)], np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sections:
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
        """Return where its keys begin."""
        return self.key_offsets_at + self.offsets_room

    @cached_property
    def value_offsets_at(self) -> Ints:
        """Return where the offsets of its values begin."""
        return self.keys_at + pad8s(self.key_bytes)

    @cached_property
    def values_at(self) -> Ints:
        """Return where its values begin."""
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


def find_sections(words: npt.NDArray[np.uint32], *, starts: Ints, lengths: Ints, lows: Ints, highs: Ints) -> Sections:
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
    return Sections(
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
