"""CSV with a line of field names first. Every field is text; a record may span lines inside quotes."""

import csv
from collections.abc import Iterator

from eventlog_cli.loading.jsonl import Lines
from eventlog_cli.loading.rows import BATCH_BYTES_TARGET, Batch, RowRefused, Shape
from eventlog_cli.loading.source import Input


class _Text:
    """Lines as text for `csv`, which pulls one after the other. One that was cut is refused: its closing quote may be missing.

    The parser drops the record it is in when a line is refused, and begins anew with the next one.
    """

    def __init__(self, lines: Lines) -> None:
        self._line_bytes_max = lines.line_bytes_max
        self._lines = (line for _, block in lines.blocks() for line in block)
        self.read = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.read += 1
        if len(line) > self._line_bytes_max:
            raise RowRefused(f"the line has more than {self._line_bytes_max} bytes")
        # bytes that are no UTF-8 become surrogates, which the row's own check refuses by its number
        return line.decode("utf-8", "surrogateescape") + "\n"


class Csv:
    """Reads CSV."""

    def __init__(self, stream: Input, shape: Shape, *, rows: int) -> None:
        self._shape = shape
        self._rows = rows
        self._lines = Lines(stream, rows=rows, line_bytes_max=shape.value_bytes_max)
        self._lines_read = 0

    def batches(self) -> Iterator[Batch]:
        """Yield the file. A record's line is the one it begins on."""
        batch, held = Batch(), 0
        names: list[str] | None = None
        for line, record in self._records():
            try:
                if isinstance(record, RowRefused):
                    raise record
                if names is None:
                    names = _checked_names(record, self._shape)
                elif record:
                    self._shape.add(_row(names, record), batch)
                    held += sum(map(len, record))
            except RowRefused as error:
                # without field names nothing that follows can be read
                batch.reject(line, str(error), is_last=names is None)
                if names is None:
                    break
            batch.last_line = self._lines_read
            if batch.lines >= self._rows or held >= BATCH_BYTES_TARGET:
                yield batch
                batch, held = Batch(), 0
        if self._lines.damage is not None:
            batch.reject(self._lines_read + 1, self._lines.damage, is_last=True)
        if batch.lines:
            yield batch

    def _records(self) -> Iterator[tuple[int, list[str] | RowRefused]]:
        """Yield each record, or why there is none, with the line it begins on."""
        csv.field_size_limit(self._shape.value_bytes_max)
        text = _Text(self._lines)
        records = csv.reader(text, strict=True)
        while True:
            line = text.read + 1
            record: list[str] | RowRefused | None
            try:
                record = next(records, None)
            except RowRefused as refused:
                record = refused
            except csv.Error as error:
                record = RowRefused(str(error))
            if record is None:
                return
            self._lines_read = text.read
            yield line, record


def _checked_names(record: list[str], shape: Shape) -> list[str]:
    for field in (shape.key, shape.operation):
        if field is not None and field not in record:
            raise RowRefused(f"the first line names no field {field!r}; it has {', '.join(record[:20])}")
    if len(set(record)) != len(record):
        raise RowRefused("the first line names a field twice")
    return record


def _row(names: list[str], record: list[str]) -> dict[str, object]:
    if len(record) != len(names):
        raise RowRefused(f"the record has {len(record)} fields, the first line names {len(names)}")
    return dict(zip(names, record, strict=True))
