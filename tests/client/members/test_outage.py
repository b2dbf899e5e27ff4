"""What a member says of an outage, and when it gives up."""

from eventlog.client.members.outage import Outage
from eventlog.errors import EventLogError, NotPrimary

ERROR = NotPrimary(segment=3)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def outage(told: list[EventLogError | None]) -> tuple[Outage, Clock]:
    clock = Clock()
    return Outage("g", outage_ms=10_000, told_ms=1_000, on_outage=told.append, now=clock), clock


def test_what_fails_for_a_moment_is_nobodys_business() -> None:
    told: list[EventLogError | None] = []
    found, clock = outage(told)
    found.failed("commits", ERROR)
    clock.now = 0.9
    found.failed("commits", ERROR)
    found.works("commits")
    clock.now = 1.5
    assert not found.failed("commits", ERROR)
    assert told == []


def test_an_outage_is_told_once_and_over_when_everything_works() -> None:
    told: list[EventLogError | None] = []
    found, clock = outage(told)
    found.failed("commits", ERROR)
    found.failed("heartbeats", ERROR)
    clock.now = 1.0
    found.failed("commits", ERROR)
    found.failed("heartbeats", ERROR)
    assert told == [ERROR]
    found.works("heartbeats")
    assert told == [ERROR], "commits fail still"
    found.works("commits")
    assert told == [ERROR, None]


def test_it_is_given_up_after_the_time_that_was_asked_for() -> None:
    found, clock = outage([])
    assert not found.failed("commits", ERROR)
    clock.now = 9.9
    assert not found.failed("commits", ERROR)
    clock.now = 10.0
    assert found.failed("commits", ERROR)
    assert not found.failed("heartbeats", ERROR)


def test_an_application_whose_callback_fails_goes_on() -> None:
    def fail(_: EventLogError | None) -> None:
        raise ValueError("the application's own")

    found = Outage("g", outage_ms=10, told_ms=0, on_outage=fail)
    found.failed("commits", ERROR)
    found.works("commits")
