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

from eventlog.batch.arrow_pieces import take_pieces
from eventlog.batch.views import Strings
from eventlog.client.reading.batches import ArrowRows, items_of
from eventlog.client.writing.arrow import string_array
from eventlog.errors import CorruptData, InvalidArgument
from eventlog.events import CHANGE_NAMES, KIND_NAMES, Kind, ValueFormat
from eventlog.ids import EPOCH_MS, TIME_SHIFT

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

OPTIONAL: Final = ("before", "headers")
TIME: Final = pa.timestamp("us", "UTC")
HEADERS: Final = pa.map_(pa.string(), pa.binary())
_KINDS: Final = pa.array(KIND_NAMES, pa.string())
_CHANGES: Final = pa.array(CHANGE_NAMES, pa.string())
_HEADER_HEAD_BYTES: Final = 6


class FrameForm(NamedTuple):
    """What the rows of a read are: text or bytes as keys; values of `values`, JSON, or bytes; whether of a continuous query."""

    text_keys: bool
    json_values: bool
    values: ValueFormat | None
    is_continuous: bool = False


class Frame:
    """Makes record batches of one schema."""

    def __init__(self, form: FrameForm, names: Sequence[str]) -> None:
        self._form = form
        types = self._types
        self.schema = pa.schema([(name, types[name]) for name in names])
        self._makers: tuple[Callable[[ArrowRows], Any], ...] = tuple(getattr(self, f"_{name}") for name in names)

    @cached_property
    def _types(self) -> dict[str, pa.DataType]:
        form = self._form
        value = form.values.type if form.values is not None else pa.string() if form.json_values else pa.binary()
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
        return types | {"change": pa.string()} if form.is_continuous else types

    def batch(self, rows: ArrowRows) -> pa.RecordBatch:
        """Return rows as a record batch; what needs no moving or decoding is the same memory.

        Raises:
            CorruptData: headers contradict their lengths.
            UnreadableValue: a value is not of the cache's schema.
        """
        return pa.RecordBatch.from_arrays([make(rows) for make in self._makers], schema=self.schema)

    def stream(self, batches: Iterable[Any]) -> pa.RecordBatchReader:
        """Return record batches of this frame as a reader, which has the Arrow C stream interface."""
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    # ------------------------------------------------------------ columns

    def _id(self, rows: ArrowRows) -> Any:
        return pa.array(rows.ids)

    def _time(self, rows: ArrowRows) -> Any:
        times = rows.ids >> TIME_SHIFT
        times += EPOCH_MS
        times *= 1000
        return pa.Array.from_buffers(TIME, len(times), [None, pa.py_buffer(times)])

    def _segment(self, rows: ArrowRows) -> Any:
        return pa.array(rows.segments.astype(np.int32))

    def _offset(self, rows: ArrowRows) -> Any:
        return pa.array(rows.offsets)

    def _kind(self, rows: ArrowRows) -> Any:
        return _KINDS.take(pa.array(rows.kinds))

    def _key(self, rows: ArrowRows) -> Any:
        return string_array(rows.keys, text=self._form.text_keys)

    def _value(self, rows: ArrowRows) -> Any:
        kinds = rows.kinds
        has_value = (kinds != Kind.REMOVED) & (kinds != Kind.EXPIRED)
        return self._values(rows.values, valid=None if has_value.all() else has_value)

    def _before(self, rows: ArrowRows) -> Any:
        before = rows.before
        if before is None:
            return pa.nulls(len(rows), self._types["before"])
        return self._values(before, valid=rows.has_before)

    def _headers(self, rows: ArrowRows) -> Any:
        return headers_array(rows.headers, count=len(rows))

    def _change(self, rows: ArrowRows) -> Any:
        return pa.nulls(len(rows), pa.string()) if rows.changes is None else _CHANGES.take(pa.array(rows.changes))

    def _values(self, values: Strings, *, valid: Mask | None) -> Any:
        if self._form.values is None:
            return string_array(values, text=self._form.json_values, valid=valid)
        return self._form.values.array(items_of(values, None, valid=valid)(0, len(values.offsets) - 1))


@lru_cache(maxsize=256)
def frame_of(form: FrameForm, include: tuple[str, ...] | None, columns: tuple[str, ...] | None) -> Frame:
    """Return the frame of a read: all columns, without those optional ones that `include` leaves out, or `columns`, in their order.

    Raises:
        InvalidArgument: a name that there is not, or both are given.
    """
    names = ("id", "time", "segment", "offset", "kind", "key", "value", *OPTIONAL, *(("change",) if form.is_continuous else ()))
    if columns is None:
        _check_names("include", include or (), OPTIONAL)
        return Frame(form, [name for name in names if include is None or name not in OPTIONAL or name in include])
    if include is not None:
        raise InvalidArgument(why="give include, which adds to the usual columns, or columns, which names all of them")
    _check_names("columns", columns, names)
    if not columns:
        raise InvalidArgument(why=f"columns is empty: choose of {', '.join(names)}")
    return Frame(form, columns)


def _check_names(option: str, given: tuple[str, ...], names: tuple[str, ...]) -> None:
    for name in given:
        if name not in names:
            raise InvalidArgument(why=f"{option} has {name!r}: choose of {', '.join(names)}")
        if given.count(name) > 1:
            raise InvalidArgument(why=f"{option} has {name!r} twice")


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
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)
