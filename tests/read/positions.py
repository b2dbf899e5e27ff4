"""Hypothesis strategies for positions."""

import numpy as np
from hypothesis import strategies as st

from eventlog.read.position import OFFSET_UNKNOWN, Acknowledged, PinStep, Position, SegmentPositions

ids = st.integers(0, (1 << 63) - 1)


@st.composite
def segment_positions(draw, segments):
    of = sorted(draw(st.sets(st.integers(0, segments - 1), min_size=1)))
    if draw(st.booleans()):
        of = list(range(segments))

    def column(values):
        return np.array(draw(st.lists(values, min_size=len(of), max_size=len(of))), np.int64)

    return SegmentPositions(
        of=np.array(of, np.int64),
        ids=column(ids),
        offsets=column(st.integers(OFFSET_UNKNOWN, (1 << 63) - 1)),
        epochs=column(st.integers(0, (1 << 32) - 1)),
    )


@st.composite
def acknowledged(draw, segments):
    found = []
    for segment in sorted(draw(st.sets(st.integers(0, segments - 1), max_size=3))):
        ends = sorted(draw(st.sets(ids, min_size=2, max_size=8)))
        found += [Acknowledged(segment=segment, first=low, last=high) for low, high in zip(ends[::2], ends[1::2], strict=False)]
    return tuple(found)


@st.composite
def positions(draw):
    segments = draw(st.sampled_from([1, 2, 8, 9, 256]))
    steps = draw(st.sets(st.tuples(st.integers(0, segments - 1), st.binary(max_size=5)), max_size=6))
    at = draw(st.one_of(ids, segment_positions(segments)))
    unread = () if isinstance(at, int) else tuple(sorted(draw(st.sets(st.sampled_from(at.of.tolist())))))
    return Position(
        cluster=draw(st.text(min_size=1, max_size=20)),
        cache_id=draw(st.integers(0, (1 << 32) - 1)),
        segments=segments,
        at=at,
        unread=unread,
        steps=tuple(PinStep(segment=segment, key=key, pin=draw(ids)) for segment, key in sorted(steps)),
        acknowledged=draw(acknowledged(segments)),
    )
