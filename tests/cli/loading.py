"""What tests of the readers of `load` share: bytes read in pieces, and what came of them."""

import io
from typing import Any

import orjson

from eventlog_cli.loading.rows import RowBatch, RowShape
from eventlog_cli.loading.source import reader_of

Row = dict[str, Any]


class Pieces:
    """A stream that hands over at most `size` bytes a read, as a pipe may."""

    path = None

    def __init__(self, data: bytes, size: int = 1 << 20) -> None:
        self._data = io.BytesIO(data)
        self._size = size

    def read(self, size: int = -1, /) -> bytes:
        return self._data.read(self._size if size < 0 else min(size, self._size))


def read(format_name: str, data: bytes, shape: RowShape, *, rows: int = 3, piece: int = 1 << 20) -> list[RowBatch]:
    class AnySource:
        stream = Pieces(data, piece)

    return list(reader_of(AnySource, shape, format_name=format_name, rows=rows).batches())  # type: ignore[arg-type]  # reads the stream alone


def items(batches: list[RowBatch]) -> list[tuple[bytes, Row | None]]:
    found: list[tuple[bytes, Row | None]] = []
    for batch in batches:
        removals = batch.removals or [False] * len(batch.keys)
        for key, value, is_removal in zip(batch.keys, batch.values, removals, strict=True):
            found.append((key, None if is_removal else orjson.loads(value)))
            assert not is_removal or value == b""
    return found


def refused(batches: list[RowBatch]) -> list[tuple[int, str]]:
    return [(rejection.line, rejection.why) for batch in batches for rejection in batch.rejections]


KEYED = RowShape(key="k")
WITH_OPERATION = RowShape(key="k", operation="op", removal_words=frozenset({"D", "0"}))
