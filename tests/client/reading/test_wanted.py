"""What a caller says it wants."""

from typing import Any

import pytest

from eventlog.client.reading.wanted import Wanted
from eventlog.errors import InvalidArgument


@pytest.mark.parametrize("given", [{"listener": ""}, {"poll_interval_ms": 0}, {"filter": ""}, {"where": ""}, {"position": ""}])
def test_nothing_is_not_taken_for_everything(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Wanted(**given).reading(None, max_bytes=0)


def test_a_listener_goes_on_where_it_has_acknowledged_unless_a_beginning_is_given() -> None:
    assert Wanted(listener="a").reading(None, max_bytes=0)[1].goes_on
    assert not Wanted(listener="a").reading(0, max_bytes=0)[1].goes_on
