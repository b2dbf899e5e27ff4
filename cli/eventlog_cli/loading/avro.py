"""Avro: records of container files with their schema, read one by one as they stream in.

And rows of other files as values of an Avro cache.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from fastavro.read import LOGICAL_READERS

from eventlog.client.avro_files import AvroFile
from eventlog.client.formats import avro_format
from eventlog.schema.strict_json import Misfit
from eventlog_cli.loading.rows import RowBatch, RowRefused, RowShape, Unreadable, type_name
from eventlog_cli.loading.source import Damaged, Input


def _read_or_refuse(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return `read` with `Unreadable` for what Python has no value for, a year beyond 9999, say: the bytes around it are sound."""

    def read_one(*data: Any) -> Any:
        try:
            return read(*data)
        except (ValueError, OverflowError) as error:
            return Unreadable(str(error))

    return read_one


@contextmanager
def _refusing() -> Iterator[None]:
    """Read so for a while: fastavro's readers are the process's, and other values are read by them too."""
    kept = dict(LOGICAL_READERS)
    LOGICAL_READERS.update({name: _read_or_refuse(read) for name, read in kept.items()})
    try:
        yield
    finally:
        LOGICAL_READERS.update(kept)


class Avro:
    """Reads Avro."""

    def __init__(self, stream: Input, shape: RowShape, *, rows: int) -> None:
        self._stream = stream
        self._shape = shape
        self._rows = rows

    def batches(self) -> Iterator[RowBatch]:
        """Yield the file. Lines count records; damage ends it, as the place of the next record is unknown."""
        batch, held = RowBatch(), 0
        for line, record in enumerate(self._records(), 1):
            if isinstance(record, Damaged):
                batch.reject(line, str(record), is_last=True)
                break
            try:
                if not isinstance(record, dict):
                    raise RowRefused(f"the record is {type_name(record)}, not an object")
                self._shape.add(record, batch)
                held += len(batch.values[-1])
            except RowRefused as error:
                batch.reject(line, str(error))
            batch.last_line = line
            if batch.lines >= self._rows or held >= self._shape.batch_bytes:
                yield batch
                batch, held = RowBatch(), 0
        if batch.lines:
            yield batch

    def _records(self) -> Iterator[Any]:
        """Yield records, and as the last thing `Damaged` if the file is."""
        try:
            with _refusing():
                yield from AvroFile(self._stream.read)
        except Damaged as damage:
            yield damage
        except Exception as error:  # noqa: BLE001 - foreign bytes make fastavro raise any of a dozen types; all mean the same
            yield Damaged(f"the file is cut short or damaged: {type(error).__name__} {error}")


_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")  # Python also reads 1_000, and the digits of other scripts
_REAL = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
_TRUTHS = {"true": True, "false": False}
_parse = msgspec.json.Decoder().decode


def row_encoder(schema: str, *, key: str, is_text: bool) -> Callable[[dict[str, Any]], bytes]:
    """Return what encodes a row, which may be changed by it. The key's field is left out where the schema has none of its name.

    With `is_text` every field is text, as in CSV: numbers, truths, lists and records are read from it, and an empty one is null where the
    schema takes that.
    """
    avro = avro_format(schema)
    keeps_key = avro.fields is None or key in avro.fields
    reads = {name: _reader(kind) for name, kind in avro.types.items()} if is_text else {}

    def encode(row: dict[str, Any]) -> bytes:
        if not keeps_key:
            row.pop(key, None)
        if is_text:
            row = {name: reads[name](text) if name in reads else text for name, text in row.items()}
        try:
            return avro.encode(row)
        except Misfit as misfit:
            raise ValueError(misfit.sentence) from None

    return encode


def _reader(schema: Any) -> Callable[[str], Any]:
    """Return what reads a field from text; text that is not of the type stays what it is, and the schema refuses it."""
    branches = schema if isinstance(schema, list) else [schema]
    kinds = [_base(branch) for branch in branches]
    takes_null = "null" in kinds
    others = [kind for kind in kinds if kind != "null"]
    read = _READERS.get(others[0], _json) if len(others) == 1 else _text

    def field(text: str) -> Any:
        return None if takes_null and not text else read(text)

    return field


def _base(schema: Any) -> str:
    """Return what text is to be read as; types with a form of their own in text are "string"."""
    if not isinstance(schema, dict):
        return str(schema)
    kind = schema["type"]
    return "string" if "logicalType" in schema else kind if isinstance(kind, str) else _base(kind)


def _text(text: str) -> Any:
    return text


def _integer(text: str) -> Any:
    return int(text) if _INTEGER.fullmatch(text) else text


def _real(text: str) -> Any:
    return float(text) if _REAL.fullmatch(text) else text


def _truth(text: str) -> Any:
    return _TRUTHS.get(text.lower(), text)


def _json(text: str) -> Any:
    try:
        return _parse(text)
    except (ValueError, RecursionError):
        return text


_READERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("int", "long"), _integer),
    **dict.fromkeys(("float", "double"), _real),
    **dict.fromkeys(("string", "bytes", "fixed", "enum", "null"), _text),
    "boolean": _truth,
}
"""What is not among them is a record, an array or a map."""
