"""JSON and decoded values as typed columns of Arrow: the type that a caller names, or that the first values have, and all held to it.

A value that does not fit is never null: it is refused, with its place. Imported when it is needed, as it needs pyarrow.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Meta

from eventlog.errors import InvalidArgument

INFER: Final = "infer"
_FLOAT32_MAX: Final = float(np.finfo(np.float32).max)
_PLAIN: Final = (
    "bool, int8 to int64, float32, float64, string, binary, decimal128, decimal256, date32, time32, time64, timestamp, duration, "
    "list, map of string, struct"
)


class Unfit(Exception):
    """Row `row` is not of the type, at `place`, as `value.a`."""

    def __init__(self, row: int, place: str, why: str) -> None:
        super().__init__(f"{place}: {why}")
        self.row = row
        self.place = place
        self.why = why


def value_type(given: Any) -> Any:
    """Return the type that a `value_schema` says values have: that of a `pyarrow.Schema` is a struct. None and `infer` stay.

    Raises:
        InvalidArgument: something else.
    """
    if isinstance(given, pa.Schema):
        return pa.struct(list(given))
    if given is None or given == INFER or isinstance(given, pa.DataType):
        return given
    raise InvalidArgument(why=f"value_schema is {given!r:.60}: give a pyarrow.Schema or type, or {INFER!r}")


def inferred(values: Sequence[bytes]) -> pa.DataType:
    """Return the type that JSON values have in common; a field that is null in all of them is of type null.

    Raises:
        InvalidArgument: they have none.
    """
    try:
        return pa.array([msgspec.json.decode(value) for value in values]).type
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InvalidArgument(why=f"the first values have no type in common: {error}; name one with value_schema") from error


class TypedJson:
    """How JSON is read as a column of one type. It `passes_over` fields that the type does not have, or refuses them."""

    def __init__(self, kind: pa.DataType, *, passes_over: bool = False) -> None:
        """Take a type.

        Raises:
            InvalidArgument: it has something in it that JSON is not read as; it is named with its place.
        """
        self.type = kind
        read: Any = _Reads(_SIMPLE, passes_over=passes_over).type(kind, "value") | None
        self._one = msgspec.json.Decoder(read).decode
        self._all = msgspec.json.Decoder(list[read]).decode

    def array(self, values: Sequence[bytes | None]) -> Any:
        """Return JSON values as a `pyarrow.Array`, null where one is None or JSON's null.

        Raises:
            Unfit: one is not of the type; the first of them is told.
        """
        try:
            return self.read(values)
        except (msgspec.MsgspecError, Unfit):
            for row, value in enumerate(values):
                self._check(row, value)
            raise

    def read(self, values: Sequence[bytes | None]) -> Any:
        """Return the same. Raises Unfit or `msgspec.MsgspecError` without saying which of them is not of the type."""
        rows = self._all(b"[" + b",".join([b"null" if value is None else value for value in values]) + b"]")
        return _array(self.type, rows, "value")

    def _check(self, row: int, value: bytes | None) -> None:
        try:
            _array(self.type, [None if value is None else self._one(value)], "value")
        except Unfit as error:
            raise Unfit(row, error.place, error.why) from None
        except msgspec.MsgspecError as error:
            why, _, place = str(error).partition(" - at `$")
            raise Unfit(row, "value" + place.rstrip("`"), why.replace("`", "")) from None


class TypedObjects:
    """How decoded objects are read as a column of one type, as JSON is; times, decimals and bytes may be Python's own already.

    Fields that the type does not have are passed over, and floats may be no numbers or without an end.
    """

    def __init__(self, kind: pa.DataType) -> None:
        """Take a type. Raises InvalidArgument as for JSON."""
        self.type = kind
        read: Any = _Reads(_SIMPLE | {pa.float32(): float}, passes_over=True).type(kind, "value") | None
        self._all: Any = list[read]

    def read(self, objects: Sequence[Any]) -> Any:
        """Return objects as a `pyarrow.Array`. Raises Unfit or `msgspec.MsgspecError` without saying which of them is not of the type."""
        return _array(self.type, msgspec.convert(objects, self._all), "value")


# ---------------------------------------------------------------- what JSON is read as


class _Reads:
    """What msgspec reads an item as."""

    def __init__(self, simple: Mapping[pa.DataType, Any], *, passes_over: bool) -> None:
        self._simple = simple
        self._passes_over = passes_over

    def type(self, kind: pa.DataType, place: str) -> Any:
        """Return it for a type. Raises InvalidArgument: it has none."""
        types = pa.types
        if kind in self._simple:
            return self._simple[kind]
        if types.is_struct(kind):
            return self._struct(kind, place)
        if types.is_list(kind):
            return list[self.type(kind.value_type, f"{place}[]") | None]  # type: ignore[misc]  # made of the caller's type
        if types.is_map(kind) and kind.key_type == pa.string():
            return dict[str, self.type(kind.item_type, f"{place}.*") | None]  # type: ignore[misc]  # as above
        for matches, read in _FAMILIES:
            if matches(kind):
                return read
        if types.is_timestamp(kind):
            return Annotated[datetime, Meta(tz=kind.tz is not None)]
        raise InvalidArgument(why=f"value_schema has {kind} at {place}, which JSON is not read as: use plain types ({_PLAIN})")

    def _struct(self, kind: pa.StructType, place: str) -> Any:
        """Return a class whose attributes f0, f1, ... are the fields: their names may be any text that JSON does not escape."""
        if len({field.name for field in kind}) < kind.num_fields:
            raise InvalidArgument(why=f"value_schema has several fields of one name at {place}")
        fields: list[Any] = []
        for number, field in enumerate(kind):
            read = self.type(field.type, f"{place}.{field.name}")
            fields.append((f"f{number}", read | None, None) if field.nullable else (f"f{number}", read))
        names = {f"f{number}": field.name for number, field in enumerate(kind)}
        try:
            return msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=not self._passes_over, kw_only=True, gc=False)
        except ValueError as error:  # a name with a quote, a backslash or a control character
            raise InvalidArgument(why=f"value_schema has a field at {place} that cannot be read: {error}") from error


def _whole(bits: int) -> Any:
    return Annotated[int, Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)]


_SIMPLE: Final[dict[pa.DataType, Any]] = {
    pa.null(): type(None),
    pa.bool_(): bool,
    pa.int8(): _whole(8),
    pa.int16(): _whole(16),
    pa.int32(): _whole(32),
    pa.int64(): _whole(64),
    pa.float32(): Annotated[float, Meta(ge=-_FLOAT32_MAX, le=_FLOAT32_MAX)],
    pa.float64(): float,
    pa.string(): str,
    pa.binary(): bytes,
    pa.date32(): date,
}
_FAMILIES: Final[tuple[tuple[Callable[[pa.DataType], bool], Any], ...]] = (
    (pa.types.is_decimal, Decimal),
    (pa.types.is_time, time),
    (pa.types.is_duration, timedelta),
)


# ---------------------------------------------------------------- columns


def _array(kind: pa.DataType, items: list[Any], place: str) -> Any:
    """Return what was read as an array, column by column."""
    if pa.types.is_struct(kind):
        return _structs(kind, items, place)
    if pa.types.is_list(kind):
        offsets, mask = _lengths(items)
        inner = _array(kind.value_type, list(chain.from_iterable(item for item in items if item is not None)), f"{place}[]")
        return pa.ListArray.from_arrays(offsets, inner, type=kind, mask=mask)
    if pa.types.is_map(kind):
        offsets, mask = _lengths(items)
        rows = [item for item in items if item is not None]
        names = pa.array(list(chain.from_iterable(rows)), pa.string())
        inner = _array(kind.item_type, list(chain.from_iterable(row.values() for row in rows)), f"{place}.*")
        return pa.MapArray.from_arrays(offsets, names, inner, type=kind, mask=mask)
    try:
        return pa.array(items, _wide(kind)).cast(kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise Unfit(0, place, str(error)) from error


def _structs(kind: pa.StructType, items: list[Any], place: str) -> Any:
    is_null = [item is None for item in items]
    mask = pa.array(is_null) if any(is_null) else None
    columns = []
    for number, field in enumerate(kind):
        take = attrgetter(f"f{number}")
        column = list(map(take, items)) if mask is None else [None if item is None else take(item) for item in items]
        columns.append(_array(field.type, column, f"{place}.{field.name}"))
    if not columns:
        return pa.array([None if missing else {} for missing in is_null], kind)
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


def _lengths(items: list[Any]) -> tuple[Any, Any]:
    """Return where the items of each list begin, and which lists are null; None where none is."""
    offsets = np.zeros(len(items) + 1, np.int32)
    np.cumsum([0 if item is None else len(item) for item in items], out=offsets[1:])
    is_null = [item is None for item in items]
    return pa.array(offsets), pa.array(is_null) if any(is_null) else None


def _wide(kind: pa.DataType) -> pa.DataType:
    """Return the type that takes every time of Python; the cast from there refuses what would be cut, which making an array does not."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time(kind):
        return pa.time64("us")
    return pa.duration("us") if pa.types.is_duration(kind) else kind
