"""Columns of byte strings, one row a record: arrow's large binary arrays, null where there is nothing.

Arrow joins the columns of a row into one string for about 80 ns, without the GIL; a loop over rows takes ten times that.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eventlog.arrays import Ints, Mask
from eventlog.batch.texts import Texts

Column: TypeAlias = Any  # pa.LargeBinaryArray; pyarrow has no types
Items: TypeAlias = list[bytes | None] | Any  # a few rows, or a column
Bytes = npt.NDArray[np.uint8]
BINARY: Final = pa.large_binary()


def of_texts(texts: Texts) -> Column:
    """Return texts gathered into a column."""
    offsets = np.full(2 * len(texts) + 1, len(texts.data))  # to arrow every other string is one of them
    offsets[:-1:2], offsets[1::2] = texts.starts, texts.starts + texts.sizes
    strings = pa.Array.from_buffers(BINARY, len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(texts.data)])
    return strings.take(pa.array(np.arange(0, len(offsets) - 1, 2)))


def items_of(given: Items) -> list[bytes | None]:
    """Return the rows of a column as a list; a list is one."""
    return given if isinstance(given, list) else given.to_pylist()


def column_of(given: Items) -> Column:
    """Return items as a column, if they are none yet."""
    return of_items(given) if isinstance(given, list) else given


def of_items(items: Sequence[bytes | None]) -> Column:
    """Return items as a column."""
    return pa.array(items, BINARY)


def of_matrix(matrix: Bytes) -> Column:
    """Return the rows of a matrix as a column."""
    count, width = matrix.shape
    offsets = np.arange(count + 1) * width
    return pa.Array.from_buffers(BINARY, count, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(matrix))])


def of_masked(matrix: Bytes, mask: Mask) -> Column:
    """Return of each row of a matrix those bytes that `mask` leaves."""
    offsets = np.zeros(len(matrix) + 1, np.int64)
    np.count_nonzero(mask, axis=1).cumsum(out=offsets[1:])
    return pa.Array.from_buffers(BINARY, len(matrix), [None, pa.py_buffer(offsets), pa.py_buffer(matrix[mask])])


def of_numbers(numbers: Ints) -> Column:
    """Return numbers as decimal text."""
    return pc.cast(pc.cast(pa.array(numbers), pa.large_string()), BINARY)


def chosen(choices: Sequence[bytes], index: Ints | Bytes) -> Column:
    """Return one of a few byte strings for each row."""
    return of_items(choices).take(pa.array(index))


def mask_of(mask: Mask) -> Any:
    """Return a mask as arrow takes it."""
    return pa.array(mask)


def index_of(rows: Ints) -> Any:
    """Return row numbers as arrow takes them."""
    return pa.array(rows)


def constant(item: bytes, count: int) -> Column:
    """Return one byte string for each of `count` rows."""
    return chosen((item,), np.zeros(count, np.uint8))


def spread(column: Column, mask: Mask, other: bytes | None) -> Column:
    """Return the rows of a column in the places that `mask` has for them, and `other` in the rest."""
    if len(column) == len(mask):
        return column
    rest = pa.nulls(len(mask), BINARY) if other is None else constant(other, len(mask))
    return pc.replace_with_mask(rest, pa.array(mask), column) if len(column) else rest


def where(mask: Mask, column: Column, other: bytes | None) -> Column:
    """Return a column with `other` in the rows outside `mask`."""
    return pc.if_else(mask_of(mask), column, pa.scalar(other, BINARY))


def replaced(column: Column, rows: Ints, items: Sequence[bytes]) -> Column:
    """Return a column with other items in some rows, given in their order."""
    if not len(rows):
        return column
    mask = np.zeros(len(column), bool)
    mask[rows] = True
    return pc.replace_with_mask(column, pa.array(mask), of_items(items))


def join(*pieces: Column | bytes) -> Column:
    """Return the rows of columns, and constants, one behind the other; null counts as nothing."""
    given = [pa.scalar(piece, BINARY) if isinstance(piece, bytes) else piece for piece in pieces]
    return pc.binary_join_element_wise(*given, pa.scalar(b"", BINARY), null_handling="replace", null_replacement=b"")


def sizes_of(column: Column) -> Ints:
    """Return the length of each row, 0 for null."""
    sizes: Ints = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def is_there(column: Column) -> Mask:
    """Return which rows are not null."""
    if not column.null_count:
        return np.ones(len(column), bool)
    found: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def bytes_of(column: Column) -> tuple[memoryview, Ints]:
    """Return what a column's rows say one behind the other, and where each begins, with the end of the last."""
    _, offsets, data = column.buffers()
    bounds: Ints = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset)
    return memoryview(data if data is not None else b""), bounds
