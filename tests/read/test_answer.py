"""One answer out of stored values. That it holds the right events is checked against a model in tests/node/reading/test_answers.py."""

import numpy as np

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.layout import ValueHead, encode_value
from eventlog.ids import ID_STEP
from eventlog.limits import STORED_VALUE_VERBATIM_BYTES_MIN
from eventlog.read.answer import CacheValues, Limits, build_answer, empty_answer, values_of
from eventlog.read.cursor import Cursor

BASE = 1 << 40
LARGE = STORED_VALUE_VERBATIM_BYTES_MIN


def group(*values, base=BASE, offset=0):
    """Return a group; a value is (segment, events, bytes of each)."""
    segments, bases, counts, data = [], [], [], []
    for segment, count, size in values:
        columns = Columns(kinds=np.zeros(count, np.uint8), keys=[b"k"] * count, values=[bytes(size)] * count)
        sections = [bytes(build_blocks(columns, np.array([count]))[0])] if count else []
        head = ValueHead(
            flags=0, sections=len(sections), epoch=4, count=count, bitmap=0, kinds=1, producers=0, base=base, first_offset=offset
        )
        segments.append(segment)
        bases.append(base)
        counts.append(count)
        data.append(encode_value(head, segment=segment, cache=1, sections=sections))
        base += max(count, 1) * ID_STEP
    return CacheValues(cache_id=1, segments=segments, bases=bases, counts=counts, data=data)


def answer_of(*groups, cursor=None, top=1 << 60, limits=None):
    return build_answer(values_of(groups), cursor=cursor or Cursor(4, 0), top=top, limits=limits or Limits())


def forms(answer):
    return [("joined", part.events) if part.runs else (part.segment, part.events) for part in answer.parts]


def test_small_values_are_joined_into_one_part():
    answer = answer_of(group((0, 2, 5), (1, 1, 5)), group((0, 3, 5), base=BASE + 9 * ID_STEP))
    assert forms(answer) == [("joined", 6)]
    assert (answer.events, answer.first_id, answer.last_id) == (6, BASE, BASE + 11 * ID_STEP)
    assert answer.nbytes == sum(part.length for part in answer.parts) == sum(map(len, answer.body))


def test_a_large_value_goes_out_as_it_is_and_splits_what_is_joined_around_it():
    own = group((0, 1, 5), (1, 1, LARGE), (2, 1, 5), (3, 1, 5))
    answer = answer_of(own)
    assert forms(answer) == [("joined", 1), (1, 1), ("joined", 2)]
    assert own.data[1] in answer.body, "the very same bytes"


def test_parts_follow_each_other_by_segment_and_then_by_id():
    early, late = group((1, 1, LARGE), (2, 1, LARGE)), group((0, 1, LARGE), (1, 1, 5), (2, 1, 5), base=BASE + 9 * ID_STEP)
    assert forms(answer_of(early, late)) == [(0, 1), (1, 1), ("joined", 1), (2, 1), ("joined", 1)]


def test_a_large_value_that_is_cut_is_joined():
    own = group((1, 2, LARGE))
    assert forms(answer_of(own)) == [(1, 2)]
    assert forms(answer_of(own, top=BASE)) == [("joined", 1)]
    assert forms(answer_of(own, cursor=Cursor(4, BASE))) == [("joined", 1)]


def test_one_small_value_alone_need_not_be_joined():
    own = group((2, 1, 5))
    assert answer_of(own).body == (own.data[0],)


def test_nothing_wanted_is_an_empty_answer():
    for answer in (
        answer_of(top=77),
        answer_of(group((1, 2, 5)), top=77),
        answer_of(group((1, 0, 5)), top=77),
        answer_of(group((1, 2, 5)), cursor=Cursor.at_id(4, 0, asked=np.array([2])), top=77),
    ):
        assert (answer.upto, answer.events, answer.parts, answer.body) == (77, 0, (), ())
    assert empty_answer(77).nbytes == 0


def test_limits_cut_at_one_id_over_all_segments():
    answer = answer_of(group((0, 2, 5), (1, 2, 5), (2, 2, 5)), limits=Limits(events=3))
    assert (answer.events, answer.upto, answer.last_id) == (3, BASE + 2 * ID_STEP, BASE + 2 * ID_STEP)


def test_readers_by_segment_learn_where_they_were_left():
    groups = group((0, 2, 5), (1, 2, 5), offset=10), group((1, 3, 5), base=BASE + 9 * ID_STEP, offset=12)
    answer = answer_of(*groups, cursor=Cursor.at_id(4, 0, asked=np.array([0, 1, 3])), top=BASE + 10 * ID_STEP)
    assert answer.ends is not None
    assert (answer.ends.segments, answer.ends.next_offsets, answer.ends.epochs) == ([0, 1], [12, 14], [4, 4])
    assert answer_of(*groups).ends is None
