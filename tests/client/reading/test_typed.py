"""JSON as typed columns: what fits is taken whole, and what does not is refused with its place."""

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.client.reading.typed import TypedJson, Unfit, inferred, value_type
from eventlog.errors import InvalidArgument

POINT = pa.struct([pa.field("x", pa.int64(), nullable=False), ("y", pa.float64())])


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        (pa.int8(), "-128", -128),
        (pa.int64(), "9223372036854775807", (1 << 63) - 1),
        (pa.float64(), "2", 2.0),
        (pa.float32(), "0.5", 0.5),
        (pa.bool_(), "true", True),
        (pa.string(), '"ä"', "ä"),
        (pa.binary(), '"AAE="', b"\0\1"),
        (pa.null(), "null", None),
        (pa.int64(), "null", None),
        (pa.date32(), '"2026-11-24"', date(2026, 11, 24)),
        (pa.time32("ms"), '"12:30:00.5"', time(12, 30, 0, 500_000)),
        (pa.timestamp("us", "UTC"), '"2026-11-24T12:00:00.000001Z"', datetime(2026, 11, 24, 12, microsecond=1, tzinfo=UTC)),
        (pa.timestamp("ms"), '"2026-11-24T12:00:00.5"', datetime(2026, 11, 24, 12, microsecond=500_000)),  # noqa: DTZ001 -- it has none
        (pa.duration("us"), '"PT5.5S"', timedelta(seconds=5.5)),
        (pa.decimal128(5, 2), '"123.45"', Decimal("123.45")),
        (pa.list_(pa.int32()), "[1, null, 3]", [1, None, 3]),
        (pa.map_(pa.string(), pa.int32()), '{"a": 1, "b c": null}', [("a", 1), ("b c", None)]),
        (POINT, '{"x": 1}', {"x": 1, "y": None}),
        (pa.struct([]), "{}", {}),
        (pa.struct([("odd name", pa.list_(POINT))]), '{"odd name": [{"x": 1, "y": 2.5}, null]}', {"odd name": [{"x": 1, "y": 2.5}, None]}),
    ],
)
def test_values_are_read_as_the_type_says(kind: pa.DataType, text: str, found: object) -> None:
    column = TypedJson(kind).array([text.encode(), None, text.encode()])
    column.validate(full=True)
    assert column.type == kind
    assert column.to_pylist() == [found, None, found]


@pytest.mark.parametrize(
    ("kind", "text", "place", "why"),
    [
        (pa.int64(), '"1"', "value", "Expected int"),
        (pa.int64(), "1.5", "value", "Expected int"),
        (pa.int64(), "true", "value", "Expected int"),
        (pa.int8(), "128", "value", "<= 127"),
        (pa.int64(), "9223372036854775808", "value", ""),
        (pa.float32(), "1e39", "value", "<= 3.4"),
        (pa.string(), "1", "value", "Expected str"),
        (pa.binary(), '"?"', "value", "base64"),
        (pa.null(), "1", "value", "Expected null"),
        (pa.timestamp("us", "UTC"), '"2026-11-24T12:00:00"', "value", "timezone"),
        (pa.timestamp("us"), '"2026-11-24T12:00:00Z"', "value", "timezone"),
        (pa.timestamp("s"), '"2026-11-24T12:00:00.5"', "value", "lose data"),
        (pa.timestamp("ns"), '"9026-11-24T12:00:00"', "value", "out of bounds"),
        (pa.time32("s"), '"12:30:00.5"', "value", "lose data"),
        (pa.decimal128(5, 2), '"1.234"', "value", "data loss"),
        (POINT, "{}", "value", "missing required field x"),
        (POINT, '{"x": null}', "value.x", "Expected int"),
        (POINT, '{"x": 1, "z": 1}', "value", "unknown field z"),
        (pa.struct([("a", pa.list_(POINT))]), '{"a": [{"x": 1}, {"x": "1"}]}', "value.a[1].x", "Expected int"),
        (pa.struct([("a", pa.list_(pa.decimal128(3, 1)))]), '{"a": ["1.25"]}', "value.a[]", "data loss"),
        (pa.map_(pa.string(), pa.int32()), '{"k": "x"}', "value[...]", "Expected int"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_row_and_place(kind: pa.DataType, text: str, place: str, why: str) -> None:
    with pytest.raises(Unfit) as caught:
        TypedJson(kind).array([b"null", None, text.encode(), text.encode()])
    assert (caught.value.row, caught.value.place) == (2, place)
    assert why in caught.value.why


@pytest.mark.parametrize(
    "kind",
    [
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.uint32(),
        pa.large_list(pa.int8()),
        pa.float16(),
        pa.map_(pa.int8(), pa.int8()),
    ],
)
def test_types_that_a_table_never_has_are_refused_with_their_place(kind: pa.DataType) -> None:
    with pytest.raises(InvalidArgument, match=r"at value\.a\[\]\.b, which JSON is not read as: use plain types"):
        TypedJson(pa.struct([("a", pa.list_(pa.struct([("b", kind)])))]))


def test_fields_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"several fields of one name at value\.a"):
        TypedJson(pa.struct([("a", pa.struct([("b", pa.int8()), ("b", pa.int8())]))]))


def test_a_struct_that_is_null_has_no_fields_that_must_not_be() -> None:
    column = TypedJson(pa.struct([("p", POINT)])).array([b'{"p": null}', b'{"p": {"x": 1}}', b"{}"])
    assert column.to_pylist() == [{"p": None}, {"p": {"x": 1, "y": None}}, {"p": None}]


def test_a_value_schema_is_a_type_or_the_schema_of_the_fields() -> None:
    assert value_type(pa.schema(list(POINT))) == POINT
    assert value_type(POINT) == POINT
    assert (value_type(None), value_type("infer")) == (None, "infer")
    for wrong in ("guess", {"a": "int64"}, 5):
        with pytest.raises(InvalidArgument, match="value_schema is"):
            value_type(wrong)


def test_a_type_is_inferred_of_all_first_values() -> None:
    assert inferred([b'{"a": 1}', b'{"a": 2.5, "b": "x"}', b"null"]) == pa.struct([("a", pa.float64()), ("b", pa.string())])
    with pytest.raises(InvalidArgument, match="no type in common"):
        inferred([b"1", b'"x"'])


objects = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(-(1 << 63), (1 << 63) - 1),
        "t": st.text(),
        "l": st.lists(st.none() | st.booleans()),
        "d": st.floats(allow_nan=False, allow_infinity=False),
    },
)


@given(st.lists(st.none() | objects, min_size=1))
def test_what_was_written_is_read_again(values: list[dict[str, Any] | None]) -> None:
    kind = pa.struct([("n", pa.int64()), ("t", pa.string()), ("l", pa.list_(pa.bool_())), ("d", pa.float64())])
    found = TypedJson(kind).array([json.dumps(value).encode() for value in values])
    found.validate(full=True)
    expected = [None if value is None else {name: value.get(name) for name in ("n", "t", "l", "d")} for value in values]
    assert found.to_pylist() == expected
