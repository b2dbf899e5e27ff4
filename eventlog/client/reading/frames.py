"""The table that a read is, in Arrow: one schema, the same for all of its batches, known before the first of them.

Imported when it is needed: loading pyarrow takes longer than many a program runs. How a value becomes an item of a column is said here for
bytes, JSON as text and Avro.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventlog.arrays import Ints, Mask
from eventlog.batch.arrow_pieces import take_pieces
from eventlog.batch.views import Strings
from eventlog.client.reading.columns import CHANGE, OPTIONAL, ROW_COLUMNS, FrameForm, RowColumns, check_names, items_of, listed
from eventlog.client.reading.typed import INFER, TypedJson, Unfit, inferred, value_type
from eventlog.client.writing.arrow import string_array
from eventlog.errors import BadValue, CorruptData, InvalidArgument, UnreadableValue
from eventlog.events import CHANGE_NAMES, KIND_NAMES, Kind
from eventlog.ids import EPOCH_MS, TIME_SHIFT

__all__ = ["INFER", "TableChoice", "TableMaker", "check_typed", "choice_of", "frame_of", "headers_array", "inferred"]


TIME: Final = pa.timestamp("us", "UTC")
HEADERS: Final = pa.map_(pa.string(), pa.binary())
_HEADER_HEAD_BYTES: Final = 6


class TableMaker:
    """Makes record batches of one schema."""

    def __init__(self, form: FrameForm, names: Sequence[str]) -> None:
        self._form = form
        self._typed = None if form.typed is None else TypedJson(form.typed)
        types = self._types
        self.schema = pa.schema([(name, types[name]) for name in names])
        self._makers: tuple[Callable[[RowColumns], Any], ...] = tuple(getattr(self, f"_{name}") for name in names)

    @cached_property
    def _types(self) -> dict[str, pa.DataType]:
        form = self._form
        value = form.typed or (form.values.type if form.values is not None else pa.string() if form.json_values else pa.binary())
        types = {
            "id": pa.int64(),
            "time": TIME,
            "segment": pa.int32(),
            "offset": pa.int64(),
            "kind": pa.string(),
            "key": pa.string() if form.text_keys else pa.binary(),
            "value": value,
            "before": value,
            "headers": HEADERS,
        }
        return types | {"change": pa.string()} if form.has_changes else types

    def batch(self, rows: RowColumns) -> pa.RecordBatch:
        """Return rows as a record batch; what needs no moving or decoding is the same memory.

        Raises:
            CorruptData: headers contradict their lengths.
            UnreadableValue: a value is not of the cache's schema; its key and id are said.
            BadValue: one is not of the `value_schema`; the key, the place in the value and the id are said.
        """
        return pa.RecordBatch.from_arrays([make(rows) for make in self._makers], schema=self.schema)

    def stream(self, batches: Iterable[Any]) -> pa.RecordBatchReader:
        """Return record batches of this frame as a reader, which has the Arrow C stream interface."""
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    # ------------------------------------------------------------ columns

    def _id(self, rows: RowColumns) -> Any:
        return pa.array(rows.ids)

    def _time(self, rows: RowColumns) -> Any:
        times = rows.ids >> TIME_SHIFT
        times += EPOCH_MS
        times *= 1000
        if rows.ids.all():
            return pa.Array.from_buffers(TIME, len(times), [None, pa.py_buffer(times)])
        return pa.array(times, pa.int64(), mask=rows.ids == 0).cast(TIME)  # entries of the past whose version retention has taken

    def _segment(self, rows: RowColumns) -> Any:
        return pa.array(rows.segments.astype(np.int32))

    def _offset(self, rows: RowColumns) -> Any:
        return pa.array(rows.offsets)

    def _kind(self, rows: RowColumns) -> Any:
        kinds = rows.kinds
        if len(kinds) and kinds.min() == kinds.max():  # as in a state or a log of new keys, for a quarter of the time
            return _same_text(KIND_NAMES[kinds[0]], len(kinds))
        return pa.array(KIND_NAMES, pa.string()).take(pa.array(kinds))

    def _key(self, rows: RowColumns) -> Any:
        return string_array(rows.keys, text=self._form.text_keys)

    def _value(self, rows: RowColumns) -> Any:
        kinds = rows.kinds
        has_value = (kinds != Kind.REMOVED) & (kinds != Kind.EXPIRED)
        return self._values(rows, "value", rows.values, valid=None if has_value.all() else has_value)

    def _before(self, rows: RowColumns) -> Any:
        before = rows.before
        if before is None:
            return pa.nulls(len(rows), self._types["before"])
        return self._values(rows, "before", before, valid=rows.has_before)

    def _headers(self, rows: RowColumns) -> Any:
        return headers_array(rows.headers, count=len(rows))

    def _change(self, rows: RowColumns) -> Any:
        return (
            pa.nulls(len(rows), pa.string()) if rows.changes is None else pa.array(CHANGE_NAMES, pa.string()).take(pa.array(rows.changes))
        )

    def _values(self, rows: RowColumns, name: str, values: Strings, *, valid: Mask | None) -> Any:
        form = self._form
        if self._typed is None and form.values is None:
            return string_array(values, text=form.json_values, valid=valid)
        items = items_of(values, None, valid=valid)(0, len(rows))
        try:
            if self._typed is not None:
                return self._typed.array(items)
            assert form.values is not None, "as above"
            return form.values.array(items)
        except Unfit as error:
            key, which = _named(rows, name, error.row, form)
            raise BadValue(key=key, why=f"{error} (of {which}); the value_schema is {form.typed}") from error
        except UnreadableValue as error:
            key, which = _named(rows, name, _first_unreadable(items, form), form)
            raise UnreadableValue(why=f"{error.why} ({which}, of key {key!r})") from error


def _named(rows: RowColumns, name: str, row: int, form: FrameForm) -> tuple[str, str]:
    """Return the key of a row, empty where keys were not asked for, and which of its values is meant."""
    has_keys = form.columns is None or "key" in form.columns
    key = rows.keys.to_list()[row].decode(errors="backslashreplace") if has_keys else ""
    return key, f"the {'value' if name == 'value' else 'before-image'} of event {rows.ids[row]}"


def _first_unreadable(items: list[bytes | None], form: FrameForm) -> int:
    assert form.values is not None, "it has refused one"
    for row, item in enumerate(items):
        try:
            if item is not None:
                form.values.decode(item)
        except UnreadableValue:
            return row
    raise AssertionError("a value that was refused is not refused")


class TableChoice(NamedTuple):
    """What a caller wants of a table."""

    include: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    typed: Any = None  # a type, or `INFER`


def choice_of(include: Sequence[str] | None, columns: Sequence[str] | None, value_schema: Any) -> TableChoice:
    """Return what a caller wants.

    Raises:
        InvalidArgument: names as one text, or a `value_schema` that is none.
    """
    return TableChoice(
        None if include is None else listed("include", include),
        None if columns is None else listed("columns", columns),
        value_type(value_schema),
    )


def frame_of(form: FrameForm, choice: TableChoice) -> TableMaker:
    """Return the frame of a read as it is wanted.

    Raises:
        InvalidArgument: a column that there is not, or a type of values that cannot be.
    """
    if choice.typed is None:
        return _frame(form, choice.include, choice.columns)
    if choice.typed == INFER:
        raise InvalidArgument(why="a type is inferred once for all batches of a read: use scan or scan_events with value_schema='infer'")
    check_typed(form)
    return _frame(form._replace(typed=choice.typed), choice.include, choice.columns)


def check_typed(form: FrameForm) -> None:
    """Refuse a `value_schema` where values have a type of their own.

    Raises:
        InvalidArgument: they have.
    """
    if not form.json_values:
        own = "bytes" if form.values is None else "Avro, which has a schema"
        raise InvalidArgument(why=f"value_schema is for JSON: values of this cache are {own}")


@lru_cache(maxsize=256)
def _frame(form: FrameForm, include: tuple[str, ...] | None, columns: tuple[str, ...] | None) -> TableMaker:
    """Return the frame of a read: all columns, without those optional ones that `include` leaves out, or `columns`, in their order.

    All are those that were asked for, where some were.

    Raises:
        InvalidArgument: a name that there is not, or both are given.
    """
    names = form.columns or (*ROW_COLUMNS, *((CHANGE,) if form.has_changes else ()))
    if columns is None:
        check_names("include", include or (), OPTIONAL)
        return TableMaker(form, [name for name in names if include is None or name not in OPTIONAL or name in include])
    if include is not None:
        raise InvalidArgument(why="give include, which adds to the usual columns, or columns, which names all of them")
    check_names("columns", columns, names)
    return TableMaker(form, columns)


def headers_array(headers: Strings | None, *, count: int) -> Any:
    """Return encoded headers of `count` events as maps of name to value, in order; none at all is an empty map.

    Raises:
        CorruptData: one ends in the middle, or a name is no text.
    """
    if headers is None or not len(headers.data):
        return _maps(np.zeros(count + 1, np.int32), pa.array([], pa.string()), pa.array([], pa.binary()))
    data = np.frombuffer(headers.data, np.uint8)
    ends = headers.offsets[1:].astype(np.int64)
    at = headers.offsets[:-1].astype(np.int64)
    found: list[tuple[Ints, ...]] = []
    rows = np.flatnonzero(at < ends)
    while len(rows):  # the first header of all events, then the second
        heads = at[rows]
        _check_within(heads + _HEADER_HEAD_BYTES, ends[rows])
        bytes_ = data[heads[:, None] + np.arange(_HEADER_HEAD_BYTES)].astype(np.int64)
        names = bytes_[:, 0] << 8 | bytes_[:, 1]
        values = bytes_[:, 2] << 24 | bytes_[:, 3] << 16 | bytes_[:, 4] << 8 | bytes_[:, 5]
        heads += _HEADER_HEAD_BYTES
        at[rows] = heads + names + values
        _check_within(at[rows], ends[rows])
        found.append((rows, heads, names, heads + names, values))
        rows = rows[at[rows] < ends[rows]]
    of, *pieces = map(np.concatenate, zip(*found, strict=True))
    order = of.argsort(kind="stable")
    name_starts, name_sizes, value_starts, value_sizes = [column[order] for column in pieces]
    offsets = np.zeros(count + 1, np.int32)
    np.bincount(of, minlength=count).cumsum(out=offsets[1:])
    whole = bytes(headers.data)
    names_array = string_array(_cut(whole, name_starts, name_sizes), text=True)
    try:
        names_array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptData(where="headers", why=str(error)) from error
    return _maps(offsets, names_array, string_array(_cut(whole, value_starts, value_sizes)))


def _check_within(reached: Ints, ends: Ints) -> None:
    if (reached > ends).any():
        raise CorruptData(where="headers", why="they end in the middle")


def _cut(data: bytes, starts: Ints, sizes: Ints) -> Strings:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    sizes.cumsum(out=offsets[1:])
    return Strings(offsets, memoryview(take_pieces(data, starts, sizes)))


def _maps(offsets: npt.NDArray[np.int32], names: Any, values: Any) -> Any:
    items = pa.StructArray.from_arrays([names, values], fields=[HEADERS.key_field, HEADERS.item_field])
    return pa.Array.from_buffers(HEADERS, len(offsets) - 1, [None, pa.py_buffer(offsets)], children=[items])


def _same_text(text: str, count: int) -> Any:
    offsets = np.arange(count + 1, dtype=np.int32) * len(text)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text.encode() * count)])
