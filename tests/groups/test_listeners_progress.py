"""How far a listener has acknowledged."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import PositionMismatch
from eventlog.groups.listeners import ListenerProgress
from eventlog.read.position import Position, SegmentPositions

SEGMENTS = 4
SCALAR = Position(cluster="x", cache_id=1, segments=SEGMENTS, at=0)
places = st.dictionaries(st.integers(0, SEGMENTS - 1), st.integers(0, 20), min_size=1)
moves = st.lists(st.one_of(st.integers(0, 20), places), max_size=12)


def at(place):
    if isinstance(place, int):
        return replace(SCALAR, at=place)
    of = np.array(sorted(place), np.int64)
    ids = np.array([place[segment] for segment in sorted(place)], np.int64)
    return replace(SCALAR, at=SegmentPositions(of=of, ids=ids, offsets=ids * 2, epochs=ids * 3))


@given(moves)
def test_it_is_the_furthest_of_all_places_in_every_segment(given_moves):
    progress = ListenerProgress("x", 1, SEGMENTS, all_id=2)
    model = [2] * SEGMENTS
    for move in given_moves:
        before = list(model)
        for segment, id_ in (dict.fromkeys(range(SEGMENTS), move) if isinstance(move, int) else move).items():
            model[segment] = max(model[segment], id_)
        moved = progress.move(at(move))
        assert moved or model == before
        assert progress.lowest == min(model)
        for segment, id_ in enumerate(model):
            assert progress.covers([segment], [id_])
            assert not progress.covers([segment], [id_ + 1])
    again = ListenerProgress("x", 1, SEGMENTS)
    again.move(progress.position())
    assert all(again.covers([segment], [id_]) and not again.covers([segment], [id_ + 1]) for segment, id_ in enumerate(model))


def test_a_place_in_every_segment_keeps_what_lets_losses_be_counted():
    progress = ListenerProgress("x", 1, SEGMENTS, all_id=5)
    progress.move(at({1: 9, 2: 4}))
    position = progress.position().at
    assert isinstance(position, SegmentPositions)
    assert position.ids.tolist() == [5, 9, 5, 5]
    assert position.offsets.tolist() == [-1, 18, -1, -1]
    progress.move(at(9))
    assert progress.position().at == 9


def test_a_place_in_another_cache_is_refused():
    with pytest.raises(PositionMismatch):
        ListenerProgress("x", 1, SEGMENTS).move(replace(SCALAR, cache_id=2))
