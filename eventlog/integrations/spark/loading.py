"""Which files are loaded into a cache, which parts of them a task reads, and which writes their rows become.

What lies in an object store is reached as an archive there is.
"""

import fnmatch
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSelector, FileType

from eventlog.errors import InvalidArgument
from eventlog.integrations.archive.place import ArchivePlace, place_of
from eventlog.integrations.archive.table import delta_files

FORMATS: Final = ("parquet", "csv", "json", "avro")
_SUFFIXES: Final = {name: name for name in FORMATS} | {"jsonl": "json", "ndjson": "json"}
_PACKED: Final = {"gz", "bz2", "zst"}
_PATTERN: Final = re.compile(r"[*?\[]")
_NUMBER: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_ROWS: Final = pa.schema([("key", pa.string()), ("value", pa.string()), ("removes", pa.bool_())])
_LINE_SHOWN: Final = 60


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
