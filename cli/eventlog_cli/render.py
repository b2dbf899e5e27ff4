"""Events as lines: JSON, the value's bytes alone, or CSV."""

import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import orjson

from eventlog.batch.json_lines import JsonLines, json_of, on_one_line, readable
from eventlog.events import KIND_NAMES, Change, Event, Kind
from eventlog.ids import IdTimes
from eventlog_cli.parameters import ESCAPE, KNOWN, escaped

if TYPE_CHECKING:
    from eventlog.client.values import CacheInfo

_WITHOUT_VALUE = frozenset({Kind.REMOVED, Kind.EXPIRED})
_KINDS = [name.encode() for name in KIND_NAMES]
_CHANGES: dict[int, bytes] = {change: change.name.encode() for change in Change}
CSV_COLUMNS = ("id", "time", "segment", "offset", "kind", "key", "value", "before", "headers")
QUOTE = '"'
_CSV_SPECIAL = re.compile(r'[",\r\n]')
_PATTERN_PIECE = re.compile(rf"%.?|{ESCAPE}|[^%\\]+", re.DOTALL)

Render = Callable[[Iterable[Event]], bytes | memoryview]


def json_of_cache(info: "CacheInfo", *, is_selected: bool = False) -> Callable[[bytes], bytes]:
    """Return what makes JSON of the values of a cache; where fields are selected, they are JSON already."""
    if info.format != "avro" or is_selected:
        return partial(json_of, json_values=info.format != "bytes")
    from eventlog.client.formats import avro_format  # noqa: PLC0415 -- fastavro is slow to load, and the client knows it already

    return partial(json_of, json_values=False, values=avro_format(info.schema))


def raw_lines(events: Iterable[Event]) -> bytes:
    """Return the value's bytes and a newline an event; only the newline where an event has no value."""
    return b"".join([b"\n" if event.kind_number in _WITHOUT_VALUE else event.value_bytes + b"\n" for event in events])


class CsvLines:
    """Events as CSV, names first; values as JSON, but text without its quotes. `has_changes`: of a continuous query.

    An empty text is `""`; nothing stands where there is none.
    """

    def __init__(self, *, has_changes: bool) -> None:
        self._times = IdTimes()
        self._has_changes = has_changes
        self._is_first = True

    def lines(self, events: Iterable[Event]) -> bytes:
        """Return one record an event."""
        records = [self._record(event) for event in events]
        if self._is_first:
            records.insert(0, ",".join((*CSV_COLUMNS, "change") if self._has_changes else CSV_COLUMNS))
            self._is_first = False
        return "".join(f"{record}\n" for record in records).encode()

    def _record(self, event: Event) -> str:
        source = event.source

        def shown(data: bytes | None) -> str | None:
            return None if data is None else _unquoted(json_of(data, json_values=source.json_values, values=source.values))

        fields = [
            str(event.id),
            self._times.text(event.id),
            str(event.segment),
            str(event.offset),
            event.kind,
            _unquoted(orjson.dumps(readable(event.key_bytes))),
            None if event.kind_number in _WITHOUT_VALUE else shown(event.value_bytes),
            shown(event.before_bytes),
            orjson.dumps({name: readable(header) for name, header in event.headers.items()}).decode() if event.header_bytes else None,
        ]
        if self._has_changes:
            fields.append(event.change)
        return ",".join(map(_csv_field, fields))


def _csv_field(text: str | None) -> str:
    """Return a field as RFC 4180 has it. The csv module tells an empty text from nothing as of Python 3.12 only."""
    if text is None:
        return ""
    return f'"{text.replace(QUOTE, QUOTE + QUOTE)}"' if not text or _CSV_SPECIAL.search(text) else text


class PatternLines:
    r"""Events by a pattern of the user's, with nothing added behind them.

    `%k` key, `%v` value, `%b` before, `%h` headers, `%i` id, `%t` time, `%s` segment, `%o` offset, `%e` kind of the event, `%c` change of a
    continuous query, `%K` and `%V` bytes of key and value, `%%` a per cent sign; `\n`, `\t`, `\r`, `\0`, `\\` and `\xHH` as in C.

    Raises:
        ValueError: anything else stands behind `%` or `\`.
    """

    def __init__(self, pattern: str) -> None:
        self._times = IdTimes()
        self._parts: list[bytes | Callable[[Event], bytes]] = []
        fields: dict[str, Callable[[Event], bytes]] = {
            "k": lambda event: event.key_bytes,
            "v": _value,
            "b": lambda event: b"" if event.before_bytes is None else _shown(event, event.before_bytes),
            "h": lambda event: orjson.dumps({name: readable(header) for name, header in event.headers.items()}),
            "i": lambda event: b"%d" % event.id,
            "t": lambda event: self._times.text(event.id).encode(),
            "s": lambda event: b"%d" % event.segment,
            "o": lambda event: b"%d" % event.offset,
            "e": lambda event: _KINDS[event.kind_number],
            "c": lambda event: _CHANGES.get(event.change_number, b""),
            "K": lambda event: b"%d" % len(event.key_bytes),
            "V": lambda event: b"-1" if event.kind_number in _WITHOUT_VALUE else b"%d" % len(_value(event)),
            "%": lambda _: b"%",
        }
        for piece in _PATTERN_PIECE.findall(pattern):
            part: bytes | Callable[[Event], bytes] | None
            if piece[0] == "%":
                part = fields.get(piece[1:])
            else:
                part = escaped(piece) if piece[0] == "\\" else piece.encode(errors="surrogateescape")
            if part is None:
                raise ValueError(f"{piece!r} means nothing: write % and one of {' '.join(fields)}, or one of {' '.join(KNOWN)}")
            self._parts.append(part)

    def lines(self, events: Iterable[Event]) -> bytes:
        """Return the events one behind the other."""
        return b"".join([part if isinstance(part, bytes) else part(event) for event in events for part in self._parts])


def _value(event: Event) -> bytes:
    return b"" if event.kind_number in _WITHOUT_VALUE else _shown(event, event.value_bytes)


def _shown(event: Event, data: bytes) -> bytes:
    """Return a value as it stands in a pattern: bytes as they are, JSON and Avro as JSON on one line."""
    if event.source.values is not None:
        return event.source.values.json(data)
    return on_one_line(data) if event.source.json_values else data


def _unquoted(data: bytes) -> str:
    text: str = orjson.loads(data) if data.lstrip().startswith(b'"') else data.decode()
    return text


def renderer(format_name: str, *, has_changes: bool = False, pattern: str | None = None) -> Render:
    """Return the function that renders events as `json`, `raw` or `csv`, or by a pattern; `has_changes`: of a continuous query.

    Raises:
        ValueError: the pattern has what means nothing.
    """
    if pattern is not None:
        return PatternLines(pattern).lines
    if format_name == "csv":
        return CsvLines(has_changes=has_changes).lines
    return raw_lines if format_name == "raw" else partial(_json_lines, JsonLines().lines)


def _json_lines(lines: Render, events: "Iterable[Event]") -> bytes | memoryview:
    """Return events as lines of JSON: a batch by columns, where the program has loaded pyarrow anyway."""
    if "pyarrow" in sys.modules and not isinstance(events, list):
        from eventlog.client.reading.batches import EventBatch  # noqa: PLC0415 -- numpy, which --help must not wait for
        from eventlog.client.reading.json_columns import lines_of  # noqa: PLC0415 -- likewise

        if isinstance(events, EventBatch) and (found := lines_of(events)) is not None:
            return found
    return lines(events)
