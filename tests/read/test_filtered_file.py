"""A filtered read of a file of columns is the filter applied to the log, as one of stored values is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.read.answer import NO_LIMIT, Limits
from eventlog.read.cursor import Cursor
from eventlog.read.filtered import filter_answer, filter_file
from tests.batch.test_column_file import file_of
from tests.batch.test_columns import columns_of
from tests.batch.test_join import Log
from tests.examples import examples
from tests.read.filters import HandFilter
from tests.read.test_filtered import SEGMENTS, rows_in, values_of, wanted_of

NOTHING_TRIMMED = np.zeros(SEGMENTS, np.int64)


@given(st.integers(0, 1 << 30), st.data())
@settings(max_examples=examples(100), deadline=None)
@pytest.mark.parametrize("is_costly", [False, True])
@pytest.mark.parametrize("by_segment", [False, True])
def test_a_file_answers_as_the_log_does(is_costly, by_segment, seed, data):
    log = Log(seed, groups=8, segments=SEGMENTS)
    if not log.rows:
        return
    wanted = HandFilter(wanted=wanted_of(seed), is_costly=is_costly)
    ids = [row["id"] for row in log.rows]
    asked = np.array([0, 2]) if by_segment else None
    only = np.array([0]) if data.draw(st.booleans()) else None
    start = data.draw(st.sampled_from([0, *ids]))
    cursor = Cursor.at_id(SEGMENTS, start, asked=asked)
    top = max(data.draw(st.sampled_from([*ids, 1 << 60])), start)
    while cursor.lowest < top:
        limits = Limits(events=data.draw(st.sampled_from([1, 2, 7, NO_LIMIT])), nbytes=data.draw(st.sampled_from([1, 60, NO_LIMIT])))
        told = {"cursor": cursor, "top": top, "limits": limits, "matches": wanted, "only": only}
        answer = filter_file(file_of(columns_of(log))[0], trimmed=NOTHING_TRIMMED, **told)
        same = filter_answer(values_of(log), **told)
        assert rows_in(answer) == rows_in(same)
        assert answer.upto == same.upto
        cursor.advance(answer.upto, answer.ends)
        if by_segment:
            passed = {row["segment"]: row["offset"] + 1 for row in log.wanted(start, answer.upto) if row["segment"] in (0, 2)}
            places = dict(zip(cursor.at.of.tolist(), cursor.at.offsets.tolist(), strict=True))
            assert {segment: places[segment] for segment in passed} == passed


def test_what_retention_removed_since_is_left_out():
    log = Log(7, groups=20, segments=SEGMENTS)
    trimmed = NOTHING_TRIMMED.copy()
    trimmed[1] = log.rows[len(log.rows) // 2]["id"]
    found = filter_file(
        file_of(columns_of(log))[0],
        cursor=Cursor(SEGMENTS, 0),
        top=1 << 60,
        limits=Limits(),
        matches=HandFilter(wanted=lambda *_: True),
        trimmed=trimmed,
    )
    expected = [row for row in log.wanted(0, 1 << 60) if row["id"] > trimmed[row["segment"]]]
    assert 0 < found.events == len(expected) < len(log.rows)


def test_a_file_without_a_wanted_kind_is_passed_with_its_runs_alone():
    file, read = file_of(columns_of(Log(7, groups=20, segments=SEGMENTS)))
    missing = HandFilter(wanted=lambda *_: True, kinds=1 << 7)
    told = {"cursor": Cursor(SEGMENTS, 0), "top": 9 << 50, "limits": Limits(), "trimmed": NOTHING_TRIMMED}
    answer = filter_file(file, matches=missing, **told)
    assert (answer.events, answer.upto, missing.judged) == (0, 9 << 50, 0)
    assert [size for _, size in read] == [file.contents.extents["runs"].size]
