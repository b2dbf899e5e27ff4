"""A file or stdin as plain bytes, whatever it was packed with. What it is is told by its first bytes, not by its name.

Which reader it gets is told by what the user says, else by its first bytes, else by its name.
"""

import gzip
import io
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Protocol, cast

from eventlog.errors import InvalidArgument
from eventlog.limits import KIB, MIB
from eventlog_cli.loading.rows import FormatReader, RowShape
from eventlog_cli.output import stdin

_READERS = {"jsonl": ("lines", "Jsonl"), "csv": ("lines", "Csv"), "parquet": ("parquet", "Parquet"), "avro": ("avro", "Avro")}
FORMATS = tuple(_READERS)
_BY_MAGIC = {b"PAR1": "parquet", b"Obj\x01": "avro"}
_BY_SUFFIX = {"jsonl": "jsonl", "ndjson": "jsonl", "json": "jsonl", "csv": "csv", "parquet": "parquet", "pq": "parquet", "avro": "avro"}
_PACKED = ("gz", "xz", "zst", "zstd")


def format_of(source: "OpenedInput") -> str:
    """Return the format of a source.

    Raises:
        InvalidArgument: neither its bytes nor its name tell.
    """
    for magic, name in _BY_MAGIC.items():
        if source.head.startswith(magic):
            return name
    suffixes = source.name.lower().split(".")[1:]
    while suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    if suffixes and suffixes[-1] in _BY_SUFFIX:
        return _BY_SUFFIX[suffixes[-1]]
    text = source.head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{") or not source.head:
        return "jsonl"
    raise InvalidArgument(why=f"cannot tell the format of {source.name}; say it with --format {'|'.join(FORMATS)}")


def reader_of(source: "OpenedInput", shape: RowShape, *, format_name: str, rows: int) -> FormatReader:
    """Return the reader of `format_name` over `source`; batches have at most `rows` rows."""
    module, name = _READERS[format_name]
    # parquet brings pyarrow, which the others do not need
    reader = getattr(import_module(f"eventlog_cli.loading.{module}"), name)
    return cast("FormatReader", reader(source.stream, shape, rows=rows))


FORMAT_BYTES = 4  # enough to know parquet and avro; asking a pipe for more could wait for a line that comes later
XZ_MEMORY_BYTES_MAX = 256 * MIB  # what the header of an .xz file may make its decoder allocate; xz -9 needs 65 MiB
ZSTD_READ_BYTES = 64 * KIB  # half of a block: damage costs no more of what comes before it
_MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, OSError)


class Input(Protocol):
    """Bytes to read once, in order."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes, none at the end; all of them without a size."""
        ...


class Damaged(Exception):
    """The source ends early or cannot be unpacked; what came before it was fine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedInput:
    """An opened input. `size` is that of the packed file, None for a pipe."""

    name: str
    stream: "Unpacked"
    size: int | None
    _counted: "_Counted"

    @property
    def head(self) -> bytes:
        """Return its first plain bytes; a pipe is waited for until it has given them."""
        return self.stream.peek(FORMAT_BYTES)

    def position(self) -> int:
        """Return how many packed bytes were read so far."""
        return self._counted.position


class _Counted(io.RawIOBase):
    """The packed bytes, counted; the first ones may have been read before."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._ahead = b""
        self.position = 0

    def peek(self, size: int) -> bytes:
        """Return the next `size` bytes, fewer only at the end, and keep them for `read`."""
        while len(self._ahead) < size and (more := self._read(size - len(self._ahead))):
            self._ahead += more
        return self._ahead[:size]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._ahead[: len(buffer)] or self._read(len(buffer))
        self._ahead = self._ahead[len(data) :]
        self.position += len(data)
        buffer[: len(data)] = data
        return len(data)

    def _read(self, size: int) -> bytes:
        # one system call at most: a pipe hands over what it has instead of waiting until `size` bytes came
        return cast("io.BufferedReader", self._file).read1(size) if hasattr(self._file, "read1") else self._file.read(size)


class Unpacked:
    """Plain bytes; every way in which unpacking can fail is `Damaged`. `path` is where they lie, if they were never packed."""

    def __init__(self, stream: Input, *, path: str | None) -> None:
        self._stream = stream
        self._ahead = b""
        self._damage: Damaged | None = None
        self.path = path

    def read(self, size: int = -1, /) -> bytes:
        """Return at most `size` bytes, possibly fewer; none at the end.

        Raises:
            Damaged: the source ends in the middle or its bytes are wrong.
        """
        if self._ahead:
            cut = len(self._ahead) if size < 0 else size
            data, self._ahead = self._ahead[:cut], self._ahead[cut:]
            return data
        if self._damage:
            raise self._damage
        try:
            return self._stream.read(size)
        except _DAMAGED as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk's fault, not the file's
            raise Damaged(f"the file is cut short or damaged: {str(error).strip().rstrip('.').lower() or type(error).__name__}") from error

    def peek(self, size: int) -> bytes:
        """Return what comes next, at least `size` bytes unless the source is shorter; `read` gives them again, and then tells of damage."""
        ahead = b""
        try:
            while len(ahead) < size and (data := self.read(MIB)):
                ahead += data
        except Damaged as damage:
            self._damage = damage
        self._ahead = ahead + self._ahead  # of more than a read's worth that was looked at before, some is left
        return ahead


class _Xz:
    """Several .xz streams one after the other, within a memory limit; `lzma.open` knows no limit."""

    def __init__(self, packed: Input) -> None:
        self._packed = packed
        self._ahead = b""
        self._decoder: lzma.LZMADecompressor | None = None

    def read(self, size: int = -1, /) -> bytes:
        while True:
            if self._decoder is None and not self._begin():
                return b""
            decoder = self._decoder
            assert decoder is not None, "_begin made one"
            data = self._next() if decoder.needs_input else b""
            if decoder.needs_input and not data:
                raise EOFError("the end of its last stream is missing")
            plain = decoder.decompress(data, size)
            if decoder.eof:
                self._ahead, self._decoder = decoder.unused_data, None
            if plain:
                return plain

    def _begin(self) -> bool:
        """Start the next stream, if there is one; zero bytes between streams are padding."""
        while not (data := self._next()).strip(b"\0"):
            if not data:
                return False
        self._ahead = data.lstrip(b"\0")
        self._decoder = lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES_MAX)
        return True

    def _next(self) -> bytes:
        data, self._ahead = self._ahead, b""
        return data or self._packed.read(MIB)


class _Zstd:
    """Frames of zstd, through pyarrow, which checks that the last one is whole, and drops all of a read that comes upon damage."""

    def __init__(self, packed: io.BufferedReader) -> None:
        import pyarrow as pa  # noqa: PLC0415 - 200 ms that other files need not pay

        self._stream = pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd")

    def read(self, size: int = -1, /) -> bytes:
        return bytes(self._stream.read(ZSTD_READ_BYTES if size < 0 else min(size, ZSTD_READ_BYTES)))


class _Gzip:
    """gzip members; a read hands over what one member has ready, so a pipe is not waited for."""

    def __init__(self, packed: io.BufferedReader) -> None:
        self._file = gzip.GzipFile(fileobj=packed, mode="rb")

    def read(self, size: int = -1, /) -> bytes:
        return self._file.read1(size)


class _Plain:
    def __init__(self, packed: io.BufferedReader) -> None:
        self._packed = packed

    def read(self, size: int = -1, /) -> bytes:
        return self._packed.read1(size)


_UNPACK: dict[str, Callable[[io.BufferedReader], Input]] = {"gzip": _Gzip, "xz": _Xz, "zstd": _Zstd, "": _Plain}


def _begins(counted: _Counted, magic: bytes) -> bool:
    """Return whether the packed bytes begin so; a pipe that begins otherwise is not waited for."""
    return counted.peek(1) == magic[:1] and counted.peek(len(magic)) == magic


@contextmanager
def open_source(path: str) -> Iterator[OpenedInput]:
    """Yield the source at `path`, or stdin for `-`.

    Raises:
        OSError: there is no such file, or it cannot be read.
    """
    with ExitStack() as opened:
        file = stdin() if path == "-" else opened.enter_context(Path(path).open("rb"))
        # a named pipe can be read once, as stdin
        size = None if path == "-" or not stat.S_ISREG((told := os.fstat(file.fileno())).st_mode) else told.st_size
        counted = _Counted(file)
        packing = next((name for magic, name in _MAGIC.items() if _begins(counted, magic)), "")
        unpack = _UNPACK[packing](io.BufferedReader(counted, MIB))
        stream = Unpacked(unpack, path=None if packing or size is None else path)
        yield OpenedInput(
            name="stdin" if path == "-" else Path(path).name,
            stream=stream,
            size=size,
            _counted=counted,
        )
