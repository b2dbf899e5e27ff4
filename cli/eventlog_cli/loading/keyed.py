"""A key, a separator and a value a line, as `consume --output-format` prints them and as producers of other logs take them."""

from collections.abc import Iterator

import msgspec

from eventlog.client.formats import CacheFormat
from eventlog.errors import BadValue
from eventlog.limits import KEY_BYTES_MAX
from eventlog_cli.loading.jsonl import Lines
from eventlog_cli.loading.rows import BATCH_BYTES_TARGET, Batch, RowRefused
from eventlog_cli.loading.source import Input

_BLANKS = b" \t\r"


class KeyedLines:
    """Reads such lines. The first separator of a line counts; empty lines are passed over.

    The value of a bytes cache is what stands in the line; any other is JSON, and blanks around it do not count. A line whose value is one
    of `removal_words` removes its key.
    """

    def __init__(
        self, stream: Input, form: CacheFormat, *, separator: bytes, removal_words: frozenset[bytes], value_bytes_max: int, rows: int
    ) -> None:
        self._form = form
        self._separator = separator
        self._removal_words = removal_words
        self._value_bytes_max = value_bytes_max
        self._lines = Lines(stream, rows=rows, line_bytes_max=KEY_BYTES_MAX + len(separator) + value_bytes_max)

    def batches(self) -> Iterator[Batch]:
        """Yield the whole input."""
        for first, lines in self._lines.blocks():
            batch, held = Batch(), 0
            for number, line in enumerate(lines, first):
                if line.strip(b"\r"):
                    try:
                        self._add(line, batch)
                    except RowRefused as error:
                        batch.reject(number, str(error))
                held += len(line)
                batch.last_line = number
                if held >= BATCH_BYTES_TARGET and batch.lines:
                    yield batch
                    batch, held = Batch(), 0
            if batch.lines:
                yield batch
        if self._lines.damage is not None:
            batch = Batch()
            batch.reject(self._lines.next_line, self._lines.damage, is_last=True)
            yield batch

    def _add(self, line: bytes, batch: Batch) -> None:
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
        return value
