"""Values of a schema that has grown: each version reads what every other one has written."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import InvalidArgument, UnreadableValue
from eventlog.schema.avro import AvroSchema
from eventlog.schema.avro_check import AvroCheck
from eventlog.schema.avro_values import AvroReader, why_not_grown
from eventlog.schema.meter import Meter, steps_of
from eventlog.schema.strict_json import Misfit

PLACE = {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string", "default": "Bern"}]}
FIELDS: list[tuple[dict[str, Any], Any, st.SearchStrategy[Any]]] = [
    ({"name": "id", "type": "long"}, None, st.integers(-(1 << 40), 1 << 40)),
    ({"name": "note", "type": "string"}, None, st.text(max_size=5)),
    ({"name": "paid", "type": "boolean", "default": True}, True, st.booleans()),
    ({"name": "blob", "type": "bytes", "default": "\u00ff\u0000"}, b"\xff\x00", st.binary(max_size=3)),
    ({"name": "either", "type": ["null", "long"], "default": None}, None, st.none() | st.integers(0, 9)),
    ({"name": "at", "type": PLACE, "default": {}}, {"city": "Bern"}, st.fixed_dictionaries({"city": st.text(max_size=3)})),
    ({"name": "to", "type": ["Place", "null"], "default": {"city": "Chur"}}, {"city": "Chur"}, st.none()),
    ({"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["a"]}, ["a"], st.lists(st.text(max_size=2), max_size=2)),
    ({"name": "weight", "type": "double", "default": 2}, 2.0, st.floats(allow_nan=False)),
    ({"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}, "default": "ab"}, b"ab", st.binary(min_size=2, max_size=2)),
]
"""Fields as they are appended one after the other: the field, the value of its default, and what it may hold."""

NEEDED = 2


def schema_of(count: int, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": [field for field, _, _ in FIELDS[:count]], **more}


def avro(given: Any) -> AvroSchema:
    return AvroSchema(json.dumps(given))


def written(value: dict[str, Any], count: int) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema_of(count)), value)
    return buffer.getvalue()


COUNTS = st.integers(NEEDED, len(FIELDS))
VALUES = st.fixed_dictionaries({field["name"]: values for field, _, values in FIELDS})


@given(value=VALUES, writer=COUNTS, reader=COUNTS)
def test_every_version_reads_what_every_other_one_wrote(value: dict[str, Any], writer: int, reader: int) -> None:
    data = written(value, writer)
    names = [field["name"] for field, _, _ in FIELDS]
    expected = {name: value[name] if at < writer else FIELDS[at][1] for at, name in enumerate(names) if at < reader}
    found = AvroReader(avro(schema_of(reader)))
    assert found.read_all([None, written(value, writer)]) == [None, found.read(written(value, writer))]
    assert found.read(data) == expected
    _, whole, size = found.read_whole(data)
    assert whole[:size] == written(expected, reader)


@given(value=VALUES, writer=COUNTS, reader=COUNTS)
def test_what_is_newer_is_read_and_not_written(value: dict[str, Any], writer: int, reader: int) -> None:
    data, schema = written(value, writer), json.dumps(schema_of(reader))
    meter = Meter(steps_of(data))
    if writer <= reader:
        AvroCheck(schema).check(data, meter)
        AvroReader(AvroSchema(schema)).check(data)
        return
    with pytest.raises(Misfit, match="followed by"):
        AvroCheck(schema).check(data, meter)
    with pytest.raises(UnreadableValue, match="left over"):
        AvroReader(AvroSchema(schema)).check(data)


@given(value=VALUES, count=COUNTS, data=st.data())
def test_a_value_ends_before_a_field_with_a_default_or_is_none(value: dict[str, Any], count: int, data: st.DataObject) -> None:
    whole = written(value, count)
    ends = {len(written(value, shorter)) for shorter in range(NEEDED, count + 1)}
    cut = data.draw(st.integers(0, len(whole)).filter(lambda end: end not in ends))
    reader = AvroReader(avro(schema_of(count)))
    for read in (reader.read, reader.check):
        with pytest.raises(UnreadableValue):
            read(whole[:cut])
    with pytest.raises(Misfit):
        AvroCheck(json.dumps(schema_of(count))).check(whole[:cut], Meter(steps_of(whole)))


def test_a_value_has_one_field_at_least() -> None:
    optional = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "int", "default": 1}, {"name": "b", "type": "int", "default": 2}],
    }
    reader = AvroReader(avro(optional))
    assert reader.read(b"\x06") == {"a": 3, "b": 2}
    with pytest.raises(UnreadableValue):
        reader.read(b"")
    with pytest.raises(Misfit):
        AvroCheck(json.dumps(optional)).check(b"", Meter(9))


def test_what_is_no_record_or_stands_in_itself_ends_where_it_ends() -> None:
    tree = {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}, {"name": "n", "type": "int", "default": 1}]}
    for schema, whole in (('"long"', b"\x02"), (json.dumps(tree), b"\x00\x02")):
        reader = AvroReader(AvroSchema(schema))
        reader.read(whole)
        for other in (whole + b"\x00", whole[:-1]):
            with pytest.raises(UnreadableValue):
                reader.read(other)


@pytest.mark.parametrize("fields", [1, 2])
def test_a_time_that_there_is_not_is_no_value_of_any_version(fields: int) -> None:
    time = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
    schema = AvroSchema(json.dumps({"type": "record", "name": "R", "fields": [time, {"name": "n", "type": "int", "default": 0}]}))
    stored = io.BytesIO()
    fastavro.schemaless_writer(
        stored, fastavro.parse_schema({**schema.plain, "fields": schema.plain["fields"][:fields]}), {"at": 1 << 60, "n": 1}
    )
    reader = AvroReader(schema)
    for read in (reader.read, lambda data: reader.read_all([data]), lambda data: reader.read_some(data, None)):
        with pytest.raises(UnreadableValue):
            read(stored.getvalue())


def grown(old: Any, new: Any) -> str:
    return why_not_grown(avro(old), avro(new))


@pytest.mark.parametrize(("older", "newer"), [(older, newer) for newer in range(2, len(FIELDS) + 1) for older in range(2, newer + 1)])
def test_fields_with_defaults_may_follow(older: int, newer: int) -> None:
    assert grown(schema_of(older), schema_of(newer)) == ""
    assert bool(grown(schema_of(newer), schema_of(older))) is (older < newer)
    assert grown(schema_of(older), schema_of(older, doc="said better")) == ""


def with_another(**field: Any) -> dict[str, Any]:
    return schema_of(0, fields=[*schema_of(len(FIELDS))["fields"], {"name": "more", **field}])


def changed(index: int, **more: Any) -> dict[str, Any]:
    fields = [field for field, _, _ in FIELDS]
    return schema_of(len(FIELDS), fields=[*fields[:index], fields[index] | more, *fields[index + 1 :]])


@pytest.mark.parametrize(
    ("newer", "why"),
    [
        (schema_of(len(FIELDS), name="Other"), "the record its name"),
        (changed(0, type="int"), "keep their types"),
        (changed(0, type={"type": "long", "logicalType": "timestamp-millis"}), "keep their types"),
        (changed(1, name="text"), "stay, in this order"),
        (changed(2, default=False), "the default of paid stays"),
        (schema_of(3), "stay, in this order"),
        (schema_of(0, fields=[{"name": "first", "type": "int", "default": 0}, *schema_of(len(FIELDS))["fields"]]), "stay, in this order"),
        (with_another(type="int"), "more has no default"),
        (with_another(type=["null", "shop.Order"], default=None), "in itself"),
        ("long", "in itself"),
        ([schema_of(len(FIELDS)), "null"], "in itself"),
    ],
)
def test_nothing_else_may_change(newer: Any, why: str) -> None:
    assert why in grown(schema_of(len(FIELDS)), newer)


def test_a_default_that_is_taken_away_or_is_of_another_type_is_refused() -> None:
    fields = schema_of(3)["fields"]
    without = schema_of(3, fields=[*fields[:2], {"name": "paid", "type": "boolean"}])
    assert "the default of paid stays" in grown(schema_of(3), without)
    with pytest.raises(InvalidArgument, match="Default value <7>"):
        grown(schema_of(2), schema_of(2, fields=[*fields[:2], {"name": "paid", "type": "boolean", "default": 7}]))


def test_the_default_of_a_field_that_no_value_lacks_may_come() -> None:
    fields = schema_of(2)["fields"]
    assert grown(schema_of(2), schema_of(2, fields=[fields[0], fields[1] | {"default": "-"}])) == ""
