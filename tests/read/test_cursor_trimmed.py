"""What retention took from a position."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eventlog.read.cursor import earliest_id, lost_events
from eventlog.read.position import SegmentPositions

IDS = np.array([0, 500, 700])
OFFSETS = np.array([-1, 9, 4])  # nothing, ten and five events removed


def lost(at, asked=None):
    return lost_events(at, asked=asked, trimmed_ids=IDS, trimmed_offsets=OFFSETS)


def at(ids, offsets, of=(0, 1, 2)):
    return SegmentPositions(of=np.array(of), ids=np.array(ids), offsets=np.array(offsets), epochs=np.ones(len(of), np.int64))


def test_a_position_at_the_trimmed_id_lost_nothing():
    assert lost(700) == 0
    assert lost(at([0, 500, 700], [0, 10, 5])) == 0


def test_a_scalar_position_below_it_gets_an_upper_bound():
    assert lost(699) == 5
    assert lost(499) == 15


def test_only_asked_segments_count():
    assert lost(499, asked=np.array([0, 1])) == 10
    assert lost(499, asked=np.array([0])) == 0


def test_a_segment_position_gets_the_exact_number():
    assert lost(at([0, 300, 600], [0, 7, 3])) == 3 + 2


def test_an_unknown_offset_gives_an_upper_bound():
    assert lost(at([300, 600], [-1, 3], of=(1, 2))) == 10 + 2


def test_a_mark_without_events_loses_nothing():
    assert lost_events(3, asked=None, trimmed_ids=np.array([9]), trimmed_offsets=np.array([-1])) == 0


def test_a_segment_position_behind_the_last_event_removed_lost_nothing():
    assert lost(at([0, 400, 700], [0, 10, 5])) == 0, "what was removed between 400 and 500 had no events"


def test_earliest_is_the_highest_id_removed_of_what_is_asked():
    assert earliest_id(IDS, asked=None) == 700
    assert earliest_id(IDS, asked=np.array([0, 1])) == 500
    assert lost(earliest_id(IDS, asked=None)) == 0


@given(st.lists(st.lists(st.integers(1, 50), unique=True).map(sorted), min_size=1, max_size=4), st.integers(0, 60), st.integers(0, 60))
def test_bounds_hold_against_a_count_of_the_events(segments, cut, position):
    removed = [[id_ for id_ in ids if id_ <= cut] for ids in segments]
    ids = np.array([gone[-1] if gone else 0 for gone in removed])
    offsets = np.array([len(gone) - 1 for gone in removed])
    really = sum(id_ > position for gone in removed for id_ in gone)
    scalar = lost_events(position, asked=None, trimmed_ids=ids, trimmed_offsets=offsets)
    assert really <= scalar <= sum(map(len, removed))
    assert (scalar > 0) == (really > 0)
    own = SegmentPositions(
        of=np.arange(len(segments)),
        ids=np.full(len(segments), position),
        offsets=np.array([sum(id_ <= position for id_ in ids) for ids in segments]),
        epochs=np.ones(len(segments), np.int64),
    )
    assert lost_events(own, asked=None, trimmed_ids=ids, trimmed_offsets=offsets) == really
