from eventlog.consume.membership.sessions import CLOSED_MS, Sessions, Via
from eventlog.consume.membership.values import Member

HERE, THERE = Via(node=1, connection=7), Via(node=2, connection=7)


def sessions(*members):
    return Sessions(members, 0)


def test_a_member_that_says_nothing_is_gone_after_its_timeout():
    found = sessions(Member(id="a", timeout_ms=5_000))
    found.heard("a", HERE, 1_000)
    assert found.ended(5_999) == []
    assert found.next_ms == 6_000
    assert found.ended(6_000) == ["a"]


def test_a_closed_connection_gives_it_a_second_to_come_back():
    found = sessions(Member(id="a"), Member(id="b"))
    for member in "ab":
        found.heard(member, HERE, 0)
        found.closed(member, HERE, 10)
    found.heard("b", THERE, 500)
    assert found.ended(10 + CLOSED_MS) == ["a"]


def test_a_connection_that_it_speaks_over_no_more_says_nothing_about_it():
    found = sessions(Member(id="a"))
    found.heard("a", THERE, 0)
    found.closed("a", HERE, 10)
    found.closed("stranger", HERE, 10)
    assert found.ended(10 + CLOSED_MS) == []


def test_a_static_member_may_restart_in_peace():
    found = sessions(Member(id="a", instance="i", timeout_ms=5_000))
    found.heard("a", HERE, 0)
    found.closed("a", HERE, 10)
    assert found.ended(4_999) == []


def test_a_new_coordinator_starts_all_timers_anew():
    assert Sessions([Member(id="a", timeout_ms=5_000)], 100_000).ended(104_999) == []
