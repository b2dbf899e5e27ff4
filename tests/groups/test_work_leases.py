"""Who has which events of a work group, and until when."""

from eventlog.groups.work import Leases


def test_what_is_not_settled_in_time_is_overdue_the_first_first() -> None:
    leases = Leases(timeout_ms=100)
    leases.begin("a", (1, 7), 0)
    leases.begin("b", (2, 7), 50)
    leases.begin("a", (3, 8), 50)
    assert (leases.next_ms, leases.overdue(99)) == (100, [])
    assert leases.overdue(100) == [(1, 7)]
    leases.end("a", 1)
    assert leases.next_ms == 150
    assert leases.overdue(200) == [(2, 7), (3, 8)]


def test_an_event_that_is_given_again_has_its_time_anew() -> None:
    leases = Leases(timeout_ms=100)
    leases.begin("a", (1, 7), 0)
    leases.begin("b", (2, 7), 10)
    leases.begin("a", (1, 7), 20)
    assert leases.overdue(110) == [(2, 7)]


def test_without_a_timeout_nothing_is_ever_overdue() -> None:
    leases = Leases(timeout_ms=0)
    leases.begin("a", (1, 7), 0)
    assert (leases.next_ms, leases.overdue(1 << 60)) == (None, [])


def test_what_a_member_was_given_and_does_not_hold_is_beside() -> None:
    leases = Leases(timeout_ms=0)
    leases.begin("a", (1, 7), 0)
    leases.begin("a", (2, 8), 0)
    assert leases.beside("a", {2}) == [(1, 7)]
    assert leases.beside("b", ()) == []


def test_a_member_that_is_gone_has_nothing() -> None:
    leases = Leases(timeout_ms=100)
    leases.begin("a", (1, 7), 0)
    leases.begin("b", (2, 7), 0)
    leases.forget(lambda member: member == "a")
    assert leases.beside("a", ()) == []
    assert leases.overdue(100) == [(2, 7)]
