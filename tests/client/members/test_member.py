import asyncio
from collections import Counter
from itertools import chain, repeat
from types import SimpleNamespace

import pytest

from eventlog.client.members.member import MemberHooks, MemberOptions, Membership, Outage
from eventlog.errors import EventLogError, NotPrimary, OutcomeUnknown, TimedOut
from eventlog.groups.record import Place
from eventlog.routing.retry import RetryPolicy
from eventlog.wire.eventlog_pb2 import Message

SLOW = TimedOut(what="settle_tasks", timeout_ms=1)
FAILED = NotPrimary(segment=3)


class Refused(Membership):
    """A member whose requests come to nothing, each for the next reason."""

    def __init__(self, *errors: EventLogError) -> None:
        core = SimpleNamespace(options=SimpleNamespace(retry=RetryPolicy(backoff_ms_max=10), name="", timeout_ms=100))
        super().__init__(core, 1, MemberOptions(group="g"), MemberHooks(assigned=None, lost=None, failed=None))
        self._errors = chain(errors, repeat(SLOW))

    async def ask(self, *_: object, **__: object) -> None:
        raise next(self._errors)


@pytest.mark.parametrize(("errors", "told"), [((), TimedOut), ((NotPrimary(segment=3), SLOW), NotPrimary)])
def test_what_was_refused_to_the_end_says_why_and_not_that_the_last_try_had_no_time(errors, told):
    async def act():
        with pytest.raises(told):
            await Refused(*errors).insist(Message(), timeout_ms=250)

    asyncio.run(act())


@pytest.mark.parametrize(
    "first", [TimedOut(outcome="unknown", what="commit_group", timeout_ms=1), OutcomeUnknown(outcome="unknown", why="lost")]
)
def test_what_an_earlier_try_may_have_done_is_told_with_the_last_refusal(first):
    async def act():
        with pytest.raises(EventLogError) as told:
            await Refused(first, FAILED, SLOW).insist(Message(), timeout_ms=250)
        assert (type(told.value), told.value.outcome) == (NotPrimary, "unknown")

    asyncio.run(act())


class Unheard(Membership):
    """A member of a session that is over, whom nobody answers until `commits` are. `asked` counts its requests by kind."""

    def __init__(self) -> None:
        core = SimpleNamespace(
            routes=SimpleNamespace(segments=1), options=SimpleNamespace(retry=RetryPolicy(backoff_ms_max=10), name="", timeout_ms=60_000)
        )
        super().__init__(core, 1, MemberOptions(group="g"), MemberHooks(assigned=None, lost=lambda: None, failed=None))
        self.asked: Counter[str] = Counter()
        self.commits = asyncio.Event()
        self.beats = asyncio.Event()

    async def ask(self, message: Message, *_: object, **__: object) -> None:
        kind = message.WhichOneof("kind")
        self.asked[kind] += 1
        if kind == "commit_group" and self.commits.is_set():
            return
        if kind == "group_beat":
            self.beats.set()
        raise NotPrimary(segment=0)


def test_who_has_lost_its_session_joins_anew_when_what_it_commits_is_kept():
    async def act():
        member = Unheard()
        commit = asyncio.create_task(member.commit({0: Place(id=1, next_offset=1, epoch=1)}, epoch=1, metadata="", timeout_ms=60_000))
        await asyncio.sleep(0)
        running = asyncio.create_task(member.run())
        while member.asked["commit_group"] < 10:  # noqa: ASYNC110 -- its own to count
            await asyncio.sleep(0.001)
        assert not member.asked["group_beat"]
        member.commits.set()
        await commit
        await member.beats.wait()
        running.cancel()

    asyncio.run(act())


@pytest.mark.parametrize("wrong", [{"instance_id": 1}, {"dead_letters": 1}, {"deliveries_max": 1.5}, {"assignor": 0}])
def test_what_no_request_can_hold_is_refused_before_it_joins(wrong):
    core = SimpleNamespace(options=SimpleNamespace(name="", timeout_ms=100))
    with pytest.raises(TypeError):
        Membership(core, 1, MemberOptions(group="g", **wrong), MemberHooks(assigned=None, lost=None, failed=None))


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
    found.failed("commits", FAILED)
    clock.now = 0.9
    found.failed("commits", FAILED)
    found.works("commits")
    clock.now = 1.5
    assert not found.failed("commits", FAILED)
    assert told == []


def test_an_outage_is_told_once_and_over_when_everything_works() -> None:
    told: list[EventLogError | None] = []
    found, clock = outage(told)
    found.failed("commits", FAILED)
    found.failed("heartbeats", FAILED)
    clock.now = 1.0
    found.failed("commits", FAILED)
    found.failed("heartbeats", FAILED)
    assert told == [FAILED]
    found.works("heartbeats")
    assert told == [FAILED], "commits fail still"
    found.works("commits")
    assert told == [FAILED, None]


def test_it_is_given_up_after_the_time_that_was_asked_for() -> None:
    found, clock = outage([])
    assert not found.failed("commits", FAILED)
    clock.now = 9.9
    assert not found.failed("commits", FAILED)
    clock.now = 10.0
    assert found.failed("commits", FAILED)
    assert not found.failed("heartbeats", FAILED)


def test_an_application_whose_callback_fails_goes_on() -> None:
    def fail(_: EventLogError | None) -> None:
        raise ValueError("the application's own")

    found = Outage("g", outage_ms=10, told_ms=0, on_outage=fail)
    found.failed("commits", FAILED)
    found.works("commits")
