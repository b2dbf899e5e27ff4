"""Positions as values."""

from dataclasses import replace

import numpy as np
import pytest

from eventlog.errors import BadMessage, PositionMismatch
from eventlog.read.position import Position, SegmentPositions, checked

SCALAR = Position(cluster="c", cache_id=3, segments=256, at=5)
SOME = SegmentPositions(of=np.array([2, 5]), ids=np.array([9, 8]), offsets=np.array([-1, 4]), epochs=np.array([0, 6]))


@pytest.mark.parametrize(
    ("elsewhere", "what"),
    [({"cluster": "d"}, "cluster"), ({"cache_id": 4}, "cache"), ({"segments": 512}, "number of segments")],
)
def test_a_position_made_elsewhere_is_refused(elsewhere, what):
    here = {"cluster": "c", "cache_id": 3, "segments": 256}
    SCALAR.check(**here)
    with pytest.raises(PositionMismatch) as caught:
        SCALAR.check(**here | elsewhere)
    assert caught.value.what == what


def test_equal_positions_are_equal_by_value():
    one, two = (replace(SCALAR, at=replace(SOME, ids=SOME.ids.copy())) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    assert one != replace(one, at=replace(SOME, ids=np.array([9, 7])))
    assert one != SCALAR


@pytest.mark.parametrize("of", [[], [5, 2], [2, 2], [-1, 2], [2, 256]])
def test_segments_of_a_position_rise_within_the_cluster(of):
    at = SegmentPositions(of=np.array(of, np.int64), **{name: np.ones(len(of), np.int64) for name in ("ids", "offsets", "epochs")})
    with pytest.raises(BadMessage):
        checked(replace(SCALAR, at=at))
