"""A copy of events, column by column, in a file: a reader that judges events by some columns reads these, and of the others what matched.

A file is made and read by one process and never outlives it, so what is in it, where, and with which checksums stays in memory
(`FileContents`), and its format is nobody else's business. A column is checked when it is read: whole, or the pieces of `rows_together`
rows that hold what is wanted.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints, Mask
from eventlog.batch.columns import EventColumns, Runs, runs_of
from eventlog.batch.join import Bytes, cut_out
from eventlog.batch.layout import RUN
from eventlog.batch.texts import COLUMN_CUTS, INDEX_TYPES, ColumnCuts, IndexedTexts, IndexSummary, TextIndex, Texts, make_index
from eventlog.checksum import crc32c
from eventlog.errors import CorruptData
from eventlog.ids import ID_STEP

Read = Callable[[int, int], bytes]  # (size, place)
_FEW = 8  # rows of which there are so many times more runs are looked up one by one


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Extent:
    """Where a column is; `pieces` are the checksums of its pieces, where it may be read in pieces."""

    at: int
    size: int
    checksum: int
    pieces: npt.NDArray[np.uint32] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileContents:
    """What is in a file: so many events, of these `kinds` (bits `1 << kind`), in so many bytes; `indexes` by the column they are of."""

    events: int
    kinds: int
    nbytes: int
    extents: Mapping[str, Extent]
    indexes: Mapping[str, IndexSummary]
    cuts: ColumnCuts


class _FileLayout:
    """Puts columns one after the other."""

    def __init__(self, cuts: ColumnCuts) -> None:
        self.cuts = cuts
        self.buffers: list[Bytes] = []
        self.extents: dict[str, Extent] = {}
        self.indexes: dict[str, IndexSummary] = {}
        self.nbytes = 0

    def add(self, name: str, data: Bytes, pieces: npt.NDArray[np.uint32] | None = None) -> None:
        self.extents[name] = Extent(at=self.nbytes, size=len(data), checksum=crc32c(data), pieces=pieces)
        self.buffers.append(data)
        self.nbytes += len(data)

    def add_texts(self, name: str, texts: Texts | None, *, is_indexed: bool = False) -> None:
        if texts is None:
            return
        offsets = np.zeros(len(texts) + 1, "<u4")
        np.cumsum(texts.sizes, out=offsets[1:])
        data = memoryview(cut_out(texts.data, texts.starts, texts.sizes))
        if is_indexed:
            self._add_index(name, Texts(data=bytes(data), starts=offsets[:-1].astype(np.int64), sizes=texts.sizes))
        bounds = [*offsets[: -1 : self.cuts.rows_together].tolist(), len(data)]
        pieces = [crc32c(data[low:high]) for low, high in pairwise(bounds)]
        self.add(f"{name} offsets", offsets.tobytes())
        self.add(name, data, np.array(pieces, np.uint32))

    def _add_index(self, name: str, texts: Texts) -> None:
        self.indexes[name], columns = make_index(texts, self.cuts)
        for column, numbers in columns.items():
            data, size = memoryview(numbers.tobytes()), self.cuts.numbers_together * numbers.itemsize
            pieces = [crc32c(data[low : low + size]) for low in range(0, len(data), size)]
            self.add(f"{name} {column}", data, np.array(pieces, np.uint32))

    def add_numbers(self, name: str, numbers: Ints | None) -> None:
        if numbers is not None:
            self.add(name, numbers.astype("<i8").tobytes())


def encode_columns(events: EventColumns, *, fields: Iterable[str] = (), cuts: ColumnCuts = COLUMN_CUTS) -> tuple[FileContents, list[Bytes]]:
    """Return what a file of `events`, at least one, holds, and its bytes; with those of the promoted `fields` that all of them have."""
    layout = _FileLayout(cuts)
    layout.add("runs", runs_of(events).tobytes())
    layout.add("kinds", events.kinds.tobytes())
    layout.add_texts("keys", events.keys, is_indexed=True)
    layout.add_texts("values", events.values)
    layout.add_texts("before", events.before)
    layout.add_texts("headers", events.headers)
    layout.add_numbers("expiry", events.expiry)
    layout.add_numbers("schema_ids", events.schema_ids)
    for field in fields:
        layout.add_texts(_promoted(field), events.promoted(field), is_indexed=True)
    kinds = int(np.bitwise_or.reduce(np.left_shift(1, events.kinds.astype(np.int64))))
    contents = FileContents(
        events=len(events), kinds=kinds, nbytes=layout.nbytes, extents=layout.extents, indexes=layout.indexes, cuts=cuts
    )
    return contents, layout.buffers


def _promoted(field: str) -> str:
    return f"promoted {field}"


class ColumnFile:
    """Reads columns of a file, each once, by `read`; `nbytes` is what was read.

    Everything here raises CorruptData where the bytes are not what was written.
    """

    def __init__(self, contents: FileContents, read: Read, *, where: str) -> None:
        self.contents = contents
        self.nbytes = 0
        self._read = read
        self._where = where
        self._columns: dict[str, bytes] = {}

    @cached_property
    def runs(self) -> Runs:
        """Return the runs of ids and offsets that the events are."""
        table = np.frombuffer(self.whole("runs"), RUN)
        segments, bases, first_offsets, epochs, counts = (
            table[name].astype(np.int64) for name in ("segment", "base", "first_offset", "epoch", "count")
        )
        return Runs(segments=segments, bases=bases, first_offsets=first_offsets, epochs=epochs, counts=counts)

    @cached_property
    def starts(self) -> Ints:
        """Return the row at which each run begins."""
        counts = self.runs.counts
        return np.cumsum(counts) - counts

    def events(self) -> "FileColumns":
        return FileColumns(self, None)

    def has(self, name: str) -> bool:
        return name in self.contents.extents

    def whole(self, name: str) -> bytes:
        found = self._columns.get(name)
        if found is None:
            extent = self.contents.extents[name]
            found = self._columns[name] = self._bytes(extent.at, extent.size)
            self._check(crc32c(found) == extent.checksum, name)
        return found

    def column(self, name: str, rows: Ints | None) -> Texts:
        """Return the texts of some rows, None for all; not read before they are needed, where an index tells something of them."""
        summary = self.contents.indexes.get(name)
        if summary is None:
            return self.texts(name, rows)
        return IndexedTexts(TextIndex(summary, partial(self._numbers, name)), partial(self.texts, name), rows)

    def _numbers(self, name: str, column: str, low: int, high: int) -> npt.NDArray[Any]:
        """Return numbers `[low, high)` of a column of an index."""
        numbers = np.zeros(0, INDEX_TYPES[column])
        if low >= high:
            return numbers
        together = self.contents.cuts.numbers_together
        extent, size = self.contents.extents[f"{name} {column}"], together * numbers.itemsize
        first, last = low // together, -(-high // together)
        data = self._bytes(extent.at + first * size, min(last * size, extent.size) - first * size)
        view = memoryview(data)
        assert extent.pieces is not None, "the columns of an index are written in pieces"
        found = [crc32c(view[at : at + size]) for at in range(0, len(data), size)]
        self._check(found == extent.pieces[first:last].tolist(), f"{name} {column}")
        return np.frombuffer(data, numbers.dtype)[low - first * together : high - first * together]

    def texts(self, name: str, rows: Ints | None) -> Texts:
        """Return the texts of some rows, None for all."""
        offsets = np.frombuffer(self.whole(f"{name} offsets"), "<u4")
        if rows is None:
            begins = offsets[:-1].astype(np.int64)
            return Texts(data=self.whole(name), starts=begins, sizes=np.diff(offsets).astype(np.int64))
        begins = offsets[rows].astype(np.int64)
        sizes = offsets[rows + 1] - begins
        some = None if name in self._columns else self._some(name, rows, offsets, sizes)
        return Texts(data=self.whole(name), starts=begins, sizes=sizes) if some is None else some

    def _some(self, name: str, rows: Ints, offsets: npt.NDArray[np.uint32], sizes: Ints) -> Texts | None:
        """Return the texts of `rows` from the pieces that hold them; None where it takes less to read the whole column."""
        extent = self.contents.extents[name]
        cuts = self.contents.cuts
        of_row = rows // cuts.rows_together
        held = of_row[sizes > 0]
        pieces = held[np.flatnonzero(np.diff(held, prepend=-1))]
        if len(pieces) * cuts.piece_worth_bytes >= max(extent.size, 1):
            return None
        assert extent.pieces is not None, "texts are written in pieces"
        bounds = np.append(offsets[:: cuts.rows_together], offsets[-1]).astype(np.int64)
        lows, lengths = bounds[pieces], bounds[pieces + 1] - bounds[pieces]
        data = list(map(self._read, lengths.tolist(), (lows + extent.at).tolist()))
        self._check(list(map(crc32c, data)) == extent.pieces[pieces].tolist(), name)
        self.nbytes += int(lengths.sum())
        shift = np.append(np.cumsum(lengths) - lengths - lows, 0)  # from places in the column to places in what was read
        starts = np.where(sizes > 0, offsets[rows] + shift[np.searchsorted(pieces, of_row)], 0)
        return Texts(data=b"".join(data), starts=starts, sizes=sizes)

    def _bytes(self, at: int, size: int) -> bytes:
        found = self._read(size, at)
        self._check(len(found) == size, "size")
        self.nbytes += size
        return found

    def _check(self, is_right: "bool | np.bool_", what: str) -> None:
        if not is_right:
            raise CorruptData(where=self._where, why=f"the file of columns is damaged: {what}")


class FileColumns(EventColumns):
    """Some events of a file, one row each, by rising rows; None: all of them."""

    def __init__(self, file: ColumnFile, rows: Ints | None) -> None:
        self._file = file
        self._own = rows

    def __len__(self) -> int:
        return self._file.contents.events if self._own is None else len(self._own)

    def take(self, rows: "Ints | Mask") -> "FileColumns":
        if self._own is not None:
            return FileColumns(self._file, self._own[rows])
        return FileColumns(self._file, np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64))

    @cached_property
    def _of_run(self) -> Ints:
        """Return the run of every event."""
        runs, rows = self._file.runs, self._own
        if rows is not None and len(rows) * _FEW < self._file.contents.events:
            return np.searchsorted(self._file.starts, rows, "right") - 1
        every = np.repeat(np.arange(len(runs.counts)), runs.counts)
        return every if rows is None else every[rows]

    @cached_property
    def _in_run(self) -> Ints:
        """Return the place of every event in its run."""
        rows = np.arange(len(self)) if self._own is None else self._own
        return rows - self._file.starts[self._of_run]

    @cached_property
    def ids(self) -> Ints:
        return self._file.runs.bases[self._of_run] + self._in_run * ID_STEP

    @cached_property
    def segments(self) -> Ints:
        return self._file.runs.segments[self._of_run]

    @cached_property
    def offsets(self) -> Ints:
        return self._file.runs.first_offsets[self._of_run] + self._in_run

    @cached_property
    def epochs(self) -> Ints:
        return self._file.runs.epochs[self._of_run]

    @cached_property
    def kinds(self) -> npt.NDArray[np.uint8]:
        found = np.frombuffer(self._file.whole("kinds"), np.uint8)
        return found if self._own is None else found[self._own]

    @cached_property
    def keys(self) -> Texts:
        return self._file.column("keys", self._own)

    @cached_property
    def values(self) -> Texts:
        return self._file.texts("values", self._own)

    @cached_property
    def before(self) -> Texts | None:
        return self._optional("before")

    @cached_property
    def headers(self) -> Texts | None:
        return self._optional("headers")

    @cached_property
    def expiry(self) -> Ints | None:
        return self._integers("expiry")

    @cached_property
    def schema_ids(self) -> Ints | None:
        return self._integers("schema_ids")

    def promoted(self, field: str) -> Texts | None:
        return self._optional(_promoted(field))

    def _optional(self, name: str) -> Texts | None:
        return self._file.column(name, self._own) if self._file.has(name) else None

    def _integers(self, name: str) -> Ints | None:
        if not self._file.has(name):
            return None
        found = np.frombuffer(self._file.whole(name), "<i8").astype(np.int64)
        return found if self._own is None else found[self._own]
