"""Records and envelopes as bytes that are kept, and their schemas of each version: what was written stays readable, both ways."""

import json
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO

import fastavro
import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from eventlog.batch.byte_columns import items_of
from eventlog.kafka.declared import Declared
from eventlog.kafka.envelope import batches_of, rows_of
from eventlog.kafka.records import LOOP_MAX
from eventlog.kafka.shape import Shape
from eventlog.schema.avro_reading import why_not_read
from eventlog.schema.avro_types import read_avro
from tests.docs.pages import TOP
from tests.kafka.test_envelope import assert_fits
from tests.predicate.rows import events

GOLDEN = json.loads((TOP / "tests" / "golden" / "kafka.json").read_text())
SCHEMAS = TOP / "schemas" / "kafka"
VERSIONS = sorted(path.stem.removeprefix("envelope-") for path in SCHEMAS.glob("envelope-*.avsc"))
NOW_MS = GOLDEN["now_ms"]
ORDER = json.loads((SCHEMAS / "order.avsc").read_text())
SHAPE = Shape(cache="orders", cluster="c-1", prefix="shop", topic="shop.orders", version="1.0", is_json=True, has_text_keys=True)
SHAPES: Mapping[str, Shape] = {
    "raw": replace(SHAPE, form="raw"),
    "upsert": replace(SHAPE, form="upsert"),
    "debezium": SHAPE,
    "debezium json-schema": replace(SHAPE, encoding="json-schema"),
    "debezium avro": replace(SHAPE, encoding="avro", schema_ids=(1, 2)),
    "debezium avro declared": replace(SHAPE, encoding="avro", schema_ids=(1, 3), declared=Declared(ORDER)),
}


def read_of(repeat=1):
    return events([as_bytes(row) for row in GOLDEN["events"]] * repeat, a_value=2)


def as_bytes(row):
    texts = {name: row[name].encode() for name in ("value", "before") if row.get(name) is not None}
    return {**row, **texts, "headers": {name: value.encode() for name, value in row.get("headers", {}).items()}}


def told(name):
    """Keys and values, as the golden vectors have them: text where it is JSON, else hex."""
    shape = SHAPES[name]
    found = rows_of(read_of(), shape, now_ms=NOW_MS)
    is_text = shape.encoding != "avro"
    return [
        [None if item is None else item.decode() if is_text else item.hex() for item in pair]
        for pair in zip(items_of(found.keys), items_of(found.values), strict=True)
    ]


@pytest.mark.parametrize("name", [*SHAPES])
def test_keys_and_values_are_those_of_the_golden_vectors(name):
    assert told(name) == GOLDEN["told"][name]


def batches(repeat=1):
    found = batches_of(read_of(repeat), SHAPES["raw"], partitions=2, now_ms=NOW_MS, bytes_max=1 << 20)
    return [[batch.partition, bytes(batch.sealed(producer=(77, 3), sequence=41, is_transactional=True)).hex()] for batch in found]


def test_batches_are_those_of_the_golden_vectors():
    assert batches() == GOLDEN["batches"]


def test_aiokafka_reads_the_golden_batches():
    for _, data in GOLDEN["batches"]:
        batch = DefaultRecordBatch(bytes.fromhex(data))
        assert batch.validate_crc()
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional) == (77, 3, 41, True)
    found = [(one.key.decode(), one.value) for _, data in GOLDEN["batches"] for one in DefaultRecordBatch(bytes.fromhex(data))]
    assert sorted(found, key=str) == sorted(((row["key"], row["value"] and row["value"].encode()) for row in GOLDEN["events"]), key=str)


def test_the_golden_vectors_have_every_kind_and_headers_and_bytes_outside_of_ascii():
    assert {row["kind"] for row in GOLDEN["events"]} == {"CREATED", "MODIFIED", "REMOVED", "EXPIRED", "STATE"}
    assert any(row.get("headers") for row in GOLDEN["events"])
    assert not all(row["key"].isascii() for row in GOLDEN["events"])
    assert len(batches(LOOP_MAX)) == 2, "as many are laid out by columns"


# ---------------------------------------------------------------- schemas of each version


def avro_schema(version):
    return (SCHEMAS / f"envelope-{version}.avsc").read_text()


def connect_schema(version):
    return json.loads((SCHEMAS / f"envelope-{version}.connect.json").read_text())


def test_the_last_version_is_what_is_registered_today():
    assert json.loads(avro_schema(VERSIONS[-1])) == json.loads(SHAPES["debezium avro"].value_schema)
    assert connect_schema(VERSIONS[-1]) == json.loads(SHAPES["debezium json-schema"].value_schema)
    assert json.loads((SCHEMAS / "key-1.avsc").read_text()) == json.loads(SHAPES["debezium avro"].key_schema)


def as_read(data, *, writer, reader):
    parsed = [fastavro.parse_schema(json.loads(schema)) for schema in (writer, reader)]
    return fastavro.schemaless_reader(BytesIO(data[5:]), *parsed)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_reads_what_today_writes_and_the_other_way_round(version):
    then, today = avro_schema(version), SHAPES["debezium avro"].value_schema.decode()
    assert why_not_read(reader=read_avro(then), writer=read_avro(today)) == ""
    assert why_not_read(reader=read_avro(today), writer=read_avro(then)) == ""
    kept = [bytes.fromhex(value) for _, value in GOLDEN["avro"][version] if value is not None]
    written = [bytes.fromhex(value) for _, value in told("debezium avro") if value is not None]
    assert kept
    for old, new in zip(kept, written, strict=True):
        assert as_read(old, writer=then, reader=today)["source"] == as_read(old, writer=then, reader=then)["source"]
        assert as_read(new, writer=today, reader=then)["after"] == as_read(old, writer=then, reader=then)["after"]


@pytest.mark.parametrize("version", VERSIONS)
def test_in_connect_s_schema_a_field_keeps_its_type_and_a_new_one_may_be_absent(version):
    assert_grows(connect_schema(version), json.loads(SHAPES["debezium json-schema"].value_schema))


def assert_grows(then, today):
    assert (then["type"], then["optional"], then.get("name")) == (today["type"], today["optional"], today.get("name"))
    if then["type"] == "struct":
        now = {field["field"]: field for field in today["fields"]}
        for field in then["fields"]:
            assert_grows(field, now.pop(field["field"]))
        assert all(field["optional"] for field in now.values())


def test_a_field_that_is_taken_away_or_must_be_there_is_found():
    then = connect_schema(VERSIONS[-1])
    shorter = {**then, "fields": then["fields"][1:]}
    longer = {**then, "fields": [*then["fields"], {"type": "string", "optional": False, "field": "more"}]}
    with pytest.raises(KeyError):
        assert_grows(then, shorter)
    with pytest.raises(AssertionError):
        assert_grows(then, longer)


def test_golden_payloads_have_what_connect_s_schema_declares():
    for _, value in GOLDEN["told"]["debezium json-schema"]:
        if value is not None:
            message = json.loads(value)
            assert_fits(message["payload"], message["schema"])
