"""Which files are loaded into a cache, and which writes their rows become. Pure, but for a look at folders."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidArgument
from eventlog.integrations.archive.table import delta_files

FORMATS: Final = ("parquet", "csv", "json")
_SUFFIXES: Final = {"parquet": "parquet", "csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json"}
_PACKED: Final = {"gz", "bz2", "zst"}
_SPECIAL: Final = re.compile(r"([\[\]{}*?\\])")
_ROWS: Final = pa.schema([("key", pa.string()), ("value", pa.string()), ("removes", pa.bool_())])
_LINE_SHOWN: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFile:
    """A file, or the address of something that Spark reads as one. `root` is the folder whose names of folders are columns, or ""."""

    path: str
    form: str
    root: str = ""

    @property
    def pattern(self) -> str:
        """The path as Spark is to be given it, where some characters have a meaning."""
        return self.path if "://" in self.path else "file://" + _SPECIAL.sub(r"\\\1", self.path)

    def transaction(self, name: str) -> str:
        """Return the name of the transaction of this file in a load of some name: another one for each file."""
        return f"load/{name}/{hashlib.sha256(self.path.encode()).hexdigest()[:32]}"


def load_files(paths: Sequence[str | Path], *, form: str = "") -> list[LoadFile]:
    """Return the files that paths, patterns, folders and Delta tables name, each once, those of a pattern or folder by their names.

    Raises:
        InvalidArgument: nothing is there, or nobody says which format it has.
    """
    found: dict[str, LoadFile] = {}
    for path in map(str, paths):
        some = [LoadFile(path=path, form=_form_of(path, form))] if "://" in path else _local_files(path, form)
        if not some:
            raise InvalidArgument(why=f"there is no file {path}")
        for file in some:
            if file.form == "csv" and "://" not in file.path and _SPECIAL.search(file.path):
                raise InvalidArgument(why=f"Spark takes {file.path} for a pattern when it reads CSV: give it a name without []{{}}*?")
            found.setdefault(file.path, file)
    return list(found.values())


def _local_files(path: str, form: str) -> list[LoadFile]:
    place = Path(path).absolute()
    if place.is_dir():
        if (place / "_delta_log").is_dir():
            return [LoadFile(path=str(place / file), form="parquet", root=str(place)) for file in delta_files(place)]
        inside = [one for one in sorted(place.rglob("*")) if one.is_file()]
        shown = [one for one in inside if not any(part.startswith(("_", ".")) for part in one.relative_to(place).parts)]
        return [LoadFile(path=str(one), form=_form_of(str(one), form), root=str(place)) for one in shown]
    named = [str(place)] if place.is_file() else sorted(map(str, Path(place.anchor).glob(str(place.relative_to(place.anchor)))))
    return [LoadFile(path=one, form=_form_of(one, form)) for one in named if Path(one).is_file()]


def _form_of(path: str, form: str) -> str:
    """Return which format a file has. Raises InvalidArgument where its name does not say."""
    suffixes = [suffix for suffix in path.rpartition("/")[2].lower().split(".")[1:] if suffix not in _PACKED]
    found = form or (_SUFFIXES.get(suffixes[-1], "") if suffixes else "")
    if not found:
        hint = ": Avro is read by eventlog load" if suffixes[-1:] == ["avro"] else f": say it as format, one of {', '.join(FORMATS)}"
        raise InvalidArgument(why=f"the name of {path} does not say which format it has{hint}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShape:
    """The field `key` is the key, and the row the value, without the field `operation`, which removes the key where it is among `removals`.

    Rows are columns, or with `is_lines` lines of JSON in the only one.
    """

    key: str
    operation: str = ""
    removals: tuple[str, ...] = ()
    is_lines: bool = False

    def check(self, names: Sequence[str]) -> None:
        """Raise InvalidArgument where a field is not among columns."""
        missing = [name for name in (self.key, self.operation) if name and name not in names]
        if missing and not self.is_lines:
            raise InvalidArgument(why=f"there is no column {missing[0]!r} among {', '.join(names)}")

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as the columns `key`, `value` and `removes`.

        Raises:
            InvalidArgument: a line is no object of JSON, or lacks a field.
        """
        return self._of_lines(batch.column(0).to_pylist()) if self.is_lines else self._of_columns(batch)

    def _of_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = [name for name in batch.schema.names if name != self.operation]
        values = pa.StructArray.from_arrays([batch.column(name) for name in names], names=names)
        keys = batch.column(self.key)
        keys = keys if pa.types.is_binary(keys.type) else pc.cast(keys, pa.string())
        if self.operation:
            words = pc.cast(batch.column(self.operation), pa.string())
            removes = pc.is_in(words, value_set=pa.array(self.removals, pa.string()))  # null is none of them
        else:
            removes = pa.repeat(pa.scalar(value=False), len(batch))
        return pa.RecordBatch.from_arrays([keys, values, removes], names=["key", "value", "removes"])

    def _of_lines(self, lines: Sequence[str | None]) -> pa.RecordBatch:
        rows = [self._of_line(line) for line in lines if line and not line.isspace()]
        return pa.RecordBatch.from_pylist([dict(zip(_ROWS.names, row, strict=True)) for row in rows], schema=_ROWS)

    def _of_line(self, line: str) -> tuple[str, str, bool]:
        try:
            row: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise InvalidArgument(why=f"a line is no object of JSON: {error}: {line[:_LINE_SHOWN]}") from error
        key = row.get(self.key)
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise InvalidArgument(why=f"the field {self.key!r} is no text and no whole number: {line[:_LINE_SHOWN]}")
        if not self.operation:
            return str(key), line, False
        if self.operation not in row:
            raise InvalidArgument(why=f"there is no field {self.operation!r}: {line[:_LINE_SHOWN]}")
        removes = str(row.pop(self.operation)) in self.removals
        return str(key), msgspec.json.encode(row).decode(), removes
