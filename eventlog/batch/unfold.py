"""Many stored values seen at once, as columns of their sections and producer rows: what `views.decode_value` says one by one.

The values are believed: whoever made or received them has checked their checksums. Values whose producer rows are ragged (some items
became no event) are told by `is_ragged` and have neither sections nor rows here; the others are by far the most.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eventlog.batch.layout import PRODUCER, VALUE_HEAD, VALUE_HEAD_BYTES
from eventlog.batch.marks import BLOCK_HEAD_BYTES
from eventlog.ids import ID_STEP

Ints = npt.NDArray[np.int64]
_PRODUCER_WORDS = PRODUCER.itemsize // 4
_LENGTHS_AT = VALUE_HEAD_BYTES // 4


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
        found: Ints = self.at + BLOCK_HEAD_BYTES + pad8_all(4 * np.bitwise_count(bitmaps).astype(np.int64))
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


def pad8_all(sizes: Ints) -> Ints:
    """Return sizes rounded up to multiples of 8."""
    padded: Ints = (sizes + 7) & ~7
    return padded


def firsts_of_runs(numbers: Ints) -> Ints:
    """Return where each run of one and the same number begins."""
    begins = np.ones(len(numbers), bool)
    np.not_equal(numbers[1:], numbers[:-1], out=begins[1:])
    firsts: Ints = begins.nonzero()[0]
    return firsts
