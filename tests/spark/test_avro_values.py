"""Avro values as a struct column, beside what fastavro reads and the rules of docs/spark.md, applied one value at a time."""

import io
import json
import math
import struct
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from eventlog.errors import InvalidArgument
from eventlog.integrations.archive.avro_values import avro_struct
from eventlog.integrations.archive.values import ValueColumns, ddl_of, struct_of, type_of
from eventlog.integrations.spark.columns import SparkShape
from tests.spark.test_values import LEAVES as SPARK_LEAVES

TEXTS: dict[str, dict[Any, Any]] = {  # what may stand in text, by the type that takes it
    "x": {},
    "12.50": {"decimal": Decimal("12.50")},
    "2026-11-20": {pa.date32(): date(2026, 11, 20)},
    "2026-11-20T10:00:00Z": {pa.timestamp("us", "UTC"): datetime(2026, 11, 20, 10, tzinfo=UTC)},
    "2026-11-20T10:00:00": {pa.timestamp("us"): datetime(2026, 11, 20, 10)},  # noqa: DTZ001 -- it has no zone
    "YWI=": {pa.binary(): b"ab"},
}


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


LEAVES: list[tuple[Any, Any]] = [
    (["null", "int"], st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-200, 200)),
    ("long", st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-200, 200)),
    ("float", st.floats(width=32)),
    ("double", st.floats() | st.integers(-9, 9).map(float)),
    ("string", st.sampled_from(sorted(TEXTS))),
    ("bytes", st.binary(max_size=4)),
    ({"type": "string", "doc": "text"}, st.sampled_from(sorted(TEXTS))),
    (["boolean", "double", "string"], st.booleans() | st.floats() | st.sampled_from(sorted(TEXTS))),
    (logical("bytes", "decimal", precision=20, scale=2), st.decimals(-(10**17), 10**17, places=2)),
    (logical("string", "uuid"), st.uuids()),
    (logical("int", "date"), st.dates()),
    (logical("int", "time-millis"), st.times().map(lambda found: found.replace(microsecond=found.microsecond // 1000 * 1000))),
    (logical("long", "timestamp-micros"), st.datetimes(timezones=st.just(UTC))),
    (logical("long", "local-timestamp-micros"), st.datetimes()),
    (logical("int", "timestamp-millis"), st.integers(0, 9)),  # of the wrong base, so it means nothing
]
FIELDS = ["a", "b", "c"]
FLOATS = (pa.float32(), pa.float64(), pa.decimal128(20, 2))
NEAR: dict[str, tuple[pa.DataType, ...]] = {  # a type that a value may fit, but for text
    **dict.fromkeys(("int", "long"), (pa.int8(), pa.int32(), pa.int64(), *FLOATS)),
    **dict.fromkeys(("float", "double"), FLOATS),
    **dict.fromkeys(("bytes", "fixed"), (pa.binary(),)),
    "decimal": (pa.decimal128(19, 1), *FLOATS),
    "string": (pa.decimal128(20, 2), pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.binary()),
    "boolean": (pa.bool_(),),
    "date": (pa.date32(),),
    "timestamp-micros": (pa.timestamp("us", "UTC"),),
    "local-timestamp-micros": (pa.timestamp("us"),),
}


@st.composite
def schemas(draw: Any, depth: int = 0) -> tuple[Any, Any]:
    """Draw a schema, and a strategy for its values."""
    kind = draw(st.sampled_from(["leaf", "leaf", "null", "array", "map", "record", "enum", "fixed"])) if depth < 3 else "leaf"
    if kind == "leaf":
        return draw(st.sampled_from(LEAVES))
    name = f"T{draw(st.uuids()).hex}"
    if kind == "record":
        return draw(records(depth, name))
    inner, values = draw(schemas(depth + 1))
    made: dict[str, tuple[Any, Any]] = {
        "enum": ({"type": "enum", "name": name, "symbols": ["A", "B"]}, st.sampled_from("AB")),
        "fixed": ({"type": "fixed", "name": name, "size": 2}, st.binary(min_size=2, max_size=2)),
        "array": ({"type": "array", "items": inner}, st.lists(values, max_size=3)),
        "map": ({"type": "map", "values": inner}, st.dictionaries(st.sampled_from(FIELDS), values, max_size=3)),
        "null": (inner, values) if isinstance(inner, list) else (["null", inner], st.none() | values),
    }
    return made[kind]


@st.composite
def records(draw: Any, depth: int, name: str) -> tuple[Any, Any]:
    found = {field: draw(schemas(depth + 1)) for field in draw(st.lists(st.sampled_from(FIELDS), min_size=1, unique=True))}
    fields = [{"name": field, "type": schema} for field, (schema, _) in found.items()]
    return {"type": "record", "name": name, "fields": fields}, st.fixed_dictionaries(
        {field: values for field, (_, values) in found.items()}
    )


@st.composite
def types_near(draw: Any, schema: Any) -> pa.DataType:
    """Draw a type: mostly one that takes what a schema has."""
    if draw(st.integers(0, 9)) == 0:
        return draw(SPARK_LEAVES | SPARK_LEAVES.map(pa.list_) | SPARK_LEAVES.map(lambda kind: pa.struct([("a", kind)])))
    if isinstance(schema, list):
        return draw(types_near(draw(st.sampled_from(schema))))
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "array":
        return pa.list_(draw(types_near(schema["items"])))
    if kind == "map":
        return pa.map_(pa.string(), draw(types_near(schema["values"])))
    if kind == "record":
        own = {field["name"]: draw(types_near(field["type"])) for field in schema["fields"] if draw(st.integers(0, 4))}
        return pa.struct(list((own or {"b": pa.string()}).items()))
    word = schema.get("logicalType", kind) if isinstance(schema, dict) else kind
    return draw(st.sampled_from([*NEAR.get(word, ()), pa.string()]))


class Said:
    """Text that is the JSON of something, however it is spelled."""

    def __init__(self, plain: Any) -> None:
        self.plain = plain

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and bool(json.loads(other) == self.plain)

    __hash__ = None  # type: ignore[assignment]  # it is for comparing alone


def plain_of(value: Any) -> Any:  # noqa: PLR0911 -- a rule each
    """Return the JSON that stands for a value, as docs/consuming.md has it."""
    if isinstance(value, dict):
        return {name: plain_of(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain_of(one) for one in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode()}
    if isinstance(value, date | time):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return str(value) if isinstance(value, Decimal | UUID) else value


def fitted(value: Any, kind: pa.DataType) -> Any:  # noqa: PLR0911 -- a rule each
    """Return what stands for a value under a type. Raises ValueError: it does not fit."""
    if value is None:
        return None
    if kind == pa.string():
        plain = plain_of(value)
        return plain if isinstance(plain, str) else Said(plain)
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {field.name: fitted(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind) and isinstance(value, list):
        return [fitted(one, kind.value_type) for one in value]
    if pa.types.is_map(kind) and isinstance(value, dict):
        return [(name, fitted(one, kind.item_type)) for name, one in value.items()]
    if isinstance(value, str):
        taken = TEXTS.get(value, {})
        key: Any = "decimal" if pa.types.is_decimal(kind) else kind
        if key not in taken:
            raise ValueError
        return exact(taken[key], kind) if key == "decimal" else taken[key]
    return number(value, kind) if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else same(value, kind)


def number(value: float | Decimal, kind: pa.DataType) -> Any:
    if pa.types.is_integer(kind) and isinstance(value, int) and -(1 << kind.bit_width - 1) <= value < 1 << kind.bit_width - 1:
        return value
    if kind == pa.float64():
        return float(value)
    if kind == pa.float32() and (not math.isfinite(value) or abs(value) <= struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]):
        return struct.unpack("<f", struct.pack("<f", float(value)))[0]
    if pa.types.is_decimal(kind) and math.isfinite(value):
        return exact(Decimal(repr(value)) if isinstance(value, float) else Decimal(value), kind)
    raise ValueError


def exact(value: Decimal, kind: pa.DataType) -> Decimal:
    units = value.scaleb(kind.scale)
    if units != units.to_integral_value() or abs(units) >= 10**kind.precision:
        raise ValueError
    return value


def same(value: Any, kind: pa.DataType) -> Any:
    is_zoned = isinstance(value, datetime) and value.tzinfo is not None
    own = {bool: pa.bool_(), bytes: pa.binary(), date: pa.date32(), datetime: pa.timestamp("us", "UTC" if is_zoned else None)}
    if own.get(type(value)) != kind:
        raise ValueError
    return value


def judged(value: Any, kind: pa.StructType) -> tuple[Any, bool]:
    """Return the struct of a value, and whether all of it fits."""
    if value is None:
        return None, True
    if not isinstance(value, dict):
        return None, False
    found, fits = {}, True
    for field in kind:
        try:
            found[field.name] = fitted(value.get(field.name), field.type)
        except ValueError:
            found[field.name], fits = None, False
    return found, fits


def read(schema: Any, stored: Sequence[bytes | None], kind: pa.StructType, corrupt: Any = "column") -> tuple[list[Any], list[Any]]:
    structs, texts = ValueColumns(kind, corrupt=corrupt, avro=json.dumps(schema)).arrays(stored)
    assert structs.type == kind
    return structs.to_pylist(), texts.to_pylist()


def stored_as(schema: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return buffer.getvalue()


def without_nan(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: without_nan(one) for name, one in found.items()}
    if isinstance(found, list | tuple):
        return type(found)(map(without_nan, found))
    return "nan" if isinstance(found, float) and math.isnan(found) else found


@given(st.data())
def test_values_are_as_fastavro_reads_them_and_the_rules_have_it(data: st.DataObject) -> None:
    schema, strategy = data.draw(records(0, "Top"))
    kind = data.draw(types_near(schema).filter(pa.types.is_struct))
    values = data.draw(st.lists(strategy, max_size=5))
    stored = [stored_as(schema, value) for value in values]
    judge = [judged(fastavro.schemaless_reader(io.BytesIO(one), fastavro.parse_schema(schema)), kind) for one in stored]
    structs, texts = read(schema, [*stored, None], kind)
    assert without_nan([*(struct for struct, _ in judge), None]) == without_nan(structs)
    assert [text is None for text in texts] == [*(fits for _, fits in judge), True]
    for text, value in zip(texts, values, strict=False):
        event("fits" if text is None else "does not fit")
        assert (
            text is None
            or Said(plain_of(fastavro.schemaless_reader(io.BytesIO(stored_as(schema, value)), fastavro.parse_schema(schema)))) == text
        )


@pytest.mark.parametrize(
    ("schema", "value", "ddl", "expected"),
    [
        ("double", 1e39, "FLOAT", None),
        ("double", math.inf, "FLOAT", math.inf),
        (logical("bytes", "decimal", precision=45), Decimal(10**44), "FLOAT", None),
        (logical("bytes", "decimal", precision=401), Decimal(10**400), "FLOAT", None),
        (logical("bytes", "decimal", precision=45), Decimal(10**44), "DOUBLE", 1e44),
        ("double", 2.0, "INT", None),
        ("long", 128, "TINYINT", None),
        ("boolean", True, "INT", None),
        (logical("bytes", "decimal", precision=5, scale=2), Decimal("1.25"), "DECIMAL(5, 1)", None),
        (logical("long", "timestamp-micros"), datetime(2026, 11, 20, tzinfo=UTC), "TIMESTAMP_NTZ", None),
        (logical("long", "timestamp-micros"), datetime(2026, 11, 20, tzinfo=UTC), "STRING", "2026-11-20T00:00:00Z"),
        ({"type": "map", "values": "int"}, {"a": 1}, "STRUCT<a: STRING, b: STRING>", {"a": "1", "b": None}),
        ({"type": "array", "items": "bytes"}, [b"a", b"\xff"], "ARRAY<STRING>", ["a", '{"base64":"/w=="}']),
        (["string", "long"], 7, "BIGINT", 7),
        (["string", "long"], "7", "BIGINT", None),
    ],
)
def test_what_fits_and_what_does_not(schema: Any, value: Any, ddl: str, expected: Any) -> None:
    record = {"type": "record", "name": "R", "fields": [{"name": "f", "type": schema}]}
    structs, texts = read(record, [stored_as(record, {"f": value})], struct_of(f"f {ddl}"))
    assert (structs, texts[0] is None) == ([{"f": expected}], expected is not None)


ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "total", "type": ["null", logical("bytes", "decimal", precision=20, scale=2)]},
        {"name": "huge", "type": ["null", logical("bytes", "decimal", precision=50)]},
        {"name": "at", "type": ["null", logical("long", "timestamp-millis")]},
        {"name": "local", "type": ["null", logical("long", "local-timestamp-micros")]},
        {"name": "day", "type": ["null", logical("int", "date")]},
        {"name": "hour", "type": ["null", logical("int", "time-millis")]},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}}},
        {"name": "sizes", "type": {"type": "map", "values": ["null", "float"]}},
        {"name": "either", "type": ["null", "string", "long"]},
        {"name": "mark", "type": ["null", {"type": "fixed", "name": "Mark", "size": 2}]},
        {"name": "nothing", "type": "null"},
        {"name": "next", "type": ["null", "Order"]},
        {"name": "first", "type": ["null", "Line"]},
    ],
}
EMPTY = dict.fromkeys(["total", "huge", "at", "local", "day", "hour", "either", "mark", "nothing", "next", "first"])
ONE = EMPTY | {"id": 1 << 62, "state": "NEW", "lines": [{"n": 1}], "sizes": {"a": 0.5, "b": None}}


def test_the_type_is_that_of_the_schema():
    kind = avro_struct(json.dumps(ORDER))
    assert ddl_of(kind).replace("`", "") == (
        "STRUCT<id: BIGINT, state: STRING, total: DECIMAL(20, 2), huge: STRING, at: TIMESTAMP, local: TIMESTAMP_NTZ, day: DATE, "
        "hour: STRING, lines: ARRAY<STRUCT<n: INT>>, sizes: MAP<STRING, FLOAT>, either: STRING, mark: BINARY, nothing: STRING, "
        "next: STRING, first: STRUCT<n: INT>>"
    )
    assert type_of(ddl_of(kind)) == kind
    full = ONE | {
        "total": Decimal("123456789012345678.25"),
        "huge": Decimal(10**49),
        "at": datetime(2026, 11, 20, 10, tzinfo=UTC),
        "local": datetime(2026, 11, 20, 10, 0, 0, 5),  # noqa: DTZ001 -- it has no zone
        "day": date(1969, 1, 2),
        "hour": time(1, 2, 3),
        "either": 7,
        "mark": b"\x00\xff",
        "next": ONE,
        "first": {"n": 2},
    }
    (first, second), texts = read(ORDER, [stored_as(ORDER, full), stored_as(ORDER, ONE | {"either": "seven"})], kind)
    assert texts == [None, None]
    assert first == full | {
        "huge": str(10**49),
        "hour": "01:02:03",
        "sizes": [("a", 0.5), ("b", None)],
        "either": "7",
        "next": Said(ONE),
    }
    assert second == ONE | {"sizes": [("a", 0.5), ("b", None)], "either": "seven"}


@pytest.mark.parametrize("schema", ["long", ["null", "string"], {"type": "record", "name": "R", "fields": []}])
def test_of_what_is_no_record_there_are_no_fields(schema: Any) -> None:
    with pytest.raises(InvalidArgument, match="no records with fields"):
        avro_struct(json.dumps(schema))


def test_what_is_not_of_the_schema_stands_as_base64_and_what_does_not_fit_as_json():
    good, broken = stored_as(ORDER, ONE), b"\x02\x7f"
    structs, texts = read(ORDER, [good, broken, good + b"\0", b"", good], struct_of("id INT, state STRING, gone DOUBLE"))
    assert structs == [{"id": None, "state": "NEW", "gone": None}, None, None, None, {"id": None, "state": "NEW", "gone": None}]
    assert (texts[0], texts[4]) == (Said(ONE), Said(ONE))
    assert texts[1:4] == [b64encode(broken).decode(), b64encode(good + b"\0").decode(), None]
    with pytest.raises(InvalidArgument, match=r'"id":4611686018427387904.* does not fit value_schema'):
        read(ORDER, [good], struct_of("id INT"), corrupt="fail")


def test_a_value_from_before_the_schema_grew_has_the_default_of_the_new_field():
    old: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    new = old | {"fields": [*old["fields"], {"name": "b", "type": "string", "default": "none"}]}
    kind = avro_struct(json.dumps(new))
    stored = [stored_as(old, {"a": 1}), stored_as(new, {"a": 2, "b": "some"})]
    assert read(new, stored, kind) == ([{"a": 1, "b": "none"}, {"a": 2, "b": "some"}], [None, None])
    assert read(old, stored, kind) == ([{"a": 1, "b": None}, {"a": 2, "b": None}], [None, None])


def test_the_schema_travels_with_the_shape():
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array([stored_as(ORDER, ONE), None], pa.binary())], names=["id", "value"])
    shape = SparkShape(names=("v", "id", "_corrupt"), struct="STRUCT<`id`: BIGINT>", avro=json.dumps(ORDER))
    assert shape.reader()(rows).to_pylist() == [{"v": {"id": 1 << 62}, "id": 1, "_corrupt": None}, {"v": None, "id": 2, "_corrupt": None}]
