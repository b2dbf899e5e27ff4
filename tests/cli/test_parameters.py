"""Durations, sizes, moments and segment lists, and escapes, as words of the command line."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.ids import IdTimes
from eventlog_cli.parameters import (
    format_duration,
    format_seconds,
    format_size,
    parse_duration,
    parse_moment,
    parse_segments,
    parse_size,
    unescape,
)

NOW_MS = 1_795_000_000_123


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("90s", 90_000),
        ("24h", 86_400_000),
        ("7d", 604_800_000),
        ("1h30m", 5_400_000),
        ("1.5d", 129_600_000),
        ("500ms", 500),
        (" 2 W ", 1_209_600_000),
        ("0", 0),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "7", "d", "7x", "-1s", "1.2345ms", "1s 2", "٣s", "99999999999999999w", "1e3s"])
def test_what_is_no_duration_is_refused_by_a_sentence_with_the_text_in_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|whole number") as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4_096),
        ("10MiB", 10 << 20),
        ("10 mib", 10 << 20),
        ("1.5GB", 1_500_000_000),
        ("1k", 1_000),
        ("2TiB", 2 << 40),
        ("7B", 7),
        ("0", 0),
    ],
)
def test_a_size_is_a_number_and_a_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "1XB", "-1", "0.3", "1 000", "999999999999TiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"size|whole number"):
        parse_size(text)


def test_a_moment_is_iso_8601_in_utc_unless_it_says_otherwise() -> None:
    assert parse_moment("1970-01-01T00:00:01.5Z", now_ms=NOW_MS) == 1_500
    assert parse_moment("1970-01-01T00:00:01", now_ms=NOW_MS) == 1_000
    assert parse_moment("1970-01-02", now_ms=NOW_MS) == 86_400_000
    assert parse_moment("19700102T000000Z", now_ms=NOW_MS) == 86_400_000
    assert parse_moment("1970-01-01T01:00:00+01:00", now_ms=NOW_MS) == 0
    assert parse_moment("1969-12-31T23:59:59.999Z", now_ms=NOW_MS) == -1


def test_a_duration_as_a_moment_means_that_long_ago() -> None:
    assert parse_moment("24h", now_ms=NOW_MS) == NOW_MS - 86_400_000
    assert parse_moment("0", now_ms=NOW_MS) == NOW_MS


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-13-01", "24", "5 parsecs", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"]
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    try:
        moment = parse_moment(text, now_ms=NOW_MS)
    except ValueError:
        return
    assert text.startswith(("0001", "9999")), f"{text} became {moment}"


def test_segments_are_numbers_and_ranges_each_once_and_rising() -> None:
    assert parse_segments("0,3-7, 5,2") == [0, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("text", ["", ",", "7-3", "-1", "1-", "70000", "a"])
def test_what_is_no_list_of_segments_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="segments"):
        parse_segments(text)


@given(st.integers(min_value=0, max_value=1 << 53))
def test_a_formatted_duration_reads_back_as_the_same(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds)) == milliseconds


@given(st.text(max_size=30))
def test_no_text_makes_a_parser_raise_anything_but_value_error(text: str) -> None:
    for parse in (parse_duration, parse_size, parse_segments, lambda words: parse_moment(words, now_ms=NOW_MS)):
        with suppress(ValueError):
            parse(text)


def test_sizes_for_people_have_three_digits() -> None:
    assert [format_size(size) for size in (0, 1_023, 1_024, 1_536, 15 << 20, 1_048_575, 5 << 50)] == [
        "0 B",
        "1023 B",
        "1.00 KiB",
        "1.50 KiB",
        "15.0 MiB",
        "1.00 MiB",
        "5120 TiB",
    ]


def test_seconds_for_people_have_minutes_from_one_minute_on() -> None:
    assert [format_seconds(seconds) for seconds in (0.0004, 0.04, 0.95, 9.94, 59.4, 61, 3_600)] == [
        "0 ms",
        "40 ms",
        "0.9 s",
        "9.9 s",
        "59 s",
        "1 min 01 s",
        "60 min 00 s",
    ]


def test_the_time_of_an_id_has_milliseconds_and_follows_a_change_of_second() -> None:
    times = IdTimes()
    base = (1_795_168_800_123 - 1_577_836_800_000) << 22
    assert times.text(base) == "2026-11-20T10:00:00.123Z"
    assert times.text(base + (7 << 10) + 3) == "2026-11-20T10:00:00.123Z"
    assert times.text(base + (900 << 22)) == "2026-11-20T10:00:01.023Z"
    assert times.text(0) == "2020-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", b""),
        (":", b":"),
        (r"\t", b"\t"),
        (r"a\0b\r\n", b"a\0b\r\n"),
        (r"\\t", b"\\t"),
        (r"\x1f\xFF", b"\x1f\xff"),
        ("ü\udcff", b"\xc3\xbc\xff"),
    ],
)
def test_an_escape_stands_for_its_byte_and_all_else_for_itself(text: str, data: bytes) -> None:
    assert unescape(text) == data


@pytest.mark.parametrize("text", ["\\", r"a\q", r"\x1", r"\xg0", "\\\n"])
def test_an_escape_that_stands_for_nothing_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="means nothing: write one of"):
        unescape(text)
