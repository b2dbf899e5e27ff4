"""The coarse index of a log by id."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.ids import ID_STEP
from eventlog.limits import STEP_BYTES, STEP_EVENTS
from eventlog.read.steps import IndexStep, StepIndex


def at(number, origin=1):
    """Return an id of a primary."""
    return number * ID_STEP + origin


def filled(groups, cache=1):
    index = StepIndex()
    rows = [row for id_, events, nbytes in groups for row in index.add(cache, id_, events, nbytes)]
    return index, rows


def test_a_row_comes_with_the_group_that_fills_a_step():
    index = StepIndex()
    assert index.add(1, at(10), STEP_EVENTS - 1, 100) == []
    assert index.add(2, at(15), 1, 1) == []
    assert index.add(1, at(20), 1, 50) == [(1, at(20), STEP_EVENTS, 150)]
    assert index.add(1, at(30), 1, STEP_BYTES) == [(1, at(30), STEP_EVENTS + 1, STEP_BYTES + 150)]
    assert index.now(1) == (STEP_EVENTS + 1, STEP_BYTES + 150)
    assert index.now(2) == (1, 1)


def test_groups_of_a_primary_come_in_the_order_of_their_ids():
    index, _ = filled([(at(10), STEP_EVENTS, 1)])
    with pytest.raises(AssertionError):
        index.add(1, at(10), 1, 1)


def test_what_was_stored_comes_back():
    index, rows = filled([(at(number), STEP_EVENTS // 2, 100) for number in range(10, 100, 10)])
    again = StepIndex()
    again.load(rows)
    again.add_tail(1, events=STEP_EVENTS // 2, nbytes=100)
    assert again.now(1) == index.now(1)
    assert again.between(1, after=0, upto=at(1000)) == index.between(1, after=0, upto=at(1000)) != []
    assert again.add(1, at(100), STEP_EVENTS // 2, 100) == index.add(1, at(100), STEP_EVENTS // 2, 100) != []


groups = st.lists(st.tuples(st.integers(1, 3), st.integers(0, STEP_EVENTS), st.integers(1, 2 * STEP_BYTES)), max_size=30)


def with_ids(gaps):
    found, id_ = [], at(0)
    for gap, events, nbytes in gaps:
        id_ += gap * ID_STEP
        found.append((id_, events, nbytes))
    return found


@given(groups, st.just(0) | st.integers(0, 100).map(at), st.integers(1, 5 * STEP_BYTES))
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
    index, _ = filled([(at(10), 1, 2 * STEP_BYTES), (at(20), 1, 2 * STEP_BYTES), (at(30), 1, STEP_BYTES)])
    assert index.choose_cut(1, after=0, nbytes_max=5) == at(10)
    assert index.choose_cut(1, after=at(10), nbytes_max=5) == at(20)
    assert index.choose_cut(1, after=at(10), nbytes_max=3 * STEP_BYTES) == at(30)
    assert index.choose_cut(1, after=at(30), nbytes_max=5) is None


@given(groups, st.data())
@settings(deadline=None)
def test_trimming_keeps_what_lies_above_and_the_base(gaps, data):
    made = with_ids(gaps)
    index, rows = filled(made)
    upto = data.draw(st.integers(0, 100).map(at))
    before = index.between(1, after=upto, upto=at(1000))
    gone = index.trim(1, upto)
    assert index.between(1, after=upto, upto=at(1000)) == before
    assert index.now(1) == (sum(events for _, events, _ in made), sum(nbytes for _, _, nbytes in made))
    again = StepIndex()
    again.load(row for row in rows if row[1] > gone)
    for probe in range(upto, at(100), ID_STEP):
        assert again.choose_cut(1, after=probe, nbytes_max=STEP_BYTES) == index.choose_cut(1, after=probe, nbytes_max=STEP_BYTES)
        assert again.at_or_below(1, probe) == index.at_or_below(1, probe)


def test_cutting_the_log_forgets_the_steps_above():
    index, _ = filled([(at(10), STEP_EVENTS, 1), (at(20), STEP_EVENTS, 1), (at(30), 1, 1)])
    index.cut(1, above=at(25))
    index.add_tail(1, events=3, nbytes=4)
    assert index.last(1) == IndexStep(id=at(20), events=2 * STEP_EVENTS, nbytes=2)
    assert index.now(1) == (2 * STEP_EVENTS + 3, 6)
    index.cut(1, above=at(12))
    assert index.last(1).id == at(10)
    assert index.add(1, at(15), STEP_EVENTS, 1) == [(1, at(15), 2 * STEP_EVENTS, 2)]


def test_a_dropped_or_unknown_cache_has_nothing():
    index, _ = filled([(at(10), STEP_EVENTS, 1)])
    index.drop(1)
    for cache in (1, 2):
        assert index.choose_cut(cache, after=0, nbytes_max=1) is None
        assert index.between(cache, after=0, upto=99) == []
        assert index.now(cache) == (0, 0)
        assert index.last(cache) == index.at_or_below(cache, 5) == IndexStep(id=0, events=0, nbytes=0)
        assert index.after(cache, 0) is None
        assert index.trim(cache, 99) == 0
        index.cut(cache, above=0)


def test_what_was_there_before_the_first_step_belongs_to_whoever_writes_on():
    index = StepIndex()
    index.add_tail(1, events=5, nbytes=50)
    assert index.add(1, at(10), STEP_EVENTS - 5, 1) == [(1, at(10), STEP_EVENTS, 51)]


@given(st.lists(groups, min_size=2, max_size=3), st.integers(0, 100), st.data())
@settings(deadline=None)
def test_groups_of_several_primaries_are_counted_as_they_come(origins, probe, data):
    waiting = [[(id_ + origin, events, nbytes) for id_, events, nbytes in with_ids(own)] for origin, own in enumerate(origins)]
    index, rows, made = StepIndex(), [], []
    while any(waiting):
        own = data.draw(st.sampled_from([own for own in waiting if own]))
        made.append(own.pop(0))
        rows += index.add(1, *made[-1])
    steps = index.between(1, after=0, upto=at(1000))
    assert [step.id for step in steps] == sorted(row[1] for row in rows)
    assert index.now(1) == (sum(events for _, events, _ in made), sum(nbytes for _, _, nbytes in made))
    found = index.at_or_below(1, at(probe, 0))
    below = sum(events for id_, events, _ in made if id_ <= found.id)
    assert below - len(origins) * 2 * STEP_EVENTS < found.events <= below
    again = StepIndex()
    again.load(sorted(rows))
    assert [step.id for step in again.between(1, after=0, upto=at(1000))] == [step.id for step in steps]
    for before, after in zip(steps, again.between(1, after=0, upto=at(1000)), strict=True):
        assert after.events >= before.events, "retention never removes more for having forgotten"
