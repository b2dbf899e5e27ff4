"""Counting is the same to the last bit, however events are cut into batches and tasks."""

import math
from fractions import Fraction
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import BadPredicate
from eventlog.ids import make_id
from eventlog.integrations.archive.columns import ArchiveColumns
from eventlog.integrations.rollup.definition import definition_of
from eventlog.integrations.rollup.gathering import Gathering, added, exact, merged
from eventlog.integrations.rollup.sketches import COUPONS_MAX, STANDARD_ERROR, distinct_keys
from eventlog.predicate.spec import FilterContext

CONTEXT = FilterContext(format="json", text_keys=True, before=False)
SCHEMA = ArchiveColumns(has_text_keys=True, is_json=True).schema()
T0 = 1_795_758_000_000
WINDOW = 1_000
finite = st.floats(allow_nan=False, allow_infinity=False, width=64)


def rows_of(events: list[dict[str, Any]]) -> pa.RecordBatch:
    """Return events as an archive has them: `ms`, `key` and `value` are told, None removes; a key is in one of three segments."""
    found = []
    for number, event in enumerate(events):
        id_ = make_id(event["ms"], number % 4096, 1)
        value = event.get("value")
        found.append(
            {
                "id": id_,
                "segment": len(event["key"]) % 3,
                "offset": number,
                "time": event["ms"] * 1000,
                "cache": "c",
                "kind": "REMOVED" if value is None else "CREATED",
                "key": event["key"],
                "value": None if value is None else orjson.dumps(value).decode(),
                "before": None,
                "headers": [],
                "epoch": 1,
            }
        )
    return pa.RecordBatch.from_pylist(found, schema=SCHEMA)


def rolled(definition: Any, tasks: list[list[pa.RecordBatch]]) -> list[dict[str, Any]]:
    tables = []
    for batches in tasks:
        gathering = Gathering(definition, CONTEXT)
        for batch in batches:
            gathering.add(batch)
        tables.append(gathering.table())
    return merged(definition, tables).to_pylist()


def test_a_group_of_a_window_is_a_row_with_what_is_asked_for():
    definition = definition_of(
        window_ms=WINDOW, by="kind, v.c", measures="count, bytes, keys, first, last, sum(v.n), min(v.n), max(v.n), sum(v.n * 2) AS twice"
    )
    events = [
        {"ms": T0 + 1, "key": "a", "value": {"c": "x", "n": 1}},
        {"ms": T0 + 5, "key": "bb", "value": {"c": "x", "n": 2.5}},
        {"ms": T0 + 999, "key": "a", "value": {"c": "x", "n": "no number"}},
        {"ms": T0 + 7, "key": "a", "value": {"c": 7}},
        {"ms": T0 + 8, "key": "a"},
        {"ms": T0 + 1000, "key": "a", "value": {"c": "x", "n": 4}},
    ]
    found = rolled(definition, [[rows_of(events)]])
    told = [
        (row["window"].second, row["kind"], row["c"], row["count"], row["keys"], row["sum_n"], row["min_n"], row["max_n"], row["twice"])
        for row in found
    ]
    assert told == [
        (0, "CREATED", "7", 1, 1, None, None, None, None),
        (0, "CREATED", "x", 3, 2, 3.5, 1.0, 2.5, 7.0),
        (0, "REMOVED", None, 1, 1, None, None, None, None),
        (1, "CREATED", "x", 1, 1, 4.0, 4.0, 4.0, 8.0),
    ]
    row = found[1]
    assert row["bytes"] == sum(len(one["key"]) + len(orjson.dumps(one["value"])) for one in events[:3])
    assert (row["first"].microsecond, row["last"].microsecond) == (1_000, 999_000)


def test_groups_are_called_by_what_json_says():
    definition = definition_of(window_ms=WINDOW, by="v.c", measures="count")
    values = [None, True, 1, 1.5, "text", "1", [1, "a"], {"b": 1, "a": None}]
    events = [{"ms": T0, "key": "k", "value": {"c": value}} for value in values]
    found = {row["c"]: row["count"] for row in rolled(definition, [[rows_of(events)]])}
    assert found == {None: 1, "true": 1, "1": 2, "1.5": 1, "text": 1, '[1,"a"]': 1, '{"a":null,"b":1}': 1}


@given(st.data())
def test_a_rollup_is_the_same_however_it_is_cut(data: st.DataObject):
    numbers = data.draw(st.lists(finite, min_size=1, max_size=30))
    events = [
        {"ms": T0 + data.draw(st.integers(0, 2_500)), "key": "k" * data.draw(st.integers(1, 6)), "value": {"n": number, "c": number > 0}}
        for number in numbers
    ]
    definition = definition_of(window_ms=WINDOW, by="v.c", measures="count, bytes, keys, keys~, first, last, sum(v.n), min(v.n), max(v.n)")
    whole = rows_of(events)
    once = rolled(definition, [[whole]])
    by_segment = [[row for row in whole.to_pylist() if row["segment"] == segment] for segment in range(3)]
    tasks = [[pa.RecordBatch.from_pylist([row], schema=SCHEMA) for row in rows] for rows in by_segment]
    assert rolled(definition, tasks) == once
    assert rolled(definition, tasks[::-1]) == once
    for row in once:
        own = [
            event for event in events if event["ms"] // 1000 == row["window"].timestamp() and str(event["value"]["c"]).lower() == row["c"]
        ]
        assert row["count"] == len(own)
        assert row["keys"] == row["keys_estimate"] == len({event["key"] for event in own})
        assert row["sum_n"] == added([event["value"]["n"] for event in own])
        assert row["max_n"] == max(event["value"]["n"] for event in own)


def test_keys_are_about_as_many_as_there_are_and_more_may_come():
    definition = definition_of(window_ms=WINDOW, by="v.c", measures="count, keys, keys~")
    events = [{"ms": T0 + number % 2 * WINDOW, "key": f"k{number % 1_900}", "value": {"c": number % 10 > 0}} for number in range(4_000)]
    gathering = Gathering(definition, CONTEXT)
    for begin in range(0, len(events), 500):
        gathering.add(rows_of(events[begin : begin + 500]))
        gathering.table()
    found = merged(definition, [gathering.table()])
    assert found.to_pylist() == rolled(definition, [[rows_of(events[::-1])]])
    for row in found.to_pylist():
        assert row["keys_estimate"] == pytest.approx(row["keys"], rel=0 if row["keys"] <= COUPONS_MAX else 3 * STANDARD_ERROR)
    assert {row["keys"] > COUPONS_MAX for row in found.to_pylist()} == {True, False}
    assert distinct_keys(found.column("keys_sketch").to_pylist()) == pytest.approx(1_900, rel=3 * STANDARD_ERROR)


@given(st.lists(finite, min_size=1, max_size=50))
def test_few_numbers_have_exactly_the_sum_of_many(numbers: list[float]):
    assert sum(map(Fraction, exact(numbers))) == sum(map(Fraction, numbers))
    assert added(exact(numbers)) == added(numbers)


def test_a_sum_of_whole_numbers_of_64_bits_is_rounded_once() -> None:
    numbers = [2**53 + 1, 2**63 - 1, -(2**60) - 3, 7, 0.5, 2**64 - 1] * 9 + [None, True, "1"]
    events = [{"ms": T0, "key": f"k{place}", "value": {"n": number}} for place, number in enumerate(numbers)]
    batches = [rows_of(events[:20]), rows_of(events[20:])]
    (row,) = rolled(definition_of(window_ms=WINDOW, by="", measures="sum(value.n)"), [batches])
    assert row["sum_n"] == float(sum(Fraction(number) for number in numbers if type(number) in {int, float}))
    (small,) = rolled(definition_of(window_ms=WINDOW, by="", measures="sum(value.n)"), [[rows_of(events[:1] * 3)]])
    assert small["sum_n"] == float(3 * (2**53 + 1)) != 3 * float(2**53 + 1)


def test_a_sum_that_is_too_large_is_infinite():
    assert added([1e308] * 3) == math.inf
    assert added([-1e308] * 3) == -math.inf
    assert added([1e308, 1e308, -1e308]) == 1e308, "whatever is too large on the way"
    assert added([*exact([1e308, 1e308]), *exact([-1e308])]) == 1e308


@pytest.mark.parametrize(
    ("by", "why"), [("v.", "expression 'v.'"), ("customer", "value.customer"), ("UPPER(", "expression"), ("?", "expr")]
)
def test_an_expression_that_is_not_right_is_named(by: str, why: str):
    with pytest.raises(BadPredicate, match=why):
        Gathering(definition_of(window_ms=WINDOW, by=f"{by} AS x", measures="count"), CONTEXT)


def test_values_of_bytes_have_no_fields_and_their_keys_are_hexadecimal():
    context = FilterContext(format="bytes", text_keys=False, before=False)
    with pytest.raises(BadPredicate, match="they have no fields"):
        Gathering(definition_of(window_ms=WINDOW, by="v.a", measures="count"), context)
    schema = ArchiveColumns(has_text_keys=False, is_json=False).schema()
    row = rows_of([{"ms": T0, "key": "k", "value": 5}]).to_pylist()[0] | {"key": b"\x00\xff", "value": b"\x01"}
    definition = definition_of(window_ms=WINDOW, by="key", measures="bytes")
    gathering = Gathering(definition, context)
    gathering.add(pa.RecordBatch.from_pylist([row], schema=schema))
    assert [(one["key"], one["bytes"]) for one in merged(definition, [gathering.table()]).to_pylist()] == [("00ff", 3)]


def test_bytes_that_are_no_text_are_shown_where_they_are_taken_for_it():
    context, schema = (
        FilterContext(format="bytes", text_keys=False, before=False),
        ArchiveColumns(has_text_keys=False, is_json=False).schema(),
    )
    row = rows_of([{"ms": T0, "key": "k", "value": 5}]).to_pylist()[0] | {"value": b"\x01"}
    definition = definition_of(window_ms=WINDOW, by="CAST(key AS TEXT) AS k", measures="count")
    gathering = Gathering(definition, context)
    rows = [row | {"id": row["id"] + number, "key": key} for number, key in enumerate([b"\xff\xfe", "ä€".encode(), b"a\xff", b"a"])]
    gathering.add(pa.RecordBatch.from_pylist(rows, schema=schema))
    assert {one["k"] for one in merged(definition, [gathering.table()]).to_pylist()} == {r"\xff\xfe", "ä€", r"a\xff", "a"}
