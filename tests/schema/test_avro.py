"""Schemas of Avro caches: what is none is refused, and what could make a decoder run away."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import InvalidArgument
from eventlog.limits import SCHEMA_DEPTH_MAX
from eventlog.schema.avro import AvroSchema

CHAIN = {"type": "record", "name": "Link", "fields": [{"name": "next", "type": ["null", "Link"]}]}


def record(*types: object) -> dict[str, object]:
    return {"type": "record", "name": "Row", "fields": [{"name": f"f{number}", "type": one} for number, one in enumerate(types)]}


def schema(tree: object) -> AvroSchema:
    return AvroSchema(json.dumps(tree))


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "5", "null", '"nope"', "{}", '{"type": "array"}', '{"type": "record", "name": "x", "fields": 5}', "[" * 5000,
        '{"type": "record", "name": 5, "fields": []}', '{"type": "record", "name": "x", "fields": [{"type": "int"}]}',
        '{"type": "record", "name": "x", "fields": [1]}', '{"type": {"type": {"type": "int"}}}', '{"type": "fixed", "name": "f"}',
        '{"type": "nope", "__fastavro_parsed": true}', '{"type": "record", "fields": []}',
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused(text: str):
    with pytest.raises(InvalidArgument):
        AvroSchema(text)


def test_a_schema_nests_so_deep_and_no_deeper():
    def nested(depth: int) -> object:
        tree: object = "int"
        for _ in range(depth):
            tree = {"type": "array", "items": tree}
        return tree

    schema(nested(SCHEMA_DEPTH_MAX))
    with pytest.raises(InvalidArgument, match="64 levels"):
        schema(nested(SCHEMA_DEPTH_MAX + 1))


@pytest.mark.parametrize(
    "items",
    ["null", record(), record("null", record()), {"type": "fixed", "name": "f", "size": 0}, {"type": "fixed", "name": "f", "size": -1}, []],
)
def test_arrays_of_what_takes_no_bytes_are_refused(items: object):
    with pytest.raises(InvalidArgument):
        schema({"type": "array", "items": items})
    with pytest.raises(InvalidArgument):
        schema(["null", {"type": "map", "values": {"type": "array", "items": items}}])


@pytest.mark.parametrize("field", ["int", {"type": "array", "items": "Tree"}, ["null", "Tree"], {"type": "map", "values": "Tree"}])
def test_a_record_that_takes_a_byte_may_hold_an_array_of_itself(field: object):
    below = {"name": "below", "type": {"type": "array", "items": "Tree"}}
    assert schema({"type": "record", "name": "Tree", "fields": [below, {"name": "other", "type": field}]}).is_recursive


def test_a_record_of_nothing_but_itself_is_no_item():
    with pytest.raises(InvalidArgument, match="no bytes"):
        schema({"type": "array", "items": {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}})


@pytest.mark.parametrize(
    "items",
    [
        "int", ["null"], record("null", "int"), CHAIN, {"type": "fixed", "name": "f", "size": 1},
        {"type": "enum", "name": "e", "symbols": ["A"]}, {"type": "map", "values": "null"}, {"type": "array", "items": "string"},
        {"type": "long", "logicalType": "timestamp-millis"},
    ],
)  # fmt: skip
def test_arrays_of_what_takes_bytes_are_taken(items: object):
    assert not schema({"type": "array", "items": items}).is_recursive or items is CHAIN


def test_a_schema_that_names_itself_is_known_as_recursive():
    assert schema(CHAIN).is_recursive
    assert schema(record("int", ["null", CHAIN])).is_recursive
    assert not schema(record({"type": "fixed", "name": "f", "size": 2}, "f")).is_recursive


WORDS = st.sampled_from(["int", "null", "R", "record", "array", "fixed"])
PARTS = st.sampled_from(["type", "name", "fields", "items", "values", "size", "symbols", "default", "__named_schemas"])
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PARTS, inner, max_size=5),
)


@given(TREES)
def test_any_json_is_a_schema_or_refused(tree: object):
    with suppress(InvalidArgument):
        schema(tree)
