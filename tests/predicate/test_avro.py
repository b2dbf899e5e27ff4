"""Avro values: fields known beforehand, and only those that are asked for read."""

import io
import json

import fastavro
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.batch.texts import Texts
from eventlog.errors import BadPredicate
from eventlog.predicate.avro import AvroValues
from eventlog.predicate.spec import FilterContext
from eventlog.schema.avro import AvroSchema
from tests.predicate.rows import compiled, events, matching

SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {
            "name": "first",
            "type": {
                "type": "record",
                "name": "Place",
                "fields": [{"name": "city", "type": "string"}, {"name": "zip", "type": ["null", "int"]}],
            },
        },
        {"name": "total", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "second", "type": ["null", "Place"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": "long"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "paid", "type": "boolean"},
        {"name": "either", "type": ["string", "long"]},
    ],
}
PARSED = fastavro.parse_schema(json.loads(json.dumps(SCHEMA)))
CONTEXT = FilterContext(format="avro", text_keys=True, before=True, avro_schema=json.dumps(SCHEMA))
CHAIN = {"type": "record", "name": "Link", "fields": [{"name": "next", "type": ["null", "Link"]}]}


def value(**fields) -> bytes:
    from datetime import UTC, datetime
    from decimal import Decimal

    row = {
        "first": {"city": "Bern", "zip": 3000}, "total": 2.5, "note": None, "state": "NEW", "second": None, "tags": ["a", "b"],
        "sizes": {"x": 4}, "at": datetime(2026, 11, 21, tzinfo=UTC), "price": Decimal("1.25"), "paid": True, "either": "e",
    }  # fmt: skip
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, PARSED, row | fields)
    return buffer.getvalue()


ROWS = [
    {"key": "a", "value": value()},
    {"key": "b", "value": value(total=9.0, note="n", second={"city": "Rom", "zip": None}, state="PAID", either=7, paid=False)},
    {"key": "c", "value": None, "before": value(total=1.0)},
    {"key": "d", "value": b"\x7f\xff", "kind": "CREATED"},
]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("value.total > 2", [0, 1]),
        ("value.first.city = 'Bern' AND value.first.zip = 3000", [0, 1]),
        ("value.second.city = 'Rom'", [1]),
        ("value.note IS NULL", [0, 2, 3]),
        ("value.state = 'PAID'", [1]),
        ("value.tags[1] = 'b'", [0, 1]),
        ("ARRAY_CONTAINS(value.tags, 'a') AND value.total < 3", [0]),
        ("value.sizes.x = 4 AND value.sizes['y'] IS NULL", [0, 1]),
        ("value.at = 1795219200000", [0, 1]),
        ("CAST(value.at AS TIMESTAMP) = TIMESTAMP '2026-11-21'", [0, 1]),
        ("value.price = x'7d'", [0, 1]),
        ("value.paid", [0]),
        ("value.either = 'e' OR value.either = 7", [0, 1]),
        ("before.total = 1", [2]),
    ],
)
def test_fields_of_records_are_compared(where, expected):
    assert matching(where, ROWS, CONTEXT) == expected


@pytest.mark.parametrize(
    ("where", "column", "suggestion"),
    [
        ("value.totl > 2", 7, "total"),
        ("value.first.citi = 'x'", 13, "city"),
        ("value.total.x = 1", 13, ""),
        ("value.total = 'x'", 15, ""),
        ("value.note > 5", 14, ""),
        ("value.paid = 'x'", 14, ""),
        ("value.tags.x = 1", 12, ""),
        ("LOWER(value.total) = 'a'", 7, ""),
        ("value.first", 0, ""),
    ],
)
def test_fields_that_the_schema_lacks_are_refused(where, column, suggestion):
    if not column:
        compiled(where, CONTEXT)
        return
    with pytest.raises(BadPredicate) as caught:
        compiled(where, CONTEXT)
    assert (caught.value.column, caught.value.suggestion) == (column, suggestion), str(caught.value)


def test_a_selection_of_records_is_json():
    found = compiled("", CONTEXT, select=("value.first.city", "value.at", "value.price", "value.second.city", "value.tags"))
    _, data = found.project(events(ROWS[:1]))
    assert msgspec.json.decode(data) == {
        "first": {"city": "Bern"}, "at": "2026-11-21T00:00:00Z", "price": "1.25", "tags": ["a", "b"],
    }  # fmt: skip


def test_a_number_that_is_none_is_named_in_a_selection():
    for number, name in ((float("nan"), "NaN"), (float("-inf"), "-Infinity")):
        _, data = compiled("", CONTEXT, select=("value.total", "value.note")).project(events([{"key": "a", "value": value(total=number)}]))
        assert msgspec.json.decode(data) == {"total": name, "note": None}


def test_a_selection_of_the_whole_value_is_json_too():
    for select in (("value",), ("value", "value.total"), ("value", "before.total")):
        _, data = compiled("", CONTEXT, select=select).project(events(ROWS[:1]))
        assert msgspec.json.decode(data)["first"] == {"city": "Bern", "zip": 3000}


NESTING = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": {"type": "map", "values": "Node"}}],
}


@pytest.mark.parametrize(("schema", "select", "expected"), [
    (NESTING, ("value.v", "value.next"), {"v": 0, "next": None}),
    ({"type": "array", "items": NESTING}, ("value[0]",), None),
])  # fmt: skip
def test_a_field_that_nests_deeper_than_json_is_written_is_null(schema, select, expected):
    node = b"\x00\x02\x02a" * 150 + b"\x00\x00" + b"\x00" * 150
    value = node if schema is NESTING else b"\x02" + node + b"\x00"
    context = FilterContext(format="avro", text_keys=True, before=False, avro_schema=json.dumps(schema))
    _, data = compiled("", context, select=select).project(events([{"key": "k", "value": value}]))
    assert msgspec.json.decode(data) == expected


@given(st.binary(max_size=60))
def test_bytes_that_are_no_record_are_null(data):
    rows = events([{"key": "k", "value": data, "kind": "CREATED"}])
    for where in ("value.total > 2", "value.first.city = 'x'", "value.tags[0] = 'x'", "value.sizes.x = 1"):
        compiled(where, CONTEXT).mask(rows)
    compiled("", CONTEXT, select=("value.tags", "value.price")).project(rows)


def record(*types: object) -> dict[str, object]:
    return {"type": "record", "name": "Row", "fields": [{"name": f"f{number}", "type": one} for number, one in enumerate(types)]}


def texts(value: bytes) -> Texts:
    return Texts(data=value, starts=np.array([0], dtype=np.int64), sizes=np.array([len(value)], dtype=np.int64))


def schema(tree: object) -> AvroSchema:
    return AvroSchema(json.dumps(tree))


def test_recursive_values_are_read():
    parsed = fastavro.parse_schema(CHAIN)
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, parsed, {"next": {"next": None}})
    values = AvroValues(schema(CHAIN), [("next",)])
    assert values.decode(texts(buffer.getvalue())) == [{"next": {"next": None}}]


@pytest.mark.parametrize("tree", [CHAIN, record(CHAIN, "int")])
@pytest.mark.parametrize("path", ["next", "f1"])
def test_a_value_that_nests_without_end_is_no_value_and_no_crash(tree: object, path: str):
    values = AvroValues(schema(tree), [(path,)])
    assert values.decode(texts(b"\x02" * 1_000_000 + b"\x00\x02")) == [None]
