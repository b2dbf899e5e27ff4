"""What a record says of an event: Debezium's envelope, an upsert, or the event as it is; by columns.

`debezium` follows the messages of Debezium's connectors: `before` and `after` are rows, `source` says where the change stands in
the log, `op` is c, u or d, for an entry of the state r, and a removal is followed by a tombstone. A row of a JSON cache has the
fields of a value that is an object behind the key, which stands under `key_field`; a value that has this field keeps its own. Any
other value stands in a field `value`, bytes in base64. Values are spliced in and not parsed: they were known to be JSON when they
were stored.

With a schema in each message (`has_schema`) a row has two fields whatever the value is, since the fields of values are not declared
anywhere: the key, and the value as text of the logical type `io.debezium.data.Json`, or as bytes.

What is left to the caller: rows that lack a before-image (`rows_without_before`), which consumers of `debezium` cannot take.
"""

import json
from binascii import b2a_base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow.compute as pc

from eventlog.arrays import Ints, Mask
from eventlog.batch.columns import EventColumns
from eventlog.batch.texts import Texts
from eventlog.events import KIND_NAMES, Kind
from eventlog.ids import EPOCH_MS, TIME_SHIFT
from eventlog.kafka import columns
from eventlog.kafka.columns import Column, Items
from eventlog.kafka.records import LOOP_MAX

FormatName: TypeAlias = Literal["debezium", "upsert", "raw"]
KEY_FIELD: Final = "_key"
VALUE_FIELD: Final = "value"
JSON_TYPE: Final = "io.debezium.data.Json"
CONNECTOR: Final = "eventlog"
_OPS: Final = {Kind.CREATED: "c", Kind.MODIFIED: "u", Kind.REMOVED: "d", Kind.EXPIRED: "d", Kind.STATE: "r"}
_CREATED, _REMOVED, _EXPIRED, _STATE = (int(kind) for kind in (Kind.CREATED, Kind.REMOVED, Kind.EXPIRED, Kind.STATE))
_ESCAPE: Final = rb"\u"
_OBJECT, _QUOTE, _BACKSLASH, _SPACE = b'{"\\ '
_CLOSE = ord("}")
_OF_FIELDS, _OF_NOTHING, _OF_OTHER = range(3)
_SEPARATORS = (b",", b"", b',"value":')


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How a cache's events are told. `prefix` names the source to its readers, `topic` the schemas."""

    cache: str
    cluster: str
    prefix: str
    topic: str
    version: str
    is_json: bool
    has_text_keys: bool
    key_field: str = KEY_FIELD
    has_tombstones: bool = True
    has_schema: bool = False

    @cached_property
    def front_of_row(self) -> bytes:
        """What stands before the key in a row and in a record's key."""
        return b"{" + _text(self.key_field) + b":"

    @cached_property
    def bounds_of_key(self) -> tuple[bytes, bytes]:
        """What stands before and behind the key in a record's key."""
        if not self.has_schema:
            return self.front_of_row, b"}"
        return b'{"schema":' + self.key_schema + b',"payload":' + self.front_of_row, b"}}"

    @cached_property
    def front_of_source(self) -> bytes:
        """What stands between the rows and the time of the event."""
        known = f'"version":{json.dumps(self.version)},"connector":"{CONNECTOR}","name":{json.dumps(self.prefix)}'
        return f',"source":{{{known},"ts_ms":'.encode()

    @cached_property
    def key_schema(self) -> bytes:
        """The schema of record keys, as Kafka Connect has it."""
        return msgspec.json.encode(_struct([_field(self.key_field, "string")], name=f"{self.topic}.Key"))

    @cached_property
    def value_schema(self) -> bytes:
        """The schema of `debezium` messages, as Kafka Connect has it."""
        return msgspec.json.encode(_envelope_schema(self))


class Rows(NamedTuple):
    """Keys and values of records; record i tells of event `of[i]`, where there are more records than events."""

    of: Ints
    keys: Items
    values: Items


def rows_of(events: EventColumns, form: FormatName, shape: Shape, *, now_ms: int) -> Rows:
    """Return the records of events. `now_ms` is when they are told, in milliseconds since 1970: `ts_ms` of the envelope."""
    if form == "debezium":
        return _debezium(events, shape, now_ms=now_ms)
    return _as_it_is(events, shape, has_plain_keys=form == "raw")


def _as_it_is(events: EventColumns, shape: Shape, *, has_plain_keys: bool) -> Rows:
    """Return values as they are, and nothing where they were removed."""
    everything, gone = np.arange(len(events)), removals(events)
    if len(events) <= LOOP_MAX:
        values = [None if is_gone else value for value, is_gone in zip(events.values.to_list(), gone.tolist(), strict=True)]
        return Rows(everything, events.keys.to_list() if has_plain_keys else _few_key_records(events.keys, shape), values)
    keys = columns.of_texts(events.keys) if has_plain_keys else _key_records(_keys(events.keys, shape), shape)
    return Rows(everything, keys, columns.where(~gone, columns.of_texts(events.values), None))


def removals(events: EventColumns) -> Mask:
    """Return which events leave nothing."""
    found: Mask = (events.kinds == _REMOVED) | (events.kinds == _EXPIRED)
    return found


def rows_without_before(events: EventColumns) -> Ints:
    """Return the events that replaced or removed something, and do not say what."""
    changes = _had_one(events)
    return np.flatnonzero(changes if events.before is None else changes & ~events.has_before)


def _had_one(events: EventColumns) -> Mask:
    found: Mask = (events.kinds != _CREATED) & (events.kinds != _STATE)
    return found


def _debezium(events: EventColumns, shape: Shape, *, now_ms: int) -> Rows:
    keys, gone = _keys(events.keys, shape), removals(events)
    fronts = columns.join(shape.front_of_row, keys)
    # mostly there is none of these anywhere, and asking each value takes ten times as long as all together
    signs = [sign for sign in (_text(shape.key_field), _ESCAPE) if sign in events.values.data]
    after = _images(fronts, events.values, ~gone, shape, signs=signs)
    before = (
        columns.where(np.zeros(len(events), bool), keys, b"null")
        if events.before is None
        else _images(fronts, events.before, _had_one(events) & events.has_before, shape, signs=signs)
    )
    ids, offsets = columns.of_numbers(events.ids), columns.of_numbers(events.offsets)
    times = columns.of_numbers((events.ids >> TIME_SHIFT) + EPOCH_MS)
    db, table = json.dumps(shape.cluster), json.dumps(shape.cache)
    values = columns.join(
        b'{"schema":' + shape.value_schema + b',"payload":{"before":' if shape.has_schema else b'{"before":',
        before,
        b',"after":',
        after,
        shape.front_of_source,
        times,
        b',"snapshot":"',
        columns.chosen((b"false", b"true"), (events.kinds == _STATE).astype(np.uint8)),
        f'","db":{db},"sequence":"[\\"'.encode(),
        ids,
        rb"\",\"",
        offsets,
        rb'\"]","ts_us":',
        times,
        b'000,"ts_ns":',
        times,
        f'000000,"table":{table},"segment":'.encode(),
        columns.of_numbers(events.segments),
        b',"offset":',
        offsets,
        b',"event_id":',
        ids,
        columns.chosen(_ends(now_ms, shape), events.kinds),
    )
    records = _key_records(keys, shape)
    everything = np.arange(len(events))
    if not shape.has_tombstones or not np.count_nonzero(gone):
        return Rows(everything, records, values)
    of = everything.repeat(np.where(gone, 2, 1))
    is_told = np.ones(len(of), bool)
    is_told[1:] = of[1:] != of[:-1]
    return Rows(of, records.take(of), columns.where(is_told, values.take(of), None))


def _ends(now_ms: int, shape: Shape) -> list[bytes]:
    """Return the end of a message of each kind."""
    told = f'"ts_ms":{now_ms},"ts_us":{now_ms}000,"ts_ns":{now_ms}000000,"transaction":null}}' + ("}" if shape.has_schema else "")
    kinds = {int(kind): f',"kind":"{KIND_NAMES[kind]}"}},"op":"{op}",{told}' for kind, op in _OPS.items()}
    return [kinds.get(number, "").encode() for number in range(max(kinds) + 1)]


# ---------------------------------------------------------------- keys


def _keys(keys: Texts, shape: Shape) -> Column:
    """Return keys as JSON strings."""
    if not shape.has_text_keys:
        return columns.of_items([_told_key(key, shape) for key in keys.to_list()])
    column = columns.of_texts(keys)
    data, bounds = columns.bytes_of(column)
    told = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    if np.count_nonzero((told < _SPACE) | (told == _QUOTE) | (told == _BACKSLASH)):
        return columns.of_items([_told_key(key, shape) for key in column.to_pylist()])
    return columns.join(b'"', column, b'"')


def _told_key(key: bytes, shape: Shape) -> bytes:
    return _text(key.decode()) if shape.has_text_keys else b'"' + b2a_base64(key, newline=False) + b'"'


def _few_key_records(keys: Texts, shape: Shape) -> list[bytes]:
    """Return what `_key_records` does, one by one."""
    front, end = shape.bounds_of_key
    return [b"".join((front, _told_key(key, shape), end)) for key in keys.to_list()]


def _key_records(keys: Column, shape: Shape) -> Column:
    """Return record keys: a struct of one field."""
    front, end = shape.bounds_of_key
    return columns.join(front, keys, end)


# ---------------------------------------------------------------- rows


def _images(fronts: Column, values: Texts, is_there: Mask, shape: Shape, *, signs: Sequence[bytes]) -> Column:
    """Return rows of values, `null` where there is none. `fronts` are rows up to the key; `signs`: see `_may_have`."""
    rows = np.flatnonzero(is_there)
    if len(rows) == len(is_there):
        return _told(fronts, values, shape, signs)
    nothing = columns.chosen((b"null",), np.zeros(len(is_there), np.uint8))
    if not len(rows):
        return nothing
    found = _told(fronts.take(rows), values.take(rows), shape, signs)
    return pc.replace_with_mask(nothing, columns.mask_of(is_there), found)


def _told(fronts: Column, values: Texts, shape: Shape, signs: Sequence[bytes]) -> Column:
    if not shape.is_json:
        told = columns.of_items([b'"' + b2a_base64(value, newline=False) + b'"' for value in values.to_list()])
        return columns.join(fronts, _SEPARATORS[_OF_OTHER], told, b"}")
    if shape.has_schema:
        return columns.join(fronts, b',"value":"', _escaped(columns.of_texts(values)), b'"}')
    return _spliced(fronts, values, shape, signs)


def _spliced(fronts: Column, values: Texts, shape: Shape, signs: Sequence[bytes]) -> Column:
    """Return values that are objects with the key in front of their fields, and others beside it."""
    data = np.frombuffer(values.data, np.uint8)
    first = data[values.starts]
    second = data[np.minimum(values.starts + 1, len(data) - 1)]
    is_object = first == _OBJECT
    column = columns.of_texts(Texts(data=values.data, starts=values.starts + is_object, sizes=values.sizes - is_object))
    place = np.where(is_object, np.where(second == _CLOSE, _OF_NOTHING, _OF_FIELDS), _OF_OTHER)
    if np.count_nonzero(place):
        rows = columns.join(fronts, columns.chosen(_SEPARATORS, place), column, columns.chosen((b"}", b""), is_object.astype(np.uint8)))
    else:
        rows = columns.join(fronts, _SEPARATORS[_OF_FIELDS], column)
    unsure = (first <= _SPACE) | is_object & (second <= _SPACE)
    for sign in signs:
        unsure |= is_object & _may_have(column, sign)
    odd = np.flatnonzero(unsure)
    given = zip(fronts.take(odd).to_pylist(), values.take(odd).to_list(), strict=True)
    return columns.replaced(rows, odd, [_row(shape, front, value) for front, value in given])


def _may_have(column: Column, sign: bytes) -> Mask:
    """Return which objects may have the key's field: those that have its name somewhere, or a name that is written with an escape."""
    mask: Mask = pc.match_substring(column, sign).to_numpy(zero_copy_only=False)
    return mask


def _row(shape: Shape, front: bytes, value: bytes) -> bytes:
    """Return the row of one value, which is looked at."""
    text = value.strip()
    if not text.startswith(b"{"):
        return b"".join((front, _SEPARATORS[_OF_OTHER], text, b"}"))
    if shape.key_field in msgspec.json.decode(text, type=dict[str, msgspec.Raw]):
        return text
    inner = text[1:].lstrip()
    return b"".join((front, b"" if inner == b"}" else b",", inner))


def _escaped(column: Column) -> Column:
    """Return JSON texts as they stand within a string. Of what has to be escaped they have only these outside of strings of their own."""
    for plain, told in ((b"\\", rb"\\"), (b'"', rb"\""), (b"\n", rb"\n"), (b"\r", rb"\r"), (b"\t", rb"\t")):
        column = pc.replace_substring(column, plain, told)
    return column


def _text(text: str) -> bytes:
    return msgspec.json.encode(text)


# ---------------------------------------------------------------- schemas, as Kafka Connect writes them


def _envelope_schema(shape: Shape) -> dict[str, Any]:
    value = (
        _field(VALUE_FIELD, "string", name=JSON_TYPE, version=1, optional=True)
        if shape.is_json
        else _field(VALUE_FIELD, "bytes", optional=True)
    )
    row = _struct([_field(shape.key_field, "string"), value], name=f"{shape.topic}.Value", optional=True)
    texts = ("version", "connector", "name")
    numbers = (("segment", "int32"), ("offset", "int64"), ("event_id", "int64"))
    source = _struct(
        [
            *(_field(name, "string") for name in texts),
            _field("ts_ms", "int64"),
            {**_field("snapshot", "string", name="io.debezium.data.Enum", version=1, optional=True), "default": "false"},
            _field("db", "string"),
            _field("sequence", "string", optional=True),
            _field("ts_us", "int64", optional=True),
            _field("ts_ns", "int64", optional=True),
            _field("table", "string"),
            *(_field(name, kind) for name, kind in numbers),
            _field("kind", "string"),
        ],
        name="eventlog.Source",
    )
    transaction = _struct(
        [_field("id", "string"), _field("total_order", "int64"), _field("data_collection_order", "int64")],
        name="event.block",
        optional=True,
    )
    return _struct(
        [
            {**row, "field": "before"},
            {**row, "field": "after"},
            {**source, "field": "source"},
            _field("op", "string"),
            *(_field(name, "int64", optional=True) for name in ("ts_ms", "ts_us", "ts_ns")),
            {**transaction, "field": "transaction"},
        ],
        name=f"{shape.topic}.Envelope",
    )


def _struct(fields: Sequence[dict[str, Any]], *, name: str, optional: bool = False) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields), "optional": optional, "name": name}


def _field(field: str, kind: str, *, optional: bool = False, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": optional, **more, "field": field}
