"""A reader's place while it is being served."""

from dataclasses import replace

import numpy as np

from eventlog.read.cursor import Cursor, SegmentEnds
from eventlog.read.position import OFFSET_UNKNOWN


def places(cursor):
    at = cursor.at
    return list(zip(at.of.tolist(), at.ids.tolist(), at.offsets.tolist(), at.epochs.tolist(), strict=True))


def test_one_id_over_all_segments_moves_forward_only():
    cursor = Cursor(4, 10)
    cursor.advance(20)
    cursor.advance(15)
    assert cursor.at == cursor.lowest == 20
    assert cursor.after(np.array([1, 3])) == (20, None)
    assert cursor.share == 1


def test_some_segments_have_a_place_each():
    cursor = Cursor.at_id(8, 10, asked=np.array([2, 5]))
    assert places(cursor) == [(2, 10, OFFSET_UNKNOWN, 0), (5, 10, OFFSET_UNKNOWN, 0)]
    cursor.advance(20, SegmentEnds([5], [7], [3]))
    assert places(cursor) == [(2, 20, OFFSET_UNKNOWN, 0), (5, 20, 7, 3)]
    after, wanted = cursor.after(np.array([5, 1, 2]))
    assert (after.tolist(), wanted.tolist()) == ([20, 0, 20], [True, False, True])
    assert cursor.share == 4


def test_places_that_are_ahead_stay():
    cursor = Cursor.at_id(4, 10, asked=np.array([0, 1]))
    ahead = Cursor(4, replace(cursor.at, ids=np.array([10, 50])))
    ahead.advance(20)
    assert places(ahead) == [(0, 20, -1, 0), (1, 50, -1, 0)]
    assert ahead.lowest == 20


def test_a_copy_moves_by_itself_and_the_key_follows_the_place():
    for cursor in (Cursor(4, 10), Cursor.at_id(4, 10, asked=np.array([1, 2]))):
        copy = cursor.copy()
        assert copy.key == cursor.key
        copy.advance(30, SegmentEnds([1], [9], [1]))
        assert copy.key != cursor.key
        assert cursor.lowest == 10


def test_different_segments_at_one_place_are_different():
    keys = {Cursor(4, 10).key, *(Cursor.at_id(4, 10, asked=np.array(asked)).key for asked in ([1], [2], [1, 2]))}
    assert len(keys) == 4


def test_skipping_goes_behind_what_was_trimmed_and_nowhere_back():
    ids, offsets = np.array([0, 40, 60, 0]), np.array([-1, 3, 5, -1])
    cursor = Cursor(4, 50)
    cursor.skip_trimmed(ids, offsets)
    assert cursor.at == 60
    cursor = Cursor.at_id(4, 50, asked=np.array([1, 2]))
    cursor.skip_trimmed(ids, offsets)
    assert places(cursor) == [(1, 50, -1, 0), (2, 60, 6, 0)]
    cursor = Cursor.at_id(4, 0, asked=np.array([0, 1]))
    cursor.skip_trimmed(ids, offsets)
    assert places(cursor) == [(0, 0, 0, 0), (1, 40, 4, 0)], "from the very beginning every offset is known"
    assert cursor.lost(ids, offsets) == 0


def test_what_was_lost_is_counted_from_the_place():
    ids, offsets = np.array([0, 40]), np.array([-1, 3])
    assert Cursor(2, 39).lost(ids, offsets) == 4
    assert Cursor(2, 40).lost(ids, offsets) == 0


def test_a_position_carries_the_place():
    cursor = Cursor.at_id(4, 9, asked=np.array([3]))
    position = cursor.position(cluster="c", cache_id=5)
    assert (position.cluster, position.cache_id, position.segments) == ("c", 5, 4)
    assert position.at.ids.tolist() == [9]
