"""Container files of Avro, record by record as they stream in."""

import io
from collections.abc import Callable, Iterator
from typing import IO, Any, Final, cast

import fastavro
from fastavro.read import BLOCK_READERS

from eventlog.limits import VALUE_BYTES_CAP

_MORE: Final = 0x80
_VARINT_BITS_MAX: Final = 64


class AvroFile:
    """A container file. `schema` is its own, as JSON."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        """Take what reads some bytes, at most as many as asked for and none at the end.

        Raises:
            ValueError, or any of a dozen other types: it is no such file.
        """
        self._reader = fastavro.reader(cast("IO[bytes]", _Whole(read)))
        self.schema: str = self._reader.metadata["avro.schema"]

    def __iter__(self) -> Iterator[Any]:
        """Yield the records. Foreign bytes make it raise any of a dozen types of errors, which all mean that the file is damaged."""
        return iter(self._reader)


class _Whole:
    """A stream as fastavro wants it: a read returns as much as asked for, fewer only at the end."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read

    def read(self, size: int) -> bytes:
        if size > VALUE_BYTES_CAP:
            raise ValueError(f"it claims a block of {size} bytes")
        parts: list[bytes] = []
        while size > 0 and (data := self._read(size)):
            parts.append(data)
            size -= len(data)
        return b"".join(parts)


def _read_zstandard(file: IO[bytes]) -> io.BytesIO:
    """Return a block, plain: before it stands its size as a zigzag varint. fastavro would want another library for it."""
    import pyarrow as pa  # noqa: PLC0415 - 200 ms that other files need not pay

    size = 0
    for shift in range(0, _VARINT_BITS_MAX, 7):
        byte = file.read(1)[0]
        size |= (byte & ~_MORE) << shift
        if byte < _MORE:
            break
    return io.BytesIO(pa.CompressedInputStream(pa.BufferReader(file.read(size >> 1)), "zstd").read())


BLOCK_READERS["zstandard"] = _read_zstandard
