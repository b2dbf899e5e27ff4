"""JSON values as a struct column: types in Spark's words, and what becomes of values that do not fit."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import InvalidArgument
from eventlog.integrations.archive.values import ValueColumns, ddl_of, struct_of, type_of
from eventlog.integrations.spark.columns import (
    SparkShape,
    inferred_struct,
    shown_columns,
    with_values,
)
from eventlog.integrations.spark.options import SourceOptions, read_options

ORDER = "customer STRING, total DOUBLE, n BIGINT"


def read(values: list[Any], ddl: str = ORDER, corrupt: Any = "column") -> tuple[list[Any], list[Any]]:
    encoded = [None if value is None else value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    structs, texts = ValueColumns(struct_of(ddl), corrupt=corrupt).arrays(encoded)
    return structs.to_pylist(), texts.to_pylist()


def test_what_is_not_there_is_null_and_what_is_more_is_passed_over():
    structs, texts = read([{"customer": "a", "total": 2, "n": 1 << 60, "more": [1, {}]}, {}, None, b"null", {"total": None}])
    assert structs == [
        {"customer": "a", "total": 2.0, "n": 1 << 60},
        {"customer": None, "total": None, "n": None},
        None,
        None,
        {"customer": None, "total": None, "n": None},
    ]
    assert texts == [None] * 5


def test_a_field_that_does_not_fit_is_null_beside_the_value_and_the_others_stay():
    values = [{"n": number} for number in range(50)]
    values[17] = {"customer": "c", "total": "much", "n": 17}
    values[31] = [1]
    structs, texts = read(values)
    assert structs[17] == {"customer": "c", "total": None, "n": 17}
    assert structs[31] is None
    assert {row: text for row, text in enumerate(texts) if text is not None} == {17: json.dumps(values[17]), 31: "[1]"}
    assert [struct["n"] for row, struct in enumerate(structs) if row != 31] == [number for number in range(50) if number != 31]
    assert read(values, corrupt="null")[0] == structs
    with pytest.raises(InvalidArgument, match=r"much.* does not fit value_schema"):
        read(values, corrupt="fail")


def test_under_a_field_of_text_stands_the_json_of_what_is_no_text():
    structs, texts = read([{"customer": 5}, {"customer": {"a": [1, 2]}}, {"customer": True}, {"customer": "t"}], "customer STRING")
    assert [struct["customer"] for struct in structs] == ["5", '{"a":[1,2]}', "true", "t"]
    assert texts == [None] * 4


def test_types_nest_and_keep_what_they_hold():
    ddl = "a STRUCT<b: ARRAY<INT>, `c d`: MAP<STRING, DECIMAL(20, 2)>>, at TIMESTAMP, day DATE, raw BINARY"
    value = b'{"a":{"b":[1,null],"c d":{"x":123456789012345678.25}},"at":"2026-11-20T10:00:00Z","day":"2026-11-20","raw":"AP8="}'
    (struct,), _ = read([value], ddl)
    assert str(struct["a"]["c d"][0][1]) == "123456789012345678.25"
    assert (struct["a"]["b"], struct["at"].isoformat(), struct["day"].isoformat()) == ([1, None], "2026-11-20T10:00:00+00:00", "2026-11-20")
    assert struct["raw"] == b"\x00\xff"


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "a",
        "a INT,",
        "a INT b INT",
        "a WHAT",
        "a INT, a INT",
        "a STRUCT<b INT",
        "a MAP<INT, INT>",
        "a DECIMAL(39)",
        "a DECIMAL(2,3)",
        "a;b",
        "< INT",
    ],
)
def test_words_that_are_no_types_are_refused(wrong: str) -> None:
    with pytest.raises(InvalidArgument, match="value_schema"):
        struct_of(wrong)


def test_a_type_that_is_too_deep_is_refused():
    with pytest.raises(InvalidArgument, match="deeper"):
        struct_of("a " + "ARRAY<" * 500 + "INT" + ">" * 500)


@pytest.mark.parametrize("name", ['a"', "a\\", "a\n"])
def test_a_name_that_json_escapes_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot be read"):
        ValueColumns(struct_of(f"b STRUCT<`{name}`: INT>"), corrupt="column")


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
LEAVES = st.sampled_from(
    [
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary()),
        *(pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.decimal128(20, 3)),
    ]
)
TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(lambda fields: pa.struct(list(fields.items()))),
    ),
    max_leaves=8,
)


@given(TYPES)
def test_what_is_written_of_a_type_is_read_as_it(kind: pa.DataType) -> None:
    assert type_of(ddl_of(kind)) == kind


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["customer", "total", "n", "x"]), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(JSON, max_size=12))
def test_many_are_read_as_each_alone(values: list[Any]) -> None:
    structs, texts = read(values)
    alone = [read([value]) for value in values]
    assert repr(structs) == repr([struct for (struct,), _ in alone])
    assert texts == [text for _, (text,) in alone]


def test_fields_are_found_in_the_first_values():
    kind = inferred_struct([b'{"a":1,"b":null}', b'{"a":2,"c":["x"]}'])
    assert ddl_of(kind) == "STRUCT<`a`: BIGINT, `b`: STRING, `c`: ARRAY<STRING>>"
    for wrong in ([], [b"1"], [b'{"a":1}', b'{"a":"x"}'], [b"{}"]):
        with pytest.raises(InvalidArgument):
            inferred_struct(wrong)


def test_v_and_corrupt_stand_in_the_place_of_the_value():
    types = with_values({"id": "BIGINT", "value": "STRING", "key": "STRING"}, struct_of("a INT"))
    options = {"servers": "a:1", "cache": "c", "value_schema": "a INT"}
    assert shown_columns(types, read_options(options)) == ["id", "v", "_corrupt", "key"]
    assert shown_columns(types, read_options(options | {"corrupt": "null"})) == ["id", "v", "key"]
    assert shown_columns({"id": "BIGINT", "value": "STRING"}, SourceOptions(servers=("a:1",), cache="c")) == ["id", "value"]
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array(['{"a":1}', '{"a":"x"}'])], names=["id", "value"])
    shape = SparkShape(names=("_corrupt", "v", "id"), struct="STRUCT<`a`: INT>")
    assert shape.read == ("id", "value")
    assert shape.reader()(rows).to_pylist() == [
        {"_corrupt": None, "v": {"a": 1}, "id": 1},
        {"_corrupt": '{"a":"x"}', "v": {"a": None}, "id": 2},
    ]


def test_options_of_values_are_checked():
    needed = {"servers": "a:1", "cache": "c"}
    with pytest.raises(InvalidArgument, match="name that, too"):
        read_options(needed | {"corrupt": "fail"})
    with pytest.raises(InvalidArgument, match="use column, null, fail"):
        read_options(needed | {"value_schema": "a INT", "corrupt": "drop"})
