"""Lines of text: a JSON object on each, key and value with a separator between them, or CSV with a line of field names first.

The bytes of a JSON object are the value as they stand, so a row is parsed once and never written again. Every field of CSV is text; a
record may span lines inside quotes. Keyed lines are what `consume --output-format` prints, and what producers of other logs take.
"""

import csv
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from eventlog.errors import BadValue
from eventlog.limits import KEY_BYTES_MAX, KIB, MIB
from eventlog.write.admission import why_not_json
from eventlog_cli.loading.rows import BATCH_BYTES_TARGET, RowBatch, RowRefused, RowShape, type_name
from eventlog_cli.loading.source import Damaged, Input

if TYPE_CHECKING:
    from eventlog.client.formats import CacheFormat

READ_BYTES = 1 * MIB
_LINE_SLACK_BYTES = 64 * KIB  # what a line may have beside its value: the operation's field, blanks
_UNUSUAL = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\r"


class Lines:
    """Lines of a stream in blocks, each block with the number of its first line; a line beyond a limit is cut to one byte more.

    After the last block `damage` says what was wrong with the source, if anything; the half line before it is dropped.
    """

    def __init__(self, stream: Input, *, rows: int, line_bytes_max: int) -> None:
        self._stream = stream
        self._rows = rows
        self.line_bytes_max = line_bytes_max
        self.next_line = 1
        self.damage: str | None = None

    def blocks(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield `(number of the first line, lines without their newline)`."""
        for lines in self._split():
            for low in range(0, len(lines), self._rows):
                block = lines[low : low + self._rows]
                first, self.next_line = self.next_line, self.next_line + len(block)
                yield first, block

    def _split(self) -> Iterator[list[bytes]]:
        rest = b""
        is_first = True
        while data := self._read():
            if is_first:
                data, is_first = data.removeprefix(_BOM), False
            end = data.rfind(b"\n")
            if end < 0:
                rest = (rest + data)[: self.line_bytes_max + 1] if len(rest) <= self.line_bytes_max else rest
                continue
            lines = data[:end].split(b"\n")
            lines[0] = (rest + lines[0])[: self.line_bytes_max + 1]
            rest = data[end + 1 :]
            yield lines
        if rest and self.damage is None:
            yield [rest]

    def _read(self) -> bytes:
        try:
            return self._stream.read(READ_BYTES)
        except Damaged as error:
            self.damage = str(error)
            return b""


class Jsonl:
    """Reads JSON lines."""

    def __init__(self, stream: Input, shape: RowShape, *, rows: int) -> None:
        self._shape = shape
        self._lines = Lines(stream, rows=rows, line_bytes_max=shape.value_bytes_max + _LINE_SLACK_BYTES)
        # a third of the time of parsing a line whole: what is not asked for is checked and skipped
        fields = {"key": shape.key} | ({} if shape.operation is None else {"operation": shape.operation})
        row = msgspec.defstruct("Row", [(name, str) for name in fields], rename=fields, gc=False)
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(row).decode

    def batches(self) -> Iterator[RowBatch]:
        """Yield the file; a block with anything unusual in it is gone through line by line."""
        take = self._fast if self._shape.operation is None else self._fast_with_operation
        for first, lines in self._lines.blocks():
            batch = take(lines) if self._shape.encode is None and self._shape.check is None else None
            if batch is None:
                yield from self._slow(first, lines)
            else:
                batch.last_line = first + len(lines) - 1
                yield batch
        if self._lines.damage is not None:
            batch = RowBatch()
            batch.reject(self._lines.next_line, self._lines.damage, is_last=True)
            yield batch

    def _fast(self, lines: list[bytes]) -> RowBatch | None:
        """Return the batch if every line is an object with a key of text, else None."""
        try:
            keys = [row.key.encode() for row in map(self._decode, lines)]
        except _UNUSUAL:
            return None
        values = [line.strip(_BLANKS) for line in lines]
        return RowBatch(keys=keys, values=values) if self._fits(keys, values) and why_not_json(values) is None else None

    def _fast_with_operation(self, lines: list[bytes]) -> RowBatch | None:
        operation, words = self._shape.operation, self._shape.removal_words
        assert operation is not None, "chosen only with an operation"
        try:
            rows = list(map(self._decode, lines))
        except _UNUSUAL:
            return None
        keys = [row.key.encode() for row in rows]
        removals = [row.operation in words for row in rows]
        values = [b"" if is_removal else without_field(line, operation) for line, is_removal in zip(lines, removals, strict=True)]
        batch = RowBatch(keys=keys, values=values, removals=removals)
        return batch if self._fits(keys, values) and why_not_json(lines) is None else None

    def _fits(self, keys: list[bytes], values: list[bytes]) -> bool:
        longest = max(map(len, values))
        return (
            longest <= self._shape.value_bytes_max
            and ((longest <= self._shape.key_bytes_max and not self._shape.operation) or max(map(len, keys)) <= self._shape.key_bytes_max)
            and (longest * len(values) <= self._shape.batch_bytes or sum(map(len, values)) <= self._shape.batch_bytes)
        )

    def _slow(self, first: int, lines: list[bytes]) -> Iterator[RowBatch]:
        batch, held = RowBatch(), 0
        for number, line in enumerate(lines, first):
            text = line.strip(_BLANKS)
            if not text:
                continue
            try:
                self._add(text, batch)
            except RowRefused as error:
                batch.reject(number, str(error))
            held += len(text)
            batch.last_line = number
            if held > self._shape.batch_bytes:
                yield batch
                batch, held = RowBatch(), 0
        if batch.lines:
            yield batch

    def _add(self, line: bytes, batch: RowBatch) -> None:
        if len(line) > self._lines.line_bytes_max:
            raise RowRefused(f"the line has more than {self._lines.line_bytes_max} bytes")
        row = parse_object(line)
        if self._shape.encode is not None:
            self._shape.add(row, batch)
            return
        key = self._shape.key_of(row)
        operation = self._shape.operation
        if operation is None:
            self._shape.append(batch, key, self._checked_value(line), is_removal=False)
            return
        is_removal = self._shape.take_removal(row)
        value = b"" if is_removal else self._checked_value(without_field(line, operation))
        self._shape.append(batch, key, value, is_removal=is_removal)

    def _checked_value(self, value: bytes) -> bytes:
        if (why := why_not_json([value])) is not None:
            raise RowRefused(f"the value is no JSON that a node takes: {why}")
        return self._shape.checked_value(value)


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the object in `line`.

    Raises:
        RowRefused: it is no JSON, or no object.
    """
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise RowRefused(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    if not isinstance(row, dict):
        raise RowRefused(f"the line is {type_name(row)}, not an object")
    return row


def without_field(line: bytes, field: str) -> bytes:
    """Return the object in `line`, known to be valid JSON, without one of its fields; the others keep their bytes.

    Parsing and writing them again would round whole numbers beyond 64 bits.
    """
    fields = _FIELDS.decode(line)
    fields.pop(field, None)
    return msgspec.json.encode(fields)


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class KeyedLines:
    """Reads such lines. The first separator of a line counts; empty lines are passed over.

    The value of a bytes cache is what stands in the line; any other is JSON, and blanks around it do not count. A line whose value is one
    of `removal_words` removes its key.
    """

    def __init__(
        self,
        stream: Input,
        form: "CacheFormat",
        *,
        separator: bytes,
        removal_words: frozenset[bytes],
        value_bytes_max: int,
        rows: int,
        batch_bytes: int = BATCH_BYTES_TARGET,
        check: Callable[[bytes], str] | None = None,
    ) -> None:
        self._batch_bytes = batch_bytes
        self._form = form
        self._check = check
        self._separator = separator
        self._removal_words = removal_words
        self._value_bytes_max = value_bytes_max
        self._lines = Lines(stream, rows=rows, line_bytes_max=KEY_BYTES_MAX + len(separator) + value_bytes_max)

    def batches(self) -> Iterator[RowBatch]:
        """Yield the whole input."""
        for first, lines in self._lines.blocks():
            batch, held = RowBatch(), 0
            for number, line in enumerate(lines, first):
                if line.strip(b"\r"):
                    try:
                        self._add(line, batch)
                    except RowRefused as error:
                        batch.reject(number, str(error))
                held += len(line)
                batch.last_line = number
                if held >= self._batch_bytes and batch.lines:
                    yield batch
                    batch, held = RowBatch(), 0
            if batch.lines:
                yield batch
        if self._lines.damage is not None:
            batch = RowBatch()
            batch.reject(self._lines.next_line, self._lines.damage, is_last=True)
            yield batch

    def _add(self, line: bytes, batch: RowBatch) -> None:
        """Add a line to a batch.

        Raises:
            RowRefused: it cannot be written; `batch` is as before.
        """
        if len(line) > self._lines.line_bytes_max:
            raise RowRefused(f"the line has more than {self._lines.line_bytes_max} bytes")
        name, separator, value = line.partition(self._separator)
        if not separator:
            shown = self._separator.decode(errors="backslashreplace")
            raise RowRefused(f"the line has no {shown!r}, which stands between key and value")
        key = self._checked_key(name)
        if not self._form.is_bytes:
            value = value.strip(_BLANKS)
        is_removal = value in self._removal_words
        value = b"" if is_removal else self._checked_value(key, value)
        batch.keys.append(name)
        batch.values.append(value)
        if self._removal_words:
            batch.removals.append(is_removal)

    def _checked_key(self, name: bytes) -> str | bytes:
        if len(name) > KEY_BYTES_MAX:
            raise RowRefused(f"the key has {len(name)} bytes, the limit is {KEY_BYTES_MAX}")
        try:
            return self._form.read_key(name)
        except UnicodeDecodeError:
            raise RowRefused("the key holds bytes that are not UTF-8, and the cache's keys are text") from None

    def _checked_value(self, key: str | bytes, value: bytes) -> bytes:
        if not self._form.is_bytes:
            try:
                value = self._form.value(key, msgspec.Raw(value))
            except BadValue as error:
                raise RowRefused(error.why) from None
        if len(value) > self._value_bytes_max:
            raise RowRefused(f"the value has {len(value)} bytes, the limit is {self._value_bytes_max}")
        if self._check is not None and (why := self._check(value)):
            raise RowRefused(why)
        return value


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

    def __init__(self, stream: Input, shape: RowShape, *, rows: int) -> None:
        self._shape = shape
        self._rows = rows
        self._lines = Lines(stream, rows=rows, line_bytes_max=shape.value_bytes_max)
        self._lines_read = 0

    def batches(self) -> Iterator[RowBatch]:
        """Yield the file. A record's line is the one it begins on."""
        batch, held = RowBatch(), 0
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
            if batch.lines >= self._rows or held >= self._shape.batch_bytes:
                yield batch
                batch, held = RowBatch(), 0
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


def _checked_names(record: list[str], shape: RowShape) -> list[str]:
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
