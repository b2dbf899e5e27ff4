"""Who gives way when every place is taken."""

from collections import Counter

from eventlog.transport.server import Idle, in_order


def test_each_time_the_one_of_the_host_with_most_gives_way_that_is_idle_longest():
    idle = [
        Idle("a1", "a", 5.0),
        Idle("a2", "a", 1.0),
        Idle("a3", "a", 3.0),
        Idle("b1", "b", 2.0),
        Idle("b2", "b", 0.5),
        Idle("c1", "c", 0.0),
    ]
    assert in_order(idle, Counter(a=3, b=2, c=1)) == ["a2", "b2", "a3", "c1", "b1", "a1"]


def test_busy_connections_count_for_their_host_and_never_give_way():
    idle = [Idle("a1", "a", 5.0), Idle("b1", "b", 1.0), Idle("b2", "b", 2.0)]
    assert in_order(idle, Counter(a=9, b=2)) == ["a1", "b1", "b2"]
    assert in_order([], Counter(a=9)) == []
