"""The search for where the last events begin."""

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.ids import ID_MAX
from eventlog.read.steps import LastEvents

ROUNDS_MAX = 2 * 63  # the middle of what is left, at least every other time
BURST_ROUNDS_MAX = 10
HOUR = 3_600_000 << 22  # of ids

LOGS = st.sets(st.integers(1, ID_MAX), min_size=1) | st.sets(st.integers(1, 60), min_size=1)


def searched(ids: list[int], events: int, *, low: int, high: int, is_around_told: bool) -> tuple[int, int]:
    """Return the answer, and after how many rounds."""
    search = LastEvents(events, low=low, high=high, behind=bisect_right(ids, high) - bisect_right(ids, low))
    for rounds in range(1, ROUNDS_MAX + 1):
        id_ = search.guess()
        assert low <= id_ <= high
        at = bisect_right(ids, id_)
        last_id, next_id = ids[at - 1] if at else 0, ids[at] if at < len(ids) else 0
        around = (last_id, next_id) if is_around_told else (0, 0)
        if (after := search.take(id_, bisect_right(ids, high) - at, last_id=around[0], next_id=around[1])) is not None:
            return after, rounds
    raise AssertionError("it goes on and on")


@given(LOGS, st.data(), st.booleans())
def test_exactly_so_many_events_lie_behind_it(ids: set[int], data: st.DataObject, is_around_told: bool) -> None:
    there = sorted(ids)
    behind = data.draw(st.integers(0, len(there) - 1))
    low = data.draw(st.sampled_from([0, *there[: len(there) - behind - 1]]))
    high = data.draw(st.integers(there[-1], ID_MAX))
    after, _ = searched(there, behind, low=low, high=high, is_around_told=is_around_told)
    assert len(there) - bisect_right(there, after) == behind


@pytest.mark.parametrize("events", [1, 99, 5_000, 9_950])
def test_what_lies_between_bursts_is_passed_over(events: int) -> None:
    ids = [burst * HOUR + number for burst in range(1, 101) for number in range(100)]
    after, rounds = searched(ids, events, low=0, high=100 * HOUR + 99, is_around_told=True)
    assert len(ids) - bisect_right(ids, after) == events
    assert rounds <= BURST_ROUNDS_MAX


def test_events_that_retention_takes_meanwhile_end_it_with_fewer() -> None:
    search = LastEvents(3, low=0, high=1 << 40, behind=9)
    for _ in range(ROUNDS_MAX):
        id_ = search.guess()
        if (after := search.take(id_, 2 if id_ > 1_000 else 9, last_id=0, next_id=0)) is not None:
            break
    assert after == 1_001


def test_events_that_retention_takes_between_two_counts_end_it_too() -> None:
    search = LastEvents(3, low=0, high=100, behind=9)
    assert search.take(50, 9, last_id=50, next_id=300) == 100
