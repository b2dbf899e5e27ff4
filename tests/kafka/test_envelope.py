"""Envelopes against the same, told event by event with a JSON library that parses everything."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.batch.byte_columns import items_of
from eventlog.errors import InvalidArgument
from eventlog.events import Kind
from eventlog.ids import time_of
from eventlog.kafka.declared import Declared
from eventlog.kafka.envelope import rows_of, rows_without_before
from eventlog.kafka.records import LOOP_MAX
from eventlog.kafka.shape import Shape
from tests.examples import examples
from tests.predicate.rows import events

NOW_MS = 1_790_000_000_123
SHAPE = Shape(cache="orders", cluster="c-1", prefix="shop", topic="shop.orders", version="1.0", is_json=True, has_text_keys=True)
OPS = {"CREATED": "c", "MODIFIED": "u", "REMOVED": "d", "EXPIRED": "d"}

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-(1 << 70), 1 << 70), st.floats(allow_nan=False, allow_infinity=False), texts)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | st.sampled_from(["_key", "value", "k"]), inner, max_size=3),
    max_leaves=8,
)
spacings = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n\t", " : ")])


@st.composite
def json_texts(draw):
    """JSON as anybody may have written it: spaces, escapes, space in front."""
    told = json.dumps(draw(values), separators=draw(spacings), ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
    if draw(st.booleans()):
        told = told.replace('"_key"', '"\\u005fkey"')
    return (draw(st.sampled_from(["", " ", "\n"])) + told + draw(st.sampled_from(["", " "]))).encode()


@st.composite
def changes(draw, contents, keys):
    kind = draw(st.sampled_from(list(OPS)))
    row = {"key": draw(keys), "kind": kind, "value": None if OPS[kind] == "d" else draw(contents)}
    if kind != "CREATED":
        row["before"] = draw(contents)
    return row


def row_of(key, value, *, is_json=True, key_field="_key"):
    if not is_json:
        return {key_field: key, "value": base64.b64encode(value).decode()}
    parsed = json.loads(value)
    if not isinstance(parsed, dict):
        return {key_field: key, "value": parsed}
    return parsed if key_field in parsed else {key_field: key, **parsed}


def told_of(row, key, *, place, is_json=True):
    """The envelope of one event, as objects."""
    id_, segment, offset = place
    time_ms = time_of(id_)
    return {
        "before": row_of(key, row["before"], is_json=is_json) if row.get("before") is not None else None,
        "after": row_of(key, row["value"], is_json=is_json) if row["value"] is not None else None,
        "source": {
            "version": "1.0", "connector": "eventlog", "name": "shop", "ts_ms": time_ms, "snapshot": "false", "db": "c-1",
            "sequence": json.dumps([str(id_), str(offset)], separators=(",", ":")), "ts_us": time_ms * 1_000, "ts_ns": time_ms * 1_000_000,
            "table": "orders", "segment": segment, "offset": offset, "event_id": id_, "kind": row["kind"],
        },
        "op": OPS[row["kind"]],
        "ts_ms": NOW_MS, "ts_us": NOW_MS * 1_000, "ts_ns": NOW_MS * 1_000_000,
        "transaction": None,
    }  # fmt: skip


def parsed(column):
    return [None if item is None else json.loads(item) for item in items_of(column)]


def expected_records(rows, columns, keys, **more):
    found = []
    places = zip(columns.ids.tolist(), columns.segments.tolist(), columns.offsets.tolist(), strict=True)
    for row, key, place in zip(rows, keys, places, strict=True):
        found.append(({"_key": key}, told_of(row, key, place=place, **more)))
        if OPS[row["kind"]] == "d":
            found.append(({"_key": key}, None))
    return found


@settings(deadline=None, max_examples=examples(200))
@given(rows=st.lists(changes(json_texts(), texts), min_size=1, max_size=8))
def test_a_json_cache_is_told_as_if_event_by_event(rows):
    columns = events(rows)
    found = rows_of(columns, SHAPE, now_ms=NOW_MS)
    assert list(zip(parsed(found.keys), parsed(found.values), strict=True)) == expected_records(rows, columns, [row["key"] for row in rows])


@settings(deadline=None, max_examples=examples(100))
@given(rows=st.lists(changes(st.binary(min_size=1, max_size=9), st.binary(max_size=5)), min_size=1, max_size=8))
def test_bytes_are_told_in_base64(rows):
    columns = events(rows)
    shape = Shape(cache="orders", cluster="c-1", prefix="shop", topic="t", version="1.0", is_json=False, has_text_keys=False)
    found = rows_of(columns, shape, now_ms=NOW_MS)
    keys = [base64.b64encode(row["key"]).decode() for row in rows]
    assert list(zip(parsed(found.keys), parsed(found.values), strict=True)) == expected_records(rows, columns, keys, is_json=False)


@settings(deadline=None, max_examples=examples(100))
@given(rows=st.lists(changes(json_texts(), texts), min_size=1, max_size=8))
def test_with_a_schema_a_value_is_text_of_json(rows):
    columns = events(rows)
    shape = replace(SHAPE, encoding="json-schema")
    found = rows_of(columns, shape, now_ms=NOW_MS)
    told = [one for one in parsed(found.values) if one is not None]
    assert {json.dumps(one["schema"]) for one in told} == {json.dumps(json.loads(shape.value_schema))}
    assert told[0]["schema"]["name"] == "shop.orders.Envelope"
    for row, message in zip(rows, told, strict=True):
        for image, value in (("before", row.get("before")), ("after", row["value"])):
            expected = None if value is None else {"_key": row["key"], "value": value.decode()}
            assert message["payload"][image] == expected
        assert_fits(message["payload"], message["schema"])
    assert {one["schema"]["name"] for one in parsed(found.keys)} == {"shop.orders.Key"}


def assert_fits(value, schema):
    """A payload has what its schema declares, and nothing else."""
    if value is None:
        assert schema["optional"]
    elif schema["type"] == "struct":
        assert set(value) == {field["field"] for field in schema["fields"]}
        for field in schema["fields"]:
            assert_fits(value[field["field"]], field)
    else:
        assert isinstance(value, {"string": str, "int32": int, "int64": int, "bytes": str}[schema["type"]])


def test_a_value_that_has_the_key_s_field_keeps_its_own():
    rows = [
        {"key": "k", "value": value} for value in (b'{"_key":7}', b'{"\\u005fkey":7}', b'{"a":{"_key":7}}', b'{"a":"_key"}', b"{}", b"{ }")
    ]
    told = [one["after"] for one in parsed(rows_of(events(rows), SHAPE, now_ms=NOW_MS).values)]
    assert told == [{"_key": 7}, {"_key": 7}, {"_key": "k", "a": {"_key": 7}}, {"_key": "k", "a": "_key"}, {"_key": "k"}, {"_key": "k"}]


def test_without_tombstones_a_removal_is_one_record():
    rows = [{"key": "k", "value": None, "before": b"1"}]
    shape = replace(SHAPE, has_tombstones=False, key_field="id")
    found = rows_of(events(rows), shape, now_ms=NOW_MS)
    assert [one["op"] for one in parsed(found.values)] == ["d"]
    assert parsed(found.keys) == [{"id": "k"}]


@pytest.mark.parametrize(("form", "key"), [("upsert", b'{"_key":"k\\""}'), ("raw", b'k"')])
def test_values_as_they_are_and_nothing_where_they_are_removed(form, key):
    rows = [
        {"key": 'k"', "value": b'{"a": 1}'},
        {"key": 'k"', "value": None, "before": b"2"},
        {"key": 'k"', "value": None, "kind": "EXPIRED"},
    ]
    found = rows_of(events(rows), replace(SHAPE, form=form), now_ms=NOW_MS)
    assert items_of(found.values) == [b'{"a": 1}', None, None]
    assert items_of(found.keys) == [key] * 3
    assert found.of.tolist() == [0, 1, 2]


def test_events_that_lack_a_before_image_are_found():
    rows = [{"key": "k", "value": b"1"}, {"key": "k", "kind": "MODIFIED", "value": b"2"}, {"key": "k", "value": None}]
    assert rows_without_before(events(rows), SHAPE).tolist() == [1, 2]
    with_image = [{"key": "k", "value": b"2", "before": b"1"}]
    assert rows_without_before(events(rows + with_image, a_value=3), SHAPE).tolist() == [1, 2]
    assert rows_without_before(events(with_image), SHAPE).tolist() == []


def test_where_blocks_were_joined_an_empty_image_is_none_but_of_bytes():
    joined = events([{"key": "k", "value": b"1"}, {"key": "k", "value": b"2", "before": b""}, {"key": "k", "value": b"3", "before": b"2"}])
    assert rows_without_before(joined, SHAPE).tolist() == [1]
    assert rows_without_before(joined, replace(SHAPE, is_json=False)).tolist() == []
    assert [one["before"] for one in parsed(rows_of(joined, SHAPE, now_ms=NOW_MS).values)] == [None, None, {"_key": "k", "value": 2}]


def test_every_kind_has_its_operation():
    gone = (Kind.REMOVED, Kind.EXPIRED)
    rows = [{"key": "k", "kind": kind.name, "value": None if kind in gone else b"1", "before": b"0"} for kind in Kind]
    found = [one for one in parsed(rows_of(events(rows), SHAPE, now_ms=NOW_MS).values) if one is not None]
    told = [(one["op"], one["source"]["kind"], one["source"]["snapshot"], one["before"] is None) for one in found]
    assert told == [
        ("c", "CREATED", "false", True),
        ("u", "MODIFIED", "false", False),
        ("d", "REMOVED", "false", False),
        ("d", "EXPIRED", "false", False),
        ("r", "STATE", "true", True),
    ]


@settings(deadline=None, max_examples=examples(50))
@given(
    rows=st.lists(changes(json_texts(), texts), min_size=1, max_size=8),
    form=st.sampled_from(["debezium", "upsert", "raw"]),
    has_tombstones=st.booleans(),
)
def test_few_events_are_told_as_many_are(rows, form, has_tombstones):
    assert_few_as_many(rows, replace(SHAPE, form=form, has_tombstones=has_tombstones))


@settings(deadline=None, max_examples=examples(50))
@given(rows=st.lists(changes(st.binary(max_size=5), st.binary(min_size=1, max_size=9)), min_size=1, max_size=8))
def test_few_events_of_bytes_are_told_as_many_are(rows):
    assert_few_as_many(rows, replace(SHAPE, is_json=False, has_text_keys=False))


def assert_few_as_many(rows, shape):
    all_ = events(rows * (LOOP_MAX + 1))
    many = rows_of(all_, shape, now_ms=NOW_MS)
    few = rows_of(all_.take(np.arange(len(rows))), shape, now_ms=NOW_MS)
    assert isinstance(few.values, list)
    count = len(few.values)
    assert few.of.tolist() == many.of.tolist()[:count]
    assert (few.keys, few.values) == (items_of(many.keys)[:count], items_of(many.values)[:count])


@pytest.mark.parametrize("is_json", [True, False])
def test_an_upsert_with_a_schema_says_what_its_value_is(is_json):
    rows = [{"key": "k", "value": b'{"a": "\\n"}'}, {"key": "k", "value": None, "before": b"2"}]
    shape = replace(SHAPE, form="upsert", encoding="json-schema", is_json=is_json)
    told, nothing = parsed(rows_of(events(rows), shape, now_ms=NOW_MS).values)
    assert nothing is None
    assert told["payload"] == (b'{"a": "\\n"}' if is_json else base64.b64encode(b'{"a": "\\n"}')).decode()
    assert told["schema"] == json.loads(shape.value_schema)
    assert told["schema"]["type"] == ("string" if is_json else "bytes")
    assert_fits(told["payload"], told["schema"])


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ({"form": "raw", "encoding": "avro"}, "raw leaves values as they are"),
        ({"declared": Declared("long")}, "json takes values as they are"),
    ],
)
def test_what_would_be_ignored_is_refused(shape, why):
    with pytest.raises(InvalidArgument, match=why):
        replace(SHAPE, **shape)
