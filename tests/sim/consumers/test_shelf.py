"""The simulated segment of the cache of groups: conditions, order, and what becomes of a write when another node takes over."""

import random

import pytest

from eventlog.errors import NotPrimary, OutcomeUnknown, VersionMismatch
from tests.sim.consumers.shelf import Shelf, ShelfWrite
from tests.sim.scheduler import Scheduler

LATER_US = 2_000_000


def made(seed=1):
    return Shelf(Scheduler(), random.Random(seed), delay_us=1_000, unknown=0.0)


def written(shelf, host, puts, **expect):
    told = []
    shelf.write(host, ShelfWrite(puts=puts, expect={key.encode(): version for key, version in expect.items()}, told=told.append))
    return told


def test_writes_are_committed_in_order_and_only_under_their_conditions():
    shelf = made()
    first, second, third = written(shelf, 1, {b"a": b"1"}, a=0), written(shelf, 1, {b"a": b"2"}, a=1), written(shelf, 1, {b"a": b"3"}, a=1)
    shelf.scheduler.run(LATER_US)
    assert (first, second) == ([[1]], [[2]])
    assert isinstance(third[0], VersionMismatch)
    assert shelf.row(1, b"a") == (2, b"2")


@pytest.mark.parametrize("seed", range(6))
def test_of_writes_under_way_at_a_takeover_the_first_may_be_there_and_the_others_are_not(seed):
    shelf = made(seed)
    first, second = written(shelf, 1, {b"a": b"1"}), written(shelf, 1, {b"b": b"1"})
    shelf.move(2)
    shelf.scheduler.run(LATER_US)
    assert isinstance(first[0], OutcomeUnknown)
    assert isinstance(second[0], NotPrimary)
    assert shelf.row(2, b"b") is None
    assert (shelf.row(2, b"a") is not None) == bool(shelf.reached["write taken over"])


def test_who_was_deposed_sees_what_there_was_and_writes_nothing():
    shelf = made()
    written(shelf, 1, {b"a": b"1"})
    shelf.scheduler.run(LATER_US)
    shelf.move(2)
    written(shelf, 2, {b"a": b"2"})
    late = written(shelf, 1, {b"a": b"3"})
    shelf.scheduler.run(2 * LATER_US)
    assert isinstance(late[0], OutcomeUnknown)
    assert (shelf.row(1, b"a"), shelf.row(2, b"a")) == ((1, b"1"), (2, b"2"))
    assert not shelf.believes(1)
