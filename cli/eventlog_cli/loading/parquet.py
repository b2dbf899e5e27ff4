"""Parquet files, a few thousand rows at a time."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from eventlog.limits import MIB
from eventlog_cli.loading.rows import RowBatch, RowRefused, RowShape
from eventlog_cli.loading.source import Damaged, Unpacked

READ_BYTES = 1 * MIB  # of a column at once; all of it in a row group otherwise


class Parquet:
    """Reads Parquet. Its index stands at the end, so what is packed or comes from a pipe is first copied to a temporary file."""

    def __init__(self, stream: Unpacked, shape: RowShape, *, rows: int) -> None:
        self._stream = stream
        self._shape = shape
        self._rows = rows

    def batches(self) -> Iterator[RowBatch]:
        """Yield the file. Lines count rows; damage ends it."""
        line = 1
        try:
            with _seekable(self._stream) as file, pq.ParquetFile(file, buffer_size=READ_BYTES, pre_buffer=False) as parquet:
                names = parquet.schema_arrow.names
                if len(set(names)) < len(names):
                    yield _last(line, "two columns have the same name")
                    return
                for table in self._tables(parquet):
                    yield from self._convert(_readable(table), line)
                    line += table.num_rows
        except Damaged as damage:
            yield _last(line, str(damage))
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: a column's name
            if isinstance(error, OSError) and error.errno is not None:
                raise
            yield _last(line, f"the file is cut short or damaged: {error}")

    def _tables(self, parquet: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
        """Yield the rows, few together where they are large."""
        for group in range(parquet.num_row_groups):
            told = parquet.metadata.row_group(group)
            rows = min(self._rows, _rows_together(told.num_rows, told.total_byte_size, batch_bytes=self._shape.batch_bytes))
            for table in parquet.iter_batches(rows, row_groups=[group]):
                # More bytes than were told where values repeat.
                step = _rows_together(table.num_rows, table.nbytes, batch_bytes=self._shape.batch_bytes)
                for at in range(0, table.num_rows, step):
                    yield table.slice(at, step)

    def _convert(self, table: pa.RecordBatch, first: int) -> Iterator[RowBatch]:
        batch, held = RowBatch(), 0
        for line, row in enumerate(_to_rows(table), first):
            try:
                if isinstance(row, RowRefused):
                    raise row
                self._shape.add(row, batch)
                held += len(batch.values[-1])
            except RowRefused as error:
                batch.reject(line, str(error))
            batch.last_line = line
            if held >= self._shape.batch_bytes:
                yield batch
                batch, held = RowBatch(), 0
        if batch.lines:
            yield batch


def _rows_together(rows: int, nbytes: int, *, batch_bytes: int) -> int:
    return max(1, batch_bytes * rows // max(nbytes, 1))


def _to_rows(table: pa.RecordBatch) -> list[dict[str, Any] | RowRefused]:
    """Return the rows; one that Python cannot hold (text that is no UTF-8, a year beyond 9999, a map with a key twice) is refused alone."""
    try:
        rows: list[dict[str, Any] | RowRefused] = table.to_pylist(maps_as_pydicts="strict")
    except (ValueError, OverflowError, KeyError) as error:
        if table.num_rows == 1:
            return [RowRefused(f"a field cannot be read: {error.args[0] if isinstance(error, KeyError) else error}")]
        return [row for at in range(table.num_rows) for row in _to_rows(table.slice(at, 1))]
    return rows


def _last(line: int, why: str) -> RowBatch:
    batch = RowBatch()
    batch.reject(line, why, is_last=True)
    return batch


@contextmanager
def _seekable(stream: Unpacked) -> Iterator[IO[bytes]]:
    if stream.path is not None:
        with Path(stream.path).open("rb") as file:
            yield file
        return
    with tempfile.TemporaryFile(prefix="eventlog-load-") as copy:
        while data := stream.read(1 << 20):
            copy.write(data)
        copy.seek(0)
        yield copy


def _readable(table: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with times finer than microseconds as text, which Python's times cannot hold."""
    columns: list[Any] = []
    for column in table.columns:
        kind = column.type
        if pa.types.is_timestamp(kind) and kind.unit == "ns":
            columns.append(pc.strftime(column, format="%Y-%m-%dT%H:%M:%S%z" if kind.tz else "%Y-%m-%dT%H:%M:%S"))
        elif pa.types.is_time64(kind) and kind.unit == "ns":
            columns.append(column.cast(pa.string()))
        elif pa.types.is_duration(kind):
            columns.append(column.cast(pa.int64()))
        else:
            columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=table.schema.names)
