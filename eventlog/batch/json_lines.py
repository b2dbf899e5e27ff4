"""Events as lines of JSON: made here alone, for the command line and for HTTP."""

from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import orjson

from eventlog.errors import UnreadableValue
from eventlog.events import KIND_NAMES, Change, Event, Kind, ValueFormat
from eventlog.ids import IdTimes

_WITHOUT_VALUE: Final = frozenset({Kind.REMOVED, Kind.EXPIRED})
_KINDS: Final = [name.encode() for name in KIND_NAMES]
_CHANGES: Final[dict[int, bytes]] = {change: change.name.encode() for change in Change}
_check_json = msgspec.json.Decoder(msgspec.Raw).decode
# By hand, as orjson would write it: making a dictionary of each event first takes more than twice the time.
_LINE: Final = b'{%b,"time":"%b","segment":%d,"offset":%d,"kind":"%b","key":%b,"value":%b'


class JsonLines:
    """Events as JSON objects, in the form that is fixed for all commands.

    With `place`, the form that is HTTP's: ids are text alone, because the numbers of JavaScript end at 2^53, and each line says where
    to go on behind it, which is what `place` returns.
    """

    def __init__(self, place: Callable[[Event], str] | None = None) -> None:
        self._times = IdTimes()
        self._place = place

    def lines(self, events: Iterable[Event]) -> bytes:
        """Return one line an event."""
        line = self._line
        return b"".join([line(event) for event in events])

    def _line(self, event: Event) -> bytes:
        json_values, values = event.source.json_values, event.source.values
        kind = event.kind_number
        value = b"null" if kind in _WITHOUT_VALUE else json_of(event.value_bytes, json_values=json_values, values=values)
        key = orjson.dumps(readable(event.key_bytes))
        time = self._times.text(event.id).encode()
        ids = b'"id":%d,"id_str":"%d"' % (event.id, event.id) if self._place is None else b'"id":"%d"' % event.id
        line = _LINE % (ids, time, event.segment, event.offset, _KINDS[kind], key, value)
        if event.before_bytes is not None:
            line += b',"before":' + json_of(event.before_bytes, json_values=json_values, values=values)
        if event.header_bytes:
            line += b',"headers":' + orjson.dumps({name: readable(header) for name, header in event.headers.items()})
        if event.change_number:
            line += b',"change":"%s"' % _CHANGES[event.change_number]
        if event.source.may_repeat is not None and event.maybe_repeated:
            line += b',"maybe_repeated":true'
        if self._place is not None:
            line += b',"position":"%b"' % self._place(event).encode()
        return line + b"}\n"


def readable(data: bytes) -> Any:
    """Return `data` as text, or as `{"base64": ...}` where it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def json_of(data: bytes, *, json_values: bool, values: ValueFormat | None = None) -> bytes:
    """Return the JSON that stands for a stored value, on one line. What is JSON keeps its digits: it is checked, and taken as it is."""
    if values is not None:
        try:
            return values.json(data)
        except UnreadableValue:
            return orjson.dumps(readable(data))
    if not json_values:
        return orjson.dumps(readable(data))
    try:
        data.decode()
        _check_json(data)
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
        return orjson.dumps(readable(data))
    return on_one_line(data)


def on_one_line(data: bytes) -> bytes:
    """Return JSON on one line: outside of strings what ends a line is a blank like any other, within them JSON has none."""
    if b"\r" in data:  # it ends a line of server-sent events
        data = data.replace(b"\r", b" ")
    return data.replace(b"\n", b" ") if b"\n" in data else data
