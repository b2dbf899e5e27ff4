"""Envelopes in Avro, read by fastavro with the schema that is to be registered, against those told in JSON event by event."""

import json
from dataclasses import replace
from io import BytesIO

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.batch.byte_columns import items_of
from eventlog.errors import InvalidArgument, SchemaBehind, UnfitValue
from eventlog.kafka.declared import Declared
from eventlog.kafka.envelope import rows_of
from eventlog.kafka.records import LOOP_MAX
from eventlog.kafka.shape import Shape
from tests.examples import examples
from tests.kafka.test_envelope import NOW_MS, OPS, SHAPE, changes, json_texts, texts, told_of
from tests.predicate.rows import events

AVRO = replace(SHAPE, encoding="avro", schema_ids=(7, 0x01020304))
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "total", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}}},
        {"name": "first", "type": ["null", "Line"], "default": None},
    ],
}
orders = st.fixed_dictionaries(
    {
        "total": st.integers(-(1 << 63), (1 << 63) - 1),
        "note": st.none() | texts,
        "lines": st.lists(st.fixed_dictionaries({"n": st.integers(-(1 << 31), (1 << 31) - 1)}), max_size=3),
        "first": st.none() | st.just({"n": 5}),
    }
)


def framed(data, schema, schema_id):
    """A record's key or value, as a deserializer of Confluent's reads it."""
    if data is None:
        return None
    assert data[:5] == b"\0" + schema_id.to_bytes(4)
    buffer = BytesIO(data[5:])
    found = fastavro.schemaless_reader(buffer, fastavro.parse_schema(json.loads(schema)), None)
    assert not buffer.read(), "nothing is left over"
    return found


def read(found, shape):
    keys = [framed(key, shape.key_schema, shape.schema_ids[0]) for key in items_of(found.keys)]
    return list(zip(keys, [framed(value, shape.value_schema, shape.schema_ids[1]) for value in items_of(found.values)], strict=True))


def expected(rows, columns, row_of):
    """The records of events; `row_of` makes a row of a key and a value."""
    found = []
    places = zip(columns.ids.tolist(), columns.segments.tolist(), columns.offsets.tolist(), strict=True)
    for row, place in zip(rows, places, strict=True):
        images = {name: None if row.get(given) is None else row_of(row["key"], row[given]) for name, given in IMAGES}
        bare = {"kind": row["kind"], "value": None}
        found.append(({"_key": row["key"]}, {**told_of(bare, row["key"], place=place), **images}))
        if OPS[row["kind"]] == "d":
            found.append(({"_key": row["key"]}, None))
    return found


IMAGES = (("before", "before"), ("after", "value"))


@settings(deadline=None, max_examples=examples(150))
@given(rows=st.lists(changes(json_texts(), texts), min_size=1, max_size=8), repeat=st.sampled_from([1, LOOP_MAX]))
def test_a_value_of_no_declared_type_is_text_of_json(rows, repeat):
    rows = rows * repeat
    columns = events(rows)
    found = read(rows_of(columns, AVRO, now_ms=NOW_MS), AVRO)
    assert found == expected(rows, columns, lambda key, value: {"_key": key, "value": value.decode()})


@settings(deadline=None, max_examples=examples(100))
@given(rows=st.lists(changes(st.binary(min_size=1, max_size=9), st.binary(max_size=5)), min_size=1, max_size=8))
def test_bytes_are_bytes(rows):
    shape = replace(AVRO, is_json=False, has_text_keys=False)
    columns = events(rows)
    assert read(rows_of(columns, shape, now_ms=NOW_MS), shape) == expected(rows, columns, lambda key, value: {"_key": key, "value": value})


def stored(order):
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(json.loads(json.dumps(ORDER))), order)
    return buffer.getvalue()


@pytest.mark.parametrize("is_stored", [True, False])
@settings(deadline=None, max_examples=examples(80))
@given(data=st.data())
def test_fields_of_a_declared_record_stand_in_the_row(is_stored, data):
    rows = data.draw(st.lists(changes(orders, texts), min_size=1, max_size=8))
    columns = events([told(row, stored if is_stored else json_of) for row in rows])
    shape = replace(AVRO, is_json=not is_stored, declared=Declared(ORDER, is_stored=is_stored))
    assert read(rows_of(columns, shape, now_ms=NOW_MS), shape) == expected(rows, columns, lambda key, order: {"_key": key, **order})


def json_of(order):
    return json.dumps(order).encode()


def told(row, encode):
    return {**row, **{name: encode(row[name]) for name in ("value", "before") if row.get(name) is not None}}


def test_a_value_with_the_key_s_field_keeps_its_own():
    shape = replace(AVRO, declared=Declared(ORDER), key_field="total")
    rows = [{"key": "k", "value": b'{"total": 5, "lines": []}'}]
    ((key, value),) = read(rows_of(events(rows), shape, now_ms=NOW_MS), shape)
    assert (key, value["after"]) == ({"total": "k"}, {"total": 5, "note": None, "lines": [], "first": None})


def test_what_is_no_record_stands_in_a_field_of_its_own():
    shape = replace(AVRO, declared=Declared(["null", "long", "string"]))
    rows = [{"key": "k", "value": value} for value in (b"5", b'"a"', b"null")]
    found = [value["after"] for _, value in read(rows_of(events(rows), shape, now_ms=NOW_MS), shape)]
    assert found == [{"_key": "k", "value": value} for value in (5, "a", None)]


def test_a_record_that_holds_itself_keeps_its_definition():
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "below", "type": {"type": "array", "items": "Tree"}}]}
    shape = replace(AVRO, declared=Declared(tree))
    ((_, value),) = read(rows_of(events([{"key": "k", "value": b'{"below": [{"below": []}]}'}]), shape, now_ms=NOW_MS), shape)
    assert value["after"] == {"_key": "k", "value": {"below": [{"below": []}]}}


@pytest.mark.parametrize(
    ("declared", "value", "wanted"),
    [
        (None, b' {"a": 1}', ' {"a": 1}'),
        (Declared(ORDER), b'{"total": 1, "lines": []}', {"total": 1, "note": None, "lines": [], "first": None}),
    ],
)
def test_an_upsert_is_the_value_and_a_removal_a_tombstone(declared, value, wanted):
    shape = replace(AVRO, form="upsert", declared=declared)
    rows = [{"key": "k", "value": value}, {"key": "k", "value": None, "before": value}]
    assert read(rows_of(events(rows), shape, now_ms=NOW_MS), shape) == [({"_key": "k"}, wanted), ({"_key": "k"}, None)]


@pytest.mark.parametrize("form", ["debezium", "upsert"])
@pytest.mark.parametrize("encoding", ["avro", "json-schema"])
def test_a_value_that_does_not_fit_is_named(form, encoding):
    rows = [{"key": f"k{number}", "value": json_of({"total": number, "lines": [{"n": 1}]})} for number in range(9)]
    rows[2] = {"key": "gone", "value": None, "before": b'{"total": 1, "lines": []}'}
    rows[6]["value"] = b'{"total": 1, "lines": [{"n": 1}, {"n": "x"}]}'
    columns = events(rows)
    with pytest.raises(UnfitValue) as caught:
        rows_of(columns, replace(AVRO, encoding=encoding, form=form, declared=Declared(ORDER)), now_ms=NOW_MS)
    error = caught.value
    assert (error.segment, error.offset, error.key) == (columns.segments[6], columns.offsets[6], "k6")
    assert (error.field, error.why) == ("value.lines[1].n", "text, 'x': the schema wants int")


def test_a_before_image_that_does_not_fit_is_named():
    with pytest.raises(UnfitValue) as caught:
        rows_of(events([{"key": "k", "value": None, "before": b'{"total": 1}'}]), replace(AVRO, declared=Declared(ORDER)), now_ms=NOW_MS)
    assert (caught.value.field, caught.value.offset) == ("before.lines", 0)


@pytest.mark.parametrize(
    ("data", "error"),
    [(b"", UnfitValue), (b"\x02\x05", UnfitValue), (stored({"total": 1, "lines": []}) + b"\0", SchemaBehind)],
)
def test_stored_bytes_of_another_schema_do_not_get_into_a_row(data, error):
    shape = replace(AVRO, is_json=False, declared=Declared(ORDER, is_stored=True))
    with pytest.raises(error, match="Avro schema"):
        rows_of(events([{"key": "k", "value": data}]), shape, now_ms=NOW_MS)


def test_a_value_from_before_its_schema_grew_has_the_default_in_its_row():
    grown = {**ORDER, "fields": [*ORDER["fields"], {"name": "paid", "type": "boolean", "default": True}]}
    shape = replace(AVRO, is_json=False, declared=Declared(grown, is_stored=True))
    ((_, value),) = read(rows_of(events([{"key": "k", "value": stored({"total": 1, "lines": []})}]), shape, now_ms=NOW_MS), shape)
    assert value["after"]["paid"] is True


@pytest.mark.parametrize("topic", ["shop.orders", "eventlog.my-orders.2026", "9.a..b"])
def test_names_are_those_of_the_topic_as_far_as_avro_has_them(topic):
    shape: Shape = replace(AVRO, topic=topic)
    schema = json.loads(shape.value_schema)
    assert schema["connect.name"] == f"{topic}.Envelope"
    assert fastavro.parse_schema(schema)["name"].endswith(".Envelope")


def test_a_key_s_field_that_avro_has_no_name_for_is_refused():
    with pytest.raises(InvalidArgument, match="no name of a field"):
        _ = replace(AVRO, key_field="my key").key_schema
