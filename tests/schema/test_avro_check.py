"""Whether bytes are a value of an Avro schema: what passes is read by a client, and what a client writes passes."""

import json
import tracemalloc
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from eventlog.client.avro import AvroFormat
from eventlog.errors import InvalidArgument
from eventlog.limits import CHECK_STEPS_A_BYTE_MAX, CHECK_STEPS_MIN, MIB
from eventlog.schema.avro_check import AvroCheck
from eventlog.schema.meter import Meter, OutOfSteps, steps_of
from eventlog.schema.strict_json import Misfit
from tests.schema.avro_pairs import Written, pairs

PLENTY = 1_000_000
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int", "default": 0},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}, "default": "NEW"},
        {"name": "paid", "type": "boolean", "default": False},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}, "default": "ab"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "sizes", "type": {"type": "map", "values": "double"}, "default": {}},
        {"name": "next", "type": ["null", "Order"], "default": None},
    ],
}


def why(schema: Any, data: bytes) -> str:
    """Return the sentence with which bytes are refused, an empty one if they pass."""
    try:
        AvroCheck(json.dumps(schema)).check(data, Meter(PLENTY))
    except Misfit as misfit:
        return misfit.sentence
    return ""


def encoded(value: Any, schema: Any = ORDER) -> bytes:
    return AvroFormat(json.dumps(schema)).encode(value)


@given(pairs, st.data())
def test_every_value_of_a_schema_passes_and_what_passes_is_read(two: tuple[Any, Any], data: st.DataObject) -> None:
    schema, _ = two
    try:
        form, check = AvroFormat(json.dumps(schema)), AvroCheck(json.dumps(schema))
    except InvalidArgument:
        assume(False)
    named: dict[str, Any] = {}
    parsed = fastavro.parse_schema(schema, named)
    for value in Written(named).of(parsed):
        check.check(value, Meter(PLENTY))
        place = data.draw(st.integers(0, len(value)))
        other = data.draw(
            st.sampled_from((value[:place], value + b"\0", value[:place] + data.draw(st.binary(max_size=2)) + value[place + 1 :]))
        )
        try:
            check.check(other, Meter(PLENTY))
        except Misfit:
            event("refused")
        else:
            event("passed")
            form.checked(other)


LOGICAL: list[tuple[Any, list[Any]]] = [
    ({"type": "int", "logicalType": "date"}, [date.min, date.max]),
    ({"type": "int", "logicalType": "time-millis"}, [time_of_day.min, time_of_day(23, 59, 59, 999_000)]),
    ({"type": "long", "logicalType": "time-micros"}, [time_of_day.min, time_of_day.max]),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)],
    ),
    ({"type": "long", "logicalType": "timestamp-micros"}, [datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]),
    ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}, [Decimal("99.9"), Decimal("-99.9"), Decimal(0)]),
    ({"type": "fixed", "name": "D", "size": 2, "logicalType": "decimal", "precision": 3}, [Decimal(999), Decimal(-999)]),
    ({"type": "string", "logicalType": "uuid"}, [UUID(int=5)]),
]


@pytest.mark.parametrize(("schema", "values"), LOGICAL)
def test_what_a_client_writes_of_a_logical_type_passes(schema: Any, values: list[Any]) -> None:
    form = AvroFormat(json.dumps(schema))
    for value in values:
        data = form.encode(value)
        assert why(schema, data) == ""
        assert form.decode(data) == value


@pytest.mark.parametrize(
    ("schema", "stored", "data"),
    [
        ({"type": "int", "logicalType": "date"}, "int", 3_000_000),
        ({"type": "int", "logicalType": "date"}, "int", -719_163),
        ({"type": "int", "logicalType": "time-millis"}, "int", 86_400_000),
        ({"type": "int", "logicalType": "time-millis"}, "int", -1),
        ({"type": "long", "logicalType": "time-micros"}, "long", 86_400_000_000),
        ({"type": "long", "logicalType": "timestamp-millis"}, "long", 253_402_300_800_000),
        ({"type": "long", "logicalType": "timestamp-micros"}, "long", -62_135_596_800_000_001),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3}, "bytes", (1_000).to_bytes(2)),
        ({"type": "string", "logicalType": "uuid"}, "string", "no uuid"),
    ],
)
def test_what_is_stored_and_can_be_none_of_its_logical_type_is_refused(schema: Any, stored: str, data: Any) -> None:
    assert why(schema, encoded(data, stored))
    assert why(stored, encoded(data, stored)) == ""


WHOLE = encoded({"id": 300, "note": "n", "tags": ["a", "b"], "sizes": {"x": 1.0}, "next": {"id": 1}})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "value.id is cut off: the bytes end within it"),
        (b"\xff" * 11, "value.id is a number of more than 64 bits"),
        (b"\xff" * 9 + b"\x02", "value.id is a number of more than 64 bits"),
        (b"\x02" + b"\xff\xff\xff\xff\x7f", "value.count is -17179869184, which is not an int"),
        (b"\x02\x00\x04", "value.state is 2, which is not a symbol of the enum"),
        (b"\x02\x00\x01", "value.state is -1, which is not a symbol of the enum"),
        (b"\x02\x00\x00\x02", "value.paid is neither true nor false"),
        (b"\x02\x00\x00\x00a", "value.hash is cut off: the bytes end within it"),
        (b"\x02\x00\x00\x00ab\x04", "value.note is of branch 2 of a union that has 2"),
        (b"\x02\x00\x00\x00ab\x01", "value.note is of branch -1 of a union that has 2"),
        (b"\x02\x00\x00\x00ab\x02\x02\xff", "value.note is no UTF-8: invalid start byte"),
        (b"\x02\x00\x00\x00ab\x02\x01", "value.note is said to have -1 bytes"),
        (b"\x02\x00\x00\x00ab\x00\x04\x02a\x04b", "value.tags[1] is cut off: the bytes end within it"),
        (b"\x02\x00\x00\x00ab\x00\x00\x02\x02x\x00", "value.sizes.x is cut off: the bytes end within it"),
        (WHOLE[:-1] + b"\x04", "value.next.next is of branch 2 of a union that has 2"),
        (WHOLE + b"more", "value is followed by 4 bytes that are not of the schema"),
    ],
)
def test_bytes_are_refused_with_the_field_that_they_break(data: bytes, said: str) -> None:
    assert why(ORDER, data) == said


def test_a_value_that_is_cut_anywhere_is_refused() -> None:
    assert why(ORDER, WHOLE) == ""
    assert all(why(ORDER, WHOLE[:size]) for size in range(len(WHOLE)))


def test_blocks_with_their_sizes_are_gone_through() -> None:
    numbers = {"type": "array", "items": "long"}
    assert why(numbers, b"\x03\x04\x02\x04\x02\x06\x00") == ""  # two items in two bytes, one more without its size
    assert why(numbers, b"\x03\x04\x02") == "value[1] is cut off: the bytes end within it"


FIELDS = [{"name": f"f{number}", "type": "null"} for number in range(5_000)]
HOLLOW = {"type": "array", "items": {"type": "record", "name": "R", "fields": [*FIELDS, {"name": "b", "type": "boolean"}]}}


def test_what_takes_no_bytes_takes_steps() -> None:
    data = b"\xc0\x84\x3d" + b"\x01" * 500_000
    with pytest.raises(OutOfSteps):
        AvroCheck(json.dumps(HOLLOW)).check(data, Meter(steps_of(data[:1_000])))


def test_nothing_is_made_of_a_value() -> None:
    flags = {"type": "array", "items": {"type": "record", "name": "R", "fields": [{"name": "b", "type": "boolean"}]}}
    data = encoded([{"b": True}] * (MIB // 16), flags)
    check = AvroCheck(json.dumps(flags))
    peaks = []
    tracemalloc.start()
    try:
        for _ in range(3):  # what else goes on in this process counts as well
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            check.check(data, Meter(CHECK_STEPS_MIN + CHECK_STEPS_A_BYTE_MAX * len(data)))
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert min(peaks) < MIB // 64  # a reader of it has some hundred times its size


def test_lists_that_nest_deeper_than_there_is_room_for_are_told() -> None:
    chain = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    check = AvroCheck(json.dumps(chain))
    check.check(b"\x02" * 100 + b"\0", Meter(PLENTY))
    with pytest.raises(RecursionError):
        check.check(b"\x02" * 100_000 + b"\0", Meter(PLENTY))


@pytest.mark.timeout(30)  # the power of ten that is named takes minutes
def test_a_decimal_of_any_number_of_digits_is_no_trap() -> None:
    for kind in ({"type": "bytes"}, {"type": "fixed", "name": "F", "size": 1_000_000_000}):
        schema = json.dumps({**kind, "logicalType": "decimal", "precision": 10**9})
        AvroCheck(schema)
