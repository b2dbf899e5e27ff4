"""Values of Avro caches, decoded as far as somebody asks. They are stored schemaless, written with the schema of their cache."""

import struct
from base64 import b64encode
from collections.abc import Callable, Iterable
from io import BytesIO
from math import isfinite
from typing import Any

import fastavro
import orjson
from fastavro import _read_py
from fastavro.schema import SchemaParseException, UnknownType

from eventlog.batch.texts import Texts
from eventlog.errors import UnreadableValue
from eventlog.predicate.json_fields import MISSING, Chosen, Steps, walk_steps
from eventlog.predicate.tree import Step
from eventlog.schema.avro import AvroSchema

# What fastavro raises on bytes that are not of the schema.
UNREADABLE = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error, RecursionError)


def read_whole(read: Callable[..., Any], data: bytes, schema: Any) -> Any:
    """Return what `data` says, by one of fastavro's readers.

    Raises:
        UnreadableValue: it was not written with this schema, or something is left over.
    """
    buffer = BytesIO(data)
    try:
        found = read(buffer, schema, None)
    except UNREADABLE as error:
        raise UnreadableValue(why=f"{type(error).__name__} {error}".strip()[:200]) from error
    if buffer.tell() != len(data):
        raise UnreadableValue(why=f"{len(data) - buffer.tell()} of {len(data)} bytes are left over")
    return found


class AvroValues:
    """Reads only the fields of the record that `paths` begin with; the reader skips the others.

    A predicate compares what is stored; `with_logical` times, decimals and UUIDs are what they mean.
    """

    __slots__ = ("_read", "_reader", "_writer")

    def __init__(self, schema: AvroSchema, paths: Iterable[Steps], *, with_logical: bool = False) -> None:
        # The reader in Python is slow, and stops at the interpreter's bound on recursion; the compiled one goes on to the end of the stack.
        self._read = _read_py.schemaless_reader if schema.is_recursive else fastavro.schemaless_reader
        self._writer = schema.typed if with_logical else schema.parsed
        whole = schema.with_logical if with_logical else schema.plain
        self._reader = _narrowed(whole, {path[0] for path in paths if path}, is_whole=any(not path for path in paths))

    def decode(self, texts: Texts) -> list[Any]:
        return [self._decode_one(text) if text else None for text in texts.to_list()]

    def values(self, objects: list[Any], path: Steps) -> list[Any]:
        return [walk_steps(one, path) for one in objects]

    def _decode_one(self, text: bytes) -> Any:
        try:
            return self._read(BytesIO(text), self._writer, self._reader)
        except UNREADABLE:
            return None


class AvroProjection:
    """Of Avro values: the chosen fields as JSON, null for a field of the value that nests deeper than that is written."""

    __slots__ = ("_fields", "_level")

    def __init__(self, fields: Any, paths: Iterable[Steps]) -> None:
        self._fields = fields
        self._level = Chosen(paths)

    def apply(self, texts: Texts) -> list[bytes]:
        return [self._one(found) if size else b"" for size, found in zip(texts.sizes.tolist(), self._fields.decode(texts), strict=True)]

    def _one(self, found: Any) -> bytes:
        chosen = self._level.pick(found)
        if chosen is MISSING:
            return b"{}"
        try:
            return avro_json(chosen)
        except TypeError:  # a recursive schema has no bound on depth, orjson has one
            fields = chosen if isinstance(chosen, dict) else {}
            return orjson.dumps({name: _written(field) for name, field in fields.items()}) if fields else b"null"


def _narrowed(schema: Any, names: set[Step], *, is_whole: bool) -> Any:
    """Return a record's schema with some fields only; None to read all, where it is no record or the rest cannot stand alone."""
    if is_whole or not isinstance(schema, dict) or schema.get("type") != "record":
        return None
    kept = [field for field in schema["fields"] if field["name"] in names]
    try:
        return fastavro.parse_schema({**schema, "fields": kept})
    except (SchemaParseException, UnknownType):  # a kept field names a type that another one defines
        return None


def avro_json(value: Any) -> bytes:
    """Return a decoded value as JSON that its schema takes again.

    Times are in ISO 8601, decimals and UUIDs text, bytes text or `{"base64": ...}`, numbers that are none `"NaN"` and `"Infinity"`.

    Raises:
        TypeError: it nests deeper than JSON is written.
    """
    text = orjson.dumps(value, _spelled, orjson.OPT_UTC_Z)
    return orjson.dumps(_named(value), _spelled, orjson.OPT_UTC_Z) if b"null" in text else text


def _spelled(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode()}
    return str(value)


def _named(value: Any) -> Any:
    """Return a value with names for the numbers that JSON does not have: they became null, as what is null did."""
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124
    if isinstance(value, dict):
        return {name: _named(item) for name, item in value.items()}
    return [_named(item) for item in value] if isinstance(value, list) else value


def _written(field: Any) -> orjson.Fragment | None:
    try:
        return orjson.Fragment(avro_json(field))
    except TypeError:
        return None
