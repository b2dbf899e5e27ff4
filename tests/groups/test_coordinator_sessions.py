from eventlog.groups.coordinator import CLOSED_MS, NO_CONNECTION, Sessions, Via
from eventlog.groups.record import Member

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


def test_a_commit_prolongs_the_session_of_a_member_without_a_connection_of_its_own_alone():
    found = sessions(Member(id="over http", timeout_ms=5_000), Member(id="connected", timeout_ms=5_000))
    found.heard("over http", NO_CONNECTION, 0)
    found.heard("connected", HERE, 0)
    for member in ("over http", "connected", "stranger"):
        found.committed(member, 4_000)
    assert found.ended(5_000) == ["connected"]
    assert found.ended(9_000) == ["over http", "connected"]


def test_a_static_member_may_restart_in_peace():
    found = sessions(Member(id="a", instance="i", timeout_ms=5_000))
    found.heard("a", HERE, 0)
    found.closed("a", HERE, 10)
    assert found.ended(4_999) == []


def test_a_member_that_joins_anew_has_the_timeout_that_it_says_then():
    found = sessions(Member(id="a", timeout_ms=1_000), Member(id="b", timeout_ms=1_000))
    for member in "ab":
        found.heard(member, NO_CONNECTION, 500)
    found.follow([Member(id="a", timeout_ms=60_000), Member(id="b", timeout_ms=1_000)], 600)
    assert found.ended(1_500) == ["b"]
    found.heard("a", NO_CONNECTION, 2_000)
    assert found.left_ms("a", 2_000) == 60_000


def test_a_new_coordinator_starts_all_timers_anew():
    assert Sessions([Member(id="a", timeout_ms=5_000)], 100_000).ended(104_999) == []


def test_what_is_heard_after_its_connection_closed_does_not_prolong_a_session():
    found = sessions(Member(id="a", timeout_ms=5_000))
    first, second = Via(node=1, connection=7), Via(node=1, connection=8)
    found.heard("a", first, 100)
    found.closed("a", first, 200)
    found.heard("a", first, 210)
    assert found.next_ms == 200 + CLOSED_MS
    found.heard("a", second, 300)
    found.heard("a", first, 310)
    assert found.next_ms == 5_300
    found.closed("a", second, 400)
    assert found.next_ms == 400 + CLOSED_MS


def test_who_joins_over_a_connection_that_has_closed_is_given_the_time_to_come_back():
    found = sessions()
    via = Via(node=1, connection=7)
    found.closed("a", via, 100)
    found.heard("a", via, 200)
    found.follow([Member(id="a", timeout_ms=5_000)], 300)
    assert found.next_ms == 300 + CLOSED_MS
    found = sessions()
    found.heard("a", via, 200)
    found.follow([Member(id="a", timeout_ms=5_000)], 300)
    assert found.next_ms == 5_300
    found.closed("a", via, 400)
    assert found.next_ms == 400 + CLOSED_MS


def test_a_first_word_over_another_connection_that_has_closed_says_nothing():
    found = sessions(Member(id="a", timeout_ms=5_000))
    living, dead = Via(node=1, connection=7), Via(node=2, connection=1)
    found.heard("a", living, 100)
    found.closed("a", dead, 150)
    found.heard("a", dead, 200)
    assert found.next_ms == 5_100
    found.closed("a", living, 300)
    assert found.next_ms == 300 + CLOSED_MS


def test_only_so_many_closed_connections_are_remembered():
    found = sessions(Member(id="a", timeout_ms=5_000))
    for number in range(1_000):
        found.closed("a", Via(node=1, connection=number), 100)
    found.heard("a", Via(node=1, connection=999), 200)
    assert found.next_ms == 5_000, "what is said over a closed one says nothing"
    found.heard("a", Via(node=1, connection=899), 300)
    assert found.next_ms == 5_300, "a hundred have closed since"
