"""Joining stored values for readers: the columns of all their sections as one block, and a table of their runs of ids.

A log written by many clients has a few events a section, thousands of sections an answer. So nothing here is done per section
but cutting its bytes out: headers, section lengths, kinds and offsets of all values are gathered by one index each.
Values are taken as they are: they were checked when they were read from a disk.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.layout import RUN
from eventlog.batch.marks import EXPIRY, PROMOTED, SCHEMA_ID, columns_without
from eventlog.batch.sections import SectionPlaces, find_sections
from eventlog.ids import ID_STEP, NODE_BITS

Bytes = bytes | memoryview
_ARROW_PIECES_MIN = 96  # a call of arrow takes as long as so many slices
_PADS = tuple(bytes(n) for n in range(8))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Joined:
    """Events of many values: `runs` (rows of layout.RUN, by segment, then id) and one block."""

    runs: npt.NDArray[np.void]
    block: bytes
    events: int

    @property
    def nbytes(self) -> int:
        """Return the size of runs and block in bytes, a multiple of 8."""
        return self.runs.nbytes + len(self.block)


@dataclass(frozen=True, kw_only=True, eq=False)
class Packed:
    """Stored values within `data`, each at a multiple of 8; one number a value in the arrays, values of a segment in order of their ids."""

    segments: Ints
    starts: Ints
    lengths: Ints
    data: bytes

    @cached_property
    def words(self) -> npt.NDArray[np.uint32]:
        """Return `data` as words: every value is a multiple of 8."""
        return np.frombuffer(self.data, "<u4")

    @cached_property
    def bases(self) -> Ints:
        """Return the base id of each value."""
        found: Ints = self.words.view("<i8")[(self.starts >> 3) + 3]
        return found

    @cached_property
    def counts(self) -> Ints:
        """Return the number of events of each value."""
        found: Ints = self.words[(self.starts >> 2) + 3].astype(np.int64)
        return found

    def take(self, rows: Ints) -> "Packed":
        """Return some of the values, uncopied."""
        return Packed(segments=self.segments[rows], starts=self.starts[rows], lengths=self.lengths[rows], data=self.data)

    def value(self, row: int) -> bytes:
        start = self.starts.item(row)
        return self.data[start : start + self.lengths.item(row)]


def pack(segments: Sequence[int] | Ints, data: Sequence[bytes]) -> Packed:
    """Return stored values packed; a single one is not copied."""
    lengths = np.fromiter(map(len, data), np.int64, len(data))
    return Packed(
        segments=np.asarray(segments, np.int64),
        starts=lengths.cumsum() - lengths,
        lengths=lengths,
        data=data[0] if len(data) == 1 else b"".join(data),
    )


def join(segments: Sequence[int] | Ints, data: Sequence[bytes], *, after: int | Ints, until: int) -> Joined:
    """Return the events with ids in `(after, until]` of stored values; `after` is one id, or one for each value.

    Values of a segment are given in order of their ids.
    """
    return join_packed(pack(segments, data), after=after, until=until)


def indexes_within(bases: Ints, counts: Ints, *, after: int | Ints, until: int) -> tuple[Ints, Ints]:
    """Return of each run of ids the indexes `[low, high)` of its events in `(after, until]`; `low >= high` where there is none."""
    lows = np.maximum(((after - bases) >> NODE_BITS) + 1, 0)
    highs = np.minimum(((until - bases) >> NODE_BITS) + 1, counts)
    return lows, highs


def join_packed(values: Packed, *, after: int | Ints, until: int, without: frozenset[str] = frozenset()) -> Joined:
    """Return `join` of packed values, where columns in `without` (of `CONTENT`) are empty, or are not there."""
    lows, highs = indexes_within(values.bases, values.counts, after=after, until=until)
    rows = (highs > lows).nonzero()[0]
    segments = values.segments[rows]
    if np.count_nonzero(segments[1:] < segments[:-1]):
        order = segments.argsort(kind="stable")
        rows, segments = rows[order], segments[order]
    lows, highs = lows[rows], highs[rows]
    sections = find_sections(values.words, starts=values.starts[rows], lengths=values.lengths[rows], lows=lows, highs=highs)
    return Joined(
        runs=_runs(values, rows, segments=segments, lows=lows, counts=highs - lows),
        block=_Gather(values.data, sections, without).block(),
        events=int(sections.counts.sum()),
    )


def _runs(values: Packed, rows: Ints, *, segments: Ints, lows: Ints, counts: Ints) -> npt.NDArray[np.void]:
    """Return the table of runs, neighbours merged where ids, offsets and epoch go on."""
    at = values.starts[rows]
    bases = values.bases[rows] + lows * ID_STEP
    offsets = values.words.view("<i8")[(at >> 3) + 4] + lows
    epochs = values.words[(at >> 2) + 2]
    goes_on = (
        (segments[1:] == segments[:-1])
        & (bases[1:] == (bases + counts * ID_STEP)[:-1])
        & (offsets[1:] == (offsets + counts)[:-1])
        & (epochs[1:] == epochs[:-1])
    )
    first = np.concatenate((np.ones(min(len(rows), 1), bool), ~goes_on)).nonzero()[0]
    runs = np.zeros(len(first), RUN)
    runs["segment"], runs["base"], runs["first_offset"], runs["epoch"] = segments[first], bases[first], offsets[first], epochs[first]
    runs["count"] = np.add.reduceat(counts, first) if len(first) else 0
    return runs


class _Gather:
    """Takes the columns of sections together into one block."""

    __slots__ = ("_data", "_ends", "_events", "_places", "_sections", "_skipped", "_without", "_words")

    def __init__(self, data: bytes, sections: SectionPlaces, without: frozenset[str]) -> None:
        self._words = sections.words
        self._data = data
        self._sections = sections
        self._without = without
        self._skipped = PROMOTED | columns_without(without)  # promoted fields are read by the node alone
        self._ends = sections.counts.cumsum()
        self._events = int(self._ends[-1]) if len(self._ends) else 0
        self._places = np.arange(self._events) - (self._ends - sections.counts - sections.lows).repeat(sections.counts)

    def block(self) -> bytes:
        of = self._sections
        bitmap = of.bitmap & ~self._skipped
        key_offsets, keys = self._nothing() if "key" in self._without else self._strings(of.key_offsets_at, of.keys_at, None)
        value_offsets, values = self._nothing() if "value" in self._without else self._strings(of.value_offsets_at, of.values_at, None)
        sizes, optional = self._optional()
        head = np.array([self._events, bitmap, len(keys), len(values), *sizes], "<u4").tobytes()
        kinds = self._words.view(np.uint8)[self._spread(of.kinds_at)].tobytes()
        columns = (head, kinds, key_offsets, keys, value_offsets, values, *optional)
        return b"".join([piece for column in columns for piece in (column, _pad(column))])

    def _spread(self, at: Ints) -> Ints:
        """Return `at + i` of every wanted event, i its index in its section."""
        return at.repeat(self._sections.counts) + self._places

    def _nothing(self) -> tuple[bytes, Bytes]:
        """Return the offsets of a column of empty items."""
        return bytes(4 * (self._events + 1)), b""

    def _strings(self, offsets_at: Ints, bytes_at: Ints, has: npt.NDArray[np.bool_] | None) -> tuple[bytes, Bytes]:
        """Return offsets and bytes of a column; where `has` is False the section lacks it, and its events get nothing."""
        of, words = self._sections, self._words
        low = offsets_at >> 2
        if has is not None:
            low = np.where(has, low, 0)
        begins = words[low + of.lows].astype(np.int64)
        sizes = words[low + of.lows + of.counts] - begins
        ends = words[self._spread(low) + 1].astype(np.int64)
        shift = sizes.cumsum() - sizes - begins
        if has is not None:
            sizes = np.where(has, sizes, 0)
            before = sizes.cumsum() - sizes
            ends = np.where(has.repeat(of.counts), ends, 0)
            shift = np.where(has, before - begins, before)
        offsets = np.zeros(self._events + 1, "<i4")
        offsets[1:] = ends + shift.repeat(of.counts)
        starts = bytes_at + begins
        if has is not None:
            starts, sizes = starts[has], sizes[has]
        return offsets.tobytes(), cut_out(self._data, starts, sizes)

    def _optional(self) -> tuple[list[int], list[Bytes]]:
        """Return the lengths of the optional columns, and their bytes, each to be padded."""
        of = self._sections
        sizes: list[int] = []
        columns: list[Bytes] = []
        for bit, (at, has, _) in of.optional.items():
            if bit & self._skipped:
                continue
            if bit in {EXPIRY, SCHEMA_ID}:
                columns.append(self._numbers("<i8" if bit == EXPIRY else "<u4", at, has))
                sizes.append(len(columns[-1]))
            else:
                offsets, data = self._strings(at, at + of.offsets_room, has)
                columns += (offsets, data)
                sizes.append(len(offsets) + len(_pad(offsets)) + len(data))
        return sizes, columns

    def _numbers(self, kind: str, at: Ints, has: npt.NDArray[np.bool_]) -> bytes:
        numbers = self._words.view(kind)
        shift = 3 if numbers.itemsize == 8 else 2
        found = numbers[self._spread(np.where(has, at >> shift, 0))]
        return np.where(has.repeat(self._sections.counts), found, 0).astype(kind).tobytes()


def cut_out(data: bytes, starts: Ints, sizes: Ints) -> Bytes:
    """Return the pieces `data[start : start + size]` one after the other; many are taken by arrow."""
    if len(starts) < _ARROW_PIECES_MIN:
        return b"".join([data[start : start + size] for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)])
    from eventlog.batch.arrow_pieces import take_pieces  # noqa: PLC0415 -- clients read columns of filters, and few need pyarrow

    return take_pieces(data, starts, sizes)


def _pad(data: Bytes) -> bytes:
    return _PADS[-len(data) & 7]
