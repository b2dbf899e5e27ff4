"""What `eventlog group` prints of many segments: little, unless asked."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from eventlog.client.groups import GroupDescription, GroupMove, GroupSegment
from eventlog_cli.group import SEGMENTS_SHOWN, command
from eventlog_cli.main import main


def segment(number: int, *, lag: int | None) -> GroupSegment:
    return GroupSegment(
        segment=number, member=None, id=5, next_offset=1, metadata="", committed_ms=0, lag_events=lag, lag_bytes=lag, lag_ms=lag
    )


def run(*words: str, segments=(), moves=()) -> list[str]:
    described = GroupDescription(group="g", cache="c", mode="read", assignor="uniform", generation=1, members=[], segments=list(segments))
    groups = SimpleNamespace(describe=lambda _group: [described], reset=lambda _group, **_: list(moves))

    @contextmanager
    def connect(*_addresses, **_options):
        yield SimpleNamespace(groups=groups)

    result = CliRunner().invoke(command, words, obj=connect)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def test_describe_shows_the_segments_with_most_left_and_all_when_asked() -> None:
    many = [segment(number, lag=number) for number in range(64)]
    short = run("describe", "g", segments=many)
    assert "63 of 64 segments have events left" in "\n".join(short)
    assert [int(line.split()[0]) for line in short[-SEGMENTS_SHOWN:]] == list(range(63, 63 - SEGMENTS_SHOWN, -1))
    assert [int(line.split()[0]) for line in run("describe", "g", "--segments", segments=many)[-64:]] == list(range(64))


def test_a_segment_whose_lag_nobody_knows_is_shown_before_those_that_have_one() -> None:
    assert run("describe", "g", segments=[segment(1, lag=10**15), segment(2, lag=None)])[-2].split()[0] == "2"


def test_a_group_that_has_read_everything_shows_no_segments() -> None:
    assert len(run("describe", "g", segments=[segment(number, lag=0) for number in range(64)])) == 3


def test_a_reset_of_many_segments_is_one_line_a_cache() -> None:
    moves = [GroupMove(cache="c", segment=number, from_id=100 + number, to_id=0 if number < 60 else 900) for number in range(64)]
    lines = run("reset", "g", "--to", "earliest", moves=moves)
    assert lines[1].split() == ["c", "64", "60", "4", "100", "..", "163", "0", "..", "900"]
    assert lines[2:] == ["moved 64 of 64 segments (each: --json)"]


def test_a_reset_of_few_segments_names_each() -> None:
    assert run("reset", "g", "--to", "7", moves=[GroupMove(cache="c", segment=3, from_id=9, to_id=7)])[1].split() == ["c", "3", "9", "7"]


def test_a_shift_says_by_how_many_events_and_where_the_log_ends_before_that() -> None:
    moves = [
        GroupMove(cache="c", segment=3, from_id=9, to_id=7, events=-5),
        GroupMove(cache="c", segment=4, from_id=9, to_id=8, events=-2),
        GroupMove(cache="c", segment=5, from_id=9, to_id=9, events=0),
    ]
    lines = run("reset", "g", "--shift-by", "-5", "--dry-run", moves=moves)
    assert [line.split() for line in lines[:3]] == [
        ["cache", "segment", "from", "to", "events"],
        ["c", "3", "9", "7", "-5"],
        ["c", "4", "9", "8", "-2"],
    ]
    assert lines[3] == "would move 2 of 3 segments by -7 events; 2 as far as their logs go"
    assert run("reset", "g", "--shift-by", "5", moves=[GroupMove(cache="c", segment=3, from_id=7, to_id=9, events=5)])[2] == (
        "moved 1 of 1 segments by +5 events"
    )


@pytest.mark.parametrize("words", [[], ["--to", "latest", "--shift-by", "3"], ["--shift-by", "0"], ["--shift-by", "x"]])
def test_a_reset_that_says_nothing_or_two_things_is_a_usage_error(words: list[str]) -> None:
    result = CliRunner().invoke(main, ["group", "reset", "g", *words], obj=None)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: USAGE: ")
