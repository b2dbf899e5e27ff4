"""Small files of an archive made into larger ones: the same events, the same order, one commit for each."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from eventlog.errors import ArchiveDamaged, InvalidArgument
from eventlog.ids import id_before
from eventlog.integrations.archive.files import read_part, write_parts
from eventlog.integrations.archive.place import place_of
from eventlog.integrations.archive.reading import overlapping
from eventlog.integrations.archive.table import ArchiveTable, File
from eventlog.limits import MIB

TARGET_BYTES_DEFAULT: Final = 64 * MIB  # all rows of such a file are in memory while it is made, and are many times as large there
OLDER_THAN_MS_DEFAULT: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What was merged: so many files with so many events became fewer."""

    events: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    vacuumed: int


def merges_of(files: Sequence[File], *, target_bytes: int, upto: int) -> Iterator[list[File]]:
    """Yield files of a day that together make about `target_bytes`, in the order of ids; two at least. Files with ids above `upto` stay.

    Files whose ids overlap, as those of one round do, are merged with others as a whole or among themselves alone. Else merges would
    overlap one after the other, and who reads in the order of ids would have a day in memory.
    """
    for _, of_day in groupby(sorted(files, key=lambda file: (file.day, file.low)), key=lambda file: file.day):
        whole: list[list[File]] = []
        for stretch in overlapping(list(of_day)):
            small = [file for file in stretch if file.high <= upto and file.nbytes < target_bytes]
            if len(small) == len(stretch) and _nbytes(small) <= target_bytes:
                whole.append(small)
                continue
            yield from _together(whole, target_bytes)
            yield from _together([[file] for file in small], target_bytes)
            whole = []
        yield from _together(whole, target_bytes)


def _together(units: Sequence[list[File]], target_bytes: int) -> Iterator[list[File]]:
    """Yield the files of units that follow each other and make at most `target_bytes`; two files at least."""
    some: list[File] = []
    for unit in units:
        if some and _nbytes(some) + _nbytes(unit) > target_bytes:
            if len(some) > 1:
                yield some
            some = []
        some = some + unit
    if len(some) > 1:
        yield some


def _nbytes(files: Sequence[File]) -> int:
    return sum(file.nbytes for file in files)


def compact(
    path: Path | str,
    *,
    older_than_ms: int = OLDER_THAN_MS_DEFAULT,
    target_bytes: int = TARGET_BYTES_DEFAULT,
    vacuum_hours: int | None = None,
) -> Merged:
    """Merge files of events that are older than `older_than_ms`, and remove what no commit names for `vacuum_hours`.

    Readers are not disturbed: what they read stays until a vacuum. Killed anywhere, nothing is lost or there twice.

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
    events = before = after = bytes_before = bytes_after = 0
    for some in list(merges_of(table.files(), target_bytes=target_bytes, upto=upto)):
        whole = pa.concat_tables([read_part(table.place, file.path, rows=file.rows, schema=table.schema) for file in some]).combine_chunks()
        ids = whole.column("id").to_numpy()
        if len(np.unique(ids)) != len(ids):
            raise ArchiveDamaged(file=some[0].path, why="an event of it is in another file, too")
        parts = write_parts(
            table.place,
            whole.take(np.lexsort((ids, whole.column("segment").to_numpy()))),
            name=f"{some[0].low:019}-{some[-1].high:019}-merged",
        )
        table.replace(some, parts)
        events, before, after = events + len(whole), before + len(some), after + len(parts)
        bytes_before += _nbytes(some)
        bytes_after += sum(part.nbytes for part in parts)
    vacuumed = 0 if vacuum_hours is None else len(table.vacuum(vacuum_hours))
    return Merged(
        events=events, files_before=before, files_after=after, bytes_before=bytes_before, bytes_after=bytes_after, vacuumed=vacuumed
    )
