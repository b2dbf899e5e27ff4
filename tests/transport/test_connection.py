"""Deadlines of requests in one heap."""

from hypothesis import given
from hypothesis import strategies as st

from eventlog.transport.connection import DEAD_ENTRIES_MAX, Timeouts


def expired(timeouts, now_ms):
    found = []
    timeouts.expire(now_ms, found.append)
    return found


def test_requests_expire_in_the_order_of_their_deadlines():
    timeouts = Timeouts({1, 2, 3})
    assert timeouts.add(1, 500)
    assert not timeouts.add(2, 700)
    assert timeouts.add(3, 300)
    assert timeouts.earliest_ms() == 300
    assert expired(timeouts, 299) == []
    assert expired(timeouts, 500) == [3, 1]
    assert expired(timeouts, 10_000) == [2]
    assert timeouts.earliest_ms() is None


def test_answered_requests_do_not_expire():
    live = {1, 2}
    timeouts = Timeouts(live)
    timeouts.add(1, 100)
    timeouts.add(2, 100)
    live.discard(1)
    assert expired(timeouts, 100) == [2]


def test_answered_requests_do_not_pile_up():
    live = set()
    timeouts = Timeouts(live)
    for opaque in range(100_000):
        live.add(opaque)
        timeouts.add(opaque, 10_000 + opaque)
        live.discard(opaque - 10)
    assert len(timeouts) <= DEAD_ENTRIES_MAX + 2 * (len(live) + 1) + 1
    assert expired(timeouts, 1 << 40) == list(range(99_990, 100_000))


@given(
    st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**41)), max_size=40, unique_by=lambda pair: pair[0]),
    st.integers(0, 2**41),
)
def test_exactly_what_is_due_expires(deadlines, now_ms):
    timeouts = Timeouts(dict(deadlines))
    for opaque, deadline_ms in deadlines:
        timeouts.add(opaque, deadline_ms)
    assert sorted(expired(timeouts, now_ms)) == sorted(opaque for opaque, deadline_ms in deadlines if deadline_ms <= now_ms)
    assert len(timeouts) == sum(deadline_ms > now_ms for _, deadline_ms in deadlines)
