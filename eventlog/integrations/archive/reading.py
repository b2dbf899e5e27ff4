"""An archive read without a node: its history in the order of ids, and whether all of it is as it was written.

It is opened at its place, or as it is noted with a cache: then for what the nodes keep no more.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from eventlog import blocking
from eventlog.client.reports import Plan
from eventlog.errors import ArchiveDamaged, ArchiveRefused, EventsTrimmed, InvalidArgument
from eventlog.ids import ID_MAX
from eventlog.integrations.archive.columns import rows_in_order
from eventlog.integrations.archive.digest import bounds_of, digest_of
from eventlog.integrations.archive.files import FILE_MEMORY, FileMemory, read_batches, read_part, unpacked_bytes
from eventlog.integrations.archive.place import place_of
from eventlog.integrations.archive.ranges import RowBounds
from eventlog.integrations.archive.table import ArchiveTable, File, Round, TableIdentity, identity_of
from eventlog.integrations.archive.values import VALUE_COLUMNS

BATCH_ROWS: Final = 65_536
Told = Callable[[str, int, int], None]
"""Hears how far a piece of work is: of what so many are done, and of how many."""


def untold(_what: str, _done: int, _whole: int) -> None:
    """Nobody hears."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was looked through: all of it is as it was written, as far as `rounds` tell of which the table's log has digests.

    `undigested` events are of older ones, which it has forgotten: of these it is known that they have no gap.
    """

    after: int
    upto: int
    events: int
    files: int
    rounds: int
    undigested: int = 0


def open_archive(path: Path | str, *, memory: FileMemory = FILE_MEMORY) -> "Archive":
    """Open an archive at a path or at the address of an object store. `memory` says how much of large files is in memory at a time.

    Raises:
        ArchiveRefused: there is none.
        ArchiveUnreachable: the object store does not answer.
    """
    return Archive(ArchiveTable.open(place_of(path)), memory=memory)


class Archive:
    """A cache's events up to an id, as the table was when it was opened."""

    def __init__(self, table: ArchiveTable, *, memory: FileMemory = FILE_MEMORY) -> None:
        self._table = table
        self._memory = memory

    def __repr__(self) -> str:
        return f"<eventlog.Archive of cache {self.cache!r}: {self.address}, up to id {self.upto}>"

    @property
    def cache(self) -> str:
        """Whose events they are."""
        return self._table.identity.cache

    @property
    def address(self) -> str:
        """Where it is: a path, or an address of an object store."""
        return self._table.place.address

    @property
    def identity(self) -> TableIdentity:
        """What that cache was."""
        return self._table.identity

    def check_of(self, client: blocking.Client, cache: str) -> None:
        """Raise ArchiveRefused unless these are the events of a cache as it is now."""
        self.check(identity_of(client, cache))

    def check(self, identity: TableIdentity) -> None:
        """Raise ArchiveRefused unless these are the events of the cache of an identity."""
        if identity != self._table.identity:
            raise ArchiveRefused(path=self.address, why=self._table.identity.unlike(identity))

    @property
    def after(self) -> int:
        """The id behind which it begins."""
        return self._table.after or 0

    def is_later_than(self, first_id: int | None) -> bool:
        """Return whether it begins behind the first event that the nodes keep: then they have everything from there on."""
        return first_id is not None and first_id <= self.after

    @property
    def upto(self) -> int:
        """The id up to which it has everything behind `after`."""
        return self._table.upto or 0

    @property
    def schema(self) -> pa.Schema:
        """The columns of an event, and `v` and `_corrupt` where values are read as a `value_schema`."""
        return self._table.schema

    @property
    def files(self) -> list[str]:
        """The addresses of the files that it has, in the order of their lowest ids."""
        return [f"{self.address}/{file.path}" for file in self._table.files()]

    @property
    def event_bytes(self) -> int:
        """About how many bytes an event has in its file, at least 1."""
        files = self._table.files()
        rows = sum(file.rows for file in files)
        return max(sum(file.nbytes for file in files) // max(rows, 1), 1)

    def dataset(self) -> Any:
        """Return it as a `pyarrow.dataset.Dataset`, which DuckDB, Polars and pandas read."""
        return self._table.dataset()

    def history(
        self,
        after: int | None = None,
        upto: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        batch_rows: int = BATCH_ROWS,
        bounds: RowBounds | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the events of `(after, upto]` in the order of ids; of large rounds and files a part is in memory, read for itself.

        With `bounds` only those within them as well; files and row groups without any are not read.

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
        within = RowBounds(after=low, upto=high)
        if bounds is not None:
            within = replace(bounds, after=max(low, bounds.after), upto=min(high, bounds.upto))
        return self._history(within, names, batch_rows)

    def _history(self, bounds: RowBounds, names: list[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        read = self._schema_of(names, bounds)
        for group in overlapping(self.pieces(bounds), bounds.after, bounds.upto):
            low = bounds.after
            for high in self._cuts(group, read, bounds):
                part = replace(bounds, after=low, upto=high)
                table = self._rows(group, read, part, looked_at=part)
                order = np.argsort(table.column("id").to_numpy(), kind="stable")
                for start in range(0, len(order), batch_rows):
                    yield from table.take(order[start : start + batch_rows]).select(names).combine_chunks().to_batches()
                low = high

    def _schema_of(self, names: Sequence[str], bounds: RowBounds) -> pa.Schema:
        """Return the columns to be read for some, with those by which rows are left out."""
        judged = ("id",) if bounds.segments is None else ("id", "segment")
        return pa.schema([self.schema.field(name) for name in dict.fromkeys((*judged, *names))])

    def _read(self, files: Sequence[File], schema: pa.Schema, bounds: RowBounds | None = None) -> pa.Table:
        parts = [read_part(self._table.place, file.path, rows=file.rows, schema=schema, bounds=bounds) for file in files]
        return pa.concat_tables(parts).combine_chunks()  # rows are picked from one chunk in a quarter of the time

    def _rows(self, files: Sequence[File], schema: pa.Schema, bounds: RowBounds, *, looked_at: RowBounds | None) -> pa.Table:
        """Return the rows of files within bounds, in one chunk; of large files no others are in memory. `looked_at`: as for `read_part`."""
        if _nbytes(files) <= self._memory.whole_bytes:
            return _only(self._read(files, schema, looked_at), bounds)
        parts = [schema.empty_table()]
        for file in files:
            parts += [_only(rows, bounds) for rows in self._batches(file, schema, looked_at)]
        return pa.concat_tables(parts).combine_chunks()

    def _batches(self, file: File, schema: pa.Schema, looked_at: RowBounds | None) -> Iterator[pa.Table]:
        options = {"nbytes": self._memory.read_bytes, "rows_max": BATCH_ROWS}
        return read_batches(self._table.place, file.path, rows=file.rows, schema=schema, bounds=looked_at, **options)

    def _cuts(self, files: Sequence[File], schema: pa.Schema, bounds: RowBounds, rounds: Sequence[Round] = ()) -> list[int]:
        """Return the ids up to which rows of files within bounds are read together, a part each, and no round in two parts."""
        if _nbytes(files) <= self._memory.whole_bytes:
            return [bounds.upto]
        unpacked = sum(unpacked_bytes(self._table.place, file.path, schema) for file in files)
        rows = sum(file.rows for file in files)
        parts = max(-(-unpacked // self._memory.part_bytes), -(-rows // self._memory.part_rows))
        if parts < 2:
            return [bounds.upto]
        ids = np.sort(self._read(files, pa.schema([self.schema.field("id")])).column("id").to_numpy())
        ids = ids[(ids > bounds.after) & (ids <= bounds.upto)]
        found = {int(ids[len(ids) * part // parts]) for part in range(1, parts)} if len(ids) else set()
        for committed in rounds:
            found = {committed.upto if committed.after < cut <= committed.upto else cut for cut in found}
        return [*sorted(cut for cut in found if cut < bounds.upto), bounds.upto]

    def cut(self, after: int, max_events: int, *, upto: int = ID_MAX) -> tuple[int, int]:
        """Return the id up to which `max_events` lie behind `after`, at most `upto` or the archive's end, and how many they are.

        0 is any number.
        """
        events = 0
        for group in overlapping(self._table.files(), after, upto):
            rows, is_whole = sum(file.rows for file in group), group[0].low > after and all(file.high <= upto for file in group)
            if is_whole and (not max_events or events + rows < max_events):
                events += rows
                continue
            ids = self._read(group, pa.schema([self.schema.field("id")])).column("id").to_numpy()
            ids = np.sort(ids[(ids > after) & (ids <= upto)])
            if max_events and events + len(ids) >= max_events:
                return int(ids[max_events - events - 1]), max_events
            events += len(ids)
        return min(self.upto, upto), events

    def pieces(self, bounds: RowBounds) -> list[File]:
        """Return the files that may have events within bounds, for tasks to read one by one with `read_file`."""
        return [file for file in self._table.files() if bounds.may_meet(ids=(file.low, file.high), segments=file.segments)]

    def read_file(self, file: File, bounds: RowBounds, *, columns: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """Yield the events of a file within bounds as they lie in it, in `columns`, by default all.

        Raises:
            ArchiveDamaged: it is not as it was written; what lies before that may have been yielded.
        """
        names = list(columns) or self.schema.names
        for rows in self._batches(file, self._schema_of(names, bounds), bounds):
            found = _only(rows, bounds).select(names).combine_chunks()
            yield from (batch for batch in found.to_batches(max_chunksize=BATCH_ROWS) if len(batch))

    def stretches(self, after: int = -1) -> Iterator[tuple[list[Round], pa.Table]]:
        """Yield the events behind an id by segment and id, one stretch of ids after the other, with the rounds that they are.

        A stretch has whole rounds: one mostly, more where files have been merged. Of rounds that the table's log has forgotten there is
        nothing but their events. Files are read as a whole, large ones once for each stretch of theirs, and events are without the columns
        of a `value_schema`.

        Raises:
            ArchiveDamaged: a file is not as it was written.
        """
        rounds = sorted(self._table.rounds(), key=lambda found: found.upto)
        for files, own in _spans(self._table.files(), rounds, after):
            low, high = after, max([file.high for file in files] + [found.upto for found in own])
            for cut in self._cuts(files, self.schema, RowBounds(after=after, upto=high), own):
                yield [found for found in own if low < found.upto <= cut], self._within(files, low, cut)
                low = cut

    def _within(self, files: Sequence[File], low: int, high: int) -> pa.Table:
        """Return the events of files in `(low, high]`, by segment and id."""
        bounds = RowBounds(after=low, upto=high)
        table = self._rows(files, self.schema, bounds, looked_at=None) if files else self.schema.empty_table()
        events = table.select([name for name in table.schema.names if name not in VALUE_COLUMNS])
        return rows_in_order(events, np.lexsort((table.column("id").to_numpy(), table.column("segment").to_numpy())))

    def verify(self, *, told: Told = untold) -> Verified:
        """Read all of it, and prove that it is what was written: no offset missing in any segment, ids rising, digests as committed.

        `told` hears of how many events it has looked through.

        Raises:
            ArchiveDamaged: naming the file, the round or the segment.
        """
        following: dict[int, int] = {}
        events = digested = rounds = 0
        last, whole = self.after, sum(file.rows for file in self._table.files())
        told("events verified", 0, whole)
        for own, table in self.stretches():
            events += len(table)
            rounds += len(own)
            for committed in own:
                self._check_round(committed, table)
                digested += committed.events
            self._check_offsets(table, following)
            last = max(last, int(table.column("id").to_numpy().max(initial=last)))
            told("events verified", events, whole)
        if last != self.upto:
            raise ArchiveDamaged(file=self.address, why=f"its last event has id {last}, and it is to have everything up to {self.upto}")
        files = len(self._table.files())
        return Verified(after=self.after, upto=self.upto, events=events, files=files, rounds=rounds, undigested=events - digested)

    def _check_offsets(self, table: pa.Table, following: dict[int, int]) -> None:
        ids, offsets, segments = (table.column(name).to_numpy() for name in ("id", "offset", "segment"))
        for low, high in bounds_of(table):
            segment = int(segments[low])
            is_joined = following.get(segment, offsets[low]) == offsets[low]
            if not is_joined or np.any(np.diff(offsets[low:high]) != 1) or np.any(np.diff(ids[low:high]) <= 0):
                why = f"segment {segment} has a gap in its offsets, or ids that do not rise, between ids {ids[low]} and {ids[high - 1]}"
                raise ArchiveDamaged(file=self.address, why=why)
            following[segment] = int(offsets[high - 1]) + 1

    def _check_round(self, committed: Round, table: pa.Table) -> None:
        ids = table.column("id").to_numpy()
        rows = table.filter((ids > committed.after) & (ids <= committed.upto))
        if len(rows) != committed.events or digest_of(rows) != committed.digest:
            why = f"ids {committed.after} to {committed.upto} are {len(rows)} events, and not those {committed.events} that were committed"
            raise ArchiveDamaged(file=self.address, why=why)


def noted(client: blocking.Client, cache: str) -> Archive | None:
    """Open the archive that is noted with a cache, None where none is.

    Raises:
        ArchiveRefused: there is none at that place, or another cache's; says how to do without.
        ArchiveUnreachable: the object store does not answer.
    """
    place = client.describe_cache(cache).archive
    return opened_for(place, identity_of(client, cache)) if place else None


def opened_for(place: str, identity: TableIdentity) -> Archive:
    """Open an archive that is noted with the cache of an identity. Raises as `noted`."""
    try:
        found = open_archive(place)
        found.check(identity)
    except ArchiveRefused as error:
        cache = identity.cache
        why = f"{error.why}; it is noted with cache {cache!r}, until: eventlog cache alter {cache} --no-archive"
        raise ArchiveRefused(path=place, why=why) from error
    return found


def noted_for(client: blocking.Client, cache: str, after: int | None, *, segments: Collection[int] | None = None) -> Archive | None:
    """Open the noted archive where a read behind an id needs it: it begins with the first event of all, or retention has passed the id.

    Raises as `noted`.
    """
    return noted(client, cache) if not after or not is_kept(client.cache(cache), after, segments=segments) else None


def is_kept(cache: blocking.Cache, after: int, *, segments: Collection[int] | None = None) -> bool:
    """Return whether the nodes keep everything behind an id."""
    try:
        cache.poll(after, max_events=0, segments=segments)
    except EventsTrimmed:
        return False
    return True


def check_planned(cache: blocking.Cache, plan: Plan, *, segments: Collection[int] | None = None) -> Plan:
    """Return a plan. Raises EventsTrimmed where retention has taken all events of it: of other plans those who read them say so."""
    if plan.trimmed and not plan.events:
        cache.poll(plan.after, max_events=0, segments=segments)
    return plan


def _only(table: pa.Table, bounds: RowBounds) -> pa.Table:
    """Return the rows within bounds of ids and segments."""
    ids = table.column("id").to_numpy()
    wanted = (ids > bounds.after) & (ids <= bounds.upto)
    if bounds.segments is not None:
        wanted &= np.isin(table.column("segment").to_numpy(), list(bounds.segments))
    return table if wanted.all() else table.filter(pa.array(wanted))


def _nbytes(files: Sequence[File]) -> int:
    return sum(file.nbytes for file in files)


def _spans(files: Sequence[File], rounds: Sequence[Round], after: int) -> Iterator[tuple[list[File], list[Round]]]:
    """Yield files and rounds whose ids overlap together, in the order of ids, those with something behind an id."""
    places: list[tuple[int, int, File | Round]] = [(file.low, file.high, file) for file in files if file.high > after]
    places += [(found.after + 1, found.upto, found) for found in rounds if found.upto > after]
    span: tuple[list[File], list[Round]] = ([], [])
    top = -1
    for low, high, one in sorted(places, key=lambda place: place[:2]):
        if low > top and (span[0] or span[1]):
            yield span
            span = ([], [])
        if isinstance(one, File):
            span[0].append(one)
        else:
            span[1].append(one)
        top = max(top, high)
    if span[0] or span[1]:
        yield span


def overlapping(files: Sequence[File], low: int = -1, high: int = ID_MAX) -> Iterator[list[File]]:
    """Yield files with ids in `(low, high]`, those whose ids overlap together, in the order of ids; they come by their lowest ids."""
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
