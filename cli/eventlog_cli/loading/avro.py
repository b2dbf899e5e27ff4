"""Avro object container files: records with their schema, read one by one as they stream in."""

import io
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

import fastavro
from fastavro.read import BLOCK_READERS, LOGICAL_READERS

from eventlog.limits import VALUE_BYTES_CAP
from eventlog_cli.loading.rows import BATCH_BYTES_TARGET, Batch, RowRefused, Shape, Unreadable, type_name
from eventlog_cli.loading.source import Damaged, Input


class _File:
    """A stream as fastavro wants it: a read returns as much as asked for, fewer only at the end."""

    def __init__(self, stream: Input) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        if size > VALUE_BYTES_CAP:
            raise Damaged(f"the file is damaged: it claims a block of {size} bytes")
        parts: list[bytes] = []
        while size > 0 and (data := self._stream.read(size)):
            parts.append(data)
            size -= len(data)
        return b"".join(parts)


def _read_zstandard(file: IO[bytes]) -> io.BytesIO:
    """Return a block, plain: before it stands its size as a zigzag varint. fastavro would want another library for it."""
    import pyarrow as pa  # noqa: PLC0415 - 200 ms that other files need not pay

    size = 0
    for shift in range(0, 64, 7):
        byte = file.read(1)[0]
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return io.BytesIO(pa.CompressedInputStream(pa.BufferReader(file.read(size >> 1)), "zstd").read())


def _read_or_refuse(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return `read` with `Unreadable` for what Python has no value for, a year beyond 9999, say: the bytes around it are sound."""

    def read_one(*data: Any) -> Any:
        try:
            return read(*data)
        except (ValueError, OverflowError) as error:
            return Unreadable(str(error))

    return read_one


BLOCK_READERS["zstandard"] = _read_zstandard
LOGICAL_READERS.update({name: _read_or_refuse(read) for name, read in LOGICAL_READERS.items()})


class Avro:
    """Reads Avro."""

    def __init__(self, stream: Input, shape: Shape, *, rows: int) -> None:
        self._stream = stream
        self._shape = shape
        self._rows = rows

    def batches(self) -> Iterator[Batch]:
        """Yield the file. Lines count records; damage ends it, as the place of the next record is unknown."""
        batch, held = Batch(), 0
        for line, record in enumerate(self._records(), 1):
            if isinstance(record, Damaged):
                batch.reject(line, str(record), is_last=True)
                break
            try:
                if not isinstance(record, dict):
                    raise RowRefused(f"the record is {type_name(record)}, not an object")
                self._shape.add(record, batch)
                held += len(batch.values[-1])
            except RowRefused as error:
                batch.reject(line, str(error))
            batch.last_line = line
            if batch.lines >= self._rows or held >= BATCH_BYTES_TARGET:
                yield batch
                batch, held = Batch(), 0
        if batch.lines:
            yield batch

    def _records(self) -> Iterator[Any]:
        """Yield records, and as the last thing `Damaged` if the file is."""
        try:
            yield from fastavro.reader(cast("IO[bytes]", _File(self._stream)))
        except Damaged as damage:
            yield damage
        except Exception as error:  # noqa: BLE001 - foreign bytes make fastavro raise any of a dozen types; all mean the same
            yield Damaged(f"the file is cut short or damaged: {type(error).__name__} {error}")
