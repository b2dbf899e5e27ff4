"""Declared types: what JSON Schemas are told as, what Kafka Connect is told, and values for both."""

import json
from base64 import b64decode
from dataclasses import replace
from decimal import Decimal
from io import BytesIO

import fastavro
import pytest

from eventlog.errors import InvalidArgument
from eventlog.kafka.declared import Declared, avro_of_json_schema
from eventlog.kafka.envelope import rows_of
from eventlog.schema.strict_json import Misfit
from tests.kafka.test_envelope import NOW_MS, SHAPE, assert_fits, parsed
from tests.predicate.rows import events


def record(**fields):
    return {"type": "record", "name": "Row", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


LOGICAL = record(
    price={"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2},
    day={"type": "int", "logicalType": "date"},
    at={"type": "long", "logicalType": "timestamp-millis"},
    fine={"type": "long", "logicalType": "timestamp-micros"},
    clock={"type": "long", "logicalType": "time-micros"},
    id={"type": "string", "logicalType": "uuid"},
    size={"type": "enum", "name": "Size", "symbols": ["S", "M"]},
    raw={"type": "fixed", "name": "Raw", "size": 3},
    counts={"type": "map", "values": "int"},
    again=["null", "Size"],
)
VALUE = (
    b'{"price": 12345678901234567890.10, "day": "1970-02-01", "at": "1970-01-01T00:00:01Z", "fine": 7, "clock": "00:00:01",'
    b' "id": "00000000-0000-0000-0000-00000000000A", "size": "M", "raw": {"base64": "AAEC"}, "counts": {"a": 1}, "again": "S"}'
)


def test_logical_types_survive_in_connect_s_schema_and_json():
    declared = Declared(LOGICAL)
    fields = {field["field"]: field for field in declared.connect()["fields"]}
    assert {name: (field["type"], field.get("name")) for name, field in fields.items()} == {
        "price": ("bytes", "org.apache.kafka.connect.data.Decimal"),
        "day": ("int32", "org.apache.kafka.connect.data.Date"),
        "at": ("int64", "org.apache.kafka.connect.data.Timestamp"),
        "fine": ("int64", "io.debezium.time.MicroTimestamp"),
        "clock": ("int64", "io.debezium.time.MicroTime"),
        "id": ("string", "io.debezium.data.Uuid"),
        "size": ("string", "io.debezium.data.Enum"),
        "raw": ("bytes", None),
        "counts": ("map", None),
        "again": ("string", "io.debezium.data.Enum"),
    }
    assert fields["price"]["parameters"] == {"scale": "2", "connect.decimal.precision": "30"}
    assert (fields["size"]["optional"], fields["again"]["optional"]) == (False, True)
    told = json.loads(declared.payload(VALUE))
    assert int.from_bytes(b64decode(told.pop("price")), signed=True) == 1234567890123456789010
    assert told == {
        "day": 31, "at": 1_000, "fine": 7, "clock": 1_000_000, "id": "00000000-0000-0000-0000-00000000000a", "size": "M", "raw": "AAEC",
        "counts": {"a": 1}, "again": "S",
    }  # fmt: skip


def test_logical_types_survive_in_avro():
    declared = Declared(LOGICAL)
    found = fastavro.schemaless_reader(BytesIO(declared.encoded(VALUE)), fastavro.parse_schema(declared.avro), None)
    assert found["price"] == Decimal("12345678901234567890.10")
    assert (found["day"].isoformat(), found["at"].isoformat()) == ("1970-02-01", "1970-01-01T00:00:01+00:00")


def test_stored_values_are_told_as_those_of_json_are():
    encoded = Declared(LOGICAL).encoded(VALUE)
    is_stored = Declared(LOGICAL, is_stored=True)
    assert is_stored.encoded(encoded) == encoded
    assert is_stored.payload(encoded) == Declared(LOGICAL).payload(VALUE)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (record(a=["int", "string"]), r"value\.a: .*no union of several types"),
        (record(a="null"), r"value\.a: .*null alone"),
        (record(a={"type": "array", "items": ["null", "Row"]}), r"value\.a\[\]: .*holds itself"),
    ],
)
def test_what_connect_has_no_type_for_is_refused_when_the_schema_is_made(schema, why):
    with pytest.raises(InvalidArgument, match=why):
        Declared(schema).connect()


def test_a_payload_has_what_its_schema_declares():
    shape = replace(SHAPE, encoding="json-schema", declared=Declared(record(n="long", t=["null", "string"])))
    rows = [{"key": "k", "value": b'{"n": 1}'}, {"key": "k", "kind": "MODIFIED", "value": b'{"n": 2, "t": "x"}', "before": b'{"n": 1}'}]
    first, second = parsed(rows_of(events(rows), shape, now_ms=NOW_MS).values)
    assert first["payload"]["after"] == {"_key": "k", "n": 1, "t": None}
    assert (second["payload"]["before"], second["payload"]["after"]) == (first["payload"]["after"], {"_key": "k", "n": 2, "t": "x"})
    assert_fits(second["payload"], second["schema"])


def test_an_avro_cache_is_told_in_plain_json():
    shape = replace(SHAPE, is_json=False, declared=Declared(record(n="long"), is_stored=True))
    rows = [{"key": "k", "value": b"\x0a"}, {"key": "k", "value": None, "before": b"\x0c"}]
    put, gone, _ = parsed(rows_of(events(rows), shape, now_ms=NOW_MS).values)
    assert (put["after"], gone["before"]) == ({"_key": "k", "n": 5}, {"_key": "k", "n": 6})


def test_a_number_that_json_has_not_does_not_fit():
    with pytest.raises(Misfit) as caught:
        Declared(record(a={"type": "array", "items": "double"})).payload(b'{"a": [1, "NaN"]}')
    assert caught.value.place == "value.a[1]"


# ---------------------------------------------------------------- JSON Schema

PERSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["name", "born", "at"],
    "definitions": {"address": {"type": "object", "required": ["street"], "properties": {"street": {"type": "string"}}}},
    "properties": {
        "name": {"type": "string"},
        "born": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "id": {"type": "string", "format": "uuid"},
        "score": {"type": ["number", "null"]},
        "ok": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
        "home": {"$ref": "#/definitions/address"},
        "more": {"type": "array", "items": {"$ref": "#/definitions/address"}},
        "by": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
}


def test_a_json_schema_is_told_as_an_avro_schema():
    declared = Declared(avro_of_json_schema(PERSON, name="Person"))
    value = {
        "name": "a", "born": "2001-02-03", "at": "2026-01-01T00:00:00.123456789+02:00", "score": 5, "more": [{"street": "x"}],
        "by": {"n": 1},
    }  # fmt: skip
    read = fastavro.schemaless_reader(BytesIO(declared.encoded(json.dumps(value).encode())), fastavro.parse_schema(declared.avro), None)
    absent = {"id": None, "ok": None, "home": None}
    assert {**read, "born": read["born"].isoformat()} == {**value, **absent}
    fields = {field["field"]: field for field in declared.connect()["fields"]}
    assert fields["at"]["name"] == "io.debezium.time.ZonedTimestamp"
    assert (fields["name"]["optional"], fields["home"]["optional"], fields["home"]["type"]) == (False, True, "struct")


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({}, "# has 0 types"),
        (True, "# says nothing of a type"),
        ({"type": "object"}, "no property is declared"),
        ({"type": ["string", "integer"]}, "# has 2 types besides null"),
        ({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}, "#/properties/a has 2 types under anyOf"),
        ({"properties": {"a": {"type": "array"}}}, "#/properties/a is an array of items without a type"),
        ({"properties": {"a": {"$ref": "#"}}}, "#/properties/a is within itself"),
        ({"type": "nothing"}, "this is no JSON Schema"),
    ],
)
def test_a_json_schema_without_one_type_a_place_is_refused(schema, why):
    with pytest.raises(InvalidArgument, match=why):
        avro_of_json_schema(schema)


def test_a_property_without_a_name_in_avro_is_refused():
    with pytest.raises(InvalidArgument, match="my-name"):
        Declared(avro_of_json_schema({"properties": {"my-name": {"type": "string"}}}))


def test_a_property_that_is_not_listed_does_not_fit():
    with pytest.raises(Misfit, match="unknown"):
        Declared(avro_of_json_schema({"properties": {"a": {"type": "string"}}})).encoded(b'{"a": "x", "b": 1}')
