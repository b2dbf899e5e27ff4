"""What a record says of an event: Debezium's envelope, an upsert, or the event as it is; by columns.

`debezium` follows the messages of Debezium's connectors: `before` and `after` are rows, `source` says where the change stands in
the log, `op` is c, u or d, for an entry of the state r, and a removal is followed by a tombstone. A row of a JSON cache has the
fields of a value that is an object behind the key, which stands under `key_field`; a value that has this field keeps its own. Any
other value stands in a field `value`, bytes in base64. Values are spliced in and not parsed: they were known to be JSON when they
were stored.

The encodings `json-schema` and `avro` declare rows. Where values have a declared type, the fields of a record stand in the row in the same
way, and each value is checked and told as its type says. Where not, a row has two fields whatever the value is: the key, and the value
as text of the logical type `io.debezium.data.Json`, or as bytes.

What is left to the caller: rows that lack a before-image (`rows_without_before`), which consumers of `debezium` cannot take.
"""

import json
from binascii import b2a_base64
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow.compute as pc

from eventlog.arrays import Ints, Mask
from eventlog.batch import byte_columns as columns
from eventlog.batch.byte_columns import Column, Items
from eventlog.batch.columns import EventColumns
from eventlog.batch.texts import Texts
from eventlog.events import KIND_NAMES, Kind
from eventlog.ids import EPOCH_MS, TIME_SHIFT
from eventlog.kafka import avro
from eventlog.kafka.records import LOOP_MAX, EventHeaders, RecordBatch, Records, build_batches
from eventlog.kafka.shape import CONNECTOR, Shape

_OPS: Final = {Kind.CREATED: "c", Kind.MODIFIED: "u", Kind.REMOVED: "d", Kind.EXPIRED: "d", Kind.STATE: "r"}
_OP_NAMES: Final = [_OPS[kind] for kind in Kind]
_CREATED, _REMOVED, _EXPIRED, _STATE = (int(kind) for kind in (Kind.CREATED, Kind.REMOVED, Kind.EXPIRED, Kind.STATE))
_ESCAPE: Final = rb"\u"
_OBJECT, _QUOTE, _BACKSLASH, _SPACE = b'{"\\ '
_CLOSE = ord("}")
_OF_FIELDS, _OF_NOTHING, _OF_OTHER = range(3)
_SEPARATORS = (b",", b"", b',"value":')
_NULL: Final = b"null"
Told = TypeVar("Told", bytes, Column)


class RecordRows(NamedTuple):
    """Keys and values of records; record i tells of event `of[i]`, where there are more records than events."""

    of: Ints
    keys: Items
    values: Items


class LaidOut(NamedTuple):
    """Batches, and the event of each record; a batch's `first` and `count` are rows of these."""

    batches: list[RecordBatch]
    events: EventColumns


def batches_of(events: EventColumns, shape: Shape, *, partitions: int, now_ms: int, bytes_max: int) -> list[RecordBatch]:
    """Return the batches of `laid_out`. Raises what that does."""
    return laid_out(events, shape, partitions=partitions, now_ms=now_ms, bytes_max=bytes_max).batches


def laid_out(events: EventColumns, shape: Shape, *, partitions: int, now_ms: int, bytes_max: int) -> LaidOut:
    """Return a read as batches of at most `bytes_max`, but for one of a single larger record.

    Events of segment s go to partition s % partitions, in their order. Batches of a partition follow each other. In `debezium` a removal
    is two records.

    Raises:
        UnfitValue: a value is not of its declared type.
    """
    if not len(events):
        return LaidOut([], events)
    places = events.segments % partitions
    if np.count_nonzero(places[1:] < places[:-1]):
        events = events.take(places.argsort(kind="stable"))
    of, keys, values = rows_of(events, shape, now_ms=now_ms)
    if len(of) > len(events):
        events = events.take(of)
    headers = EventHeaders(
        ids=events.ids,
        segments=events.segments,
        offsets=events.offsets,
        kinds=events.kinds,
        own=None if events.headers is None else _own(events),
    )
    records = Records(
        partitions=events.segments % partitions,
        timestamps=_times_of(events),
        keys=keys,
        values=values,
        headers=headers,
    )
    return LaidOut(build_batches(records, bytes_max=bytes_max), events)


def _own(events: EventColumns) -> columns.Items:
    assert events.headers is not None, "asked where there are some"
    if len(events) <= LOOP_MAX:
        return list[bytes | None](events.headers.to_list())
    return columns.of_texts(events.headers)


def rows_of(events: EventColumns, shape: Shape, *, now_ms: int) -> RecordRows:
    """Return the records of events. `now_ms` is when they are told, in milliseconds since 1970: `ts_ms` of the envelope.

    Raises:
        UnfitValue: a value is not of its declared type.
    """
    gone = removals(events)
    if shape.form != "debezium":
        return _as_it_is(events, gone, shape)
    images = _had_one(events) & _has_image(events, shape), ~gone
    if len(events) <= LOOP_MAX and shape.encoding == "json" and shape.declared is None:
        return _few_rows(events, gone, images, shape, now_ms=now_ms)
    if shape.encoding == "avro":
        keys, values = avro.key_records(events, shape), avro.envelopes(events, images, shape, now_ms=now_ms, ops=_OP_NAMES)
    else:
        told = _keys(events.keys, shape)
        keys, values = _key_records(told, shape), _envelopes(events, told, images, shape, now_ms=now_ms)
    everything = np.arange(len(events))
    if not shape.has_tombstones or not np.count_nonzero(gone):
        return RecordRows(everything, keys, values)
    of = everything.repeat(np.where(gone, 2, 1))
    is_told = np.ones(len(of), bool)
    is_told[1:] = of[1:] != of[:-1]
    rows = columns.index_of(of)
    return RecordRows(of, keys.take(rows), columns.where(is_told, values.take(rows), None))


def _as_it_is(events: EventColumns, gone: Mask, shape: Shape) -> RecordRows:
    """Return values as they are, and nothing where they were removed."""
    everything, is_raw = np.arange(len(events)), shape.form == "raw"
    if shape.encoding == "avro":
        return RecordRows(everything, avro.key_records(events, shape), avro.value_records(events, ~gone, shape))
    if len(events) <= LOOP_MAX and shape.encoding == "json":
        values = [None if is_gone else value for value, is_gone in zip(events.values.to_list(), gone.tolist(), strict=True)]
        return RecordRows(everything, events.keys.to_list() if is_raw else _few_key_records(events.keys, shape), values)
    keys = columns.of_texts(events.keys) if is_raw else _key_records(_keys(events.keys, shape), shape)
    if shape.encoding == "json":
        return RecordRows(everything, keys, columns.where(~gone, columns.of_texts(events.values), None))
    rows = np.flatnonzero(~gone)
    told = columns.join(_front_of_schema(shape), _payloads(events, rows, events.values.take(rows), shape, word="value"), b"}")
    return RecordRows(everything, keys, columns.spread(told, ~gone, None))


def _front_of_schema(shape: Shape) -> bytes:
    return b'{"schema":' + shape.value_schema + b',"payload":'


def removals(events: EventColumns) -> Mask:
    """Return which events leave nothing."""
    found: Mask = (events.kinds == _REMOVED) | (events.kinds == _EXPIRED)
    return found


def rows_without_before(events: EventColumns, shape: Shape) -> Ints:
    """Return the events that replaced or removed something, and do not say what."""
    return np.flatnonzero(_had_one(events) & ~_has_image(events, shape))


def _has_image(events: EventColumns, shape: Shape) -> Mask:
    """Return which events say what they replaced, among those that did.

    Where events are joined that were written with images and without, the latter's are empty. Only bytes may be an empty image.
    """
    if events.before is None or shape.is_bytes:
        return events.has_before
    found: Mask = events.has_before & (events.before.sizes > 0)
    return found


def _had_one(events: EventColumns) -> Mask:
    found: Mask = (events.kinds != _CREATED) & (events.kinds != _STATE)
    return found


def _envelopes(events: EventColumns, keys: Column, images: tuple[Mask, Mask], shape: Shape, *, now_ms: int) -> Column:
    """Return envelopes in JSON; `images` are where there is a before-image and a value."""
    rows = _RowsInJson(events, columns.join(shape.front_of_row, keys), shape)
    had, has = images
    after = rows.images(events.values, has, word="value")
    before = columns.constant(_NULL, len(events)) if events.before is None else rows.images(events.before, had, word="before")
    return columns.join(
        *_EnvelopeLayout(shape).parts(
            before=before,
            after=after,
            time=columns.of_numbers(_times_of(events)),
            snapshot=columns.chosen((b"false", shape.snapshot.encode()), (events.kinds == _STATE).astype(np.uint8)),
            id_=columns.of_numbers(events.ids),
            place=(columns.of_numbers(events.segments), columns.of_numbers(events.offsets)),
            end=columns.chosen(_ends(now_ms, shape), events.kinds),
        )
    )


def _few_rows(events: EventColumns, gone: Mask, images: tuple[Mask, Mask], shape: Shape, *, now_ms: int) -> RecordRows:
    """Return what `rows_of` does in `debezium` and JSON, event by event; values have no declared type."""
    layout, ends, (front, end) = _EnvelopeLayout(shape), _ends(now_ms, shape), _bounds_of_key(shape)
    snapshot, tombstones = shape.snapshot.encode(), gone.tolist() if shape.has_tombstones else [False] * len(gone)
    had, has = (mask.tolist() for mask in images)
    of, keys, values = [], list[bytes | None](), list[bytes | None]()
    places = zip(events.ids.tolist(), _times_of(events).tolist(), events.segments.tolist(), events.offsets.tolist(), strict=True)
    befores = [b""] * len(gone) if events.before is None else events.before.to_list()
    rows = zip(places, events.kinds.tolist(), events.keys.to_list(), befores, events.values.to_list(), strict=True)
    for row, ((id_, time, segment, offset), kind, key, before, after) in enumerate(rows):
        told = _told_key(key, shape)
        row_front = shape.front_of_row + told
        parts = layout.parts(
            before=_image(shape, row_front, before) if had[row] else _NULL,
            after=_image(shape, row_front, after) if has[row] else _NULL,
            time=b"%d" % time,
            snapshot=snapshot if kind == _STATE else b"false",
            id_=b"%d" % id_,
            place=(b"%d" % segment, b"%d" % offset),
            end=ends[kind],
        )
        of.append(row)
        keys.append(b"".join((front, told, end)))
        values.append(b"".join(parts))
        if tombstones[row]:
            of.append(row)
            keys.append(keys[-1])
            values.append(None)
    return RecordRows(np.array(of), keys, values)


def _times_of(events: EventColumns) -> Ints:
    """Return when events happened, in milliseconds since 1970."""
    found: Ints = (events.ids >> TIME_SHIFT) + EPOCH_MS
    return found


class _EnvelopeLayout:
    """What stands where in an envelope: between what is told of events stands what is the same for all."""

    def __init__(self, shape: Shape) -> None:
        db, table = json.dumps(shape.cluster), json.dumps(shape.cache)
        self._front = _front_of_schema(shape) + b'{"before":' if shape.encoding == "json-schema" else b'{"before":'
        self._source = _front_of_source(shape)
        self._sequence = f'","db":{db},"sequence":"[\\"'.encode()
        self._table = f'000000,"table":{table},"segment":'.encode()

    def parts(
        self, *, before: Told, after: Told, time: Told, snapshot: Told, id_: Told, place: tuple[Told, Told], end: Told
    ) -> tuple[Told | bytes, ...]:
        """Return what is to be joined: of one event or, in columns, of many. A place is (segment, offset)."""
        segment, offset = place
        return (
            self._front,
            before,
            b',"after":',
            after,
            self._source,
            time,
            b',"snapshot":"',
            snapshot,
            self._sequence,
            id_,
            rb"\",\"",
            offset,
            rb'\"]","ts_us":',
            time,
            b'000,"ts_ns":',
            time,
            self._table,
            segment,
            b',"offset":',
            offset,
            b',"event_id":',
            id_,
            end,
        )


def _front_of_source(shape: Shape) -> bytes:
    """Return what stands between the rows and the time of the event."""
    known = f'"version":{json.dumps(shape.version)},"connector":"{CONNECTOR}","name":{json.dumps(shape.prefix)}'
    return f',"source":{{{known},"ts_ms":'.encode()


def _ends(now_ms: int, shape: Shape) -> list[bytes]:
    """Return the end of a message of each kind."""
    end = "}" if shape.encoding == "json-schema" else ""
    told = f'"ts_ms":{now_ms},"ts_us":{now_ms}000,"ts_ns":{now_ms}000000,"transaction":null}}{end}'
    return [f',"kind":"{name}"}},"op":"{op}",{told}'.encode() for name, op in zip(KIND_NAMES, _OP_NAMES, strict=True)]


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
    return msgspec.json.encode(key.decode()) if shape.has_text_keys else b'"' + b2a_base64(key, newline=False) + b'"'


def _bounds_of_key(shape: Shape) -> tuple[bytes, bytes]:
    """Return what stands before and behind the key in a record's key."""
    if shape.encoding != "json-schema":
        return shape.front_of_row, b"}"
    return b'{"schema":' + shape.key_schema + b',"payload":' + shape.front_of_row, b"}}"


def _few_key_records(keys: Texts, shape: Shape) -> list[bytes]:
    """Return what `_key_records` does, one by one."""
    front, end = _bounds_of_key(shape)
    return [b"".join((front, _told_key(key, shape), end)) for key in keys.to_list()]


def _key_records(keys: Column, shape: Shape) -> Column:
    """Return record keys: a struct of one field."""
    front, end = _bounds_of_key(shape)
    return columns.join(front, keys, end)


# ---------------------------------------------------------------- rows


class _RowsInJson:
    """Makes rows of values. `fronts` are rows up to the key."""

    def __init__(self, events: EventColumns, fronts: Column, shape: Shape) -> None:
        self._events = events
        self._fronts = fronts
        self._shape = shape
        # mostly there is none of these anywhere, and asking each value takes ten times as long as all together; values before are in
        # the same stored bytes
        signs = (shape.key_sign, _ESCAPE)
        self._signs = [sign for sign in signs if sign in events.values.data] if shape.is_json and shape.encoding == "json" else []

    def images(self, values: Texts, is_there: Mask, *, word: str) -> Column:
        """Return rows of values, `null` where there is none."""
        rows = np.flatnonzero(is_there)
        if len(rows) == len(is_there):
            return self._told(rows, self._fronts, values, word=word)
        found = self._told(rows, self._fronts.take(columns.index_of(rows)), values.take(rows), word=word)
        return columns.spread(found, is_there, _NULL)

    def _told(self, rows: Ints, fronts: Column, values: Texts, *, word: str) -> Column:
        shape, declared = self._shape, self._shape.declared
        if not len(rows):
            return fronts
        if declared is None and shape.is_json and shape.encoding == "json":
            return _spliced(fronts, values, shape, self._signs)
        if declared is None or not declared.is_spread:
            return columns.join(fronts, _SEPARATORS[_OF_OTHER], _payloads(self._events, rows, values, shape, word=word), b"}")
        payloads = avro.converted(self._events, rows, values, shape, word=word)
        if shape.has_own_key:
            return columns.of_items(payloads)
        separator = _SEPARATORS[_OF_FIELDS if declared.fields else _OF_NOTHING]
        return columns.join(fronts, separator, columns.of_items([payload[1:] for payload in payloads]))


def _payloads(events: EventColumns, rows: Ints, values: Texts, shape: Shape, *, word: str) -> Column:
    """Return values as they stand in a field of their own."""
    if shape.declared is not None:
        return columns.of_items(avro.converted(events, rows, values, shape, word=word))
    if not shape.is_json:
        return columns.of_items([b'"' + b2a_base64(value, newline=False) + b'"' for value in values.to_list()])
    return columns.join(b'"', _escaped(columns.of_texts(values)), b'"')


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


def _image(shape: Shape, front: bytes, value: bytes) -> bytes:
    """Return the row of one value, which is looked at only where it must be."""
    if not shape.is_json:
        return b"".join((front, _SEPARATORS[_OF_OTHER], b'"', b2a_base64(value, newline=False), b'"}'))
    first, second = value[:1], value[1:2]
    if first <= b" " or (first == b"{" and (second <= b" " or _ESCAPE in value or shape.key_sign in value)):
        return _row(shape, front, value)
    if first != b"{":
        return b"".join((front, _SEPARATORS[_OF_OTHER], value, b"}"))
    return b"".join((front, _SEPARATORS[_OF_NOTHING if second == b"}" else _OF_FIELDS], value[1:]))


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
