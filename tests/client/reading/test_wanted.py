"""What a caller says it wants: where a read begins and ends, and of what."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from eventlog.client.reading.following import say_held
from eventlog.client.reading.wanted import (
    PollWanted,
    Reading,
    checked_tail,
    one_id,
    one_of,
    position_after,
    read_token,
    segments_of,
    start_of,
)
from eventlog.client.reports import stalled
from eventlog.errors import InvalidArgument, Unavailable
from eventlog.ids import EPOCH_MS, ID_MAX, id_before
from eventlog.read import token
from eventlog.read.position import OFFSET_UNKNOWN, Position, SegmentPositions
from eventlog.wire.eventlog_pb2 import PollAnswer, Stalled

SCOPE = ("x", 7, 4)


def place(at: Any) -> Position:
    return Position(cluster="x", cache_id=7, segments=4, at=at)


def vector(of: list[int], ids: list[int]) -> SegmentPositions:
    return SegmentPositions(of=np.array(of), ids=np.array(ids), offsets=np.arange(len(of)), epochs=np.ones(len(of), np.int64))


def begin(**given: Any) -> Any:
    return start_of(**{"from_id": None, "from_time": None, "position": None, **given})


def test_a_read_begins_at_the_earliest_event_unless_told() -> None:
    assert begin() == begin(from_id="earliest") == begin(from_id=0) == (0, None)
    assert begin(from_id="latest") == ("latest", None)
    assert begin(from_id=17) == begin(from_id="17") == begin(from_id=np.int64(17)) == (17, None)
    for wrong in (-1, 1.5, ID_MAX + 1, "-1"):
        with pytest.raises(InvalidArgument):
            begin(from_id=wrong)


def test_a_token_may_stand_for_an_id() -> None:
    text = token.to_text(place(99))
    assert begin(from_id=text) == begin(position=text) == (0, place(99))


def test_a_moment_is_before_its_first_id() -> None:
    now = datetime(2026, 11, 20, 10, 0, 0, 123_000, tzinfo=UTC)
    expected = id_before(EPOCH_MS + int((now - datetime(2020, 1, 1, tzinfo=UTC)).total_seconds() * 1000))
    assert begin(from_time=now) == begin(from_time=now.astimezone(timezone(timedelta(hours=5)))) == (expected, None)
    assert begin(from_time=EPOCH_MS) == begin(from_time=np.int64(EPOCH_MS)) == (0, None)


@pytest.mark.parametrize(
    "given",
    [
        {"from_id": 1, "from_time": 2},
        {"from_id": 1, "position": "x"},
        {"from_id": "yesterday"},
        {"position": "17"},
        {"position": ""},
        {"from_id": -1},
        {"from_id": ID_MAX + 1},
        {"from_time": "24h"},
        {"from_time": 1.5},
        {"from_time": datetime(2026, 1, 1)},  # noqa: DTZ001 -- without a zone on purpose
    ],
)
def test_odd_beginnings_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        begin(**given)


def test_segments_are_sorted_and_in_range() -> None:
    assert segments_of(None, of=4) == ()
    assert segments_of([3, 0, 3], of=4) == (0, 3)
    for wrong in ([], [4], [-1, 2]):
        with pytest.raises(InvalidArgument, match="segment"):
            segments_of(wrong, of=4)


def test_what_is_one_of_a_few_words_is_told_by_them() -> None:
    words = ("error", "earliest", "resync")
    assert tuple(one_of(words, word, option="on_trimmed") for word in words) == words
    with pytest.raises(InvalidArgument, match="on_trimmed is 'latest': use error, earliest or resync"):
        one_of(words, "latest", option="on_trimmed")


def test_a_scalar_reader_goes_on_after_the_last_id() -> None:
    assert token.from_text(position_after(None, SCOPE, 500)) == place(500)
    assert token.from_text(position_after(place(3), SCOPE, 500)) == place(500)


def test_a_reader_by_segments_stays_one_until_it_is_level() -> None:
    start = place(vector([0, 1, 2, 3], [100, 500, 300, 200]))
    found = read_token(position_after(start, SCOPE, 300)).at
    assert isinstance(found, SegmentPositions)
    assert found.ids.tolist() == [300, 500, 300, 300]
    assert found.offsets.tolist() == [OFFSET_UNKNOWN, 1, 2, OFFSET_UNKNOWN]
    assert found.epochs.tolist() == [0, 1, 1, 0]
    assert token.from_text(position_after(start, SCOPE, 500)) == place(500)


def test_a_reader_of_some_segments_says_nothing_about_the_others() -> None:
    found = read_token(position_after(place(vector([1, 3], [100, 200])), SCOPE, 300)).at
    assert isinstance(found, SegmentPositions)
    assert (found.of.tolist(), found.ids.tolist()) == ([1, 3], [300, 300])


@pytest.mark.parametrize("start", [None, place(3), place(vector([0, 1, 2, 3], [100, 100, 300, 200]))])
def test_what_was_not_asked_for_is_not_in_the_token(start: Position | None) -> None:
    found = read_token(position_after(start, SCOPE, 300, of=(1, 3))).at
    assert isinstance(found, SegmentPositions)
    assert (found.of.tolist(), found.ids.tolist()) == ([1, 3], [300, 300])
    assert token.from_text(position_after(start, SCOPE, 300, of=(0, 1, 2, 3))) == place(300), "all of them are one id"


def test_a_position_is_one_id_where_all_its_places_are() -> None:
    assert one_id(place(3)) == 3
    assert one_id(place(vector([1, 3], [200, 200]))) == 200
    assert one_id(place(vector([1, 3], [200, 201]))) is None
    assert one_id(replace(place(vector([1, 3], [200, 200])), unread=(1,))) is None


def test_a_reading_goes_on_after_each_answer() -> None:
    reading = Reading(after=5, until_id=100, segments=(1,), on_trimmed="earliest", max_bytes=9)
    poll = reading.poll(7)
    assert (poll.cache_id, poll.after, poll.until_id, list(poll.segments), poll.earliest, poll.max_bytes) == (7, 5, 100, [1], True, 9)
    following = reading.after_answer(PollAnswer(last_id=50))
    assert (following.after, following.until_id) == (50, 100)
    assert [reading.is_done(PollAnswer(last_id=last)) for last in (99, 100, 101)] == [False, True, True]
    assert not Reading().is_done(PollAnswer(last_id=1))


def test_a_reading_by_segments_goes_on_with_the_answers_token() -> None:
    reading = Reading(position=place(vector([0, 1, 2, 3], [1, 2, 3, 4])))
    assert token.decode(reading.poll(7).position) == reading.position
    answered = place(vector([0, 1, 2, 3], [5, 6, 7, 8]))
    following = reading.after_answer(PollAnswer(last_id=5, position=token.encode(answered)))
    assert following.position == answered


def test_what_holds_a_reader_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    rows = [[Stalled(segment=3, node=2, since_ms=7)], [Stalled(segment=3, node=0, since_ms=9)], [], [Stalled(segment=4, since_ms=7)]]
    before = None
    for held in rows:
        before = say_held(stalled(PollAnswer(stalled=held)), before=before)
    assert [record.message.partition(",")[0] for record in caplog.records] == ["segment 3", "segment 4"]


def test_a_stall_is_waited_for_unless_it_is_to_be_an_error() -> None:
    held = stalled(PollAnswer(last_id=5, stalled=[Stalled(segment=3, node=2, since_ms=7)]))
    Reading().check_stalled(held)
    with pytest.raises(Unavailable, match="segment 3, which node 2 leads, holds readers of all events since 1970-01-01T00:00:00"):
        Reading(on_stalled="error").check_stalled(held)
    Reading(on_stalled="error").check_stalled(())
    with pytest.raises(InvalidArgument, match="on_stalled is 'perhaps': use wait or error"):
        PollWanted(on_stalled="perhaps").reading(None, max_bytes=0)  # type: ignore[arg-type]


def test_what_a_forced_primary_gave_up_is_accepted_by_request() -> None:
    assert not Reading().poll(1).accept_diverged
    assert Reading(accept_diverged=True).poll(1).accept_diverged


@pytest.mark.parametrize("segments", ["0-15", "3", [1, "2"], [1.5], [None], 7])
def test_segments_that_are_no_numbers_are_refused(segments: Any) -> None:
    with pytest.raises(InvalidArgument, match="give whole numbers"):
        segments_of(segments, of=16)


def test_segments_of_any_kind_of_whole_number_rise_each_once() -> None:
    assert segments_of(np.array([3, 1, 3]), of=16) == segments_of({1, 3}, of=16) == (1, 3)  # type: ignore[arg-type]  # numpy's do as well


@pytest.mark.parametrize("given", [{"listener": ""}, {"poll_interval_ms": 0}, {"filter": ""}, {"where": ""}, {"position": ""}])
def test_nothing_is_not_taken_for_everything(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        PollWanted(**given).reading(None, max_bytes=0)


def test_a_listener_goes_on_where_it_has_acknowledged_unless_a_beginning_is_given() -> None:
    assert PollWanted(listener="a").reading(None, max_bytes=0)[1].goes_on
    assert not PollWanted(listener="a").reading(0, max_bytes=0)[1].goes_on


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
        PollWanted(tail=3, **{name: given}).reading(None, max_bytes=0)
    with pytest.raises(InvalidArgument, match="leave from_id out"):
        PollWanted(tail=3).reading(0, max_bytes=0)
