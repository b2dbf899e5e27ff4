"""Events in Parquet files: sorted by segment and id, a file a day, with what is known of each without opening it."""

import uuid
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

DAY: Final = "day"
ROW_GROUP_ROWS: Final = 262_144
_KEY_BYTES_MAX: Final = 64
_MS_US: Final = 1_000


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
    parts = []
    for day in pc.unique(days).sort():
        rows = table.filter(pc.equal(days, day))
        text = day.as_py().isoformat()
        path = f"{DAY}={text}/{name}-{uuid.uuid4().hex}.parquet"
        nbytes = place.write(path, rows, compression="zstd", compression_level=1, row_group_size=ROW_GROUP_ROWS, write_page_checksum=True)
        parts.append(NewFile(path=path, day=text, nbytes=nbytes, rows=len(rows), stats=_stats_of(rows)))
    return parts


def _stats_of(table: pa.Table) -> dict[str, Any]:
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    for name in ("id", "segment", "offset"):
        found = pc.min_max(table.column(name))
        lows[name], highs[name] = found["min"].as_py(), found["max"].as_py()
    times = pc.min_max(table.column("time"))
    lows["time"], highs["time"] = (_moment(times[end].value) for end in ("min", "max"))
    keys = pc.min_max(table.column("key"))
    if pa.types.is_string(table.schema.field("key").type) and all(len(keys[end].as_py()) <= _KEY_BYTES_MAX for end in ("min", "max")):
        lows["key"], highs["key"] = keys["min"].as_py(), keys["max"].as_py()
    nulls = {name: table.column(name).null_count for name in table.schema.names if name not in {"headers", STRUCT}}
    return {"numRecords": len(table), "minValues": lows, "maxValues": highs, "nullCount": nulls}


def _moment(us: int) -> str:
    """Return a time as Delta's statistics have it. Ids' times are whole milliseconds."""
    return str(np.datetime64(us // _MS_US, "ms")) + "Z"


def read_part(place: ArchivePlace, path: str, *, rows: int, schema: pa.Schema, bounds: RowBounds | None = None) -> pa.Table:
    """Return what a file has, in the columns of a schema; with `bounds`, those row groups that may have rows within them.

    Raises:
        ArchiveDamaged: it is not there, or not as it was written.
        ArchiveUnreachable: nobody says.
    """
    try:
        with pq.ParquetFile(place.open(path), page_checksum_verification=True) as opened:
            there, groups = opened.metadata.num_rows, _groups_within(opened.metadata, bounds)
            read = opened.read(columns=schema.names) if bounds is None else opened.read_row_groups(groups, columns=schema.names)
            found = _grown(read, schema).select(schema.names)
            due = sum(opened.metadata.row_group(group).num_rows for group in groups)
    except (OSError, ValueError, KeyError) as error:  # pyarrow's own errors are ValueErrors
        place.check()
        raise ArchiveDamaged(file=path, why=f"{type(error).__name__}: {error}") from error
    if there != rows or len(found) != due:
        raise ArchiveDamaged(file=path, why=f"it has {there} rows, and had {rows}; {len(found)} of {due} were read")
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
