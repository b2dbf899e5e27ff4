"""An answer without some of its columns: in the others it is the same, and of these it has no bytes."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.batch.marks import CONTENT
from eventlog.predicate.spec import FilterSpec
from eventlog.read.answer import Limits, build_answer
from eventlog.read.cursor import Cursor
from eventlog.read.filtered import filter_answer, merge_gathered
from tests.batch.test_join import Log
from tests.examples import examples
from tests.read.filters import HandFilter
from tests.read.test_answer import LARGE, answer_of, forms, group
from tests.read.test_filtered import SEGMENTS, rows_in, values_of, wanted_of
from tests.read.test_filtered_gathered import found_at

TOP = 1 << 60
CHOICES = [frozenset(some) for count in range(1, 5) for some in combinations(sorted(CONTENT), count)]


def emptied(rows, without):
    return [row | dict.fromkeys(without, b"") for row in rows]


@given(st.integers(0, 1 << 30), st.sampled_from(CHOICES), st.booleans())
@settings(max_examples=examples(120), deadline=None)
def test_with_and_without_a_filter_the_rest_is_the_same(seed, without, has_filter):
    log = Log(seed, groups=8, segments=SEGMENTS)

    def read(without):
        limits = Limits(without=without)
        if not has_filter:
            return build_answer(values_of(log), cursor=Cursor(SEGMENTS, 0), top=TOP, limits=limits)
        matches = HandFilter(wanted=wanted_of(seed), projection=lambda value: b"<" + value)
        return filter_answer(values_of(log), cursor=Cursor(SEGMENTS, 0), top=TOP, limits=limits, matches=matches)

    whole, answer = read(frozenset()), read(without)
    assert (answer.upto, answer.events) == (whole.upto, whole.events)
    if len(whole.parts) == 1 and whole.parts[0].runs:  # else a value alone goes out as it is stored
        assert rows_in(answer) == emptied(rows_in(whole), without)
        assert answer.nbytes <= whole.nbytes


@given(st.integers(0, 1 << 30), st.sampled_from(CHOICES), st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_what_others_found_is_merged_without_them(seed, without, are_left_out_there):
    log = Log(seed, groups=8, segments=SEGMENTS)
    matches = HandFilter(wanted=wanted_of(seed), spec=FilterSpec())
    there = Limits(without=without if are_left_out_there else frozenset())  # a member of an earlier version leaves nothing out
    found = [found_at(log, matches, part, top=TOP, limits=there) for part in ([0, 2], [1, 3])]
    whole = [found_at(log, matches, part, top=TOP, limits=Limits()) for part in ([0, 2], [1, 3])]
    answer = merge_gathered(found, limits=Limits(without=without))
    assert rows_in(answer) == emptied(rows_in(merge_gathered(whole, limits=Limits())), without)


@pytest.mark.parametrize("values", [((1, 1, LARGE),), ((0, 1, 5), (1, 1, LARGE), (2, 1, 5))])
def test_a_large_value_is_taken_apart_where_values_are_not_wanted(values):
    answer = answer_of(group(*values), limits=Limits(without=frozenset({"value"})))
    assert forms(answer) == [("joined", len(values))]
    assert answer.nbytes < 500


def test_another_node_gets_stored_values_as_they_are():
    whole = answer_of(group((0, 2, 5), (1, 1, 5)), limits=Limits(is_raw=True))
    answer = answer_of(group((0, 2, 5), (1, 1, 5)), limits=Limits(is_raw=True, without=CONTENT))
    assert (answer.body, answer.parts) == (whole.body, whole.parts)
    assert np.array_equal([part.runs for part in answer.parts], [0, 0])
