"""Answers taken apart, and put into order."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.batch.layout import RUN
from eventlog.client.reading.batches import EventBatch
from eventlog.client.reading.pieces import JOIN_BELOW_EVENTS, arrange, join, take_apart
from eventlog.errors import CorruptData, UnsupportedFormat
from eventlog.events import Change, EventSource
from eventlog.ids import ID_STEP
from eventlog.wire.eventlog_pb2 import Part, PollAnswer
from tests.client.answers import CACHE, Row, joined, logs, make, runs_of


def one_segment(count: int, *, segment: int = 1, base: int = 1 << 30) -> list[Row]:
    return [Row(base + i * ID_STEP, segment, 5 + i, 0, b"k%d" % i, b"v%d" % i) for i in range(count)]


def test_runs_give_ids_and_offsets() -> None:
    rows = [*one_segment(3, segment=0), *one_segment(2, segment=4, base=1 << 31)]
    (piece,) = take_apart(*make(("joined", rows)), cache_id=CACHE)
    assert piece.ids.tolist() == [row.id for row in rows]
    assert piece.climb(piece.first_offsets, 1).tolist() == [5, 6, 7, 5, 6]
    assert piece.spread(piece.segments).tolist() == [0, 0, 0, 4, 4]
    assert (piece.first_id, piece.last_id, len(piece)) == (rows[0].id, rows[-1].id, 5)


def test_a_stored_value_gives_a_piece_a_section_with_its_own_ids() -> None:
    rows = one_segment(5)
    pieces = take_apart(*make(("stored", rows)), cache_id=CACHE)
    assert [piece.ids.tolist() for piece in pieces] == [[row.id for row in rows[:3]], [row.id for row in rows[3:]]]
    assert [piece.first_offsets.tolist() for piece in pieces] == [[5], [8]]


def test_pieces_that_overlap_are_joined_and_large_ones_in_order_are_not() -> None:
    count = JOIN_BELOW_EVENTS
    rows = [one_segment(count, segment=segment, base=(1 << 30) + segment * 2 * count * ID_STEP) for segment in range(3)]
    apart = [take_apart(*make(("joined", part)), cache_id=CACHE)[0] for part in rows]
    assert [piece.first_id for piece in arrange(apart[::-1])] == [piece.first_id for piece in apart]
    overlapping = [
        take_apart(*make(("joined", one_segment(count, segment=segment, base=(1 << 30) + segment))), cache_id=CACHE)[0]
        for segment in (0, 1)
    ]
    (whole,) = arrange(overlapping)
    assert len(whole) == 2 * count
    assert not whole.is_ordered


def test_small_pieces_are_joined_even_in_order() -> None:
    (whole,) = arrange(take_apart(*make(("stored", one_segment(5)), ("stored", one_segment(4, base=1 << 31))), cache_id=CACHE))
    assert whole.is_ordered
    assert whole.values.to_list() == [b"v0", b"v1", b"v2", b"v3", b"v4", b"v0", b"v1", b"v2", b"v3"]


@given(logs(), st.data())
def test_events_of_a_segment_stay_in_order_however_its_values_came(groups: list[list[Row]], data: st.DataObject) -> None:
    parts: list[tuple[str, list[Row]]] = []
    for run in runs_of(sorted((row for group in groups for row in group), key=lambda row: (row.segment, row.id))):
        form = data.draw(st.sampled_from(("stored", "joined")))
        if form == "joined" and parts and parts[-1][0] == form:
            parts[-1][1].extend(run)  # as a node does it: what lies between two values that go out whole is one part
        else:
            parts.append((form, list(run)))
    seen: dict[int, list[int]] = {}
    for piece in arrange(take_apart(*make(*parts), cache_id=CACHE)):
        segments = piece.spread(piece.segments)
        assert piece.is_ordered or (np.diff(segments) >= 0).all()
        for id_, segment in zip(piece.ids.tolist(), segments.tolist(), strict=True):
            seen.setdefault(segment, []).append(id_)
    assert all(ids == sorted(ids) for ids in seen.values())


@given(logs(), st.data())
def test_every_event_is_in_the_pieces_once_with_its_own_columns(groups: list[list[Row]], data: st.DataObject) -> None:
    rows = [row for group in groups for row in group]
    as_stored = {segment for segment in {row.segment for row in rows} if data.draw(st.booleans())}
    stored = [("stored", run) for run in runs_of(sorted(rows, key=lambda row: (row.segment, row.id))) if run[0].segment in as_stored]
    rest = [row for row in rows if row.segment not in as_stored]
    parts = data.draw(st.permutations([*stored, *([("joined", rest)] if rest else [])]))
    found = []
    for piece in arrange(take_apart(*make(*parts), cache_id=CACHE)):
        before = piece.before.to_list() if piece.before else [b""] * len(piece)
        headers = piece.headers.to_list() if piece.headers else [b""] * len(piece)
        columns = (piece.ids.tolist(), piece.spread(piece.segments).tolist(), piece.climb(piece.first_offsets, 1).tolist())
        strings = (piece.keys.to_list(), piece.values.to_list(), before, headers, piece.spread(piece.epochs).tolist())
        found += list(map(Row, *columns, piece.kinds.tolist(), *strings))
        assert piece.is_ordered == bool((np.diff(piece.ids) > 0).all())
    assert sorted(found, key=lambda row: row.id) == rows


@given(logs(), st.data())
def test_damaged_answers_are_refused_with_a_typed_error(groups: list[list[Row]], data: st.DataObject) -> None:
    rows = [row for group in groups for row in group]
    run = runs_of(sorted(rows, key=lambda row: (row.segment, row.id)))[0]
    answer, body = make(("joined", rows), ("stored", run))
    damaged = bytearray(body)
    match data.draw(st.sampled_from(("flip", "cut", "tail"))):
        case "flip":
            damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        case "cut":
            del damaged[data.draw(st.integers(0, len(damaged) - 1)) :]
        case _:
            damaged += b"\0"
    with suppress(CorruptData, UnsupportedFormat):
        for piece in arrange(take_apart(answer, memoryview(bytes(damaged)), cache_id=CACHE)):
            piece.keys.to_list()  # what a flip in a key or a number leaves is still well formed


@pytest.mark.parametrize("change", [{"runs": 1_000}, {"runs": 0}, {"length": 8}, {"length": 1 << 20}])
def test_parts_that_contradict_the_body_are_refused(change: dict[str, int]) -> None:
    answer = PollAnswer()
    body = joined(answer, one_segment(4))
    for name, value in change.items():
        setattr(answer.parts[0], name, value)
    with pytest.raises(CorruptData):
        take_apart(answer, memoryview(body), cache_id=CACHE)


def test_a_stored_value_of_another_cache_is_refused() -> None:
    answer, body = make(("stored", one_segment(4)))
    assert answer.parts[0].form == Part.STORED
    with pytest.raises(CorruptData):
        take_apart(answer, body, cache_id=CACHE + 1)


def source() -> EventSource:
    return EventSource(cache="c", cache_id=CACHE, cluster="x", text_keys=True, json_values=False)


def with_changes(rows: list[Row], changes: list[int]) -> tuple[PollAnswer, memoryview]:
    """An answer to a continuous query: the changes stand between runs and block."""
    answer = PollAnswer()
    data = joined(answer, rows)
    part = answer.parts[0]
    size = part.runs * RUN.itemsize
    noted = bytes(changes) + bytes(-len(changes) & 7)
    part.length, part.changes = len(data) + len(noted), True
    return answer, memoryview(data[:size] + noted + data[size:])


def test_what_events_are_to_a_continuous_query_goes_with_them() -> None:
    rows = one_segment(3, segment=1) + one_segment(2, segment=0, base=(1 << 30) + ID_STEP // 2)
    answer, body = with_changes(rows, [1, 3, 2, 2, 1])
    (piece,) = arrange(take_apart(answer, body, cache_id=CACHE))
    batch = EventBatch(piece, source(), last_id=1 << 40)
    found = {event.id: event.change for event in batch.events()}
    assert [found[row.id] for row in sorted(rows, key=lambda row: (row.segment, row.id))] == [
        "JOINED",
        "LEFT",
        "UPDATED",
        "UPDATED",
        "JOINED",
    ]
    assert [Change(number).name for number in batch.changes.tolist()] == list(found.values())
    both = join([piece, piece])
    assert both.changes.tolist() == [*piece.changes.tolist()] * 2
    plain, body = make(("joined", rows))
    assert {event.change for event in EventBatch(take_apart(plain, body, cache_id=CACHE)[0], source(), last_id=1)} == {None}


@pytest.mark.parametrize("changes", [[1, 2, 4], [0, 1, 2], [1, 2, 3, 1, 2, 3, 1, 2, 3]])
def test_changes_that_there_are_not_or_of_other_events_are_refused(changes: list[int]) -> None:
    answer, body = with_changes(one_segment(3), changes)
    with pytest.raises(CorruptData):
        take_apart(answer, body, cache_id=CACHE)
