"""What lies outside of a log, and what no event can have."""

import pytest

from eventlog.client.reports import LogEnds
from eventlog.errors import InvalidArgument
from eventlog.ids import id_before, time_of
from eventlog.limits import CLOCK_AHEAD_MS_MAX
from eventlog_cli.beginning import outside

NOW_MS = 1_795_168_800_000
END = id_before(NOW_MS - 1_000)
ENDS = LogEnds(first_id=1_000, last_id=END, events=3)


def said(start: int, *, now_ms: int = NOW_MS, ends: LogEnds = ENDS, is_time: bool = False) -> str | None:
    return outside(start, ends, is_time=is_time, now_ms=now_ms)


def test_an_id_ahead_of_the_end_is_said_until_no_clock_can_have_given_it() -> None:
    last = id_before(NOW_MS + CLOCK_AHEAD_MS_MAX + 1)
    assert said(END) is None
    assert "lies ahead of the log's end" in (said(END + 1) or "")
    assert "lies ahead of the log's end" in (said(last) or "")
    with pytest.raises(InvalidArgument, match="is of the future"):
        said(last + 1)


def test_a_clock_that_is_late_refuses_nothing_that_the_nodes_clocks_have_given() -> None:
    late = 1_600_000_000_000
    last = id_before(time_of(END) + CLOCK_AHEAD_MS_MAX + 1)
    assert said(last, now_ms=late) is not None
    with pytest.raises(InvalidArgument):
        said(last + 1, now_ms=late)


def test_a_time_may_lie_in_the_future_and_before_the_first_event() -> None:
    assert (said(END << 1, is_time=True) or "").startswith("the time asked for lies ahead of the log's end")
    assert said(3, is_time=True) is None


def test_nothing_lies_before_a_log_without_events() -> None:
    assert said(3, ends=LogEnds(first_id=None, last_id=END, events=0)) is None
    assert "lies before the first event kept, id 1000 of 2020-01-01T00:00:00.000Z" in (said(999) or "")
    assert said(1_000) is None
