"""Avro values as columns of Arrow: the type that a schema has there, and decoded values made into arrays of it.

A record is a struct. What Arrow has no type for is text with JSON: unions of several types, and a record inside of itself.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from eventlog.predicate.avro import avro_json

Convert = Callable[[Any], Any]
_DIGITS_MAX: Final = 76  # of Arrow's decimals
_SIMPLE: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
}


class AvroColumns:
    """Columns of one schema, with those logical types that mean something. `has_json`: some are text with JSON."""

    def __init__(self, schema: Any) -> None:
        self.has_json = False
        self._named: dict[str, tuple[pa.DataType, Convert | None]] = {}
        self.type, self._convert = self._of(schema)

    def array(self, values: Sequence[Any]) -> Any:
        """Return decoded values as a `pyarrow.Array`, null where one is None."""
        return pa.array(_each(values, self._convert), type=self.type)

    def _of(self, schema: Any) -> tuple[pa.DataType, Convert | None]:
        """Return the type of a column, and what makes of a value what pyarrow takes; None where it takes the value itself."""
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            found = self._named.get(schema, (_SIMPLE.get(schema, pa.string()), None))
            self.has_json |= found[1] is _json
            return found
        if not isinstance(schema["type"], str):
            return self._of(schema["type"])
        if "name" in schema:
            self._named[schema["name"]] = (pa.string(), _json)  # what it is inside of itself
        found = self._complex(schema)
        if "name" in schema:
            self._named[schema["name"]] = found
        return found

    def _complex(self, schema: Any) -> tuple[pa.DataType, Convert | None]:
        kind = schema["type"]
        if "logicalType" in schema:
            return _logical(schema)
        if kind in {"record", "error"}:
            return self._record(schema)
        if kind == "array":
            item, convert = self._of(schema["items"])
            return pa.list_(item), convert and (lambda value: _each(value, convert))
        if kind == "map":
            item, convert = self._of(schema["values"])
            return pa.map_(pa.string(), item), lambda value: list(zip(value, _each(value.values(), convert), strict=True))
        return (pa.binary(schema["size"]), None) if kind == "fixed" else (_SIMPLE.get(kind, pa.string()), None)

    def _union(self, schemas: list[Any]) -> tuple[pa.DataType, Convert | None]:
        others = [self._of(schema) for schema in schemas if schema != "null"]  # all of them: names may be used later on
        if len(others) == 1:
            return others[0]
        self.has_json |= bool(others)
        return (pa.string(), _json) if others else (pa.null(), None)

    def _record(self, schema: Any) -> tuple[pa.DataType, Convert | None]:
        fields = {field["name"]: self._of(field["type"]) for field in schema["fields"]}
        converts = {name: convert for name, (_, convert) in fields.items() if convert is not None}

        def converted(row: Any) -> Any:
            return row | {name: convert(row[name]) for name, convert in converts.items() if row[name] is not None}

        return pa.struct([(name, kind) for name, (kind, _) in fields.items()]), converted if converts else None


def _each(values: Any, convert: Convert | None) -> list[Any]:
    return list(values) if convert is None else [None if value is None else convert(value) for value in values]


def _json(value: Any) -> str:
    return avro_json(value).decode()


def _logical(schema: Any) -> tuple[pa.DataType, Convert | None]:
    name = schema["logicalType"]
    unit = "ms" if name.endswith("millis") else "us"
    if name == "decimal":
        precision, scale = schema["precision"], schema.get("scale", 0)
        if precision > _DIGITS_MAX:
            return pa.string(), str
        return (pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)), None
    if name.startswith("time-"):
        return (pa.time32(unit) if unit == "ms" else pa.time64(unit)), None
    if name.endswith(("millis", "micros")):
        return pa.timestamp(unit, None if name.startswith("local-") else "UTC"), None
    return (pa.date32(), None) if name == "date" else (pa.string(), str)
