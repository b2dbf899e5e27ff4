"""Fields of Avro values as they are stored: schemaless, written with the schema of their cache."""

import struct
from collections.abc import Iterable
from io import BytesIO
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from eventlog.batch.texts import Texts
from eventlog.errors import CorruptData
from eventlog.predicate.json_fields import walk_steps
from eventlog.predicate.tree import Step

Steps = tuple[Step, ...]
# What fastavro raises on bytes that are not of the schema.
UNREADABLE = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error, RecursionError)


class AvroValues:
    """Reads only the fields of the record that `paths` begin with; the reader skips the others."""

    __slots__ = ("_reader", "_writer")

    def __init__(self, schema: Any, paths: Iterable[Steps]) -> None:
        """Take the cache's schema as parsed JSON.

        Raises:
            CorruptData: it is no Avro schema; a cache is not created with such a one.
        """
        plain = without_logical_types(schema)
        try:
            self._writer = fastavro.parse_schema(plain)
        except (SchemaParseException, UnknownType, KeyError, TypeError) as error:
            raise CorruptData(where="the schema of a cache", why=f"it is no Avro schema: {error}") from error
        self._reader = _narrowed(plain, {path[0] for path in paths if path}, is_whole=any(not path for path in paths))

    def decode(self, texts: Texts) -> list[Any]:
        return [self._decode_one(text) if text else None for text in texts.to_list()]

    def values(self, objects: list[Any], path: Steps) -> list[Any]:
        return [walk_steps(one, path) for one in objects]

    def _decode_one(self, text: bytes) -> Any:
        try:
            return fastavro.schemaless_reader(BytesIO(text), self._writer, self._reader)
        except UNREADABLE:
            return None


def without_logical_types(schema: Any) -> Any:
    """Return a schema whose numbers are numbers: a predicate compares a timestamp as the number that is stored."""
    if isinstance(schema, list):
        return [without_logical_types(one) for one in schema]
    if isinstance(schema, dict):
        return {name: without_logical_types(inner) for name, inner in schema.items() if name != "logicalType"}
    return schema


def _narrowed(schema: Any, names: set[Step], *, is_whole: bool) -> Any:
    """Return a record's schema with some fields only; None to read all, where it is no record or the rest cannot stand alone."""
    if is_whole or not isinstance(schema, dict) or schema.get("type") != "record":
        return None
    kept = [field for field in schema["fields"] if field["name"] in names]
    try:
        return fastavro.parse_schema({**schema, "fields": kept})
    except (SchemaParseException, UnknownType):  # a kept field names a type that another one defines
        return None
