"""Values of Avro caches: what the schema takes comes back as it was, fastavro reads it as we do, and all else is refused with its field."""

import io
import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any
from uuid import UUID

import fastavro
import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.client.avro import AvroFormat
from eventlog.client.formats import REMOVE, CacheFormat
from eventlog.client.writing.bulk import arrow_columns, pair_columns
from eventlog.errors import BadValue, UnreadableValue
from eventlog.predicate.avro import avro_json
from tests.client.test_formats import info

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": "double", "default": 1.5},
        {
            "name": "place",
            "type": ["null", {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}],
            "default": None,
        },
        {"name": "second", "type": ["null", "Place"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}, "default": "NEW"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}, "default": "\u00ff\u0000"},
        {"name": "blob", "type": "bytes", "default": "\u00fe"},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "sizes", "type": {"type": "map", "values": {"type": "array", "items": "int"}}, "default": {}},
        {"name": "either", "type": ["string", "long", "float", "double", "boolean", "null"], "default": "x"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}]},
    ],
}
FORM = CacheFormat(info(format="avro", schema=json.dumps(ORDER)))
GIVEN = {
    "id": 7,
    "total": 2.5,
    "place": {"city": "Bern"},
    "second": None,
    "state": "PAID",
    "hash": b"ab",
    "blob": b"\xff",
    "tags": ["a", "b"],
    "sizes": {"x": [1, 2]},
    "either": 9,
    "at": datetime(2026, 11, 20, 10, tzinfo=UTC),
    "price": Decimal("12.50"),
}


def of(schema: Any) -> CacheFormat:
    return CacheFormat(info(format="avro", schema=json.dumps(schema)))


def logical(base: str, name: str, **more: Any) -> CacheFormat:
    return of({"type": base, "logicalType": name, **more})


def test_a_record_comes_back_as_it_was_and_others_read_it_so_too() -> None:
    stored = FORM.value("k", GIVEN)
    assert FORM.read_value(stored) == GIVEN
    assert fastavro.schemaless_reader(io.BytesIO(stored), fastavro.parse_schema(ORDER), None) == GIVEN
    assert FORM.values(["k"], [GIVEN]) == [stored]
    assert FORM.value("k", stored) == stored


def test_what_a_record_lacks_is_its_default_or_null() -> None:
    assert FORM.read_value(FORM.value("k", {"id": 1})) == {
        "id": 1,
        "total": 1.5,
        "place": None,
        "second": None,
        "state": "NEW",
        "hash": b"\xff\x00",
        "blob": b"\xfe",
        "tags": [],
        "sizes": {},
        "either": "x",
        "at": None,
        "price": None,
    }


class Colour(Enum):
    RED = "NEW"


class Word(StrEnum):
    PAID = "PAID"


@dataclass
class Place:
    city: str


EAST = timezone(timedelta(hours=2))
TAKEN = [
    ("int", np.int32(5), 5),
    ("long", -(1 << 63), -(1 << 63)),
    ("double", 3, 3.0),
    ("double", np.float64(1.5), 1.5),
    ("float", 0.5, 0.5),
    ("double", math.inf, math.inf),
    ("double", "-Infinity", -math.inf),
    ("boolean", np.bool_(True), True),
    ("string", Word.PAID, "PAID"),
    ("string", UUID(int=1), str(UUID(int=1))),
    ("string", date(2026, 1, 2), "2026-01-02"),
    ("string", pa.scalar("x"), "x"),
    ("bytes", "ä", "ä".encode()),
    ("bytes", {"base64": "/w=="}, b"\xff"),
    ("bytes", bytearray(b"a"), b"a"),
    ({"type": "array", "items": "int"}, (1, 2), [1, 2]),
    ({"type": "map", "values": "int"}, {"a b": 1}, {"a b": 1}),
    (ORDER["fields"][4]["type"], Colour.RED, "NEW"),
    (ORDER["fields"][2]["type"], Place("Rom"), {"city": "Rom"}),
    (["null", "string"], {"string": "x"}, "x"),
    (["int", "long"], 1 << 40, 1 << 40),
    (["float", "double"], 0.1, 0.1),
    (["double", "string"], 3, 3.0),
    (["null", "float", "string"], "NaN", "NaN"),
    (["long", "boolean"], True, True),
    (["string", "bytes"], b"a", b"a"),
    (["null", {"type": "int", "logicalType": "date"}, "long"], 5, 5),
    (["null", {"type": "int", "logicalType": "date"}, "string"], "x", "x"),
    (["string", {"type": "map", "values": "string"}], ("map", {"a": "b"}), {"a": "b"}),
]
LOGICAL = [
    ("long", "timestamp-millis", datetime(2026, 1, 2, 3, 4, 5, 6999, tzinfo=UTC), datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)),
    ("long", "timestamp-micros", datetime(1960, 1, 2, 3, 4, 5, 6, tzinfo=EAST), datetime(1960, 1, 2, 1, 4, 5, 6, tzinfo=UTC)),
    ("long", "timestamp-micros", datetime.fromisoformat("2026-01-02"), datetime(2026, 1, 2, tzinfo=UTC)),
    ("long", "timestamp-millis", "2026-01-02T00:00:00+02:00", datetime(2026, 1, 1, 22, tzinfo=UTC)),
    ("long", "timestamp-millis", -1, datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
    ("long", "timestamp-millis", np.datetime64("2026-01-02T03:04:05", "ns"), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ("long", "local-timestamp-millis", datetime.fromisoformat("2026-01-02T03:04:05"), datetime.fromisoformat("2026-01-02T03:04:05")),
    ("int", "date", date(1, 1, 1), date(1, 1, 1)),
    ("int", "date", "2026-01-02", date(2026, 1, 2)),
    ("int", "date", 1, date(1970, 1, 2)),
    ("int", "time-millis", time(1, 2, 3, 4500), time(1, 2, 3, 4000)),
    ("long", "time-micros", "01:02:03.000004", time(1, 2, 3, 4)),
    ("string", "uuid", UUID(int=5), UUID(int=5)),
    ("string", "uuid", "00000000000000000000000000000005", UUID(int=5)),
    ("int", "timestamp-millis", 5, 5),
    ("string", "nonsense", "x", "x"),
]


@pytest.mark.parametrize(("schema", "value", "expected"), TAKEN)
def test_a_value_that_fits_is_taken(schema: Any, value: Any, expected: Any) -> None:
    assert of(schema).read_value(of(schema).value("k", value)) == expected
    assert of({"type": "array", "items": schema}).read_value(of({"type": "array", "items": schema}).value("k", [value])) == [expected]


@pytest.mark.parametrize(("base", "name", "value", "expected"), LOGICAL)
def test_times_are_taken_as_objects_as_text_and_as_they_are_stored(base: str, name: str, value: Any, expected: Any) -> None:
    found = logical(base, name).read_value(logical(base, name).value("k", value))
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize("digits", ["0", "1", "-1", "12.3", "-128", "127.00", "99999.99", "-99999.99", "1E+2", "1.500"])
@pytest.mark.parametrize("base", [{"type": "bytes"}, {"type": "fixed", "name": "F", "size": 4}])
def test_decimals_keep_their_digits(base: dict[str, Any], digits: str) -> None:
    form = of({**base, "logicalType": "decimal", "precision": 7, "scale": 2})
    for value in (Decimal(digits), digits):
        assert form.read_value(form.value("k", value)) == Decimal(digits)
    stored, schema = io.BytesIO(), fastavro.parse_schema({**base, "logicalType": "decimal", "precision": 7, "scale": 2})
    fastavro.schemaless_writer(stored, schema, Decimal(digits).quantize(Decimal("0.01")))
    assert form.value("k", Decimal(digits)) == stored.getvalue()


REFUSED = [
    ("total nonsense", "value is text, 'total nonsense': the schema wants record shop.Order"),
    ([], "value is a list"),
    ({}, "value.id is missing"),
    ({"id": "7"}, "value.id is text, '7': the schema wants long"),
    ({"id": 7.0}, "value.id is a float"),
    ({"id": True}, "value.id is a bool"),
    ({"id": None}, "value.id is a NoneType, None"),
    ({"id": 1 << 63}, "value.id is 9223372036854775808: more"),
    ({"id": 1, "totl": 2}, "value.totl is unknown: .* did you mean total"),
    ({"id": 1, 5: 2}, r"value\[5\] is unknown"),
    ({"id": 1, "total": "x"}, "value.total is text"),
    ({"id": 1, "total": True}, "value.total is a bool"),
    ({"id": 1, "total": (1 << 53) + 1}, "value.total is 9007199254740993: double does not hold"),
    ({"id": 1, "total": 1 << 2000}, "value.total is"),
    ({"id": 1, "place": {"city": 5}}, "value.place.city is an int, 5: the schema wants string"),
    ({"id": 1, "place": {}}, "value.place.city is missing"),
    ({"id": 1, "state": "OLD"}, "value.state is 'OLD': the schema has NEW, PAID"),
    ({"id": 1, "hash": b"abc"}, "value.hash is of 3 bytes"),
    ({"id": 1, "blob": 5}, "value.blob is an int"),
    ({"id": 1, "blob": {"base64": "?"}}, "value.blob is no base64"),
    ({"id": 1, "tags": ["a", "b", "c", 4]}, r"value.tags\[3\] is an int"),
    ({"id": 1, "tags": {"a"}}, "value.tags is a set: .* sorted"),
    ({"id": 1, "tags": "abc"}, "value.tags is text"),
    ({"id": 1, "sizes": {"x y": [1, None]}}, r"value.sizes\['x y'\]\[1\] is a NoneType"),
    ({"id": 1, "sizes": {5: []}}, r"value.sizes\[5\] is an int"),
    ({"id": 1, "either": []}, "value.either is a list.*string or long"),
    ({"id": 1, "at": "soon"}, "value.at is text, 'soon': the schema wants a time"),
    ({"id": 1, "at": 1.5}, "value.at is a float"),
    ({"id": 1, "price": "12.505"}, "value.price is 12.505: the schema wants a decimal of 6 digits, 2"),
    ({"id": 1, "price": 10000}, "value.price is 10000"),
    ({"id": 1, "price": Decimal("NaN")}, "value.price is a Decimal"),
    ({"id": 1, "price": "1E+999999999"}, "value.price is"),
    ({"id": 1, "price": "1E-999999999"}, "value.price is"),
    ({"id": 1, "price": True}, "value.price is a bool"),
    ({"id": 1, "tags": ["\ud800"]}, r"value.tags\[0\] is text that UTF-8"),
    (b"total nonsense", "value is bytes that are not of the cache's Avro schema"),
    (REMOVE, "REMOVE"),
    (msgspec.Raw(b"{"), "not JSON"),
    (msgspec.Raw(b'{"id":"x"}'), "value.id is text"),
    (FORM.value("k", GIVEN) + b"x", "1 of"),
]


@pytest.mark.parametrize(("value", "why"), REFUSED)
def test_what_the_schema_does_not_take_is_refused_with_its_field(value: Any, why: str) -> None:
    for attempt in (lambda: FORM.value("the key", value), lambda: FORM.values(["ok", "the key"], [GIVEN, value])):
        with pytest.raises(BadValue, match=why) as caught:
            attempt()
        assert caught.value.key == "the key"


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (logical("long", "local-timestamp-millis"), datetime(2026, 1, 2, tzinfo=UTC)),
        (logical("long", "timestamp-millis"), np.datetime64("NaT")),
        (logical("int", "date"), datetime(2026, 1, 2, tzinfo=UTC)),
        (logical("int", "time-millis"), time(1, tzinfo=UTC)),
        (of("float"), 1e39),
        (logical("string", "uuid"), "x"),
        (logical("string", "uuid"), 5),
        (of("null"), 0),
        (of("string"), b"x"),
        (of("int"), 1 << 31),
    ],
)
def test_times_and_numbers_that_would_be_another_are_refused(form: CacheFormat, value: Any) -> None:
    with pytest.raises(BadValue):
        form.value("k", value)


TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "n", "type": "int"}, {"name": "below", "type": {"type": "array", "items": "Tree"}}],
}


def test_a_schema_may_name_itself_and_a_value_that_holds_itself_is_refused() -> None:
    value = {"n": 1, "below": [{"n": 2, "below": []}]}
    form = of(TREE)
    assert form.read_value(form.value("k", value)) == value
    endless: dict[str, Any] = {"n": 1}
    endless["below"] = [endless]
    with pytest.raises(BadValue):
        form.value("k", endless)
    assert form.avro is not None
    [row] = form.avro.array([form.value("k", value)]).to_pylist()
    assert row == {"n": 1, "below": ['{"n":2,"below":[]}']}


def test_bytes_are_a_value_where_the_schema_has_bytes() -> None:
    form = of(["null", "bytes"])
    assert form.read_value(form.value("k", b"\x00")) == b"\x00"


def test_damaged_values_are_told_and_keep_their_bytes() -> None:
    stored = FORM.value("k", GIVEN)
    for data in (stored[:-1], b"\xff" * 40):
        with pytest.raises(UnreadableValue, match="value_bytes"):
            FORM.read_value(data)


def test_what_a_newer_schema_has_appended_is_passed_over_and_not_written() -> None:
    newer = FORM.value("k", GIVEN) + b"\0"
    assert FORM.read_value(newer) == FORM.read_value(FORM.value("k", GIVEN))
    with pytest.raises(BadValue, match="left over"):
        FORM.value("k", newer)


def test_the_dead_letter_of_a_removal_has_no_value() -> None:
    assert FORM.read_value(b"") is None
    with pytest.raises(BadValue):
        FORM.value("k", b"")
    nothing = of({"type": "record", "name": "Nothing", "fields": []})
    assert nothing.read_value(nothing.value("k", {})) == {}


def test_as_json_a_value_is_what_the_schema_takes_again() -> None:
    assert FORM.avro is not None
    for given_ in (GIVEN, GIVEN | {"total": math.nan, "either": math.inf, "blob": b"text", "place": None}):
        text = avro_json(FORM.read_value(FORM.value("k", given_)))
        again = FORM.value("k", msgspec.Raw(text))
        if given_ is GIVEN:
            assert again == FORM.value("k", GIVEN)
        assert avro_json(FORM.read_value(again)) == text
    assert json.loads(text)["total"] == "NaN"


@pytest.mark.parametrize("micros", [0, 1, 9_999, 10_000, 99_999, 100_000, 999_999])
def test_as_json_times_keep_their_digits(micros: int) -> None:
    of_day, moment = time(1, 2, 3, micros), datetime(2026, 1, 2, 3, 4, 5, micros, tzinfo=UTC)
    for value in (of_day, moment, moment.replace(tzinfo=None), moment.date()):
        text = json.loads(avro_json({"a": value}))["a"]
        assert (type(value).fromisoformat(text), text.endswith("+00:00")) == (value, False)


def test_columns_have_the_types_of_the_schema() -> None:
    assert FORM.avro is not None
    stored = [FORM.value("k", GIVEN), None, FORM.value("k", {"id": 1})]
    found = FORM.avro.array(stored)
    assert found.type.field("at").type == pa.timestamp("us", "UTC")
    assert found.type.field("price").type == pa.decimal128(6, 2)
    assert found.type.field("place").type == pa.struct([("city", pa.string())])
    assert found.type.field("sizes").type == pa.map_(pa.string(), pa.list_(pa.int32()))
    rows = found.to_pylist()
    assert rows[0] == GIVEN | {"either": "9", "sizes": [("x", [1, 2])]}
    assert rows[1] is None
    assert rows[2]["id"] == 1
    empty = FORM.avro.array([])
    assert empty.type == found.type


def test_columns_of_arrow_are_encoded() -> None:
    rows = [{"id": 1, "tags": ["a"]}, {"id": 2, "tags": []}]
    structs = pa.table({"key": ["a", "b", "c"], "value": [*rows, None]})
    keys, values, removed = arrow_columns(structs, FORM, key="key", value="value")
    assert (keys, removed) == ([b"a", b"b", b"c"], [False, False, True])
    assert [FORM.read_value(value)["id"] for value in values[:2]] == [1, 2]
    texts = pa.table({"key": ["a", "b"], "value": [json.dumps(row) for row in rows]})
    ready = pa.table({"key": ["a", "b"], "value": values[:2]})
    for table in (texts, ready):
        assert arrow_columns(table, FORM, key="key", value="value")[1] == values[:2]
    with pytest.raises(BadValue, match=r"value.tags\[0\] is an int"):
        arrow_columns(pa.table({"key": ["a"], "value": ['{"id":1,"tags":[1]}']}), FORM, key="key", value="value")
    with pytest.raises(BadValue, match="not of the cache's Avro schema"):
        arrow_columns(pa.table({"key": ["a"], "value": [b"x"]}), FORM, key="key", value="value")


def test_pairs_are_encoded_and_may_remove() -> None:
    keys, values, removed = pair_columns({"a": GIVEN, "b": REMOVE}, FORM)
    assert (keys, removed) == ([b"a", b"b"], [False, True])
    assert FORM.read_value(values[0]) == GIVEN


def test_a_selection_is_json() -> None:
    assert FORM.selected().read_value(b'{"id":7}') == {"id": 7}
    assert of("int").selected().is_json


values = st.fixed_dictionaries(
    {"id": st.integers(-(1 << 63), (1 << 63) - 1)},
    optional={
        "total": st.floats(),
        "place": st.none() | st.fixed_dictionaries({"city": st.text()}),
        "state": st.sampled_from(["NEW", "PAID"]),
        "hash": st.binary(min_size=2, max_size=2),
        "blob": st.binary(),
        "tags": st.lists(st.text()),
        "sizes": st.dictionaries(st.text(), st.lists(st.integers(-(1 << 31), (1 << 31) - 1))),
        "either": st.text() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats() | st.booleans() | st.none(),
        "at": st.none() | st.datetimes(timezones=st.just(UTC)),
        "price": st.none() | st.decimals("-9999.99", "9999.99", places=2),
    },
)


@given(values)
def test_every_record_comes_back_as_it_was(value: dict[str, Any]) -> None:
    stored = FORM.value("k", value)
    found = FORM.read_value(stored)
    assert msgspec.msgpack.encode({name: found[name] for name in value}) == msgspec.msgpack.encode(value)
    assert AvroFormat(json.dumps(ORDER)).encode(found) == stored
