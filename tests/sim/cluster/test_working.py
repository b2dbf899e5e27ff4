"""What workers are handed, judged: in the order of a key, by one at a time, not before its time, and all of it."""

import pytest

from tests.sim.cluster.working import NOT_YET, Handed, Shifts

LOG = [(1, "a"), (2, "a"), (3, "b")]


def shifts_of(*handed):
    shifts = Shifts()
    for one in handed:
        shifts.hand(one)
    return shifts


def one(id_, at, *, key="a", worker="w1", said=NOT_YET, kept=NOT_YET):
    return Handed(id=id_, key=key, worker=worker, at=at, said=said, kept=kept)


def test_nothing_is_wrong_where_each_event_is_done_before_the_next_one_of_its_key_is_handed_out():
    shifts = shifts_of(one(1, 10, said=20, kept=25), one(3, 11, key="b", worker="w2", said=40, kept=41), one(2, 22, said=30, kept=31))
    assert shifts.judge(LOG) == []
    assert all(shifts.is_over(id_) for id_, _ in LOG)


@pytest.mark.parametrize("first", [one(1, 10), one(1, 10, said=23, kept=24)])
def test_an_event_is_not_handed_out_before_the_one_of_its_key_is_done(first):
    assert shifts_of(first, one(2, 22)).judge(LOG) == ["w1 was handed event 2 of a before event 1 was done"]


def test_an_event_is_over_once_somebody_says_so():
    shifts = shifts_of(one(1, 10, said=20), one(2, 22))
    assert shifts.is_over(1)
    assert not shifts.is_over(2)


@pytest.mark.parametrize(
    ("other", "is_wrong"),
    [
        (one(1, 15, worker="w2"), True),  # while the first one has it
        (one(1, 30, worker="w2"), True),  # after its work was accepted
        (one(1, 15), False),  # it has lost its session, and had itself been handed it
        (one(1, 30), True),
        (one(1, 15, worker="w2", said=18, kept=19), False),  # the first one was taken for dead, and what both did is done
        (one(1, 5, worker="w2"), False),  # it is the other one that was taken for dead
    ],
)
def test_what_one_has_nobody_else_is_handed(other, is_wrong):
    assert bool(shifts_of(one(1, 10, said=20, kept=25), other).judge([(1, "a")])) is is_wrong


def test_nothing_is_handed_out_again_before_its_time():
    shifts = shifts_of(first := one(1, 10_000))
    shifts.later(first, 50_000)
    shifts.hand(one(1, 48_000))
    shifts.hand(one(1, 49_000))
    assert shifts.judge([(1, "a")]) == ["event 1 was handed out 2 ms before it was to be tried again"]


def test_what_somebody_else_was_handed_meanwhile_goes_by_what_that_one_says():
    shifts = shifts_of(first := one(1, 10), one(1, 20, worker="w2"))
    shifts.later(first, 50)
    shifts.hand(one(1, 30))
    assert shifts.judge([(1, "a")]) == []


def test_what_is_in_no_log_is_handed_to_nobody():
    assert shifts_of(one(9, 10)).judge(LOG) == ["a worker was handed event 9, which is not in the log"]
