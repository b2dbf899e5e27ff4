"""A topic and a log that are alike are said to be, and one record more, less or other is found."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.integrations.kafka.verifying import STRETCH, Close, Seen, Sums, differences, differing


def seen(rows):
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    return Seen(segments=columns[0], offsets=columns[1], ids=columns[2], letters=columns[3])


def log(count=3 * STRETCH):
    return [(number % 2, number // 2, 1_000 + number, ord("C")) for number in range(count)]


def sums(rows, *, parts=1):
    found = Sums()
    for part in range(parts):
        found.add(seen(rows[part::parts]))
    return found


def compared(ours, theirs):
    places = frozenset(differing(sums(ours), sums(theirs)))
    sides = Close(places), Close(places)
    for side, rows in zip(sides, (ours, theirs), strict=True):
        side.add(seen(rows))
    return differences(*sides)


def test_order_and_parts_make_no_difference():
    rows = log()
    assert differing(sums(rows), sums(rows[::-1], parts=7)) == []
    assert sums(rows).count == len(rows)
    assert compared(rows, rows) == []


@given(st.data())
def test_one_record_more_less_or_other_is_found(data):
    rows = log(600)
    place = data.draw(st.integers(0, len(rows) - 1))
    segment, offset, id_, letter = rows[place]
    (lost,) = compared(rows, rows[:place] + rows[place + 1 :])
    assert (lost.segment, lost.offset, lost.id, lost.in_log, lost.in_topic) == (segment, offset, id_, 1, 0)
    (twice,) = compared(rows, [*rows, rows[place]])
    assert (twice.id, twice.in_log, twice.in_topic) == (id_, 1, 2)
    other = [*rows[:place], (segment, offset, id_ + 1, letter), *rows[place + 1 :]]
    assert [(one.id, one.in_log, one.in_topic) for one in compared(rows, other)] == [(id_, 1, 0), (id_ + 1, 0, 1)]
    changed = [*rows[:place], (segment, offset, id_, ord("M")), *rows[place + 1 :]]
    assert len(compared(rows, changed)) == 2


def test_the_same_record_missing_and_twice_elsewhere_do_not_cancel():
    rows = log(100)
    assert len(compared(rows, [*rows[:-1], rows[0]])) == 2


@pytest.mark.parametrize(("low", "high", "left"), [(0, 10_000, 100), (1_049, 10_000, 50), (0, 1_009, 10), (1_009, 1_009, 0)])
def test_only_what_lies_within_is_compared(low, high, left):
    within = seen(log(100)).within(np.full(2, low), np.full(2, high))
    assert len(within) == left
