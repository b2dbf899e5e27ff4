"""An archive read without a node: its history in the order of ids, and whether all of it is as it was written."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import ArchiveDamaged, InvalidArgument
from eventlog.ids import ID_MAX
from eventlog.integrations.archive.digest import bounds_of, digest_of
from eventlog.integrations.archive.files import read_part
from eventlog.integrations.archive.table import File, Identity, Round, Table

BATCH_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was looked through: all of it is as it was written. Of `rounds` the table's log tells; older ones it has forgotten."""

    after: int
    upto: int
    events: int
    files: int
    rounds: int


def open_archive(path: Path | str) -> "Archive":
    """Open an archive. Raises ArchiveRefused where there is none."""
    return Archive(Table.open(Path(path).absolute()))


class Archive:
    """A cache's events up to an id, as the table was when it was opened."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __repr__(self) -> str:
        return f"<eventlog.Archive of cache {self.cache!r}: {self._table.path}, up to id {self.upto}>"

    @property
    def cache(self) -> str:
        """Whose events they are."""
        return self._table.identity.cache

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._table.path

    @property
    def identity(self) -> Identity:
        """Whose events they are, exactly."""
        return self._table.identity

    @property
    def after(self) -> int:
        """The id behind which it begins."""
        return self._table.after or 0

    @property
    def upto(self) -> int:
        """The id up to which it has everything behind `after`."""
        return self._table.upto or 0

    @property
    def schema(self) -> pa.Schema:
        """The columns of an event."""
        return self._table.schema

    def dataset(self) -> Any:
        """Return it as a `pyarrow.dataset.Dataset`, which DuckDB, Polars and pandas read."""
        return self._table.dataset()

    def history(
        self, after: int | None = None, upto: int | None = None, *, columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Yield the events of `(after, upto]` in the order of ids; no more than a round of them is in memory.

        Raises:
            InvalidArgument: there is no such column, or the archive does not reach from `after` to `upto`.
            ArchiveDamaged: a file is not as it was written; what lies before it has been yielded.
        """
        low, high = self.after if after is None else after, self.upto if upto is None else upto
        if low < self.after or high > self.upto:
            raise InvalidArgument(why=f"the archive has ids ({self.after}, {self.upto}], and not ({low}, {high}]")
        schema = self.schema
        for name in columns or ():
            if name not in schema.names:
                raise InvalidArgument(why=f"there is no column {name!r}; there are {', '.join(schema.names)}")
        names = list(columns) if columns else schema.names
        read = pa.schema([schema.field(name) for name in dict.fromkeys(("id", *names))])
        return self._history((low, high), read, names, batch_rows)

    def _history(self, within: tuple[int, int], read: pa.Schema, names: list[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        low, high = within
        for group in _groups(self._table.files(), low, high):
            table = self._read(group, read)
            ids = table.column("id").to_numpy()
            order = np.argsort(ids, kind="stable")
            order = order[np.searchsorted(ids, low, "right", sorter=order) : np.searchsorted(ids, high, "right", sorter=order)]
            for start in range(0, len(order), batch_rows):
                yield from table.take(order[start : start + batch_rows]).select(names).combine_chunks().to_batches()

    def _read(self, files: Sequence[File], schema: pa.Schema) -> pa.Table:
        parts = [read_part(self._table.path, file.path, rows=file.rows, schema=schema) for file in files]
        return pa.concat_tables(parts)

    def stretches(self, after: int = -1) -> Iterator[pa.Table]:
        """Yield the events behind an id by segment and id, one stretch of ids after the other: a round each, mostly.

        Raises:
            ArchiveDamaged: a file is not as it was written.
        """
        for group in _groups(self._table.files(), after, ID_MAX):
            table = self._read(group, self.schema)
            if group[0].low <= after:
                table = table.filter(pc.greater(table.column("id"), after))
            yield table.take(np.lexsort((table.column("id").to_numpy(), table.column("segment").to_numpy())))

    def verify(self) -> Verified:
        """Read all of it, and prove that it is what was written: no offset missing in any segment, ids rising, digests as committed.

        Raises:
            ArchiveDamaged: naming the file, the round or the segment.
        """
        rounds = sorted(self._table.rounds(), key=lambda found: found.upto)
        following: dict[int, int] = {}
        events = 0
        left = list(rounds)
        for table in self.stretches():
            events += len(table)
            self._check_offsets(table, following)
            last = pc.max(table.column("id")).as_py()
            while left and left[0].upto <= last:
                self._check_round(left.pop(0), table)
        if left:
            raise ArchiveDamaged(file=str(self._table.path), why=f"the events up to id {left[0].upto} are not there")
        return Verified(after=self.after, upto=self.upto, events=events, files=len(self._table.files()), rounds=len(rounds))

    def _check_offsets(self, table: pa.Table, following: dict[int, int]) -> None:
        ids, offsets, segments = (table.column(name).to_numpy() for name in ("id", "offset", "segment"))
        for low, high in bounds_of(table):
            segment = int(segments[low])
            is_joined = following.get(segment, offsets[low]) == offsets[low]
            if not is_joined or np.any(np.diff(offsets[low:high]) != 1) or np.any(np.diff(ids[low:high]) <= 0):
                why = f"segment {segment} has a gap in its offsets, or ids that do not rise, between ids {ids[low]} and {ids[high - 1]}"
                raise ArchiveDamaged(file=str(self._table.path), why=why)
            following[segment] = int(offsets[high - 1]) + 1

    def _check_round(self, committed: Round, table: pa.Table) -> None:
        ids = table.column("id")
        rows = table.filter(pc.and_(pc.greater(ids, committed.after), pc.less_equal(ids, committed.upto)))
        if len(rows) != committed.events or digest_of(rows) != committed.digest:
            why = f"ids {committed.after} to {committed.upto} have {len(rows)} events, and not the {committed.events} that were committed"
            raise ArchiveDamaged(file=str(self._table.path), why=why)


def _groups(files: Sequence[File], low: int, high: int) -> Iterator[list[File]]:
    """Yield files whose ids overlap together, in the order of ids; files have their lowest ids in order."""
    group: list[File] = []
    top = -1
    for file in files:
        if file.high <= low or file.low > high:
            continue
        if group and file.low > top:
            yield group
            group = []
        group.append(file)
        top = max(top, file.high)
    if group:
        yield group
