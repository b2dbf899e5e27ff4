"""Avro in caches: a schema is checked before anything is decoded with it, and values are decoded as far as somebody asks.

fastavro's compiled reader counts neither how deep it is nor how many items a value makes: a chain of records as long as a value
overflows the stack of the process, and five bytes claim three million items that take no bytes. Values are stored schemaless, written
with the schema of their cache.
"""

import json
import struct
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from math import isfinite
from typing import Any

import fastavro
import orjson
from fastavro import _read_py
from fastavro.schema import SchemaParseException, UnknownType, to_parsing_canonical_form

from eventlog.batch.texts import Texts
from eventlog.errors import InvalidArgument
from eventlog.predicate.json_fields import MISSING, Chosen, Steps, walk_steps
from eventlog.predicate.tree import Step

SCHEMA_DEPTH_MAX = 64
PRIMITIVE_TYPES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
# What fastavro raises on bytes that are not of the schema.
UNREADABLE = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error, RecursionError)


class AvroSchema:
    """A schema that values may be decoded with.

    `plain` is its JSON without logical types (a predicate compares a timestamp as the number that is stored), `parsed` is what fastavro
    takes. `logical` is what was left out of both. Where `is_recursive`, values nest as deep as they like; where
    not `takes_bytes`, some have no bytes.
    """

    __slots__ = ("_given", "is_recursive", "logical", "parsed", "plain", "takes_bytes")

    def __init__(self, text: str) -> None:
        """Take a schema as JSON.

        Raises:
            InvalidArgument: it is no Avro schema, nests deeper than `SCHEMA_DEPTH_MAX`, or has arrays of what takes no bytes.
        """
        given = self._given = _read(text)
        self.plain = _plain(given, 0)
        self.logical = list(_logical(given))
        try:
            self.parsed = fastavro.parse_schema(self.plain)
        except KeyError as error:
            raise InvalidArgument(why=f"this is no Avro schema: it lacks {error}") from error
        except (SchemaParseException, UnknownType, TypeError, ValueError, AttributeError) as error:
            raise InvalidArgument(why=f"this is no Avro schema: {error}") from error
        types = _Types()
        self.takes_bytes = types.takes_bytes(self.parsed)
        self.is_recursive = types.is_recursive

    @property
    def with_logical(self) -> Any:
        """Its JSON with those logical types that are known and valid: the others mean nothing, as the specification has it."""
        return _plain(self._given, 0, keeps=is_logical)

    @property
    def typed(self) -> Any:
        """The same as fastavro takes it."""
        return fastavro.parse_schema(self.with_logical)

    @property
    def canonical(self) -> str:
        """What it says of how values lie in bytes, and of what they mean: without docs, defaults and aliases."""
        return f"{to_parsing_canonical_form(self.parsed)} {self.logical}"


class _Types:
    """Goes through a parsed schema, in which a name is used inside or after its definition."""

    def __init__(self) -> None:
        self.is_recursive = False
        self._empty = {"null"}  # names of types whose values take no bytes
        self._open: set[str] = set()

    def takes_bytes(self, schema: Any) -> bool:
        """Whether every value takes a byte at least. A record of nothing but itself has no values, and is said to take none."""
        if isinstance(schema, list):
            for branch in schema:
                self.takes_bytes(branch)
            return bool(schema)  # the number of the branch
        if isinstance(schema, str):
            self.is_recursive |= schema in self._open
            return schema not in self._empty
        if "fields" in schema:
            return self._record(schema["name"], schema["fields"])
        if schema["type"] == "fixed":
            return self._named(schema["name"], is_empty=not isinstance(schema["size"], int) or schema["size"] <= 0)
        if "items" in schema and not self.takes_bytes(schema["items"]):
            raise InvalidArgument(why="an Avro array of items that take no bytes can claim any number of them")
        if "values" in schema:
            self.takes_bytes(schema["values"])
        return bool({"items", "values", "symbols"} & schema.keys()) or self.takes_bytes(schema["type"])

    def _record(self, name: str, fields: list[dict[str, Any]]) -> bool:
        self._named(name, is_empty=not any(self._certainly_takes_bytes(field["type"]) for field in fields))
        self._open.add(name)
        taking = [self.takes_bytes(field["type"]) for field in fields]
        self._open.discard(name)
        return self._named(name, is_empty=not any(taking))

    def _certainly_takes_bytes(self, schema: Any) -> bool:
        """Whether a type does, whatever the names in it turn out to be: a union has a number, an array a count."""
        if isinstance(schema, str):
            return schema in PRIMITIVE_TYPES and schema != "null"
        return bool(schema) if isinstance(schema, list) else schema["type"] in {"array", "map", "enum"}

    def _named(self, name: str, *, is_empty: bool) -> bool:
        (self._empty.add if is_empty else self._empty.discard)(name)
        return not is_empty


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(why=f"an Avro schema is JSON: {error}") from error


def _logical(schema: Any) -> Iterator[tuple[Any, ...]]:
    """Yield what the JSON of a schema says of logical types, in its order."""
    if isinstance(schema, dict):
        if "logicalType" in schema:
            yield tuple(schema.get(name) for name in ("logicalType", "precision", "scale"))
        schema = list(schema.values())
    if isinstance(schema, list):
        for inner in schema:
            yield from _logical(inner)


def _plain(schema: Any, depth: int, *, keeps: Callable[[dict[str, Any]], bool] | None = None) -> Any:
    """Return the JSON of a schema without what fastavro marks its own with, and without logical types but those that `keeps` wants."""
    if depth > SCHEMA_DEPTH_MAX:
        raise InvalidArgument(why=f"a schema nests at most {SCHEMA_DEPTH_MAX} levels deep")
    if isinstance(schema, list):
        return [_plain(one, depth + 1, keeps=keeps) for one in schema]
    if isinstance(schema, dict):
        has_logical = "logicalType" in schema and keeps is not None and keeps(schema)
        left_out = set() if has_logical else {"logicalType"}
        return {
            name: _plain(inner, depth + 1, keeps=keeps)
            for name, inner in schema.items()
            if name not in left_out and not name.startswith("__")
        }
    return schema


LOGICAL = {
    "decimal": ("bytes", "fixed"),
    "uuid": ("string",),
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    **dict.fromkeys(("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros"), ("long",)),
}
"""Logical types that mean something here, and what they are stored as."""


def is_logical(schema: dict[str, Any]) -> bool:
    """Return whether a type has a logical type that is known, stored as it has to be, and possible."""
    name, base = schema["logicalType"], schema.get("type")
    if not isinstance(name, str) or base not in LOGICAL.get(name, ()):
        return False
    if name != "decimal":
        return True
    precision, scale, size = schema.get("precision"), schema.get("scale", 0), schema.get("size")
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or not precision:
        return False
    return base == "bytes" or (type(size) is int and 10**precision <= 1 << (8 * size - 1))


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
