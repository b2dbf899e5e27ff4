"""Fields of Avro values as they are stored: schemaless, written with the schema of their cache."""

import struct
from collections.abc import Iterable
from io import BytesIO
from typing import Any

import fastavro
from fastavro import _read_py
from fastavro.schema import SchemaParseException, UnknownType

from eventlog.batch.texts import Texts
from eventlog.predicate.avro_schema import AvroSchema
from eventlog.predicate.json_fields import walk_steps
from eventlog.predicate.tree import Step

Steps = tuple[Step, ...]
# What fastavro raises on bytes that are not of the schema.
UNREADABLE = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error, RecursionError)


class AvroValues:
    """Reads only the fields of the record that `paths` begin with; the reader skips the others."""

    __slots__ = ("_read", "_reader", "_writer")

    def __init__(self, schema: AvroSchema, paths: Iterable[Steps]) -> None:
        # The reader in Python is slow, and stops at the interpreter's bound on recursion; the compiled one goes on to the end of the stack.
        self._read = _read_py.schemaless_reader if schema.is_recursive else fastavro.schemaless_reader
        self._writer = schema.parsed
        self._reader = _narrowed(schema.plain, {path[0] for path in paths if path}, is_whole=any(not path for path in paths))

    def decode(self, texts: Texts) -> list[Any]:
        return [self._decode_one(text) if text else None for text in texts.to_list()]

    def values(self, objects: list[Any], path: Steps) -> list[Any]:
        return [walk_steps(one, path) for one in objects]

    def _decode_one(self, text: bytes) -> Any:
        try:
            return self._read(BytesIO(text), self._writer, self._reader)
        except UNREADABLE:
            return None


def _narrowed(schema: Any, names: set[Step], *, is_whole: bool) -> Any:
    """Return a record's schema with some fields only; None to read all, where it is no record or the rest cannot stand alone."""
    if is_whole or not isinstance(schema, dict) or schema.get("type") != "record":
        return None
    kept = [field for field in schema["fields"] if field["name"] in names]
    try:
        return fastavro.parse_schema({**schema, "fields": kept})
    except (SchemaParseException, UnknownType):  # a kept field names a type that another one defines
        return None
