"""Avro values as a struct column: decoded by fastavro, and read as the JSON that stands for them would be. Pure.

A value that is not of the cache's schema fits no struct; it stands as base64 where those stand that do not fit.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from math import isfinite
from typing import Any, Final

import msgspec
import pyarrow as pa

from eventlog.client.avro import AvroFormat
from eventlog.client.avro_columns import AvroColumns
from eventlog.client.reading.typed import TypedObjects, Unfit
from eventlog.errors import InvalidArgument, UnreadableValue
from eventlog.predicate.avro import avro_json
from eventlog.schema.avro import AvroSchema

Convert = Callable[[Any], Any]
_ANY: Final = None
"""A union of several types: which of them a value has is told by the value alone."""
_FLOAT_MAX: Final = (2 - 2**-23) * 2.0**127


def avro_struct(schema: str) -> pa.StructType:
    """Return the type that a record has in Spark: as in Arrow, with text for what Spark has not.

    Raises:
        InvalidArgument: values of the schema are no records.
    """
    found = _shown(AvroColumns(AvroSchema(schema).typed).type)
    if not pa.types.is_struct(found):
        raise InvalidArgument(why="values of the cache's Avro schema are no records with fields: value_schema has nothing to name")
    return found


def _shown(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_struct(kind) and kind.num_fields:
        return pa.struct([(field.name, _shown(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(_shown(kind.value_type))
    if types.is_map(kind):
        return pa.map_(pa.string(), _shown(kind.item_type))
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    has_none = types.is_null(kind) or types.is_time(kind) or types.is_decimal256(kind) or types.is_struct(kind)
    return pa.string() if has_none else kind


class AvroForm:
    """Avro of one schema: an item is what fastavro decodes, made ready where JSON would be read as text."""

    def __init__(self, schema: str, kind: pa.StructType) -> None:
        self._type = kind
        self._format = AvroFormat(schema)
        self._prepare = _Preparing(AvroSchema(schema).typed).of(kind)
        self.all = TypedObjects(kind).read
        self._fields = [TypedObjects(field.type) for field in kind]

    def items(self, values: Sequence[bytes | None]) -> list[Any]:
        """Return what the values stand for; bytes that are not of the schema stay as they are, and are no object."""
        try:
            found = self._format.decode_all(values)
        except UnreadableValue:
            found = [None if value is None else self._item(value) for value in values]
        prepare = self._prepare
        return found if prepare is None else [None if one is None else prepare(one) for one in found]

    def _item(self, value: bytes) -> Any:
        try:
            return self._format.decode(value)
        except UnreadableValue:
            return value

    def fields(self, item: Any) -> Sequence[Any] | None:
        """Return one value field by field, None for each that does not fit; None where it is no object."""
        if not isinstance(item, dict):
            return None
        return [_field(typed, item.get(field.name)) for field, typed in zip(self._type, self._fields, strict=True)]

    def text(self, value: bytes) -> str:
        """Return a value as its JSON, or as base64 where it is not of the schema."""
        try:
            return self._format.json(value).decode()
        except UnreadableValue:
            return b64encode(value).decode()


def _field(typed: TypedObjects, value: Any) -> Any:
    try:
        return typed.read([value])
    except (Unfit, msgspec.MsgspecError):
        return None


class _Preparing:
    """Finds in a schema, once, what has to become text or is held to the range of FLOAT before it is read as a type."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._named = dict(_named(schema))

    def of(self, kind: pa.DataType) -> Convert | None:
        """Return what is done with a value, None if nothing is."""
        return self._of(self._schema, kind)

    def _of(self, given: Any, kind: pa.DataType) -> Convert | None:
        schema, types = self._plain(given), pa.types
        if types.is_string(kind):
            return None if schema == "string" or _type_of(schema) == "enum" else _as_text
        if types.is_float32(kind):
            return None if schema in ("int", "long", "float") else _single
        if types.is_struct(kind):
            return self._record(schema, kind)
        if types.is_list(kind):
            convert = self._of(schema["items"] if _type_of(schema) == "array" else _ANY, kind.value_type)
            return convert and (lambda value: [_maybe(convert, one) for one in value] if isinstance(value, list) else value)
        if types.is_map(kind):
            convert = self._of(schema["values"] if _type_of(schema) == "map" else _ANY, kind.item_type)
            return convert and (
                lambda value: {name: _maybe(convert, one) for name, one in value.items()} if isinstance(value, dict) else value
            )
        return None

    def _record(self, schema: Any, kind: pa.StructType) -> Convert | None:
        known = {field["name"]: field["type"] for field in schema["fields"]} if _type_of(schema) == "record" else {}
        found = {field.name: self._of(known.get(field.name, _ANY), field.type) for field in kind}
        converts = {name: convert for name, convert in found.items() if convert is not None and (not known or name in known)}

        def converted(value: Any) -> Any:
            if not isinstance(value, dict):
                return value
            return value | {name: _maybe(convert, value[name]) for name, convert in converts.items() if name in value}

        return converted if converts else None

    def _plain(self, schema: Any) -> Any:
        """Return a type without the wrapping: a name's definition, and the only type of a union that is not null."""
        while True:
            if isinstance(schema, list):
                others = [branch for branch in schema if branch != "null"]
                schema = others[0] if len(others) == 1 else _ANY
            elif isinstance(schema, str) and schema in self._named:
                return self._named[schema]
            elif isinstance(schema, dict) and (not isinstance(schema["type"], str) or _is_bare(schema)):
                schema = schema["type"]
            else:
                return schema


def _named(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield the types that have a name."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _named(branch)
    elif isinstance(schema, dict):
        if "name" in schema and schema["type"] in {"record", "error", "enum", "fixed"}:
            yield schema["name"], schema
        inner = [field["type"] for field in schema.get("fields", ())]
        for one in (*inner, *(schema[name] for name in ("type", "items", "values") if name in schema)):
            yield from _named(one)


def _is_bare(schema: dict[str, Any]) -> bool:
    """Whether it is a primitive type, or a name, with nothing that means something beside it."""
    return "logicalType" not in schema and not {"fields", "items", "values", "symbols", "size"} & schema.keys()


def _type_of(schema: Any) -> Any:
    kind = schema["type"] if isinstance(schema, dict) else None
    return "record" if kind == "error" else kind


def _maybe(convert: Convert | None, value: Any) -> Any:
    return value if value is None or convert is None else convert(value)


def _as_text(value: Any) -> str | None:
    """Return text as it is, of anything else its JSON, and the text of that where it is one; None where it nests deeper than JSON does."""
    if isinstance(value, str):
        return value
    try:
        text = avro_json(value)
    except TypeError:
        return None
    return msgspec.json.decode(text, type=str) if text.startswith(b'"') else text.decode()


def _single(value: Any) -> Any:
    """Return a number; one beyond the range of FLOAT as text, which no number is read from."""
    is_finite = isinstance(value, Decimal) or (isinstance(value, float) and isfinite(value))
    return str(value) if is_finite and abs(value) > _FLOAT_MAX else value
