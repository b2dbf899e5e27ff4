"""Values of Avro caches, decoded as far as somebody asks. They are stored schemaless, written with a version of their cache's schema."""

from base64 import b64encode
from collections.abc import Iterable
from datetime import date, time
from math import isfinite
from typing import Any

import fastavro
import orjson
from fastavro.schema import SchemaParseException, UnknownType

from eventlog.batch.texts import Texts
from eventlog.errors import UnreadableValue
from eventlog.predicate.json_fields import MISSING, Chosen, Steps, walk_steps
from eventlog.predicate.tree import Step
from eventlog.schema.avro import AvroSchema
from eventlog.schema.avro_values import AvroReader


class AvroValues:
    """Reads only the fields of the record that `paths` begin with; the reader skips the others.

    A predicate compares what is stored; `with_logical` times, decimals and UUIDs are what they mean.
    """

    __slots__ = ("_narrowed", "_reader")

    def __init__(self, schema: AvroSchema, paths: Iterable[Steps], *, with_logical: bool = False) -> None:
        self._reader = AvroReader(schema, with_logical=with_logical)
        whole = schema.with_logical if with_logical else schema.plain
        self._narrowed = _narrowed(whole, {path[0] for path in paths if path}, is_whole=any(not path for path in paths))

    def decode(self, texts: Texts) -> list[Any]:
        return [self._decode_one(text) if text else None for text in texts.to_list()]

    def values(self, objects: list[Any], path: Steps) -> list[Any]:
        return [walk_steps(one, path) for one in objects]

    def _decode_one(self, text: bytes) -> Any:
        try:
            return self._reader.read_some(text, self._narrowed)
        except UnreadableValue:
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
    text = orjson.dumps(value, _spelled, orjson.OPT_PASSTHROUGH_DATETIME)
    return orjson.dumps(_named(value), _spelled, orjson.OPT_PASSTHROUGH_DATETIME) if b"null" in text else text


def _spelled(value: Any) -> Any:
    if isinstance(value, date | time):  # datetimes are dates; orjson itself writes 00:00:00.01 as 00:00:00.10000
        return value.isoformat().replace("+00:00", "Z")
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
