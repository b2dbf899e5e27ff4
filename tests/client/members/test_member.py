import asyncio
from itertools import chain, repeat
from types import SimpleNamespace

import pytest

from eventlog.client.members.member import MemberHooks, MemberOptions, Membership
from eventlog.errors import EventLogError, NotPrimary, TimedOut
from eventlog.routing.retry import RetryPolicy
from eventlog.wire.eventlog_pb2 import Message

SLOW = TimedOut(what="settle_tasks", timeout_ms=1)


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


@pytest.mark.parametrize("wrong", [{"instance_id": 1}, {"dead_letters": 1}, {"deliveries_max": 1.5}, {"assignor": 0}])
def test_what_no_request_can_hold_is_refused_before_it_joins(wrong):
    core = SimpleNamespace(options=SimpleNamespace(name="", timeout_ms=100))
    with pytest.raises(TypeError):
        Membership(core, 1, MemberOptions(group="g", **wrong), MemberHooks(assigned=None, lost=None, failed=None))
