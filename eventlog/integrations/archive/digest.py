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
    columns = [table.column(name) for name in sorted(table.schema.names)]
    segments = table.column("segment")
    return {segments[low].as_py(): (high - low, _of_rows(columns, low, high)) for low, high in bounds_of(table)}


def bounds_of(table: pa.Table) -> Iterator[tuple[int, int]]:
    """Yield where each segment's rows begin and end."""
    if len(table):
        segments = table.column("segment").to_numpy()
        cuts = np.flatnonzero(np.diff(segments)) + 1
        yield from pairwise([0, *cuts.tolist(), len(segments)])


def _of_rows(columns: list[Any], low: int, high: int) -> int:
    found = xxh3_64()
    for column in columns:
        _feed(found, column.slice(low, high - low).chunks)
    return found.intdigest()


def _feed(found: Any, chunks: list[Any]) -> None:
    """Take up rows of a column, at least one: which are null, and of the others lengths and bytes, the same however they lie in chunks.

    They are not put together: offsets of one chunk end at 2 GiB.
    """
    kind = chunks[0].type
    if any(chunk.null_count for chunk in chunks):
        found.update(np.packbits(np.concatenate([chunk.is_valid().to_numpy(zero_copy_only=False) for chunk in chunks])))
        chunks = [chunk.drop_null() for chunk in chunks]
    if pa.types.is_map(kind):
        bounds = [chunk.offsets.to_numpy() for chunk in chunks]
        for offsets in bounds:
            found.update(np.diff(offsets).tobytes())
        for name in ("keys", "items"):
            children = [(getattr(chunk, name), int(offsets[0]), int(offsets[-1])) for chunk, offsets in zip(chunks, bounds, strict=True)]
            _feed(found, [child.slice(low, high - low) for child, low, high in children])
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        bounds = [_offsets_of(chunk) for chunk in chunks]
        for offsets in bounds:
            found.update(np.diff(offsets).tobytes())
        for chunk, offsets in zip(chunks, bounds, strict=True):
            if (data := chunk.buffers()[2]) is not None:
                found.update(memoryview(data)[offsets[0] : offsets[-1]])
    else:
        width = kind.bit_width // 8
        for chunk in chunks:
            found.update(memoryview(chunk.buffers()[1])[chunk.offset * width : (chunk.offset + len(chunk)) * width])


def _offsets_of(chunk: Any) -> Any:
    return np.frombuffer(chunk.buffers()[1], np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
