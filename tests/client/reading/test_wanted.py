"""What a caller says it wants."""

from typing import Any

import pytest

from eventlog.client.reading.bounds import checked_tail
from eventlog.client.reading.wanted import Wanted
from eventlog.errors import InvalidArgument


@pytest.mark.parametrize("given", [{"listener": ""}, {"poll_interval_ms": 0}, {"filter": ""}, {"where": ""}, {"position": ""}])
def test_nothing_is_not_taken_for_everything(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Wanted(**given).reading(None, max_bytes=0)


def test_a_listener_goes_on_where_it_has_acknowledged_unless_a_beginning_is_given() -> None:
    assert Wanted(listener="a").reading(None, max_bytes=0)[1].goes_on
    assert not Wanted(listener="a").reading(0, max_bytes=0)[1].goes_on


@pytest.mark.parametrize("tail", [0, -1, 1 << 63, 1.5, "3"])
def test_a_tail_is_a_number_above_0(tail: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^tail is .*: give a whole number above 0"):
        checked_tail(tail)


@pytest.mark.parametrize(
    ("name", "given"),
    [("from_time", 0), ("position", "x"), ("until_id", 0), ("state_first", True), ("listener", "a")],
)
def test_the_last_events_begin_and_end_nowhere_else(name: str, given: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"leave {name} out"):
        Wanted(tail=3, **{name: given}).reading(None, max_bytes=0)
    with pytest.raises(InvalidArgument, match="leave from_id out"):
        Wanted(tail=3).reading(0, max_bytes=0)
