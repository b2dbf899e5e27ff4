"""Places that forced takeovers gave up."""

import numpy as np
import pytest

from eventlog.read.cursor import Cursor, Lost, diverged
from eventlog.read.position import SegmentPositions

LOST = {3: [Lost(epoch=5, after=100, upto=200)]}


def places(of, ids, epochs):
    count = len(of)
    at = SegmentPositions(of=np.array(of), ids=np.array(ids), offsets=np.zeros(count, np.int64), epochs=np.array(epochs))
    return Cursor(8, at)


@pytest.mark.parametrize(("id_", "is_lost"), [(0, False), (100, False), (101, True), (200, True), (201, False)])
def test_a_scalar_place_in_the_range_is_refused(id_, is_lost):
    error = diverged(Cursor(8, id_), LOST)
    assert (error is not None) == is_lost
    if error is not None:
        assert (error.segment, error.after, error.upto) == (3, 100, 200)


def test_only_the_segments_asked_for_count():
    assert diverged(places([1, 4], [150, 150], [1, 1]), LOST) is None
    assert diverged(places([1, 3], [150, 150], [1, 4]), LOST) is not None
    assert diverged(places([1, 3], [150, 90], [1, 4]), LOST) is None


def test_what_was_read_under_the_forced_primary_is_sound():
    assert diverged(places([3], [150], [5]), LOST) is None
    assert diverged(places([3], [150], [4]), LOST) is not None
