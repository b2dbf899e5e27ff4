"""Values of an Avro cache: encoded from what callers hold, decoded to Python's own, to JSON and to columns of Arrow.

Imported when a cache is Avro: fastavro takes longer to load than many a program runs.
"""

from collections.abc import Sequence
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import fastavro

from eventlog.errors import UnreadableValue
from eventlog.predicate.avro import avro_json
from eventlog.schema.avro import AvroSchema
from eventlog.schema.avro_fit import Fitting
from eventlog.schema.avro_values import AvroReader
from eventlog.schema.strict_json import Misfit

if TYPE_CHECKING:
    from eventlog.client.avro_columns import AvroColumns


class AvroFormat:
    """How one schema encodes and decodes."""

    is_json: Final = False

    def __init__(self, schema: str) -> None:
        """Take a schema as JSON.

        Raises:
            InvalidArgument: it is no Avro schema.
        """
        known = AvroSchema(schema)
        self._plain = known.parsed
        self._takes_bytes = known.takes_bytes
        self._typed = known.typed
        self._reader = AvroReader(known)
        self._fit = Fitting(self._typed).fit
        self.is_bytes = _may_be_bytes(self._typed)  # then bytes are a value, and not one that is encoded already

    @property
    def fields(self) -> frozenset[str] | None:
        """The names of a record's fields, None where values are no records."""
        return (
            frozenset(field["name"] for field in self._plain["fields"])
            if isinstance(self._plain, dict) and "fields" in self._plain
            else None
        )

    @property
    def types(self) -> dict[str, Any]:
        """The types of a record's fields, as the schema has them, names looked up nowhere; empty where values are no records."""
        return {field["name"]: field["type"] for field in self._typed["fields"]} if self.fields is not None else {}

    def encode(self, value: Any) -> bytes:
        """Return a value as it is stored.

        Raises:
            Misfit: the schema does not take it.
        """
        try:
            fitting = self._fit(value)
        except RecursionError as error:
            raise Misfit("nested too deep, or holds itself") from error
        buffer = BytesIO()
        fastavro.schemaless_writer(buffer, self._plain, fitting)
        return buffer.getvalue()

    def decode(self, data: bytes) -> Any:
        """Return what a stored value stands for: dates, times, decimals and UUIDs as Python's own.

        No bytes are None where no value has none: the dead letter of a removal.

        Raises:
            UnreadableValue: it was not written with this schema.
        """
        return None if not data and self._takes_bytes else self._reader.read(data)

    def decode_all(self, values: Sequence[bytes | None]) -> list[Any]:
        """Return what each of many values stands for, None for None. Raises UnreadableValue as `decode`, of the first that is."""
        return self._reader.read_all([value or None for value in values] if self._takes_bytes else values)

    def json(self, data: bytes) -> bytes:
        """Return a stored value as JSON, from which `encode` makes the same value again.

        Raises:
            UnreadableValue: it was not written with this schema.
        """
        try:
            return avro_json(self.decode(data))
        except TypeError:  # a recursive schema has no bound on depth, orjson has one
            return b"null"

    def checked(self, data: bytes) -> bytes:
        """Return bytes that are encoded already.

        Raises:
            Misfit: not with this schema.
        """
        try:
            self._reader.check(data)
        except UnreadableValue as error:
            raise Misfit(f"bytes that are not of the cache's Avro schema ({error.why})") from error
        return data

    # ------------------------------------------------------------ columns

    @cached_property
    def columns(self) -> "AvroColumns":
        """Columns of values; the first use loads pyarrow."""
        from eventlog.client.avro_columns import AvroColumns  # noqa: PLC0415 -- most programs never need pyarrow, and it is slow to load

        return AvroColumns(self._typed)

    @property
    def type(self) -> Any:
        """The `pyarrow.DataType` of a column of values."""
        return self.columns.type

    def array(self, values: Sequence[bytes | None]) -> Any:
        """Return stored values as a `pyarrow.Array` of the schema's type, null where one is None.

        Raises:
            UnreadableValue: one was not written with this schema.
        """
        return self.columns.array(self.decode_all(values))


def _may_be_bytes(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(map(_may_be_bytes, schema))
    kind = schema["type"] if isinstance(schema, dict) else schema
    return kind in {"bytes", "fixed"} if isinstance(kind, str) else _may_be_bytes(kind)
