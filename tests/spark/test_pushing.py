"""Which of Spark's filters nodes judge, without Spark: bounds and segments keep what matches and nothing else."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.hashing import hash_key, segment_of
from eventlog.ids import EPOCH_MS, ID_MAX, make_id, time_of
from eventlog.integrations.spark.options import SourceOptions
from eventlog.integrations.spark.pushing import IN_MAX, PUSHED_MAX, CacheFacts, ColumnComparison, push

GIVEN = SourceOptions(servers=("a:1",), cache="c")
KNOWN = CacheFacts(cache="c", segments=16)
START = datetime.fromtimestamp(EPOCH_MS / 1000, UTC)
OPERATORS = st.sampled_from(["=", "<=>", "<", "<=", ">", ">=", "IS NULL", "IS NOT NULL"])


def condition(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[ColumnComparison]:
    return st.builds(ColumnComparison, column=st.just(column), operator=OPERATORS, value=values | st.none(), is_negated=st.booleans())


@given(st.lists(condition("id", st.integers(-(1 << 63), ID_MAX) | st.integers(1, 9)), max_size=3), st.integers(1, 9))
def test_ids_within_the_bounds_are_those_that_match(conditions, id_):
    pushed, left = push(conditions, KNOWN, GIVEN)
    assert left == []
    within = pushed.after < id_ <= pushed.upto and bool(pushed.segments)
    matches = all(one.truth(id_) for one in conditions)
    assert within == matches if not pushed.terms else within or not matches


@given(condition("time", st.integers(-2_000, 9_000).map(lambda micros: START + timedelta(microseconds=micros))), st.integers(0, 8))
def test_times_between_milliseconds_fall_to_the_right_side(one, shift_ms):
    pushed, left = push([one], KNOWN, GIVEN)
    assert left == []
    for id_ in (make_id(EPOCH_MS + shift_ms, 1, 1), make_id(EPOCH_MS + shift_ms, 4095, 1023)):
        moment = START + timedelta(milliseconds=time_of(id_) - EPOCH_MS)
        within = pushed.after < id_ <= pushed.upto and bool(pushed.segments)
        assert within == (one.truth(moment) is True) or pushed.terms


@given(st.lists(condition("segment", st.integers(-1, 16)), max_size=3), st.booleans())
def test_segments_are_those_that_match(conditions, is_state):
    pushed, left = push(conditions, CacheFacts(cache="c", segments=16, is_state=is_state), GIVEN)
    assert left == []
    assert pushed.segments == {segment for segment in range(16) if all(one.truth(segment) for one in conditions)}
    assert pushed.terms == ()


def test_a_key_has_its_segment_but_not_in_a_cache_without_state():
    of_key = ColumnComparison(column="key", operator="IN", value=("k1", "k2", None))
    segments = {segment_of(hash_key(key), 16) for key in (b"k1", b"k2")}
    assert push([of_key], KNOWN, GIVEN)[0].segments == segments
    assert push([of_key], CacheFacts(cache="c", segments=16, keys_have_segments=False), GIVEN)[0].segments == set(range(16))
    by_prefix = CacheFacts(cache="c", segments=16, key_type=bytes, by_prefix=True)
    one = ColumnComparison(column="key", operator="=", value=b"k1\0rest")
    assert push([one], by_prefix, GIVEN)[0].segments == {segment_of(hash_key(b"k1"), 16)}


@pytest.mark.parametrize(
    ("one", "is_nothing"),
    [
        (ColumnComparison(column="key", operator="=", value=None), True),
        (ColumnComparison(column="key", operator="=", value=None, is_negated=True), True),
        (ColumnComparison(column="key", operator="<=>", value=None), True),
        (ColumnComparison(column="key", operator="<=>", value=None, is_negated=True), False),
        (ColumnComparison(column="key", operator="IN", value=("a", None), is_negated=True), True),
        (ColumnComparison(column="key", operator="IN", value=(None,)), True),
        (ColumnComparison(column="id", operator="IS NULL"), True),
        (ColumnComparison(column="time", operator="IS NULL", is_negated=True), False),
        (ColumnComparison(column="cache", operator="=", value="d"), True),
        (ColumnComparison(column="kind", operator=">", value="Z"), True),
        (ColumnComparison(column="kind", operator="<", value="Z"), False),
    ],
)
def test_what_is_the_same_of_every_row_needs_no_term(one, is_nothing):
    pushed, left = push([one], KNOWN, GIVEN)
    assert (pushed.is_nothing, pushed.terms, left) == (is_nothing, (), [])


@pytest.mark.parametrize(
    "one",
    [
        None,
        ColumnComparison(column="value", operator="=", value="x"),
        ColumnComparison(column="offset", operator="=", value=1),
        ColumnComparison(column="key", operator="=", value=b"bytes"),
        ColumnComparison(column="id", operator="=", value=True),
        ColumnComparison(column="time", operator="=", value=datetime(2026, 1, 1)),  # noqa: DTZ001 -- of no zone
        ColumnComparison(column="key", operator="IN", value=tuple(map(str, range(IN_MAX + 1)))),
    ],
)
def test_what_nodes_cannot_judge_stays_with_spark(one):
    pushed, left = push([one], KNOWN, GIVEN)
    assert left == [0]
    assert pushed.options(GIVEN, segments=16) == GIVEN


@pytest.mark.parametrize("where", ["value.n > 1) OR (value.n < 0", "value.n >", "", "value.n > 1 AND (kind = 'CREATED'"])
def test_nothing_is_put_beside_a_condition_that_is_none_by_itself(where):
    given = replace(GIVEN, where=where)
    pushed, left = push([ColumnComparison(column="kind", operator="=", value="REMOVED")], KNOWN, given)
    assert (left, pushed.options(given, segments=16)) == ([0], given)


def test_entries_are_judged_by_segment_cache_and_key_alone():
    known = CacheFacts(cache="c", segments=16, is_state=True)
    given = [
        ColumnComparison(column=name, operator="=", value=value)
        for name, value in (("key", "k"), ("time", START), ("id", 5), ("kind", "x"))
    ]
    assert push(given, known, GIVEN)[1] == [1, 2, 3]


def test_terms_go_behind_the_callers_own_condition_with_parameters_of_its_kind():
    one = ColumnComparison(column="key", operator=">", value="k")
    for where, parameters, expected in (
        (None, None, ("key > ?", ["k"])),
        ("a = ?", [1], ("(a = ?\n) AND key > ?", [1, "k"])),
        ("a = :n", {"n": 1}, ("(a = :n\n) AND key > :pushed_0", {"n": 1, "pushed_0": "k"})),
    ):
        given = SourceOptions(servers=("a:1",), cache="c", where=where, parameters=parameters)
        options = push([one], KNOWN, given)[0].options(given, segments=16)
        assert (options.where, options.parameters) == expected
    taken = SourceOptions(servers=("a:1",), cache="c", where="a = :pushed_0", parameters={"pushed_0": 1})
    assert push([one], KNOWN, taken)[1] == [0]
    assert len(push([one] * (PUSHED_MAX + 5), KNOWN, GIVEN)[1]) == 5
