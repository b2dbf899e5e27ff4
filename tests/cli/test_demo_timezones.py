"""Clock changes, compared with what Python's own reader of these files says."""

from datetime import UTC, datetime, timedelta
from importlib.resources import files
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog_cli.demo.timezones import BadZoneFile, clock_changes, parse_zone

ZONES = files("tzdata") / "zoneinfo"
BERLIN = (ZONES / "Europe" / "Berlin").read_bytes()


def test_there_are_tens_of_thousands_of_changes_oldest_first() -> None:
    changes = clock_changes()
    assert len(changes) > 20_000
    assert len({change.zone for change in changes}) > 400
    assert [change.at for change in changes] == sorted(change.at for change in changes)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])
def test_every_change_is_what_the_clocks_of_the_zone_show_from_then_on(zone: str) -> None:
    with (ZONES / zone).open("rb") as file:
        clocks = ZoneInfo.from_file(file)
    changes = list(parse_zone(zone, (ZONES / zone).read_bytes()))
    assert changes
    for change in changes:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=change.at)
        local = moment.astimezone(clocks)
        assert local.utcoffset() == timedelta(seconds=change.offset)
        assert local.tzname() == change.abbreviation
        assert bool(local.dst()) == change.is_dst
        assert change.value["at"] == moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_cut_file_is_refused_wherever_it_is_cut() -> None:
    whole = list(parse_zone("z", BERLIN))
    end_of_data = BERLIN.rindex(b"\n", 0, -1)  # what follows is the rule for the far future, not read here
    for cut in range(end_of_data):
        with pytest.raises(BadZoneFile):
            list(parse_zone("z", BERLIN[:cut]))
    assert list(parse_zone("z", BERLIN[:end_of_data])) == whole


@given(st.binary(max_size=200))
def test_bytes_that_are_no_zone_file_are_refused(data: bytes) -> None:
    with pytest.raises(BadZoneFile):
        list(parse_zone("z", data))


def test_a_moment_before_the_calendar_begins_is_shown_at_its_beginning() -> None:
    changed = bytearray(BERLIN)
    first = next(iter(parse_zone("z", BERLIN)))
    at = changed.index(first.at.to_bytes(8, "big", signed=True))
    changed[at : at + 8] = (-(1 << 59)).to_bytes(8, "big", signed=True)
    assert next(iter(parse_zone("z", bytes(changed)))).value["at"].endswith("1-01-01T00:00:00Z")
