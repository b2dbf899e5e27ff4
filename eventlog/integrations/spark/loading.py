"""Files loaded into a cache: which there are, which part of one a task reads, and which writes its rows become.

Rows are read by columns and without the JVM, so each is read once and never goes from one process to another. What lies in an object store
is reached as an archive there is.
"""

import fnmatch
import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from eventlog.client.avro_columns import AvroColumns
from eventlog.client.avro_files import AvroFile
from eventlog.errors import InvalidArgument
from eventlog.integrations.archive.place import ArchivePlace, place_of
from eventlog.integrations.archive.table import delta_files
from eventlog.limits import MIB, VALUE_BYTES_CAP
from eventlog.predicate.avro import avro_json
from eventlog.schema.avro import AvroSchema

FORMATS: Final = ("parquet", "csv", "json", "avro")
_SUFFIXES: Final = {name: name for name in FORMATS} | {"jsonl": "json", "ndjson": "json"}
_PACKED: Final = {"gz", "bz2", "zst"}
_PATTERN: Final = re.compile(r"[*?\[]")
_NUMBER: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_ROWS: Final = pa.schema([("key", pa.string()), ("value", pa.string()), ("removes", pa.bool_())])
_LINE_SHOWN: Final = 60
PIECE_BYTES: Final = 64 * MIB
_ROWS_TOGETHER: Final = 10_000
_BLOCK_BYTES: Final = 4 * MIB
WHOLE_FILE: Final = 1 << 62
_LINE = "line"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFile:
    """A file: its path or address, its format, and the columns that all its rows have beside those in it."""

    path: str
    form: str
    beside: tuple[tuple[str, Any], ...] = ()

    def transaction(self, name: str) -> str:
        """Return the name of the transaction of this file in a load of some name: another one for each file."""
        return f"load/{name}/{hashlib.sha256(self.path.encode()).hexdigest()[:32]}"

    @property
    def is_packed(self) -> bool:
        """Whether it is packed as a whole, as its name says."""
        return self.path.rpartition(".")[2].lower() in _PACKED


def load_files(paths: Sequence[str | Path], *, form: str = "") -> list[LoadFile]:
    """Return the files that paths, patterns, folders and Delta tables name, each once, those of a pattern or folder by their names.

    Raises:
        InvalidArgument: nothing is there, or nobody says which format it has.
        ArchiveRefused: the address is of no object store that is known.
        ArchiveUnreachable: the object store does not answer.
    """
    found: dict[str, LoadFile] = {}
    for path in map(str, paths):
        some = list(_stored_files(path.rstrip("/"), form) if "://" in path else _local_files(path, form))
        if not some:
            raise InvalidArgument(why=f"there is no file {path}")
        for file in some:
            found.setdefault(file.path, file)
    return list(found.values())


def _local_files(path: str, form: str) -> Iterator[LoadFile]:
    place = Path(path).absolute()
    if not place.is_dir():
        named = [place] if place.is_file() else sorted(Path(place.anchor).glob(str(place.relative_to(place.anchor))))
        yield from (LoadFile(path=str(one), form=_form_of(str(one), form)) for one in named if one.is_file())
    elif (place / "_delta_log").is_dir():
        yield from _table_files(str(place))
    else:
        inside = sorted(one.relative_to(place).as_posix() for one in place.rglob("*") if one.is_file())
        yield from _files_below(str(place), inside, form)


def stored_at(address: str) -> tuple[ArchivePlace, str]:
    """Return the bucket of an address in an object store, and the name in it: of names, unlike addresses, `%20` is a part as it is."""
    store, _, rest = address.partition("://")
    bucket, _, name = rest.partition("/")
    return place_of(f"{store}://{bucket}"), name


def _stored_files(address: str, form: str) -> Iterator[LoadFile]:
    """Yield what an address in an object store names: a pattern is of files in one folder."""
    bucket, name = stored_at(address)
    with bucket.reached():
        if _PATTERN.search(name):
            folder = name.rpartition("/")[0]
            there = _names(bucket, FileSelector(folder, allow_not_found=True))
            paths = [f"{bucket.address}/{one}" for one in there if fnmatch.fnmatchcase(one, name)]
            yield from (LoadFile(path=path, form=_form_of(path, form)) for path in paths)
        elif name and bucket.files.get_file_info(name).type == FileType.File:
            yield LoadFile(path=address, form=_form_of(address, form))
        else:
            there = _names(bucket, FileSelector(name, recursive=True, allow_not_found=True))
            names = [one[len(name) :].lstrip("/") for one in there]
            is_table = any(one.startswith("_delta_log/") for one in names)
            yield from _table_files(address) if is_table else _files_below(address, names, form)


def _names(bucket: ArchivePlace, selected: FileSelector) -> list[str]:
    return sorted(one.path for one in bucket.files.get_file_info(selected) if one.type == FileType.File)


def _table_files(root: str) -> Iterator[LoadFile]:
    return (LoadFile(path=f"{root}/{path}", form="parquet", beside=beside) for path, beside in delta_files(root))


def _files_below(root: str, names: Sequence[str], form: str) -> Iterator[LoadFile]:
    """Yield the files of a folder, without those that a `_` or `.` hides. Folders like `shop=north` are columns."""
    for name in names:
        parts = PurePosixPath(name).parts
        if not any(part.startswith(("_", ".")) for part in parts):
            beside = tuple(_column(part) for part in parts[:-1] if "=" in part)
            yield LoadFile(path=f"{root}/{name}", form=_form_of(name, form), beside=beside)


def _column(folder: str) -> tuple[str, Any]:
    """Return the column that a folder's name is. What is in a file does not depend on what lies beside it, so a name is looked at alone."""
    name, _, text = folder.partition("=")
    if text == _NO_VALUE:
        return name, pa.scalar(None, pa.string())
    return name, pa.scalar(int(text)) if _NUMBER.fullmatch(text) else pa.scalar(unquote(text))


def _form_of(path: str, form: str) -> str:
    """Return which format a file has. Raises InvalidArgument where its name does not say."""
    suffixes = [suffix for suffix in path.rpartition("/")[2].lower().split(".")[1:] if suffix not in _PACKED]
    found = form or (_SUFFIXES.get(suffixes[-1], "") if suffixes else "")
    if not found:
        why = f"the name of {path} does not say which format it has: say it as format, one of {', '.join(FORMATS)}"
        raise InvalidArgument(why=why)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShape:
    """The field `key` is the key, and the row the value, without the field `operation`, which removes the key where it is among `removals`.

    What becomes of rows are the columns `key`, `value` and `removes`.
    """

    key: str
    operation: str = ""
    removals: tuple[str, ...] = ()

    def of_columns(self, batch: pa.RecordBatch, *, texts: Any = None) -> pa.RecordBatch:
        """Return what becomes of rows with a column for each field, whose values are `texts` where columns do not say all of them.

        Raises:
            InvalidArgument: there is no such column.
        """
        missing = [name for name in (self.key, self.operation) if name and name not in batch.schema.names]
        if missing:
            raise InvalidArgument(why=f"there is no column {missing[0]!r} among {', '.join(batch.schema.names)}")
        names = [name for name in batch.schema.names if name != self.operation]
        values = pa.StructArray.from_arrays([batch.column(name) for name in names], names=names) if texts is None else texts
        keys = batch.column(self.key)
        keys = keys if pa.types.is_binary(keys.type) else pc.cast(keys, pa.string())
        if self.operation:
            words = pc.cast(batch.column(self.operation), pa.string())
            removes = pc.is_in(words, value_set=pa.array(self.removals, pa.string()))  # null is none of them
        else:
            removes = pa.repeat(pa.scalar(value=False), len(batch))
        return pa.RecordBatch.from_arrays([keys, values, removes], names=["key", "value", "removes"])

    def of_lines(self, lines: Sequence[str | None]) -> pa.RecordBatch:
        """Return what becomes of lines of JSON. Raises InvalidArgument where one is no object, or lacks a field."""
        rows = [self._of_line(line) for line in lines if line and not line.isspace()]
        columns = zip(*rows, strict=True) if rows else ((), (), ())
        return pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, _ROWS, strict=True)], schema=_ROWS
        )

    def _of_line(self, line: str) -> tuple[str, str, bool]:
        try:
            row: dict[str, msgspec.Raw] = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
            key = msgspec.json.decode(row[self.key]) if self.key in row else None
        except msgspec.MsgspecError as error:
            raise InvalidArgument(why=f"a line is no object of JSON: {error}: {line[:_LINE_SHOWN]}") from error
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise InvalidArgument(why=f"the field {self.key!r} is no text and no whole number: {line[:_LINE_SHOWN]}")
        if not self.operation:
            return str(key), line.rstrip(), False
        if self.operation not in row:
            raise InvalidArgument(why=f"there is no field {self.operation!r}: {line[:_LINE_SHOWN]}")
        word = bytes(row.pop(self.operation))  # the fields left keep their bytes: numbers read and written again would be rounded
        text = msgspec.json.decode(word, type=str) if word.startswith(b'"') else word.decode()
        return str(key), msgspec.json.encode(row).decode(), text in self.removals


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
        yield from parquet.iter_batches(_ROWS_TOGETHER, row_groups=range(piece.low, piece.high))


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
            while some := list(islice(rows, _ROWS_TOGETHER)):
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
