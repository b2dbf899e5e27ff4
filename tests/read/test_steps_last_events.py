"""The search for where the last events begin."""

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.ids import ID_MAX
from eventlog.read.steps import LastEvents

ROUNDS_MAX = 33  # one, and two bits of 63 a round


def searched(ids: list[int], events: int, *, upto: int) -> tuple[int, int]:
    """Return the answer, and after how many rounds."""
    search, rounds = LastEvents(events, upto=upto), 0
    while asked := search.ids():
        assert asked == sorted(set(asked))
        search.take(asked, [bisect_right(ids, upto) - bisect_right(ids, id_) for id_ in asked])
        rounds += 1
    assert search.after is not None
    return search.after, rounds


@given(st.sets(st.integers(1, ID_MAX)) | st.sets(st.integers(1, 60)), st.integers(1, 80), st.integers(0, ID_MAX) | st.integers(0, 60))
def test_exactly_so_many_events_lie_behind_it(ids: set[int], events: int, upto: int) -> None:
    there = sorted(ids)
    after, rounds = searched(there, events, upto=upto)
    behind = [id_ for id_ in there if after < id_ <= upto]
    assert behind == [id_ for id_ in there if id_ <= upto][-events:]
    assert (after == 0) is (len(behind) == bisect_right(there, upto)) or after < there[0]
    assert rounds <= ROUNDS_MAX


@given(st.sets(st.integers(1, ID_MAX), min_size=1) | st.sets(st.integers(1, 60), min_size=1), st.data())
def test_it_is_looked_for_above_an_id(ids: set[int], data: st.DataObject) -> None:
    there = sorted(ids)
    behind = data.draw(st.integers(0, len(there) - 1))
    above = data.draw(st.sampled_from([0, *there[: len(there) - behind - 1]]))
    search, rounds = LastEvents(behind, upto=data.draw(st.integers(there[-1], ID_MAX)), above=above), 0
    while asked := search.ids():
        search.take(asked, [len(there) - bisect_right(there, id_) for id_ in asked])
        rounds += 1
    assert search.after is not None
    assert len(there) - bisect_right(there, search.after) == behind
    assert rounds <= ROUNDS_MAX


@pytest.mark.parametrize("upto", [0, 1, ID_MAX])
def test_a_log_without_events_is_read_from_its_beginning(upto: int) -> None:
    assert searched([], 5, upto=upto) == (0, min(upto, 1))


def test_events_that_retention_takes_meanwhile_end_it_with_fewer() -> None:
    search = LastEvents(3, upto=1 << 40)
    search.take(search.ids(), [9])
    rounds = 0
    while asked := search.ids():
        search.take(asked, [2 if id_ > 1_000 else 9 for id_ in asked])
        rounds += 1
    assert (search.after, rounds <= ROUNDS_MAX) == (1_001, True)
