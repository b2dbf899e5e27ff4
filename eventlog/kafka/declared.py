"""The type that a cache's values are declared to have: an Avro schema, or a JSON Schema told as one.

Values are JSON, or lie encoded with the schema already. `Declared` makes of each what a record holds, and refuses one that does not fit.
JSON is taken as the client takes it for an Avro cache: times in ISO 8601 or as the number that is stored, decimals as text or numbers,
bytes as text or `{"base64": ...}`, and a field that is absent is its default, or null where it may be.
"""

import json
from base64 import b64encode
from collections.abc import Iterator
from io import BytesIO
from math import isfinite
from typing import Any, Final

import fastavro
import msgspec
import orjson

from eventlog.errors import InvalidArgument, UnreadableValue
from eventlog.schema.avro import AvroSchema, is_logical
from eventlog.schema.avro_fit import Fitting
from eventlog.schema.avro_types import read_avro
from eventlog.schema.avro_values import AvroReader
from eventlog.schema.json_types import SchemaNode, read_json_schema
from eventlog.schema.strict_json import Misfit

JSON_TYPE: Final = "io.debezium.data.Json"
ENUM_TYPE: Final = "io.debezium.data.Enum"


class Declared:
    """The type of values, made once for a schema. With `is_stored` they lie encoded with it, else they are JSON.

    `avro` is the schema as JSON, with full names. `is_spread`: values are records whose fields stand in a row by themselves. A record that
    holds itself is not spread, since what names it inside needs its definition.
    """

    def __init__(self, schema: Any, *, is_stored: bool = False) -> None:
        """Take the JSON of an Avro schema.

        Raises:
            InvalidArgument: it is none.
        """
        text = read_avro(json.dumps(schema)).normal
        known = AvroSchema(text)
        self.avro: Any = json.loads(text)
        self.is_stored = is_stored
        self.is_spread = isinstance(self.avro, dict) and self.avro["type"] == "record" and not known.is_recursive
        self._written_as = known.parsed
        self._fit = Fitting(known.typed).fit
        self._reader = AvroReader(known, with_logical=False)
        has_decimals = any(name == "decimal" for name, *_ in known.logical)
        self._parse = msgspec.json.Decoder(float_hook=Number if has_decimals else None).decode

    @property
    def fields(self) -> list[dict[str, Any]]:
        """The fields of values that are spread, as the schema has them."""
        found: list[dict[str, Any]] = self.avro["fields"] if self.is_spread else []
        return found

    def has_field(self, name: str) -> bool:
        """Return whether values that are spread have a field of this name."""
        return any(field["name"] == name for field in self.fields)

    def connect(self) -> dict[str, Any]:
        """Return the schema as Kafka Connect has it; logical types have the names that Connect and Debezium know them by.

        Raises:
            InvalidArgument: Connect has nothing for a type: a union of several, null alone, a record that holds itself.
        """
        return _Connect().of(self.avro, at="value")

    def encoded(self, text: bytes) -> bytes:
        """Return a value in Avro's binary encoding.

        Raises:
            Misfit: it is not of this type.
        """
        if self.is_stored:
            return self._stored(text)[1]
        buffer = BytesIO()
        fastavro.schemaless_writer(buffer, self._written_as, self._fitted(text))
        return buffer.getvalue()

    def payload(self, text: bytes) -> bytes:
        """Return a value as JSON for `connect()`: numbers as they are stored, bytes in base64.

        Raises:
            Misfit: it is not of this type, or is a number that JSON does not have.
        """
        return orjson.dumps(_plain(self._stored(text)[0] if self.is_stored else self._fitted(text)))

    def _fitted(self, text: bytes) -> Any:
        try:
            return self._fit(self._parse(text))
        except (RecursionError, msgspec.DecodeError) as error:
            raise Misfit(f"no JSON, or nested too deep: {error}") from error

    def _stored(self, data: bytes) -> tuple[Any, bytes]:
        """Return what a stored value stands for, and the value with all fields of this schema."""
        try:
            found, whole, size = self._reader.read_whole(data)
        except UnreadableValue as error:
            raise Misfit(f"not of its Avro schema: {error.why}") from error
        if size < len(whole):
            raise GoesOn(f"followed by {len(whole) - size} bytes")
        return found, whole


class GoesOn(Misfit):
    """A value goes on behind the schema: it was written with a newer one, or with another."""


class Number(float):
    """A number that shows itself as it was written: a decimal has digits that a float has not."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _plain(value: Any) -> Any:
    """Return a fitting value for JSON: of a branch of a union the value alone."""
    if isinstance(value, dict):
        return {name: _within(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_within(item, index) for index, item in enumerate(value)]
    if isinstance(value, tuple):
        return _plain(value[1])
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float) and not isfinite(value):
        raise Misfit(f"{value}: JSON has no such number")
    return value


def _within(item: Any, step: str | int) -> Any:
    try:
        return _plain(item)
    except Misfit as misfit:
        raise misfit.within(step)  # noqa: B904 -- the same one


# ---------------------------------------------------------------- Kafka Connect


_CONNECT: Final = {
    "boolean": "boolean", "int": "int32", "long": "int64", "float": "float", "double": "double", "bytes": "bytes", "string": "string",
    "fixed": "bytes",
}  # fmt: skip
_CONNECT_LOGICAL: Final = {
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "local-timestamp-millis": "io.debezium.time.Timestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
    "uuid": "io.debezium.data.Uuid",
}


class _Connect:
    """Tells one schema, in which a name stands for a definition before it."""

    def __init__(self) -> None:
        self._named: dict[str, dict[str, Any] | None] = {}  # None within its own definition

    def of(self, schema: Any, *, at: str) -> dict[str, Any]:
        if isinstance(schema, list):
            return self._union(schema, at)
        if isinstance(schema, str):
            return self._by_name(schema, at)
        kind = schema["type"]
        if "logicalType" in schema and is_logical(schema):
            return {"type": _CONNECT[kind], "optional": False, **_logical(schema)}
        if kind == "record":
            return self._record(schema, at)
        if kind == "enum":
            found: dict[str, Any] = {
                "type": "string",
                "name": ENUM_TYPE,
                "version": 1,
                "parameters": {"allowed": ",".join(schema["symbols"])},
            }
        elif kind == "array":
            found = {"type": "array", "items": self.of(schema["items"], at=f"{at}[]")}
        elif kind == "map":
            found = {"type": "map", "keys": {"type": "string", "optional": False}, "values": self.of(schema["values"], at=f"{at}[]")}
        else:
            found = self._by_name(kind, at) if kind != "fixed" else {"type": "bytes"}
            if "connect.name" in schema:
                found = {**found, "name": schema["connect.name"], "version": schema.get("connect.version", 1)}
        found = {"optional": False, **found}
        if "name" in schema:
            self._named[schema["name"]] = found
        return found

    def _by_name(self, name: str, at: str) -> dict[str, Any]:
        if name in _CONNECT:
            return {"type": _CONNECT[name], "optional": False}
        found = self._named.get(name)
        if found is None:
            why = "null alone" if name == "null" else f"a record that holds itself ({name})"
            raise InvalidArgument(why=f"{at}: Kafka Connect has no type for {why}; the encoding avro has")
        return found

    def _union(self, branches: list[Any], at: str) -> dict[str, Any]:
        others = [branch for branch in branches if branch != "null"]
        if len(others) != 1:
            raise InvalidArgument(why=f"{at}: Kafka Connect has no union of several types; the encoding avro has")
        return {**self.of(others[0], at=at), "optional": len(branches) > 1}

    def _record(self, schema: dict[str, Any], at: str) -> dict[str, Any]:
        name = schema["name"]
        self._named[name] = None
        fields = [{**self.of(one["type"], at=f"{at}.{one['name']}"), "field": one["name"]} for one in schema["fields"]]
        found = self._named[name] = {"type": "struct", "fields": fields, "optional": False, "name": name}
        return found


def _logical(schema: dict[str, Any]) -> dict[str, Any]:
    if schema["logicalType"] != "decimal":
        return {"name": _CONNECT_LOGICAL[schema["logicalType"]], "version": 1}
    digits = {"scale": str(schema.get("scale", 0)), "connect.decimal.precision": str(schema["precision"])}
    return {"name": "org.apache.kafka.connect.data.Decimal", "version": 1, "parameters": digits}


# ---------------------------------------------------------------- JSON Schema


_TEXT_FORMATS: Final = {
    "date": {"type": "int", "logicalType": "date"},
    "uuid": {"type": "string", "logicalType": "uuid"},
    # these have a zone, and as many digits as somebody wrote: text keeps both
    "date-time": {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp", "connect.version": 1},
    "time": {"type": "string", "connect.name": "io.debezium.time.ZonedTime", "connect.version": 1},
}
_SCALARS: Final = {"integer": "long", "number": "double", "boolean": "boolean"}


def avro_of_json_schema(schema: Any, *, name: str = "Value") -> Any:
    """Return an Avro schema for what a JSON Schema declares; `name` is that of its outermost record.

    A property that is not required may be null. One that a value has and the schema does not list has no place in a row: such a value does
    not fit, whatever `additionalProperties` says.

    Raises:
        InvalidArgument: it is no JSON Schema, or says of a place less than a type, or more than one; says where.
    """
    return _of_node(read_json_schema(json.dumps(schema)).top, name=name, at="#", outer=())


def _of_node(node: SchemaNode, *, name: str, at: str, outer: tuple[int, ...]) -> Any:
    tree = node.tree
    if not isinstance(tree, dict):
        raise _no_type(at, "says nothing of a type")
    if id(tree) in outer:
        raise _no_type(at, "is within itself")
    outer = (*outer, id(tree))
    if node.target is not None:
        return _of_node(node.target, name=name, at=at, outer=outer)
    for choice in ("anyOf", "oneOf"):
        if choice in tree:
            found = [_of_node(node.below(one), name=name, at=f"{at}/{choice}", outer=outer) for one in tree[choice] if not _is_null(one)]
            if len(found) != 1:
                raise _no_type(at, f"has {len(found)} types under {choice}")
            return _nullable(found[0]) if len(tree[choice]) > 1 else found[0]
    kinds = tree.get("type", "object" if "properties" in tree else [])
    listed = [kinds] if isinstance(kinds, str) else list(kinds)
    others = [kind for kind in listed if kind != "null"]
    if len(others) != 1:
        raise _no_type(at, f"has {len(others)} types besides null")
    made = _of_kind(node, others[0], name=name, at=at, outer=outer)
    return made if len(listed) == 1 else _nullable(made)


def _of_kind(node: SchemaNode, kind: str, *, name: str, at: str, outer: tuple[int, ...]) -> Any:
    tree = node.tree
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind == "string":
        return _TEXT_FORMATS.get(tree.get("format", ""), "string")
    if kind == "array":
        if not isinstance(tree.get("items"), dict):
            raise _no_type(at, "is an array of items without a type")
        return {"type": "array", "items": _of_node(node.below(tree["items"]), name=f"{name}_item", at=f"{at}/items", outer=outer)}
    if tree.get("properties"):
        return {"type": "record", "name": name, "fields": list(_fields(node, name=name, at=at, outer=outer))}
    if isinstance(tree.get("additionalProperties"), dict):
        values = node.below(tree["additionalProperties"])
        return {"type": "map", "values": _of_node(values, name=f"{name}_value", at=f"{at}/additionalProperties", outer=outer)}
    raise _no_type(at, "is an object of which no property is declared")


def _fields(node: SchemaNode, *, name: str, at: str, outer: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    required = node.tree.get("required", ())
    for field, inner in node.tree["properties"].items():
        made = _of_node(node.below(inner), name=f"{name}_{field}", at=f"{at}/properties/{field}", outer=outer)
        yield {"name": field, "type": made} if field in required else {"name": field, "type": _nullable(made), "default": None}


def _is_null(tree: Any) -> bool:
    return isinstance(tree, dict) and tree.get("type") == "null"


def _nullable(made: Any) -> list[Any]:
    return made if isinstance(made, list) else ["null", made]


def _no_type(at: str, why: str) -> InvalidArgument:
    return InvalidArgument(why=f"rows cannot be made of this JSON Schema: {at[:200]} {why}")
