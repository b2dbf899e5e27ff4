"""One JSON object a line. Its bytes are the value as they stand, so a row is parsed once and never written again."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import orjson

from eventlog.interceptor.admission import why_not_json
from eventlog.limits import KIB, MIB
from eventlog_cli.loading.rows import BATCH_BYTES_TARGET, Batch, RowRefused, Shape, type_name
from eventlog_cli.loading.source import Damaged, Input

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


class JsonLines:
    """Reads JSON lines."""

    def __init__(self, stream: Input, shape: Shape, *, rows: int) -> None:
        self._shape = shape
        self._lines = Lines(stream, rows=rows, line_bytes_max=shape.value_bytes_max + _LINE_SLACK_BYTES)
        # a third of the time of parsing a line whole: what is not asked for is checked and skipped
        fields = {"key": shape.key} | ({} if shape.operation is None else {"operation": shape.operation})
        row = msgspec.defstruct("Row", [(name, str) for name in fields], rename=fields, gc=False)
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(row).decode

    def batches(self) -> Iterator[Batch]:
        """Yield the file; a block with anything unusual in it is gone through line by line."""
        take = self._fast if self._shape.operation is None else self._fast_with_operation
        for first, lines in self._lines.blocks():
            batch = take(lines) if self._shape.encode is None else None
            if batch is None:
                yield from self._slow(first, lines)
            else:
                batch.last_line = first + len(lines) - 1
                yield batch
        if self._lines.damage is not None:
            batch = Batch()
            batch.reject(self._lines.next_line, self._lines.damage, is_last=True)
            yield batch

    def _fast(self, lines: list[bytes]) -> Batch | None:
        """Return the batch if every line is an object with a key of text, else None."""
        try:
            keys = [row.key.encode() for row in map(self._decode, lines)]
        except _UNUSUAL:
            return None
        values = [line.strip(_BLANKS) for line in lines]
        return Batch(keys=keys, values=values) if self._fits(keys, values) and why_not_json(values) is None else None

    def _fast_with_operation(self, lines: list[bytes]) -> Batch | None:
        operation, words = self._shape.operation, self._shape.removal_words
        assert operation is not None, "chosen only with an operation"
        try:
            rows = list(map(self._decode, lines))
        except _UNUSUAL:
            return None
        keys = [row.key.encode() for row in rows]
        removals = [row.operation in words for row in rows]
        values = [b"" if is_removal else without_field(line, operation) for line, is_removal in zip(lines, removals, strict=True)]
        batch = Batch(keys=keys, values=values, removals=removals)
        return batch if self._fits(keys, values) and why_not_json(lines) is None else None

    def _fits(self, keys: list[bytes], values: list[bytes]) -> bool:
        longest = max(map(len, values))
        return (
            longest <= self._shape.value_bytes_max
            and ((longest <= self._shape.key_bytes_max and not self._shape.operation) or max(map(len, keys)) <= self._shape.key_bytes_max)
            and (longest * len(values) <= BATCH_BYTES_TARGET or sum(map(len, values)) <= BATCH_BYTES_TARGET)
        )

    def _slow(self, first: int, lines: list[bytes]) -> Iterator[Batch]:
        batch, held = Batch(), 0
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
            if held > BATCH_BYTES_TARGET:
                yield batch
                batch, held = Batch(), 0
        if batch.lines:
            yield batch

    def _add(self, line: bytes, batch: Batch) -> None:
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
