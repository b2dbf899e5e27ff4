"""Small files of an archive made into larger ones: the same events, the same order, one commit for each."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from eventlog.errors import ArchiveDamaged, InvalidArgument
from eventlog.ids import id_before
from eventlog.integrations.archive.files import FILE_MEMORY, ROW_GROUP_ROWS, FileMemory, NewFile, read_batches, write_part
from eventlog.integrations.archive.place import place_of
from eventlog.integrations.archive.reading import Told, overlapping, untold
from eventlog.integrations.archive.table import ArchiveTable, File
from eventlog.limits import MIB

TARGET_BYTES_DEFAULT: Final = 256 * MIB
OLDER_THAN_MS_DEFAULT: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What was merged: so many files with so many events of a cache became fewer. The table has everything in `(after, upto]`."""

    cache: str
    after: int
    upto: int
    events: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    vacuumed: int


def merges_of(files: Sequence[File], *, target_bytes: int, upto: int, files_max: int = FILE_MEMORY.files_max) -> Iterator[list[File]]:
    """Yield files of a day that together make about `target_bytes`, in the order of ids; two at least. Files with ids above `upto` stay.

    Files whose ids overlap, as those of one round do, are merged with others as a whole or among themselves alone. Else merges would
    overlap one after the other, and who reads in the order of ids would have a day in memory.
    """
    for _, of_day in groupby(sorted(files, key=lambda file: (file.day, file.low)), key=lambda file: file.day):
        whole: list[list[File]] = []
        for stretch in overlapping(list(of_day)):
            small = [file for file in stretch if file.high <= upto and file.nbytes < target_bytes]
            if len(small) == len(stretch) <= files_max and _nbytes(small) <= target_bytes:
                whole.append(small)
                continue
            yield from _together(whole, target_bytes, files_max)
            yield from _together([[file] for file in small], target_bytes, files_max)
            whole = []
        yield from _together(whole, target_bytes, files_max)


def _together(units: Sequence[list[File]], target_bytes: int, files_max: int) -> Iterator[list[File]]:
    """Yield the files of units that follow each other and make at most `target_bytes`; two files at least, `files_max` at most."""
    some: list[File] = []
    for unit in units:
        if some and (_nbytes(some) + _nbytes(unit) > target_bytes or len(some) + len(unit) > files_max):
            if len(some) > 1:
                yield some
            some = []
        some = some + unit
    if len(some) > 1:
        yield some


def _nbytes(files: Sequence[File]) -> int:
    return sum(file.nbytes for file in files)


class _Sorted:
    """What is here of a file whose rows come by segment and id, and is not taken yet."""

    def __init__(self, path: str, tables: Iterator[pa.Table]) -> None:
        self._path = path
        self._tables = tables
        self._at = 0
        self._rows: pa.Table | None = None
        self._segments, self._ids = np.empty(0, np.int32), np.empty(0, np.int64)

    def fill(self) -> bool:
        """Have rows here; return whether there are any left. Raises ArchiveDamaged where they are not in order."""
        while self._at == len(self._ids):
            found = next(self._tables, None)
            if found is None:
                return False
            segments, ids = (found.column(name).to_numpy() for name in ("segment", "id"))
            own = [np.concatenate([old[-1:], new]) for old, new in ((self._segments, segments), (self._ids, ids))]
            if not np.all((own[0][1:] > own[0][:-1]) | ((own[0][1:] == own[0][:-1]) & (own[1][1:] > own[1][:-1]))):
                raise ArchiveDamaged(file=self._path, why="its rows are not by segment and id")
            self._at, self._rows, self._segments, self._ids = 0, found, segments, ids
        return True

    @property
    def last(self) -> tuple[int, int]:
        """The segment and id of the last row that is here."""
        return int(self._segments[-1]), int(self._ids[-1])

    def take(self, segment: int, id_: int) -> pa.Table:
        """Return the rows that are here up to a segment and an id, that one included."""
        assert self._rows is not None, "it was filled"
        low, high = np.searchsorted(self._segments, np.array([segment, segment + 1], self._segments.dtype))
        first, self._at = self._at, int(low + np.searchsorted(self._ids[low:high], id_, side="right"))
        return self._rows.slice(first, self._at - first)


def _merged(files: Sequence[_Sorted], path: str) -> Iterator[pa.Table]:
    """Yield the rows of files by segment and id. Raises ArchiveDamaged, naming `path`, where two files have the same event."""
    left = [file for file in files if file.fill()]
    while left:
        end = min(file.last for file in left)
        rows = pa.concat_tables([file.take(*end) for file in left]).combine_chunks()
        ids, segments = rows.column("id").to_numpy(), rows.column("segment").to_numpy()
        order = np.lexsort((ids, segments))
        if np.any((np.diff(ids[order]) == 0) & (np.diff(segments[order]) == 0)):
            raise ArchiveDamaged(file=path, why="an event of it is in another file, too")
        yield rows.take(order)
        left = [file for file in left if file.fill()]


def _row_groups(tables: Iterable[pa.Table], nbytes_max: int) -> Iterator[pa.Table]:
    """Yield rows as they are to be written together: `ROW_GROUP_ROWS`, or as many as make `nbytes_max`, or what is left."""
    some: list[pa.Table] = []
    rows = nbytes = 0
    for table in tables:
        some.append(table)
        rows, nbytes = rows + len(table), nbytes + table.nbytes
        while rows >= ROW_GROUP_ROWS or nbytes >= nbytes_max:
            whole = pa.concat_tables(some)
            yield whole.slice(0, ROW_GROUP_ROWS)
            some = [whole.slice(ROW_GROUP_ROWS)]
            rows, nbytes = len(some[0]), some[0].nbytes
    if rows:
        yield pa.concat_tables(some)


def _merge(table: ArchiveTable, files: Sequence[File], memory: FileMemory, *, told: Told, done: int, whole: int) -> NewFile:
    """Write the events of files into one, few of them in memory at a time, however large it becomes. Of `whole` so many are `done`."""
    each = {"schema": table.schema, "nbytes": memory.read_bytes // len(files), "rows_max": ROW_GROUP_ROWS // len(files)}
    sorted_files = [_Sorted(file.path, read_batches(table.place, file.path, rows=file.rows, **each)) for file in files]

    def groups() -> Iterator[pa.Table]:
        rows = done
        for group in _row_groups(_merged(sorted_files, files[0].path), memory.row_group_bytes):
            told("events", rows, whole)
            yield group
            rows += len(group)

    name = f"{files[0].low:019}-{max(file.high for file in files):019}-merged"
    return write_part(table.place, files[0].day, groups(), schema=table.schema, name=name)


def compact(
    path: Path | str,
    *,
    older_than_ms: int = OLDER_THAN_MS_DEFAULT,
    target_bytes: int = TARGET_BYTES_DEFAULT,
    vacuum_hours: int | None = None,
    memory: FileMemory = FILE_MEMORY,
    told: Told = untold,
) -> Merged:
    """Merge files of events that are older than `older_than_ms`, and remove what no commit names for `vacuum_hours`.

    Readers are not disturbed: what they read stays until a vacuum. Killed anywhere, nothing is lost or there twice. `told` hears of how
    many events it has merged.

    Raises:
        ArchiveDamaged: a file is not as it was written. Nothing is merged with it.
        ArchiveRefused: there is no archive, or another process has changed the table meanwhile.
        InvalidArgument: `target_bytes` is none, or `vacuum_hours` are more than the table remembers.
    """
    if target_bytes < 1:
        raise InvalidArgument(why=f"target_bytes is {target_bytes}: give the size that files are to have, above 0")
    table = ArchiveTable.open(place_of(path))
    if vacuum_hours is not None and not 0 <= vacuum_hours <= table.remembers_hours:
        days = table.remembers_hours // 24
        raise InvalidArgument(why=f"vacuum_hours is {vacuum_hours}: the table says for {days} days when a file was taken out of it")
    upto = id_before(int(time.time() * 1000) - older_than_ms)
    before: dict[str, File] = {}
    after: dict[str, NewFile] = {}
    events = whole = 0
    is_cut = True
    while is_cut:
        merges = list(merges_of(table.files(), target_bytes=target_bytes, upto=upto, files_max=memory.files_max))
        is_cut = any(2 * len(some) > memory.files_max for some in merges)  # what these become may be merged once more
        whole += sum(file.rows for some in merges for file in some)
        for some in merges:
            part = _merge(table, some, memory, told=told, done=events, whole=whole)
            table.replace(some, [part])
            events += part.rows
            before |= {file.path: file for file in some if after.pop(file.path, None) is None}
            after[part.path] = part
    vacuumed = 0 if vacuum_hours is None else len(table.vacuum(vacuum_hours))
    return Merged(
        cache=table.identity.cache,
        after=table.after or 0,
        upto=table.upto or 0,
        events=sum(file.rows for file in before.values()),
        files_before=len(before),
        files_after=len(after),
        bytes_before=_nbytes(list(before.values())),
        bytes_after=sum(part.nbytes for part in after.values()),
        vacuumed=vacuumed,
    )
