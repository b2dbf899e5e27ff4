"""What several nodes found is what one that holds everything would have found, up to where all of them got."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.errors import BadMessage, CorruptData
from eventlog.predicate.spec import FilterSpec
from eventlog.read.answer import NO_LIMIT, Limits
from eventlog.read.cursor import Cursor, SegmentEnds
from eventlog.read.filtered import Gathered, filter_answer, merge_gathered, read_matched
from eventlog.read.position import OFFSET_UNKNOWN
from tests.batch.test_join import Log
from tests.examples import examples
from tests.read.filters import HandFilter
from tests.read.test_filtered import SEGMENTS, rows_in, values_of, wanted_of

NO_LIMITS = Limits()


def found_at(log, matches, segments, *, top, limits):
    """Return what a node with some segments finds, as it arrives at another one."""
    cursor = Cursor.at_id(SEGMENTS, 0, asked=np.array(segments))
    answer = filter_answer(values_of(log), cursor=cursor, top=top, limits=limits, matches=matches)
    cursor.advance(answer.upto, answer.ends)
    runs, has_changes = (answer.parts[0].runs, answer.parts[0].has_changes) if answer.parts else (0, False)
    joined, changes = read_matched(memoryview(b"".join(answer.body)), runs=runs, has_changes=has_changes)
    known = cursor.at.offsets != OFFSET_UNKNOWN
    ends = SegmentEnds(*(column[known].tolist() for column in (cursor.at.of, cursor.at.offsets, cursor.at.epochs)))
    return Gathered(segments=np.array(segments), upto=answer.upto, ends=ends, joined=joined, changes=changes)


@given(st.integers(0, 1 << 30), st.data())
@settings(max_examples=examples(80), deadline=None)
@pytest.mark.parametrize("continuous", [False, True])
def test_parts_together_are_the_filter_applied_to_the_log(continuous, seed, data):
    log = Log(seed, groups=8, segments=SEGMENTS)
    matches = HandFilter(wanted=wanted_of(seed), spec=FilterSpec(continuous=continuous))
    ids = [row["id"] for row in log.rows] or [7 << 40]
    parts = [[0, 2], [1], [3]]
    tops = [data.draw(st.sampled_from(ids)) for _ in parts]
    limits = Limits(events=data.draw(st.sampled_from([1, 3, NO_LIMIT])), nbytes=data.draw(st.sampled_from([50, NO_LIMIT])))
    found = [found_at(log, matches, part, top=top, limits=limits) for part, top in zip(parts, tops, strict=True)]
    answer = merge_gathered(found, limits=limits)
    rows = rows_in(answer)
    assert 0 < answer.upto <= min(part.upto for part in found)
    assert len(rows) <= limits.events
    expected = [row for row in log.wanted(0, answer.upto) if matches.wanted(row["key"], row["value"])]
    assert rows == expected
    if answer.events:
        assert answer.parts[0].has_changes == continuous
    cursor = Cursor.at_id(SEGMENTS, 0, asked=np.arange(SEGMENTS))
    cursor.advance(answer.upto, answer.ends)
    passed = {row["segment"]: row["offset"] + 1 for row in log.wanted(0, answer.upto)}
    for segment, offset in zip(cursor.at.of.tolist(), cursor.at.offsets.tolist(), strict=True):
        assert offset in {OFFSET_UNKNOWN, passed.get(segment, OFFSET_UNKNOWN)}, "exact, or said to be unknown"


@given(st.binary(max_size=120), st.integers(0, 5), st.booleans())
def test_what_is_no_joined_part_is_refused(body, runs, has_changes):
    if not runs:
        assert read_matched(body, runs=0, has_changes=has_changes) == (None, None)
        return
    with pytest.raises((BadMessage, CorruptData)):
        read_matched(body, runs=runs, has_changes=has_changes)


def test_a_part_that_was_cut_off_is_refused():
    log = Log(5, groups=6, segments=SEGMENTS)
    answer = filter_answer(
        values_of(log), cursor=Cursor(SEGMENTS, 0), top=1 << 60, limits=NO_LIMITS, matches=HandFilter(wanted=lambda *_: True)
    )
    body = b"".join(answer.body)
    for size in range(0, len(body), 8):
        with pytest.raises((BadMessage, CorruptData)):
            read_matched(body[:size], runs=answer.parts[0].runs, has_changes=False)
