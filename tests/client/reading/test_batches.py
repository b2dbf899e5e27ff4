"""Batches: the same events as columns, as Arrow, as objects."""

import sys

import pyarrow as pa  # noqa: F401 -- so that it is loaded
import pytest
from hypothesis import given

from eventlog.client.reading.batches import EventBatch
from eventlog.client.reading.following import to_batches
from eventlog.errors import InvalidArgument
from eventlog.events import EventSource, encode_headers
from eventlog.ids import ID_STEP
from tests.client.answers import CACHE, SOURCE, Row, logs, make, rows_of

ROWS = [
    Row(1 << 30, 2, 7, 0, b"a", b"1"),
    Row((1 << 30) + ID_STEP, 0, 3, 1, b"b", b"22", b"old"),
    Row((1 << 30) + 2 * ID_STEP, 0, 4, 2, b"a", b"", b"1", encode_headers({"h": b"x"})),
    Row((1 << 30) + 3 * ID_STEP, 1, 0, 3, b"c", b"", b"2"),
]


def batch(rows: list[Row] = ROWS, *, source: EventSource = SOURCE, order: str = "id") -> EventBatch:
    answer, body = make(("joined", rows))
    (found,) = to_batches(answer, body, source, order=order)  # type: ignore[arg-type]
    return found


def test_columns_are_in_the_order_of_ids() -> None:
    found = batch()
    assert found.ids.tolist() == [row.id for row in ROWS]
    assert found.segments.tolist() == [2, 0, 0, 1]
    assert found.offsets.tolist() == [7, 3, 4, 0]
    assert found.kinds.tolist() == [0, 1, 2, 3]
    assert found.epochs.tolist() == [3, 3, 3, 3]
    assert found.keys.to_list() == [b"a", b"b", b"a", b"c"]
    assert found.values.to_list() == [b"1", b"22", b"", b""]
    assert (len(found), found.last_id) == (4, ROWS[-1].id + 5)


def test_order_segment_leaves_them_as_they_came() -> None:
    found = batch(order="segment")
    assert found.segments.tolist() == [0, 0, 1, 2]
    assert found.values.to_list() == [b"22", b"", b"", b"1"]
    assert [event.key for event in found] == ["b", "a", "c", "a"]


def test_objects_have_before_images_only_where_something_was_replaced() -> None:
    events = rows_of(batch())
    assert [event.before for event in events] == [None, b"old", b"1", b"2"]
    assert [event.value for event in events] == [b"1", b"22", None, None]
    assert [event.headers for event in events] == [{}, {}, {"h": b"x"}, {}]
    assert [event.kind for event in events] == ["CREATED", "MODIFIED", "REMOVED", "EXPIRED"]
    assert events == [row.event(has_before=True) for row in ROWS]


def test_headers_without_before_images_do_not_change_places() -> None:
    rows = [Row(1 << 30, 0, 0, 1, b"a", b"1", headers=encode_headers({"h": b"x"}))]
    (event,) = rows_of(batch(rows))
    assert (event.before, event.headers) == (None, {"h": b"x"})


@given(logs())
def test_objects_are_the_same_with_and_without_pyarrow(groups: list[list[Row]]) -> None:
    rows = [row for group in groups for row in group]
    found = batch(rows)
    expected = [row.event(has_before=any(row.before for row in rows)) for row in rows]
    has_headers = any(row.headers for row in rows)
    for path in ("pyarrow", "slices"):
        with pytest.MonkeyPatch.context() as patch:
            if path == "slices":
                patch.delitem(sys.modules, "pyarrow")
            events = rows_of(found)
        assert [event.id for event in events] == [row.id for row in rows]
        for event, want in zip(events, expected, strict=True):
            assert (event.key_bytes, event.value_bytes, event.before_bytes) == (want.key_bytes, want.value_bytes, want.before_bytes)
            assert (event.kind_number, event.segment, event.offset) == (want.kind_number, want.segment, want.offset)
            assert event.header_bytes == (want.header_bytes if has_headers else None)


def test_a_position_is_asked_of_the_source() -> None:
    source = EventSource(cache="c", cache_id=CACHE, cluster="x", text_keys=True, json_values=False, position_at=lambda id_: f"at {id_}")
    found = batch(source=source)
    assert found.position == f"at {ROWS[-1].id + 5}"
    assert rows_of(found)[1].position == f"at {ROWS[1].id}"


def test_only_the_last_batch_of_an_answer_goes_on_behind_it() -> None:
    first = [Row((1 << 30) + i * ID_STEP, 0, i, 0, b"k", b"v") for i in range(2_000)]
    second = [Row((1 << 31) + i * ID_STEP, 1, i, 0, b"k", b"v") for i in range(2_000)]
    answer, body = make(("joined", first), ("joined", second))
    found = to_batches(answer, body, SOURCE)
    assert [batch.last_id for batch in found] == [first[-1].id, answer.last_id]


def test_an_answer_without_events_has_no_batches() -> None:
    answer, body = make()
    assert to_batches(answer, body, SOURCE) == []


def test_an_event_written_while_no_images_were_kept_has_none_beside_one_that_has() -> None:
    rows = [Row(1 << 30, 0, 3, 1, b"a", b"1"), Row((1 << 30) + ID_STEP, 0, 4, 1, b"a", b"2", b"1")]
    found = batch(rows, source=EventSource(cache="c", cache_id=CACHE, cluster="x", text_keys=True, json_values=True))
    assert [event.before for event in found.events()] == [None, 1]
    assert [row["before"] for row in found.arrow().to_pylist()] == [None, "1"]


def test_events_that_are_grouped_by_segment_have_no_position_but_their_batch_has() -> None:
    found = batch(order="segment")
    for event in found:
        with pytest.raises(InvalidArgument, match=r"batch\.position"):
            assert event.position
    assert found.position == str(found.last_id)
    assert [event.position for event in batch()] == [str(row.id) for row in ROWS]
    assert [event.position for event in batch(ROWS[:1], order="segment")] == [str(ROWS[0].id)], "in order all the same"
