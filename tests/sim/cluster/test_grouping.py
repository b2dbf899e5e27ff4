"""What a group's members are given, judged: one at a time, not again behind a commit, and all of it."""

import random
from collections import Counter
from types import SimpleNamespace

import pytest

from tests.sim.cluster.grouping import Group
from tests.sim.cluster.history import History
from tests.sim.cluster.swarm import choose


def member(name, *segments, is_awake=True):
    return SimpleNamespace(name=name, is_awake=is_awake, assignment=frozenset(segments))


def group_of(*members):
    group = Group(
        SimpleNamespace(history=History(2), reached=Counter(), view=None, chance=random.Random(0), swarm=choose(random.Random(0))),
        members=0,
    )
    group.clients += members
    return group


def event(id_, segment=0):
    return SimpleNamespace(id=id_, segment=segment)


@pytest.mark.parametrize(
    ("other", "count"), [(member("m2", 0, 1), 1), (member("m2", 1), 0), (member("m2", 0, is_awake=False), 0), (member("m2"), 0)]
)
def test_a_segment_is_read_by_one_member_that_is_awake(other, count):
    one = member("m1", 0)
    group = group_of(one, other)
    group.gives(one, event(5))
    assert len(group.world.history.violations) == count
    assert group.done == {5}


def test_nothing_is_given_again_behind_a_commit_that_was_acknowledged():
    one, other = member("m1", 0), member("m2")
    group = group_of(one, other)
    group.gives(one, event(5))
    group.gives(one, event(5))  # nobody has committed it
    group.keeps(0, 5)
    group.gives(one, event(5, segment=1))
    assert group.world.history.violations == []
    one.is_awake = False
    group.gives(other, event(5))
    assert group.world.history.violations == ["m2 is given 5 of segment 0, and 5 is committed"]


def test_what_nobody_was_given_is_missing():
    group = group_of(one := member("m1", 0))
    group.gives(one, event(5))
    assert group.missing({5}) == ""
    assert group.missing({5, 6, 7}) == "2 events were never given to a member, the first 6"
