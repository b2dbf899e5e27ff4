"""Columns of events through pyarrow. Imported when it is needed: loading pyarrow takes longer than many a program runs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventlog.arrays import Ints
from eventlog.batch.views import Strings
from eventlog.errors import InvalidArgument

_NANOSECONDS = {pa.duration("ns"): pa.duration("us"), pa.time64("ns"): pa.time64("us")}


def string_array(strings: Strings, *, text: bool = False, valid: npt.NDArray[np.bool_] | None = None) -> Any:
    """Return a column as an Arrow array of the same memory; null where not `valid`."""
    kind = pa.string() if text else pa.binary()
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(strings.offsets) - 1, [bits, pa.py_buffer(strings.offsets), pa.py_buffer(strings.data)])


def take(strings: Strings, order: Ints) -> Strings:
    """Return items `order[0], order[1], ...` of a column. Some 5 ns an item; a gather in numpy is 50 times that."""
    taken = string_array(strings).take(pa.array(order))
    _, offsets, data = taken.buffers()
    return Strings(np.frombuffer(offsets, np.int32, len(order) + 1, taken.offset * 4), memoryview(data or b""))


def items_of(strings: Strings, *, order: Ints | None, valid: npt.NDArray[np.bool_] | None) -> Callable[[int, int], list[Any]]:
    """Return how to get items as bytes, in `order` if given, None where not `valid`; four times as fast as slicing in Python."""
    array = string_array(strings, valid=valid)

    def items(low: int, high: int) -> list[Any]:
        found: list[Any] = (array[low:high] if order is None else array.take(pa.array(order[low:high]))).to_pylist()
        return found

    return items


def table_of(given: Any) -> Any:
    """Return what a caller has in columns as a Table or RecordBatch: one of pyarrow's, or whatever has the Arrow C interface.

    Raises:
        InvalidArgument: it has not, or what it has are no columns with names.
    """
    if is_table(given):
        return given
    if not hasattr(given, "__arrow_c_stream__") and not hasattr(given, "__arrow_c_array__"):
        raise InvalidArgument(
            why=f"{type(given).__name__} is no table: give one of pyarrow, or what has __arrow_c_stream__ or __arrow_c_array__"
        )
    try:
        if hasattr(given, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(given).read_all()
        return pa.record_batch(given)
    except (pa.ArrowException, TypeError, ValueError) as error:  # a column of pandas with several types, a single column
        why = str(error).partition(" Detail: ")[0]  # behind which is the traceback of a stream that is made in Python
        raise InvalidArgument(why=f"{type(given).__name__} gives no table: {why}") from error


def is_table(given: Any) -> bool:
    """Return whether it is a table that is there as a whole."""
    return isinstance(given, (pa.Table, pa.RecordBatch))


def column_items(column: Any) -> list[Any]:
    """Return a column as Python's own values, a map as a dict.

    Raises:
        pyarrow.ArrowInvalid, ValueError, OverflowError: it holds what Python has no value for: a year beyond 9999, half a microsecond.
        KeyError: a map has a key twice.
    """
    kind = _as_json_has_it(column.type)
    found: list[Any] = (column if kind is column.type else column.cast(kind)).to_pylist(maps_as_pydicts="strict")
    return found


def _as_json_has_it(kind: pa.DataType) -> pa.DataType:
    """Return a type without nanoseconds, with text for the keys of maps, at any depth; the same object where nothing changes."""
    types = pa.types
    found = _NANOSECONDS.get(kind, kind)
    if types.is_timestamp(kind) and kind.unit == "ns":
        found = pa.timestamp("us", kind.tz)
    elif types.is_struct(kind):
        found = pa.struct([field.with_type(_as_json_has_it(field.type)) for field in kind])
    elif types.is_map(kind):
        found = pa.map_(pa.string(), _as_json_has_it(kind.item_type))
    elif types.is_dictionary(kind) and _as_json_has_it(kind.value_type) is not kind.value_type:
        found = _as_json_has_it(kind.value_type)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        item = _as_json_has_it(kind.value_type)
        found = kind if item is kind.value_type else pa.large_list(item)
    return kind if found.equals(kind) else found


def column_bytes(column: Any) -> list[Any] | None:
    """Return a text or binary column of a caller's RecordBatch as bytes, None for null; None for a column of another type."""
    column = _stored(column)
    kind = column.type
    types = pa.types
    if types.is_null(kind):  # what pyarrow makes of a column in which there is nothing
        return [None] * len(column)
    is_binary = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or types.is_binary_view(kind)
    if not is_text(kind) and not is_binary:
        return None
    found: list[Any] = (column.cast(pa.large_binary()) if is_text(kind) else column).to_pylist()
    return found


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds text, in a dictionary perhaps, or as what it is stored as: JSON that says it is."""
    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_header_map(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds maps of text to binary."""
    return bool(pa.types.is_map(kind) and pa.types.is_string(kind.key_type) and pa.types.is_binary(kind.item_type))


def is_integer(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds whole numbers, or nothing."""
    return bool(pa.types.is_integer(kind) or pa.types.is_null(kind))


def _stored(column: Any) -> Any:
    """Return a column of a dictionary as its values, and one of an extension type that is text as that."""
    if isinstance(column.type, pa.BaseExtensionType) and is_text(column.type):
        column = column.cast(column.type.storage_type)
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
