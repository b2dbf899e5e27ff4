import pytest

from eventlog.errors import (
    ConnectionLost,
    DiskFull,
    EventLogError,
    InvalidArgument,
    NotEnoughReplicas,
    NotPrimary,
    Overloaded,
    Stopping,
    StoreFenced,
    TimedOut,
)
from eventlog.routing.retry import GIVE_UP, RetryPolicy, apart_ms, backoff_ms, decide

POLICY = RetryPolicy(backoff_ms_min=10, backoff_ms_max=1_000)
LOST = ConnectionLost(address="a:1", why="reset")


@pytest.mark.parametrize("error", [LOST, NotPrimary(segment=1), Overloaded(what="x", limit=1), Stopping()])
def test_what_an_operation_can_wait_out_is_tried_again(error: EventLogError) -> None:
    decision = decide(POLICY, error, attempt=0, left_ms=1_000, repeatable=True, chance=0.5)
    assert decision.again
    assert decision.reconnect == isinstance(error, (ConnectionLost, Stopping))


@pytest.mark.parametrize(
    "error",
    [
        InvalidArgument(why="x"),
        DiskFull(free_bytes=1, reserve_bytes=2),
        StoreFenced(why="x"),
        TimedOut(what="x", timeout_ms=1),
    ],
)
def test_what_an_operation_cannot_wait_out_is_told_at_once(error: EventLogError) -> None:
    assert decide(POLICY, error, attempt=0, left_ms=100_000, repeatable=True, chance=0.5) is GIVE_UP


def test_a_request_that_may_have_taken_effect_is_only_repeated_when_that_is_harmless() -> None:
    unknown = ConnectionLost(outcome="unknown", address="a:1", why="reset")
    assert decide(POLICY, unknown, attempt=0, left_ms=1_000, repeatable=False, chance=0.5) is GIVE_UP
    assert decide(POLICY, unknown, attempt=0, left_ms=1_000, repeatable=True, chance=0.5).again
    assert decide(POLICY, LOST, attempt=0, left_ms=1_000, repeatable=False, chance=0.5).again


def test_there_is_no_retry_that_would_begin_after_the_deadline() -> None:
    assert decide(POLICY, LOST, attempt=0, left_ms=5, repeatable=True, chance=0.0) is GIVE_UP
    assert decide(POLICY, LOST, attempt=0, left_ms=6, repeatable=True, chance=0.0).wait_ms == 5


def test_the_wait_doubles_up_to_its_limit_and_half_of_it_is_chance() -> None:
    assert [backoff_ms(POLICY, attempt=attempt, chance=0.0) for attempt in (0, 1, 2, 20, 10**9)] == [5, 10, 20, 500, 500]
    assert backoff_ms(POLICY, attempt=3, chance=0.999) > backoff_ms(POLICY, attempt=3, chance=0.0)


@pytest.mark.parametrize(("error", "soon"), [(NotPrimary(segment=1), 100), (NotEnoughReplicas(segment=1, have=1, need=2), 250)])
def test_a_segment_is_asked_the_less_often_the_longer_it_has_been_away(error: EventLogError, soon: int) -> None:
    def wait(away_ms: float, attempt: int = 50) -> int:
        return apart_ms(POLICY, error, attempt=attempt, away_ms=away_ms, chance=0.99)

    assert wait(0, attempt=0) == 9
    assert [wait(away_ms) for away_ms in (0, 8 * soon, 16 * soon, 4_000, 60_000)] == [soon, soon, 2 * soon, 500, 995]


def test_an_outage_is_prolonged_by_an_eighth_at_most_once_waits_have_grown() -> None:
    error, away_ms = NotEnoughReplicas(segment=1, have=1, need=2), 0.0
    for attempt in range(200):
        wait = apart_ms(POLICY, error, attempt=attempt, away_ms=away_ms, chance=0.5)
        assert wait <= max(250, away_ms / 8)
        away_ms += wait
    assert 100_000 < away_ms < 200_000
