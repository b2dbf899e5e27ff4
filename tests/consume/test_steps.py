"""The coarse index of a log by id."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.consume.steps import Step, StepIndex
from eventlog.limits import STEP_BYTES, STEP_EVENTS


def filled(groups, cache=1):
    index = StepIndex()
    rows = [row for id_, events, nbytes in groups for row in index.add(cache, id_, events, nbytes)]
    return index, rows


def test_a_row_comes_with_the_group_that_fills_a_step():
    index = StepIndex()
    assert index.add(1, 10, STEP_EVENTS - 1, 100) == []
    assert index.add(2, 15, 1, 1) == []
    assert index.add(1, 20, 1, 50) == [(1, 20, STEP_EVENTS, 150)]
    assert index.add(1, 30, 1, STEP_BYTES) == [(1, 30, STEP_EVENTS + 1, STEP_BYTES + 150)]
    assert index.now(1) == (STEP_EVENTS + 1, STEP_BYTES + 150)
    assert index.now(2) == (1, 1)


def test_groups_come_in_the_order_of_their_ids():
    index, _ = filled([(10, STEP_EVENTS, 1)])
    with pytest.raises(AssertionError):
        index.add(1, 10, 1, 1)


def test_what_was_stored_comes_back():
    index, rows = filled([(id_, STEP_EVENTS // 2, 100) for id_ in range(10, 100, 10)])
    again = StepIndex()
    again.load(rows)
    again.add_tail(1, events=STEP_EVENTS // 2, nbytes=100)
    assert again.now(1) == index.now(1)
    assert again.between(1, after=0, upto=1000) == index.between(1, after=0, upto=1000)
    assert again.add(1, 100, STEP_EVENTS // 2, 100) == index.add(1, 100, STEP_EVENTS // 2, 100) != []


groups = st.lists(st.tuples(st.integers(1, 3), st.integers(0, STEP_EVENTS), st.integers(1, 2 * STEP_BYTES)), max_size=30)


def with_ids(gaps):
    found, id_ = [], 0
    for gap, events, nbytes in gaps:
        id_ += gap
        found.append((id_, events, nbytes))
    return found


@given(groups, st.integers(-1, 100), st.integers(1, 5 * STEP_BYTES))
@settings(deadline=None)
def test_a_cut_is_the_last_step_that_fits_or_the_first_there_is(gaps, after, nbytes_max):
    made = with_ids(gaps)
    index, rows = filled(made)
    steps = [(0, 0)] + [(id_, nbytes) for _, id_, _, nbytes in rows]
    above = [(id_, nbytes) for id_, nbytes in steps if id_ > after]
    cut = index.choose_cut(1, after=after, nbytes_max=nbytes_max)
    if not above:
        assert cut is None
        return
    base = max((nbytes for id_, nbytes in steps if id_ <= after), default=0)
    fitting = [id_ for id_, nbytes in above if nbytes - base <= nbytes_max]
    assert cut == (fitting[-1] if fitting else above[0][0])


def test_a_step_larger_than_asked_for_is_taken_alone():
    index, _ = filled([(10, 1, 2 * STEP_BYTES), (20, 1, 2 * STEP_BYTES), (30, 1, STEP_BYTES)])
    assert index.choose_cut(1, after=0, nbytes_max=5) == 10
    assert index.choose_cut(1, after=10, nbytes_max=5) == 20
    assert index.choose_cut(1, after=10, nbytes_max=3 * STEP_BYTES) == 30
    assert index.choose_cut(1, after=30, nbytes_max=5) is None


@given(groups, st.data())
@settings(deadline=None)
def test_trimming_keeps_what_lies_above_and_the_base(gaps, data):
    made = with_ids(gaps)
    index, rows = filled(made)
    upto = data.draw(st.integers(0, 100))
    before = index.between(1, after=upto, upto=1000)
    gone = index.trim(1, upto)
    assert index.between(1, after=upto, upto=1000) == before
    assert index.now(1) == (sum(events for _, events, _ in made), sum(nbytes for _, _, nbytes in made))
    again = StepIndex()
    again.load(row for row in rows if row[1] > gone)
    for probe in range(upto, 100):
        assert again.choose_cut(1, after=probe, nbytes_max=STEP_BYTES) == index.choose_cut(1, after=probe, nbytes_max=STEP_BYTES)
        assert again.at_or_below(1, probe) == index.at_or_below(1, probe)


@given(groups, st.integers(0, 100_000), st.integers(0, 30 * STEP_BYTES))
@settings(deadline=None)
def test_retention_keeps_at_least_what_it_promises_and_at_most_a_step_more(gaps, events_kept, nbytes_kept):
    made = with_ids(gaps)
    index, rows = filled(made)
    for limit, column in ((events_kept, 1), (nbytes_kept, 2)):
        cut = index.removable(1, **{"events_max" if column == 1 else "nbytes_max": limit})
        kept = sum(group[column] for group in made if group[0] > cut)
        total = sum(group[column] for group in made)
        assert kept >= min(limit, total)
        following = index.after(1, cut)
        if following is not None:
            assert sum(group[column] for group in made if group[0] > following.id) < limit or following.id == cut
    assert index.removable(1) == 0
    assert index.removable(1, upto=1000) == (rows[-1][1] if rows else 0)


def test_cutting_the_log_forgets_the_steps_above():
    index, _ = filled([(10, STEP_EVENTS, 1), (20, STEP_EVENTS, 1), (30, 1, 1)])
    index.cut(1, above=25)
    index.add_tail(1, events=3, nbytes=4)
    assert index.last(1) == Step(id=20, events=2 * STEP_EVENTS, nbytes=2)
    assert index.now(1) == (2 * STEP_EVENTS + 3, 6)
    index.cut(1, above=12)
    assert index.last(1).id == 10


def test_a_dropped_or_unknown_cache_has_nothing():
    index, _ = filled([(10, STEP_EVENTS, 1)])
    index.drop(1)
    for cache in (1, 2):
        assert index.choose_cut(cache, after=0, nbytes_max=1) is None
        assert index.between(cache, after=0, upto=99) == []
        assert index.now(cache) == (0, 0)
        assert index.last(cache) == index.at_or_below(cache, 5) == Step(id=0, events=0, nbytes=0)
        assert index.after(cache, 0) is None
        assert index.removable(cache, upto=99) == 0
        assert index.trim(cache, 99) == 0
        index.cut(cache, above=0)
