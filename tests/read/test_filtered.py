"""An answer with a filter is the filter applied to the answer without one, whatever the cuts and limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.batch.layout import RUN
from eventlog.batch.views import decode_block
from eventlog.ids import ID_STEP
from eventlog.predicate.spec import FilterSpec
from eventlog.read.answer import NO_LIMIT, Limits, StoredValues, sizes_of
from eventlog.read.cursor import Cursor
from eventlog.read.filtered import WINDOW_EVENTS, filter_answer
from tests.batch.test_join import EVERYTHING, Log, rows_of
from tests.examples import examples
from tests.read.filters import HandFilter

SEGMENTS = 4


def values_of(log: Log) -> StoredValues:
    heads = np.frombuffer(b"".join(data[:40] for data in log.data), "<i8").reshape(len(log.data), 5)
    counts = heads.view("<u4").reshape(len(log.data), 10)[:, 3]
    return StoredValues(
        segments=np.array(log.segments, np.int64),
        bases=heads[:, 3].copy(),
        counts=counts.astype(np.int64),
        sizes=sizes_of(log.data),
        data=log.data,
    )


def rows_in(answer):
    """Return the events of an answer, and what they are to a continuous query."""
    if not answer.events:
        assert answer.parts == answer.body == ()
        return []
    (part,) = answer.parts
    data = b"".join(answer.body)
    assert part.length == len(data) == answer.nbytes
    runs = np.frombuffer(data[: part.runs * RUN.itemsize], RUN)
    rest = data[runs.nbytes + ((part.events + 7) & ~7 if part.has_changes else 0) :]

    class Joined:
        block, events, nbytes = rest, answer.events, runs.nbytes + len(rest)

    Joined.runs = runs
    rows = rows_of(Joined)
    assert (answer.first_id, answer.last_id) == (min(row["id"] for row in rows), max(row["id"] for row in rows))
    return rows


def wanted_of(seed):
    return lambda key, value: (sum(key) + sum(value) + seed) % 3 == 0


@given(st.integers(0, 1 << 30), st.data())
@settings(max_examples=examples(100), deadline=None)
@pytest.mark.parametrize("is_costly", [False, True])
@pytest.mark.parametrize("by_segment", [False, True])
def test_a_filtered_read_is_the_filter_applied_to_the_log(is_costly, by_segment, seed, data):
    window = data.draw(st.sampled_from([1, 2, 5, WINDOW_EVENTS]))
    log = Log(seed, groups=8, segments=SEGMENTS)
    wanted = HandFilter(wanted=wanted_of(seed), is_costly=is_costly)
    ids = [row["id"] for row in log.rows] or [7 << 40]
    asked = np.array([0, 2]) if by_segment else None
    start = data.draw(st.sampled_from([0, *ids]))
    cursor = Cursor.at_id(SEGMENTS, start, asked=asked)
    top = max(data.draw(st.sampled_from([*ids, 1 << 60])), start)
    found = []
    while cursor.lowest < top:
        limits = Limits(events=data.draw(st.sampled_from([1, 2, 7, NO_LIMIT])), nbytes=data.draw(st.sampled_from([1, 60, NO_LIMIT])))
        answer = filter_answer(values_of(log), cursor=cursor, top=top, limits=limits, matches=wanted, window_events=window)
        rows = rows_in(answer)
        assert len(rows) <= limits.events
        assert all(cursor.lowest < row["id"] <= answer.upto for row in rows)
        assert [(row["segment"], row["id"]) for row in rows] == sorted((row["segment"], row["id"]) for row in rows)
        assert cursor.lowest < answer.upto <= top
        found += rows
        cursor.advance(answer.upto, answer.ends)
    expected = [
        row for row in log.wanted(start, top) if (asked is None or row["segment"] in asked) and wanted.wanted(row["key"], row["value"])
    ]
    assert sorted(found, key=lambda row: row["id"]) == sorted(expected, key=lambda row: row["id"])
    if by_segment:
        passed = {row["segment"]: row["offset"] + 1 for row in log.wanted(start, top)}
        places = dict(zip(cursor.at.of.tolist(), cursor.at.offsets.tolist(), strict=True))
        assert all(places[segment] == passed[segment] for segment in places if segment in passed), "what did not match has passed, too"


def log_of_kinds(kinds_by_value):
    log = Log(5, groups=0)
    log.rows, base = [], 7 << 40
    for index, kinds in enumerate(kinds_by_value):
        count = log.add(index % SEGMENTS, base, 0, optional=False, producers=False)
        log.data[-1] = log.data[-1][:20] + bytes([kinds]) + log.data[-1][21:]
        base += max(count, 1) * ID_STEP
    return log


def test_values_without_a_wanted_kind_are_skipped_unread():
    log = log_of_kinds([1, 2, 4, 5, 0] * 4)
    counts = values_of(log).counts
    seen = HandFilter(wanted=lambda *_: True, kinds=4)
    answer = filter_answer(values_of(log), cursor=Cursor(SEGMENTS, 0), top=1 << 60, limits=Limits(), matches=seen)
    may = np.array([kinds & 4 or not kinds for kinds in [1, 2, 4, 5, 0] * 4], bool)  # 0: not noted
    assert answer.events == seen.judged == int(counts[may].sum())
    none = HandFilter(wanted=lambda *_: True, kinds=8)
    answer = filter_answer(values_of(log_of_kinds([1, 2, 5])), cursor=Cursor(SEGMENTS, 0), top=9 << 40, limits=Limits(), matches=none)
    assert (answer.events, answer.upto, none.judged) == (0, 9 << 40, 0)


def test_a_reader_who_takes_little_has_little_judged():
    log = Log(11, groups=1_200, segments=SEGMENTS, optional=False)
    seen = HandFilter(wanted=lambda *_: True, is_costly=True)
    answer = filter_answer(values_of(log), cursor=Cursor(SEGMENTS, 0), top=1 << 60, limits=Limits(events=10), matches=seen)
    assert answer.events == 10
    assert seen.judged == WINDOW_EVENTS < len(log.rows) // 2


def test_changes_stand_between_runs_and_block():
    log = Log(3, groups=6, segments=SEGMENTS)
    query = HandFilter(wanted=wanted_of(1), spec=FilterSpec(continuous=True))
    answer = filter_answer(values_of(log), cursor=Cursor(SEGMENTS, 0), top=1 << 60, limits=Limits(), matches=query)
    (part,) = answer.parts
    assert part.has_changes
    assert answer.body[1] == b"\2" * answer.events + bytes(-answer.events % 8)
    assert rows_in(answer) == [row for row in log.wanted(0, EVERYTHING) if query.wanted(row["key"], row["value"])]


def test_a_projection_replaces_the_values():
    log = Log(4, groups=6, segments=SEGMENTS)
    short = HandFilter(wanted=lambda *_: True, projection=lambda value: value[:1])
    answer = filter_answer(values_of(log), cursor=Cursor(SEGMENTS, 0), top=1 << 60, limits=Limits(), matches=short)
    assert [row["value"] for row in rows_in(answer)] == [row["value"][:1] for row in log.wanted(0, EVERYTHING)]
    assert decode_block(answer.body[-1]).count == answer.events
