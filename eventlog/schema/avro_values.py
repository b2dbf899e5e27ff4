"""Values of a schema that has grown, or will have: fields with a default are appended to its record, and nothing else changes.

A record is stored as one field after the other, without their number. So a value that was written before a field was appended ends where
that field would begin, and its default stands for it; what was written with a newer schema goes on behind the last field that is known,
and that is passed over. No reader has to know which schema a value was written with.
"""

import json
import struct
from collections.abc import Sequence
from functools import cached_property
from io import BytesIO
from typing import Any, Final

import fastavro
from fastavro import _read_py

from eventlog.errors import InvalidArgument, UnreadableValue
from eventlog.schema.avro import AvroSchema, can_grow, first_optional
from eventlog.schema.avro_fit import Fitting
from eventlog.schema.avro_types import read_avro

# What fastavro raises on bytes that are not of the schema.
UNREADABLE: Final = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error, RecursionError)


class AvroReader:
    """Reads values with one schema, whichever of its versions they were written with.

    Dates, times, decimals and UUIDs are Python's own if `with_logical`, else numbers, bytes and text as they are stored.
    """

    def __init__(self, schema: AvroSchema, *, with_logical: bool = True) -> None:
        self._schema = schema
        self._can_grow = can_grow(schema)
        self._writer = schema.typed if with_logical else schema.parsed
        # The reader in Python is slow, and stops at the interpreter's bound on recursion; the compiled one goes on to the end of the stack.
        self._read = _read_py.schemaless_reader if schema.is_recursive else fastavro.schemaless_reader

    def read(self, data: bytes) -> Any:
        """Return what a value stands for.

        Raises:
            UnreadableValue: it was not written with this schema, nor with one that it has grown from or may grow to.
        """
        return self.read_whole(data)[0]

    def read_whole(self, data: bytes) -> tuple[Any, bytes, int]:
        """Return what a value stands for, the value with the fields that it lacks, and how many bytes of that were read.

        Raises:
            UnreadableValue: as `read`.
        """
        buffer = BytesIO(data)
        try:
            found = self._read(buffer, self._writer, None)
        except UNREADABLE as error:
            data = self._completed(data, error)
            buffer = BytesIO(data)
            found = self._read_again(buffer, None)
        if buffer.tell() < len(data) and not self._can_grow:
            raise _left_over(data, buffer.tell())
        return found, data, buffer.tell()

    def read_all(self, values: Sequence[bytes | None]) -> list[Any]:
        """Return what each value stands for, None for None: the same in one loop, for columns.

        Raises:
            UnreadableValue: as `read`, of the first that is.
        """
        read, writer = self._read, self._writer
        found: list[Any] = []
        for data in values:
            if data is None:
                found.append(None)
                continue
            buffer = BytesIO(data)
            try:
                one = read(buffer, writer, None)
            except UNREADABLE:
                one = self.read(data)
            else:
                if buffer.tell() < len(data) and not self._can_grow:
                    raise _left_over(data, buffer.tell())
            found.append(one)
        return found

    def read_some(self, data: bytes, reader: Any) -> Any:
        """Return what `reader`, which is this schema with less fields, says of a value.

        Raises:
            UnreadableValue: as `read`.
        """
        try:
            return self._read(BytesIO(data), self._writer, reader)
        except UNREADABLE as error:
            return self._read_again(BytesIO(self._completed(data, error)), reader)

    def _read_again(self, buffer: BytesIO, reader: Any) -> Any:
        """Read a value whose fields are all there now; one of them may still be a time that there is not."""
        try:
            return self._read(buffer, self._writer, reader)
        except UNREADABLE as error:
            raise _unreadable(error) from error

    def check(self, data: bytes) -> None:
        """Return if a value may be written: nothing is behind it.

        Raises:
            UnreadableValue: it was written with another schema.
        """
        _, whole, size = self.read_whole(data)
        if size < len(whole):
            raise _left_over(whole, size)

    def _completed(self, data: bytes, error: Exception) -> bytes:
        whole = self._short.completed(data)
        if whole is None:
            raise _unreadable(error) from error
        return whole

    @cached_property
    def _short(self) -> "_ShortValues":
        return _ShortValues(self._schema)


def _unreadable(error: Exception) -> UnreadableValue:
    return UnreadableValue(why=f"{type(error).__name__} {error}".strip()[:200])


def _left_over(data: bytes, size: int) -> UnreadableValue:
    return UnreadableValue(why=f"{len(data) - size} of {len(data)} bytes are left over")


class _ShortValues:
    """Values that end where a field with a default begins."""

    def __init__(self, schema: AvroSchema) -> None:
        fields = schema.plain["fields"] if can_grow(schema) else []
        first = first_optional(fields)
        self._needed = fastavro.parse_schema({**schema.plain, "fields": fields[:first]}) if first < len(fields) else None
        self._optional: list[tuple[Any, bytes]] = []
        if self._needed is not None:
            try:
                self._optional = _each_alone(schema, first)
            except InvalidArgument:  # stricter than what caches take: none has grown to it
                self._needed = None

    def completed(self, data: bytes) -> bytes | None:
        """Return a value with the defaults of the fields that it lacks; None where it ends elsewhere than before a field that has one."""
        if self._needed is None or not data:
            return None
        buffer = BytesIO(data)
        try:
            fastavro.schemaless_reader(buffer, self._needed, None)
            for index, (field, _) in enumerate(self._optional):
                if buffer.tell() == len(data):
                    return data + b"".join(default for _, default in self._optional[index:])
                fastavro.schemaless_reader(buffer, field, None)
        except UNREADABLE:
            return None
        return None


def _each_alone(schema: AvroSchema, first: int) -> list[tuple[Any, bytes]]:
    """Return for each field from `first` on a record of nothing else, and its default as it is stored."""
    types = read_avro(json.dumps(schema.with_logical))
    found = []
    for field in types.fields_alone()[first:]:
        alone = AvroSchema(json.dumps({"type": "record", "name": types.root, "fields": [field]}))
        buffer = BytesIO()
        fastavro.schemaless_writer(buffer, alone.parsed, Fitting(alone.typed).fit({}))
        found.append((alone.parsed, buffer.getvalue()))
    return found


def why_not_grown(old: AvroSchema, new: AvroSchema) -> str:
    """Return why values that were written with `old` cannot be read with `new`, or the other way round; empty if all can.

    Raises:
        InvalidArgument: `new` is no schema; a default is not of its field's type.
    """
    if not can_grow(old) or not can_grow(new):
        return "" if old.canonical == new.canonical else "only a record that does not stand in itself can be given another schema"
    before, after = old.plain["fields"], new.plain["fields"]
    names = [field["name"] for field in before]
    if names != [field["name"] for field in after[: len(before)]]:
        return f"the fields {', '.join(names)} stay, in this order, and others follow them"
    kept = AvroSchema(json.dumps({**new.with_logical, "fields": new.with_logical["fields"][: len(before)]}))
    if kept.canonical != old.canonical:
        return "the fields that there are keep their types, and the record its name"
    for index in range(first_optional(before), len(before)):
        if after[index].get("default", _NONE) != before[index]["default"]:
            return f"the default of {names[index]} stays: it is what values say that were written before the field was there"
    for field in after[len(before) :]:
        if "default" not in field:
            return f"the new field {field['name']} has no default, which would stand for it in the values that there are"
    read_avro(json.dumps(new.with_logical))
    return ""


_NONE: Final = object()
