"""Budgets and credits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import Overloaded
from eventlog.wire.flow import CREDIT_BYTES_CAP, ByteBudget, Credit, ProcessBudget


def opened(limit, process):
    budget = ByteBudget(limit, process)
    budget.open()
    return budget


def hold(budget, size):
    budget.used = size
    budget.settle()


def test_a_connection_above_its_limit_is_full_and_no_other():
    process = ProcessBudget(1000)
    one, other = opened(100, process), opened(100, process)
    hold(one, 101)
    assert one.is_full
    assert not other.is_full


def test_the_limit_itself_is_not_full():
    budget = opened(100, ProcessBudget(1000))
    hold(budget, 100)
    assert not budget.is_full


def test_a_full_process_stops_who_is_above_its_share_and_lets_the_rest_go_on():
    process = ProcessBudget(1000)
    hogs = [opened(10_000, process) for _ in range(2)]
    rest = [opened(10_000, process) for _ in range(8)]
    for hog in hogs:
        hold(hog, 501)
    for small in rest:
        hold(small, 100)
        assert not small.is_full
    assert all(hog.is_full for hog in hogs)


def test_all_connections_together_stay_below_twice_the_limit():
    process = ProcessBudget(1000)
    budgets = [opened(10_000, process) for _ in range(10)]
    is_moving = True
    while is_moving:
        is_moving = False
        for budget in budgets:
            if not budget.is_full:
                hold(budget, budget.used + 1)
                is_moving = True
    assert process.used <= 2 * process.limit


def test_what_is_large_is_refused_where_more_is_held_than_shares_explain():
    process = ProcessBudget(1000)
    many = [opened(10_000, process) for _ in range(10)]
    for budget in many[:4]:
        hold(budget, 500)
    process.check(10_000)
    hold(many[4], 1)
    with pytest.raises(Overloaded, match="limit of 1000"):
        process.check(101)
    process.check(100)  # a share


def test_who_waits_is_woken_once_when_there_is_room_again():
    process = ProcessBudget(100)
    budget = opened(1000, process)
    hold(budget, 150)
    woken = []

    def wake():
        woken.append(process.used)

    process.wait(wake)
    process.wait(wake)
    hold(budget, 120)
    assert woken == []
    hold(budget, 100)
    hold(budget, 50)
    assert woken == [100]


def test_who_finds_no_room_may_wait_anew_while_being_woken():
    process = ProcessBudget(100)
    process.take(100)
    woken = []

    def wake():
        woken.append(1)
        process.wait(wake)

    process.wait(wake)
    process.give(10)
    process.give(10)
    assert woken == [1, 1]


def test_closing_gives_everything_back():
    process = ProcessBudget(100)
    budget, other = opened(1000, process), opened(1000, process)
    hold(other, 1)
    hold(budget, 70)
    budget.used += 5  # not settled
    budget.close()
    assert (process.used, process.peak, process.holders) == (1, 71, 1)


def test_giving_back_more_than_was_taken_is_our_bug():
    process = ProcessBudget(100)
    process.take(1)
    with pytest.raises(AssertionError):
        process.give(2)


@given(st.lists(st.integers(0, 100), max_size=50))
def test_a_process_counts_the_sum_of_its_connections(sizes):
    process = ProcessBudget(200)
    budgets = [opened(100, process) for _ in range(3)]
    for number, size in enumerate(sizes):
        hold(budgets[number % 3], size)
        assert process.used == sum(budget.used for budget in budgets) <= process.peak


def test_something_above_the_limit_has_room_only_when_nothing_else_is_there():
    process = ProcessBudget(100)
    assert process.has_room(1000)
    process.take(1)
    assert not process.has_room(100)
    assert process.has_room(99)


def test_credit_says_when_a_stream_may_go_on():
    credit = Credit(100)
    credit.take(250)  # one item may overdraw
    assert credit.balance == -150
    assert not credit.give(150)
    assert credit.give(1)
    assert not credit.give(1)  # was not used up
    assert credit.balance == 2


def test_credit_stops_at_its_cap():
    credit = Credit(1)
    for _ in range(4):
        credit.give(2**32 - 1)
    assert credit.balance == CREDIT_BYTES_CAP
