"""Events in Parquet files: sorted by segment and id, a file a day, with what is known of each without opening it."""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from eventlog.errors import ArchiveDamaged
from eventlog.integrations.archive.place import ArchivePlace
from eventlog.integrations.archive.ranges import RowBounds
from eventlog.integrations.archive.values import STRUCT, VALUE_COLUMNS, has_grown_from
from eventlog.limits import MIB

DAY: Final = "day"
ROW_GROUP_ROWS: Final = 262_144
_KEY_BYTES_MAX: Final = 64
_MS_US: Final = 1_000
_STREAM_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMemory:
    """How much of files is in memory at a time. A value that many rows have may be in a file once: of rows there is a bound of their own.

    Files that have `whole_bytes` together are read at once. Of others `read_bytes` are read at a time; what is read in the order of ids
    comes in parts of `part_bytes` or `part_rows`, and what is merged in row groups of `row_group_bytes`, of at most `files_max` files.
    """

    whole_bytes: int = 16 * MIB
    read_bytes: int = 32 * MIB
    part_bytes: int = 512 * MIB
    part_rows: int = 5_000_000
    row_group_bytes: int = 128 * MIB
    files_max: int = 64


FILE_MEMORY: Final = FileMemory()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file that is written and, as long as no commit names it, in no table. `path` is below the table's place."""

    path: str
    day: str
    nbytes: int
    rows: int
    stats: dict[str, Any]


def write_parts(place: ArchivePlace, table: pa.Table, *, name: str) -> list[NewFile]:
    """Write events, sorted by segment and id, into a file for each day, durable when this returns.

    Names differ by chance: a task that runs twice writes two sets of files, of which the commit names one.
    """
    if not len(table):
        return []
    days = pc.cast(table.column("time"), pa.date32())
    return [
        write_part(place, day.as_py().isoformat(), [table.filter(pc.equal(days, day))], schema=table.schema, name=name)
        for day in pc.unique(days).sort()
    ]


def write_part(place: ArchivePlace, day: str, tables: Iterable[pa.Table], *, schema: pa.Schema, name: str) -> NewFile:
    """Write events of a day, sorted by segment and id, into a file as they come, durable when this returns."""
    stats = _Stats(schema)
    path = f"{DAY}={day}/{name}-{uuid.uuid4().hex}.parquet"
    options = {"compression": "zstd", "compression_level": 1, "row_group_size": ROW_GROUP_ROWS, "write_page_checksum": True}
    nbytes = place.write(path, map(stats.add, tables), schema=schema, **options)
    return NewFile(path=path, day=day, nbytes=nbytes, rows=stats.rows, stats=stats.told())


class _Stats:
    """What a table's log says of a file: gathered while its rows come."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = 0
        self._nulls = {name: 0 for name in schema.names if name not in {"headers", STRUCT}}
        self._ends: dict[str, tuple[Any, Any]] = {}

    def add(self, table: pa.Table) -> pa.Table:
        """Take up rows, at least one, and return them."""
        self.rows += len(table)
        for name in self._nulls:
            self._nulls[name] += table.column(name).null_count
        for name in ("id", "segment", "offset", "time", "key"):
            found = pc.min_max(table.column(name))
            low, high = (found[end].value if name == "time" else found[end].as_py() for end in ("min", "max"))
            before = self._ends.get(name, (low, high))
            self._ends[name] = min(before[0], low), max(before[1], high)
        return table

    def told(self) -> dict[str, Any]:
        """Return it as Delta has it."""
        ends = self._ends | {"time": tuple(map(_moment, self._ends["time"]))}
        if not all(isinstance(key, str) and len(key) <= _KEY_BYTES_MAX for key in ends["key"]):
            del ends["key"]
        lows, highs = ({name: found[end] for name, found in ends.items()} for end in (0, 1))
        return {"numRecords": self.rows, "minValues": lows, "maxValues": highs, "nullCount": self._nulls}


def _moment(us: int) -> str:
    """Return a time as Delta's statistics have it. Ids' times are whole milliseconds."""
    return str(np.datetime64(us // _MS_US, "ms")) + "Z"


def read_part(place: ArchivePlace, path: str, *, rows: int, schema: pa.Schema, bounds: RowBounds | None = None) -> pa.Table:
    """Return what a file has, in the columns of a schema; with `bounds`, those row groups that may have rows within them.

    Raises:
        ArchiveDamaged: it is not there, or not as it was written.
        ArchiveUnreachable: nobody says.
    """
    with _reading(place, path), pq.ParquetFile(place.open(path), page_checksum_verification=True) as opened:
        there, groups = opened.metadata.num_rows, _groups_within(opened.metadata, bounds)
        read = opened.read(columns=schema.names) if bounds is None else opened.read_row_groups(groups, columns=schema.names)
        found = _shaped(read, schema, path)
        due = sum(opened.metadata.row_group(group).num_rows for group in groups)
    _check_rows(path, there=there, rows=rows, found=len(found), due=due)
    return found


def read_batches(
    place: ArchivePlace, path: str, *, rows: int, schema: pa.Schema, nbytes: int, rows_max: int, bounds: RowBounds | None = None
) -> Iterator[pa.Table]:
    """Yield what `read_part` returns as it lies in the file, about `nbytes` in memory at a time, and at most `rows_max`.

    A value that many rows have may be in the file once: they are more in memory than it says. Raises as `read_part`, where it comes to it.
    """
    options = {"page_checksum_verification": True, "pre_buffer": False, "buffer_size": _STREAM_BYTES}
    with _reading(place, path), pq.ParquetFile(place.open(path), **options) as opened:
        metadata, groups, found = opened.metadata, _groups_within(opened.metadata, bounds), 0
        count = nbytes * metadata.num_rows // max(_unpacked_bytes(metadata, schema), 1)
        for batch in opened.iter_batches(max(1, min(rows_max, count)), row_groups=groups, columns=schema.names):
            found += len(batch)
            yield _shaped(pa.Table.from_batches([batch]), schema, path)
        due = sum(metadata.row_group(group).num_rows for group in groups)
    _check_rows(path, there=metadata.num_rows, rows=rows, found=found, due=due)


def unpacked_bytes(place: ArchivePlace, path: str, schema: pa.Schema) -> int:
    """Return about how many bytes the columns of a schema are in memory. Raises ArchiveDamaged."""
    with _reading(place, path), pq.ParquetFile(place.open(path)) as opened:
        return _unpacked_bytes(opened.metadata, schema)


def _unpacked_bytes(metadata: Any, schema: pa.Schema) -> int:
    groups, columns = range(metadata.num_row_groups), range(metadata.num_columns)
    wanted = [index for index in columns if metadata.schema.column(index).path.partition(".")[0] in schema.names]
    return sum(metadata.row_group(group).column(index).total_uncompressed_size for group in groups for index in wanted)


@contextmanager
def _reading(place: ArchivePlace, path: str) -> Iterator[None]:
    """Say of what cannot be read that it is damaged, or that nobody says."""
    try:
        yield
    except (OSError, ValueError, KeyError) as error:  # pyarrow's own errors are ValueErrors
        place.check()
        raise ArchiveDamaged(file=path, why=f"{type(error).__name__}: {error}") from error


def _check_rows(path: str, *, there: int, rows: int, found: int, due: int) -> None:
    if there != rows or found != due:
        raise ArchiveDamaged(file=path, why=f"it has {there} rows, and had {rows}; {found} of {due} were read")


def _shaped(table: pa.Table, schema: pa.Schema, path: str) -> pa.Table:
    """Return a file's rows in the columns of a schema. Raises ArchiveDamaged where they are of other types."""
    found = _grown(table, schema).select(schema.names)
    if found.schema.types != schema.types:
        why = " and not ".join(", ".join(map(str, kinds)) for kinds in (found.schema.types, schema.types))
        raise ArchiveDamaged(file=path, why=f"its columns are {why}")
    return found


def _grown(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a file's rows with what the table has learned of values since: null, as nobody looked for it then."""
    for name in VALUE_COLUMNS:
        if name not in schema.names:
            continue
        kind = schema.field(name).type
        if name not in table.schema.names:
            table = table.append_column(name, pa.chunked_array([pa.nulls(len(table), kind)]))
        elif has_grown_from(kind, table.schema.field(name).type):
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, table.column(name).cast(kind))
    return table


def _groups_within(metadata: Any, bounds: RowBounds | None) -> list[int]:
    """Return the row groups that may have rows within bounds, by what the file says of each."""
    every = range(metadata.num_row_groups)
    if bounds is None:
        return list(every)
    places = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}

    def ends(group: int, name: str) -> Any:
        found = metadata.row_group(group).column(places[name]).statistics if name in places else None
        if found is None or not found.has_min_max:
            return None
        return tuple(end.encode() if isinstance(end, str) else end for end in (found.min, found.max))

    names = {"ids": "id", "segments": "segment", "keys": "key", "kinds": "kind"}
    return [group for group in every if bounds.may_meet(**{what: ends(group, name) for what, name in names.items()})]
