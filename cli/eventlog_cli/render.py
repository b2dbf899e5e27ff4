"""Events as lines: JSON, the value's bytes alone, or CSV."""

import csv
import io
from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import orjson

from eventlog.events import KIND_NAMES, Change, Event, Kind
from eventlog_cli.quantities import IdTimes

_WITHOUT_VALUE = frozenset({Kind.REMOVED, Kind.EXPIRED})
_KINDS = [name.encode() for name in KIND_NAMES]
_CHANGES: dict[int, bytes] = {change: change.name.encode() for change in Change}
_check_json = msgspec.json.Decoder(msgspec.Raw).decode
# By hand, as orjson would write it: making a dictionary of each event first takes more than twice the time.
_LINE = b'{"id":%d,"id_str":"%d","time":"%b","segment":%d,"offset":%d,"kind":"%b","key":%b,"value":%b'
CSV_COLUMNS = ("id", "time", "segment", "offset", "kind", "key", "value")

Render = Callable[[Iterable[Event]], bytes]


def readable(data: bytes) -> Any:
    """Return `data` as text, or as `{"base64": ...}` where it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def json_of(data: bytes, *, json_values: bool) -> bytes:
    """Return the JSON that stands for a stored value, on one line. What is JSON keeps its digits: it is checked, and taken as it is."""
    if not json_values:
        return orjson.dumps(readable(data))
    try:
        data.decode()
        _check_json(data)
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
        return orjson.dumps(readable(data))
    # outside of strings a newline is a blank like any other, within them JSON has none
    return data.replace(b"\n", b" ") if b"\n" in data else data


class JsonLines:
    """Events as JSON objects, in the form that is fixed for all commands."""

    def __init__(self) -> None:
        self._times = IdTimes()

    def lines(self, events: Iterable[Event]) -> bytes:
        """Return one line an event."""
        line = self._line
        return b"".join([line(event) for event in events])

    def _line(self, event: Event) -> bytes:
        json_values = event.source.json_values
        kind = event.kind_number
        value = b"null" if kind in _WITHOUT_VALUE else json_of(event.value_bytes, json_values=json_values)
        key = orjson.dumps(readable(event.key_bytes))
        time = self._times.text(event.id).encode()
        line = _LINE % (event.id, event.id, time, event.segment, event.offset, _KINDS[kind], key, value)
        if event.before_bytes is not None:
            line += b',"before":' + json_of(event.before_bytes, json_values=json_values)
        if event.header_bytes:
            line += b',"headers":' + orjson.dumps({name: readable(header) for name, header in event.headers.items()})
        if event.change_number:
            line += b',"change":"%s"' % _CHANGES[event.change_number]
        if event.source.may_repeat is not None and event.maybe_repeated:
            line += b',"maybe_repeated":true'
        return line + b"}\n"


def raw_lines(events: Iterable[Event]) -> bytes:
    """Return the value's bytes and a newline an event; only the newline where an event has no value."""
    return b"".join([b"\n" if event.kind_number in _WITHOUT_VALUE else event.value_bytes + b"\n" for event in events])


class CsvLines:
    """Events as CSV, names first; values as JSON, but text without its quotes. `has_changes`: of a continuous query."""

    def __init__(self, *, has_changes: bool) -> None:
        self._times = IdTimes()
        self._has_changes = has_changes
        self._is_first = True

    def lines(self, events: Iterable[Event]) -> bytes:
        """Return one record an event."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if self._is_first:
            writer.writerow((*CSV_COLUMNS, "change") if self._has_changes else CSV_COLUMNS)
            self._is_first = False
        for event in events:
            value = None
            if event.kind_number not in _WITHOUT_VALUE:
                value = _unquoted(json_of(event.value_bytes, json_values=event.source.json_values))
            key = _unquoted(orjson.dumps(readable(event.key_bytes)))
            changes = (event.change,) if self._has_changes else ()
            writer.writerow((event.id, self._times.text(event.id), event.segment, event.offset, event.kind, key, value, *changes))
        return text.getvalue().encode()


def _unquoted(data: bytes) -> str:
    text: str = orjson.loads(data) if data.lstrip().startswith(b'"') else data.decode()
    return text


def renderer(format_name: str, *, has_changes: bool = False) -> Render:
    """Return the function that renders events as `json`, `raw` or `csv`; `has_changes`: of a continuous query."""
    if format_name == "csv":
        return CsvLines(has_changes=has_changes).lines
    return raw_lines if format_name == "raw" else JsonLines().lines
