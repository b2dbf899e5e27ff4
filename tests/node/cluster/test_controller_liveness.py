"""Who is taken for dead."""

import pytest

from eventlog.node.cluster.controller import dead_members


class Reach:
    def __init__(self, *, refused=(), silent=()):
        self.refused = set(refused)
        self.silent = dict.fromkeys(silent, 1_200)

    def is_refused(self, number):
        return number in self.refused

    def silent_ms(self, number):
        return self.silent.get(number, 0)


@pytest.mark.parametrize(
    ("members", "me", "refused", "silent", "dead"),
    [
        ({1}, 1, (), (), set()),
        ({1, 2, 3}, 1, (), (), set()),
        ({1, 2, 3}, 1, (2,), (), {2}),
        ({1, 2, 3}, 1, (2, 3), (), {2, 3}),  # gone for certain, however many
        ({1, 2, 3}, 1, (), (2,), {2}),
        ({1, 2, 3}, 1, (), (2, 3), set()),  # more likely it is this node that is cut off
        ({1, 2, 3}, 3, (1,), (2,), {1}),
        ({1, 2, 3}, 2, (1,), (3,), {1, 3}),  # one against one: the lower number
        ({1, 2}, 1, (), (2,), {2}),
        ({1, 2}, 2, (), (1,), set()),
        ({1, 2, 3, 4}, 4, (), (1, 2), set()),
        ({1, 2, 3, 4}, 1, (), (3, 4), {3, 4}),
        ({2, 3}, 1, (), (), set()),  # removed, and does not know it yet
    ],
)
def test_refusal_is_death_and_silence_is_for_the_larger_half(members, me, refused, silent, dead):
    assert dead_members(members, Reach(refused=refused, silent=silent), me=me) == dead


def test_silence_shorter_than_the_bound_is_nothing():
    reach = Reach()
    reach.silent[2] = 1_199
    assert dead_members({1, 2, 3}, reach, me=1) == set()
