"""A number for what some events are, the same however they lie in files: for a round it is the sum of its segments'. Pure.

Of a segment it is xxh3_64 over the columns of its events in the order of ids, each column as its bytes, lengths and which are null.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64

_MASK: Final = (1 << 64) - 1


def digest_of(table: pa.Table) -> int:
    """Return the sum of the digests of a table's segments, mod 2^64. Its rows are sorted by segment and id."""
    return sum(digest for _, digest in digests_of(table).values()) & _MASK


def digests_of(table: pa.Table) -> dict[int, tuple[int, int]]:
    """Return how many rows each segment has, and their digest. Rows are sorted by segment and id."""
    whole = table.combine_chunks()
    columns = [whole.column(name).combine_chunks() for name in sorted(whole.schema.names)]
    segments = whole.column("segment")
    return {segments[low].as_py(): (high - low, _of_rows(columns, low, high)) for low, high in bounds_of(whole)}


def bounds_of(table: pa.Table) -> Iterator[tuple[int, int]]:
    """Yield where each segment's rows begin and end."""
    if len(table):
        segments = table.column("segment").to_numpy()
        cuts = np.flatnonzero(np.diff(segments)) + 1
        yield from pairwise([0, *cuts.tolist(), len(segments)])


def _of_rows(columns: list[Any], low: int, high: int) -> int:
    found = xxh3_64()
    for column in columns:
        _feed(found, column.slice(low, high - low))
    return found.intdigest()


def _feed(found: Any, column: Any) -> None:
    """Take up rows of a column: which are null, and of the others lengths and bytes."""
    kind = column.type
    if column.null_count:
        found.update(np.packbits(column.is_valid().to_numpy(zero_copy_only=False)))
        column = column.drop_null()
    if pa.types.is_map(kind):
        offsets = column.offsets.to_numpy()
        found.update(np.diff(offsets).tobytes())
        for child in (column.keys, column.items):
            _feed(found, child.slice(int(offsets[0]), int(offsets[-1] - offsets[0])))
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        _, offsets_of, data = column.buffers()
        offsets = np.frombuffer(offsets_of, np.int32)[column.offset : column.offset + len(column) + 1]
        found.update(np.diff(offsets).tobytes())
        if data is not None:
            found.update(memoryview(data)[offsets[0] : offsets[-1]])
    else:
        width = kind.bit_width // 8
        found.update(memoryview(column.buffers()[1])[column.offset * width : (column.offset + len(column)) * width])
