"""Which reader a source gets: by what the user says, else by its first bytes, else by its name."""

from importlib import import_module
from typing import cast

from eventlog.errors import InvalidArgument
from eventlog_cli.loading.rows import Reader, Shape
from eventlog_cli.loading.source import Source

_READERS = {"jsonl": ("jsonl", "JsonLines"), "csv": ("delimited", "Csv"), "parquet": ("parquet", "Parquet"), "avro": ("avro", "Avro")}
FORMATS = tuple(_READERS)
_BY_MAGIC = {b"PAR1": "parquet", b"Obj\x01": "avro"}
_BY_SUFFIX = {"jsonl": "jsonl", "ndjson": "jsonl", "json": "jsonl", "csv": "csv", "parquet": "parquet", "pq": "parquet", "avro": "avro"}
_PACKED = ("gz", "xz", "zst", "zstd")


def format_of(source: Source) -> str:
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


def reader_of(source: Source, shape: Shape, *, format_name: str, rows: int) -> Reader:
    """Return the reader of `format_name` over `source`; batches have at most `rows` rows."""
    module, name = _READERS[format_name]
    # parquet brings pyarrow, which the others do not need
    reader = getattr(import_module(f"eventlog_cli.loading.{module}"), name)
    return cast("Reader", reader(source.stream, shape, rows=rows))
