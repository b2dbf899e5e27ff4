"""Who answers a request."""

import pytest

from eventlog.errors import ConnectionLost, EventLogError, NotPrimary, OutcomeUnknown, TimedOut, Unavailable
from eventlog.node.cluster.forward import translated
from eventlog.routing.retry import RetryPolicy, decide
from eventlog.transport.stream import failure_of
from tests.node.nodes import cache_of, submit, with_node


def test_a_copy_that_is_read_elsewhere_is_no_copy_to_read_here(tmp_path):
    async def act(node):
        await submit(node, await cache_of(node), [(b"key", b"value")])
        assert node.forwarding.has_state(0)
        node.low.here[0] = False
        assert not node.forwarding.has_state(0)
        node.low.here[0] = True

    with_node(tmp_path, act)


@pytest.mark.parametrize("error", [ConnectionLost(address="n1", why="reset"), TimedOut(what="x", timeout_ms=1)], ids=str)
@pytest.mark.parametrize(
    ("kind", "repeatable", "again"),
    [("poll", True, True), ("commit_group", True, True), ("publish", True, True), ("reset_group", False, False)],
)
def test_a_change_that_was_passed_on_and_not_answered_is_told_as_such(error: EventLogError, kind: str, repeatable: bool, again: bool):
    told = translated(failure_of(kind, error), 3)
    assert (type(told), told.outcome) == ((NotPrimary, "none") if kind == "poll" else (OutcomeUnknown, "unknown"))
    assert isinstance(told, Unavailable)  # which nodes ask again after
    assert decide(RetryPolicy(), told, attempt=0, left_ms=5_000, repeatable=repeatable, chance=0.5).again is again
