"""The rows of files, by columns, as tasks read them: without the JVM, so each is read once and never goes from one process to another."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, LocalFileSystem

from eventlog.client.avro_columns import AvroColumns
from eventlog.client.avro_files import AvroFile
from eventlog.errors import InvalidArgument
from eventlog.integrations.spark.loading import LoadFile, LoadShape, stored_at
from eventlog.limits import MIB, VALUE_BYTES_CAP
from eventlog.predicate.avro import avro_json
from eventlog.schema.avro import AvroSchema

PIECE_BYTES: Final = 64 * MIB
_ROWS: Final = 10_000
_BLOCK_BYTES: Final = 4 * MIB
WHOLE_FILE: Final = 1 << 62
_LINE = "line"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePiece:
    """What a task reads of a file: of Parquet row groups `low` to `high`, of JSON the lines that begin in bytes `low` to `high`, or all."""

    source: LoadFile
    low: int
    high: int


def pieces_of(file: LoadFile, *, nbytes: int = WHOLE_FILE) -> list[FilePiece]:
    """Return the pieces of a file in their order, each of about so many bytes where the format lets a reader begin in the middle.

    Raises:
        InvalidArgument: the file cannot be read.
    """
    try:
        with _reading():
            ends = _ends(file, nbytes)
    except InvalidArgument as error:
        raise InvalidArgument(why=f"{file.path}: {error.why}") from error
    return [FilePiece(source=file, low=low, high=high) for low, high in pairwise((0, *ends))]


def _ends(file: LoadFile, nbytes: int) -> Sequence[int]:
    """Return where pieces end."""
    files, path = _place(file)
    if file.form == "parquet":
        with files.open_input_file(path) as opened, pq.ParquetFile(opened) as parquet:
            told = [parquet.metadata.row_group(group).total_byte_size for group in range(parquet.num_row_groups)]
        ends, held = list[int](), 0
        for group, size in enumerate(told, 1):
            held += size
            if held >= nbytes:
                ends.append(group)
                held = 0
        return ends if ends and ends[-1] == len(told) else [*ends, len(told)]
    if file.form == "json" and not file.is_packed:
        size = files.get_file_info(path).size
        return [*range(nbytes, size, nbytes), WHOLE_FILE]
    return [WHOLE_FILE]


def writes_of(piece: FilePiece, shape: LoadShape) -> Iterator[pa.RecordBatch]:
    """Yield what becomes of the rows of a piece.

    Raises:
        InvalidArgument: the file cannot be read, has two columns of one name, or a row lacks a field.
    """
    file = piece.source
    with _reading():
        if file.form == "avro":
            yield from _avro_writes(piece, shape)
            return
        for batch in _READERS[file.form](piece):
            if file.form == "json":
                yield shape.of_lines(batch.column(0).to_pylist())
            else:
                yield shape.of_columns(_beside(batch, file) if file.beside else batch)


def _beside(batch: pa.RecordBatch, file: LoadFile) -> pa.RecordBatch:
    """Return rows with the columns that are the same for all of a file, in the place of those of these names that are in it."""
    names = [name for name, _ in file.beside]
    own = {name: column for name, column in zip(batch.schema.names, batch.columns, strict=True) if name not in names}
    return pa.RecordBatch.from_pydict(own | {name: pa.repeat(value, len(batch)) for name, value in file.beside})


def _parquet(piece: FilePiece) -> Iterator[pa.RecordBatch]:
    files, path = _place(piece.source)
    with files.open_input_file(path) as opened, pq.ParquetFile(opened, buffer_size=MIB, pre_buffer=False) as parquet:
        _check_names(parquet.schema_arrow.names)
        yield from parquet.iter_batches(_ROWS, row_groups=range(piece.low, piece.high))


def _csv(piece: FilePiece) -> Iterator[pa.RecordBatch]:
    """Yield text, "" where there is nothing between two commas."""
    reads = pc_csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False)
    parses = pc_csv.ParseOptions(newlines_in_values=True)
    with _stream(piece.source) as opened, pc_csv.open_csv(opened, read_options=reads, parse_options=parses) as looked:
        names = looked.schema.names
    _check_names(names)
    converts = pc_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    with (
        _stream(piece.source) as opened,
        pc_csv.open_csv(opened, read_options=reads, parse_options=parses, convert_options=converts) as reader,
    ):
        yield from reader


def _json(piece: FilePiece) -> Iterator[pa.RecordBatch]:
    """Yield lines. A line is of the piece in which it begins."""
    file = piece.source
    if file.is_packed:
        with _stream(file) as stream:
            yield from _without_mark(_lines(stream, WHOLE_FILE))
        return
    files, path = _place(file)
    with files.open_input_file(path) as opened:
        at = piece.low
        if at:
            opened.seek(at - 1)
            at += _skip_line(opened) - 1
        opened.seek(at)
        lines = _lines(opened, piece.high - at)
        yield from lines if at else _without_mark(lines)


def _without_mark(lines: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the lines of a file without the mark that some programs put before text."""
    for batch in islice(lines, 1):
        column = batch.column(0)
        first = column[0].as_py().removeprefix("\ufeff")
        yield pa.record_batch({_LINE: pa.concat_arrays([pa.array([first]), column.slice(1)])})
    yield from lines


def _skip_line(opened: Any) -> int:
    """Return how many bytes there are up to where the next line begins, or the file ends."""
    skipped = 0
    while block := opened.read(MIB):
        end: int = block.find(b"\n")
        if end >= 0:
            return skipped + end + 1
        skipped += len(block)
    return skipped


def _lines(opened: Any, left: int) -> Iterator[pa.RecordBatch]:
    """Yield the lines that begin in the `left` bytes to come."""
    rest = b""
    while left > 0 and (block := opened.read(_BLOCK_BYTES)):
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        if len(rest) > VALUE_BYTES_CAP:
            raise InvalidArgument(why=f"a line is longer than {VALUE_BYTES_CAP} bytes")
        kept = _beginning_in(lines, left)
        if kept:
            yield pa.record_batch({_LINE: pa.array(kept, pa.binary()).cast(pa.string())})
        left -= sum(map(len, lines)) + len(lines)
    if rest and left > 0:
        yield pa.record_batch({_LINE: pa.array([rest], pa.binary()).cast(pa.string())})


def _beginning_in(lines: list[bytes], left: int) -> list[bytes]:
    """Return those of lines that begin within so many bytes."""
    if sum(map(len, lines)) + len(lines) <= left:
        return lines
    at = 0
    for number, line in enumerate(lines):
        if at >= left:
            return lines[:number]
        at += len(line) + 1
    return lines


def _avro_writes(piece: FilePiece, shape: LoadShape) -> Iterator[pa.RecordBatch]:
    """Yield what becomes of records. Those with fields that Arrow has no type for are values as the JSON that stands for them."""
    file = piece.source
    same = {name: value.as_py() if isinstance(value, pa.Scalar) else value for name, value in file.beside}
    for batch, records in _avro(piece):
        texts = None
        if records is not None:
            rows = ({name: value for name, value in record.items() if name != shape.operation and name not in same} for record in records)
            texts = pa.array([avro_json(row | same) for row in rows], pa.binary()).cast(pa.string())
        yield shape.of_columns(_beside(batch, file) if file.beside else batch, texts=texts)


def _avro(piece: FilePiece) -> Iterator[tuple[pa.RecordBatch, list[Any] | None]]:
    """Yield records by columns, and beside them as they are where columns do not say all of them."""
    with _stream(piece.source) as opened:
        try:
            records = AvroFile(opened.read)
            columns = AvroColumns(AvroSchema(records.schema).typed)
            if not pa.types.is_struct(columns.type):
                raise InvalidArgument(why="its values are no records")
            rows = iter(records)
            while some := list(islice(rows, _ROWS)):
                yield pa.RecordBatch.from_struct_array(columns.array(some)), some if columns.has_json else None
        except (InvalidArgument, GeneratorExit):
            raise
        except Exception as error:  # foreign bytes make fastavro raise any of a dozen types; all mean the same
            raise InvalidArgument(why=f"it is cut short or damaged: {type(error).__name__} {error}") from error


_READERS: Final = {"parquet": _parquet, "csv": _csv, "json": _json}


def _place(file: LoadFile) -> tuple[FileSystem, str]:
    """Return where a file is, and its name there."""
    if "://" not in file.path:
        return LocalFileSystem(), file.path
    bucket, name = stored_at(file.path)
    return bucket.files, name


def _stream(file: LoadFile) -> Any:
    """Return a file from its beginning to its end, unpacked."""
    files, path = _place(file)
    return files.open_input_stream(path, compression="detect" if file.is_packed else None)


def _check_names(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise InvalidArgument(why=f"two columns are called {twice!r}")


@contextmanager
def _reading() -> Iterator[None]:
    """Have what goes wrong with a file be one kind of error."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: a column's name
        raise InvalidArgument(why=f"it cannot be read: {' '.join(str(error).split())}") from error
