"""Avro schemas of caches: checked before anything is decoded with them.

fastavro's compiled reader counts neither how deep it is nor how many items a value makes: a chain of records as long as a value
overflows the stack of the process, and five bytes claim three million items that take no bytes. `avro_types` reads schemas more strictly,
for comparing them.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException, UnknownType, to_parsing_canonical_form

from eventlog.errors import InvalidArgument
from eventlog.schema.reading import read_schema_json

PRIMITIVE_TYPES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


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
        given = self._given = read_schema_json(text, what="an Avro schema")
        self.plain = _plain(given)
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
        return _plain(self._given, keeps=is_logical)

    @property
    def typed(self) -> Any:
        """The same as fastavro takes it."""
        return fastavro.parse_schema(self.with_logical)

    @property
    def canonical(self) -> str:
        """What it says of how values lie in bytes, and of what they mean: without docs, defaults and aliases."""
        return f"{to_parsing_canonical_form(self.parsed)} {self.logical}"


def can_grow(schema: AvroSchema) -> bool:
    """Return whether fields may be appended to what a schema is: a record, and not one that stands in itself, where others follow it."""
    return isinstance(schema.plain, dict) and schema.plain.get("type") in {"record", "error"} and not schema.is_recursive


def first_optional(fields: list[Mapping[str, Any]]) -> int:
    """Return the index of the field from which on every field has a default."""
    first = len(fields)
    while first and "default" in fields[first - 1]:
        first -= 1
    return first


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


def _logical(schema: Any) -> Iterator[tuple[Any, ...]]:
    """Yield what the JSON of a schema says of logical types, in its order."""
    if isinstance(schema, dict):
        if "logicalType" in schema:
            yield tuple(schema.get(name) for name in ("logicalType", "precision", "scale"))
        schema = list(schema.values())
    if isinstance(schema, list):
        for inner in schema:
            yield from _logical(inner)


def _plain(schema: Any, *, keeps: Callable[[dict[str, Any]], bool] | None = None) -> Any:
    """Return the JSON of a schema without what fastavro marks its own with, and without logical types but those that `keeps` wants."""
    if isinstance(schema, list):
        return [_plain(one, keeps=keeps) for one in schema]
    if isinstance(schema, dict):
        has_logical = "logicalType" in schema and keeps is not None and keeps(schema)
        left_out = set() if has_logical else {"logicalType"}
        return {name: _plain(inner, keeps=keeps) for name, inner in schema.items() if name not in left_out and not name.startswith("__")}
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
    return base == "bytes" or (type(size) is int and precision * _BITS_PER_DIGIT[0] <= (8 * size - 1) * _BITS_PER_DIGIT[1])


_BITS_PER_DIGIT = (33_219_280_948_873_623_478_703_194_294_894, 10**31)  # log2(10) as a fraction: a schema may name any number of digits
