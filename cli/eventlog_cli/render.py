"""Events as lines: JSON, the value's bytes alone, or CSV."""

import csv
import io
from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import orjson

from eventlog.events import Event, Kind
from eventlog_cli.quantities import IdTimes

_WITHOUT_VALUE = frozenset({Kind.REMOVED, Kind.EXPIRED})
_RAW_JSON = msgspec.json.Decoder(msgspec.Raw)
CSV_COLUMNS = ("id", "time", "segment", "offset", "kind", "key", "value")

Render = Callable[[Iterable[Event]], bytes]


def readable(data: bytes) -> Any:
    """Return `data` as text, or as `{"base64": ...}` where it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def json_of(data: bytes, *, json_values: bool) -> Any:
    """Return what stands for a value in JSON. JSON values keep their digits: they are checked, and copied as they are."""
    if json_values:
        try:
            data.decode()
            _RAW_JSON.decode(data)
        except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
            return readable(data)
        # outside of strings a newline is a blank like any other, within them JSON has none
        return orjson.Fragment(data.replace(b"\n", b" ") if b"\n" in data else data)
    return readable(data)


class EventRows:
    """Events as JSON objects, in the form that is fixed for all commands."""

    def __init__(self) -> None:
        self._times = IdTimes()

    def row(self, event: Event) -> dict[str, Any]:
        """Return one event, ready for orjson."""
        source = event.source
        row = {
            "id": event.id,
            "id_str": str(event.id),
            "time": self._times.text(event.id),
            "segment": event.segment,
            "offset": event.offset,
            "kind": event.kind,
            "key": readable(event.key_bytes),
            "value": None if event.kind_number in _WITHOUT_VALUE else json_of(event.value_bytes, json_values=source.json_values),
        }
        if event.before_bytes is not None:
            row["before"] = json_of(event.before_bytes, json_values=source.json_values)
        if event.header_bytes:
            row["headers"] = {name: readable(value) for name, value in event.headers.items()}
        return row

    def lines(self, events: Iterable[Event]) -> bytes:
        """Return one line an event."""
        dumps, row = orjson.dumps, self.row
        return b"".join([dumps(row(event), option=orjson.OPT_APPEND_NEWLINE) for event in events])


def raw_lines(events: Iterable[Event]) -> bytes:
    """Return the value's bytes and a newline an event; only the newline where an event has no value."""
    return b"".join([b"\n" if event.kind_number in _WITHOUT_VALUE else event.value_bytes + b"\n" for event in events])


class CsvRows:
    """Events as CSV, names first; values as in JSON, text without its quotes."""

    def __init__(self) -> None:
        self._rows = EventRows()
        self._is_first = True

    def lines(self, events: Iterable[Event]) -> bytes:
        """Return one record an event."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if self._is_first:
            writer.writerow(CSV_COLUMNS)
            self._is_first = False
        for event in events:
            row = self._rows.row(event)
            writer.writerow([_csv_cell(row[name]) for name in CSV_COLUMNS])
        return text.getvalue().encode("utf-8", "surrogatepass")


def _csv_cell(value: Any) -> Any:
    if value is None or isinstance(value, str | int):
        return value
    return orjson.dumps(value).decode()


def renderer(format_name: str) -> Render:
    """Return the function that renders events as `json`, `raw` or `csv`."""
    if format_name == "csv":
        return CsvRows().lines
    return raw_lines if format_name == "raw" else EventRows().lines
