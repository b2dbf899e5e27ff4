"""Envelopes and rows in Avro's binary encoding (Avro 1.12, "Binary Encoding"), by columns, framed as Confluent's serializers frame them.

A record is its fields one behind the other, so a row is the key in front of the value's own bytes, and an envelope is columns joined. A
string or bytes has its length before it, a value that may be null the number of its branch, and all numbers are zigzag varints.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from eventlog.arrays import Ints, Mask
from eventlog.batch import byte_columns as columns
from eventlog.batch.byte_columns import Column
from eventlog.batch.columns import EventColumns
from eventlog.batch.texts import Texts
from eventlog.errors import SchemaBehind, UnfitValue
from eventlog.events import KIND_NAMES, Kind
from eventlog.ids import EPOCH_MS, TIME_SHIFT
from eventlog.kafka.declared import GoesOn
from eventlog.kafka.records import VARINT, varints
from eventlog.kafka.shape import CONNECTOR, Shape
from eventlog.schema.strict_json import Misfit

NULL: Final = b"\0"
SECOND: Final = b"\x02"  # the branch that is not null
_MAGIC: Final = b"\0"


def key_records(events: EventColumns, shape: Shape) -> Column:
    """Return record keys, framed."""
    return columns.join(_frame(shape.schema_ids[0]), _prefixed(columns.of_texts(events.keys)))


def value_records(events: EventColumns, is_there: Mask, shape: Shape) -> Column:
    """Return values as they are, framed, and null where there is none.

    Raises:
        UnfitValue: one is not of its declared type.
    """
    rows = np.flatnonzero(is_there)
    texts = events.values.take(rows)
    if shape.declared is not None:
        told = columns.of_items(converted(events, rows, texts, shape, word="value"))
    else:
        told = _prefixed(columns.of_texts(texts))
    return columns.spread(columns.join(_frame(shape.schema_ids[1]), told), is_there, None)


def envelopes(events: EventColumns, images: tuple[Mask, Mask], shape: Shape, *, now_ms: int, ops: Sequence[str]) -> Column:
    """Return envelopes, framed. `images` are where there is a before-image and a value; `ops` has the operation of each kind.

    Raises:
        UnfitValue: a value or a before-image is not of its declared type.
    """
    keys = _prefixed(columns.of_texts(events.keys))
    had, has = images
    before = columns.constant(NULL, len(events))
    if events.before is not None:
        before = _images(events, keys, shape, events.before, is_there=had, word="before")
    times = (events.ids >> TIME_SHIFT) + EPOCH_MS
    told = [SECOND + VARINT[now_ms * factor] for factor in (1, 1_000, 1_000_000)]
    return columns.join(
        _frame(shape.schema_ids[1]),
        before,
        _images(events, keys, shape, events.values, is_there=has, word="value"),
        b"".join(map(_text, (shape.version, CONNECTOR, shape.prefix))),
        _numbers(times),
        columns.chosen([NULL + _text("false"), NULL + _text(shape.snapshot)], (events.kinds == Kind.STATE).astype(np.uint8)),
        _text(shape.cluster) + SECOND,
        _prefixed(columns.join(b'["', columns.of_numbers(events.ids), b'","', columns.of_numbers(events.offsets), b'"]')),
        SECOND,
        _numbers(times * 1_000),
        SECOND,
        _numbers(times * 1_000_000),
        _text(shape.cache),
        _numbers(events.segments),
        _numbers(events.offsets),
        _numbers(events.ids),
        columns.chosen([_text(name) + _text(op) for name, op in zip(KIND_NAMES, ops, strict=True)], events.kinds),
        b"".join(told) + NULL,
    )


def converted(events: EventColumns, rows: Ints, texts: Texts, shape: Shape, *, word: str) -> list[bytes]:
    """Return values of a declared type for the shape's encoding, one by one. `rows` are those of their events, `word` names them in errors.

    Raises:
        UnfitValue: one is not of this type; says which event's, and where in it.
        SchemaBehind: one goes on behind what the type has, as one does that was written with a newer schema of its cache.
    """
    declared = shape.declared
    assert declared is not None, "there is a type"
    convert = declared.encoded if shape.encoding == "avro" else declared.payload
    found: list[bytes] = []
    try:
        found.extend(map(convert, texts.to_list()))  # which leaves those before the one that does not fit
    except Misfit as misfit:
        row = rows.item(len(found))
        where: Any = {
            "segment": events.segments.item(row),
            "offset": events.offsets.item(row),
            "key": events.keys.item(row).decode(errors="backslashreplace"),
        }
        if isinstance(misfit, GoesOn):
            raise SchemaBehind(**where) from misfit
        raise UnfitValue(**where, field=word + misfit.place.removeprefix("value"), why=misfit.why) from misfit
    return found


def _images(events: EventColumns, keys: Column, shape: Shape, values: Texts, *, is_there: Mask, word: str) -> Column:
    """Return rows, and `NULL` where there is none."""
    rows = np.flatnonzero(is_there)
    texts, own = values.take(rows), keys.take(columns.index_of(rows))
    if shape.declared is None:
        told = columns.join(SECOND, own, SECOND, _prefixed(columns.of_texts(texts)))
    else:
        items = columns.of_items(converted(events, rows, texts, shape, word=word))
        told = columns.join(SECOND, items) if shape.has_own_key else columns.join(SECOND, own, items)
    return columns.spread(told, is_there, NULL)


def _frame(schema_id: int) -> bytes:
    return _MAGIC + schema_id.to_bytes(4)


def _text(text: str) -> bytes:
    data = text.encode()
    return VARINT[len(data)] + data


def _prefixed(column: Column) -> Column:
    return columns.join(_numbers(columns.sizes_of(column)), column)


def _numbers(numbers: Ints) -> Column:
    return columns.of_masked(*varints(numbers))
