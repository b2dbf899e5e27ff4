"""Where a reader is, as a value. Its one canonical token is made in `token.py` (binary, text).

What retention took from a position is decided in `cursor.py`.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from eventlog.arrays import Ints
from eventlog.errors import BadMessage, PositionMismatch
from eventlog.limits import KEY_BYTES_MAX, SEGMENTS_MAX

OFFSET_UNKNOWN = -1  # next offset of a segment whose reader began at a scalar id and has seen no event of it yet
ID_MAX = (1 << 63) - 1
EPOCH_MAX = (1 << 32) - 1
CACHE_MAX = (1 << 32) - 1
CLUSTER_BYTES_MAX = 255
STEPS_PER_SEGMENT_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SegmentPositions:
    """A place in each of some segments: last id read, offset of the event after it, epoch of the last event seen (0: none).

    `of` rises; the arrays have one number for each. An offset is OFFSET_UNKNOWN where it could not be known yet.
    """

    of: Ints
    ids: Ints
    offsets: Ints
    epochs: Ints


def place_in(at: int | SegmentPositions, of: Ints) -> SegmentPositions:
    """Return a place in the segments `of` alone, which rise; those that `at` has no place in are left out."""
    if not isinstance(at, SegmentPositions):
        count = len(of)
        return SegmentPositions(
            of=of, ids=np.full(count, at), offsets=np.full(count, OFFSET_UNKNOWN, np.int64), epochs=np.zeros(count, np.int64)
        )
    rows = np.flatnonzero(np.isin(at.of, of))
    return SegmentPositions(of=at.of[rows], ids=at.ids[rows], offsets=at.offsets[rows], epochs=at.epochs[rows])


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PinStep:
    """A state read of `segment` went on under a new pin: keys up to and including `key` were read as of `pin`."""

    segment: int
    key: bytes
    pin: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Acknowledged:
    """Events of `segment` above the position that are done already: ids `[first, last]`."""

    segment: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Position:
    """Everything up to `at` is read: one id over all segments, or a place in each of some. Equal means the same token.

    `steps` and `acknowledged` are sorted and hold nothing twice. `unread` are the segments of `at` whose state is still being read:
    from their beginning, or after the last of their steps. See `read/state.py`.
    """

    cluster: str
    cache_id: int
    segments: int
    at: int | SegmentPositions
    steps: tuple[PinStep, ...] = field(default=())
    acknowledged: tuple[Acknowledged, ...] = field(default=())
    unread: tuple[int, ...] = field(default=())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Position) and self._plain() == other._plain()

    def __hash__(self) -> int:
        return hash(self._plain())

    def _plain(self) -> tuple[Any, ...]:
        at: Any = self.at
        if isinstance(at, SegmentPositions):
            at = tuple(tuple(column.tolist()) for column in (at.of, at.ids, at.offsets, at.epochs))
        return self.cluster, self.cache_id, self.segments, at, self.steps, self.acknowledged, self.unread

    def segments_held(self) -> list[int]:
        """Return the segments that it has a place in."""
        return self.at.of.tolist() if isinstance(self.at, SegmentPositions) else list(range(self.segments))

    def check(self, *, cluster: str, cache_id: int, segments: int) -> None:
        """Refuse a position that was made elsewhere.

        Raises:
            PositionMismatch: another cluster, cache or number of segments.
        """
        for what, own, theirs in (
            ("cluster", cluster, self.cluster),
            ("cache", cache_id, self.cache_id),
            ("number of segments", segments, self.segments),
        ):
            if own != theirs:
                raise PositionMismatch(what=what)


def checked(position: Position) -> Position:
    """Return `position` if every number lies in its range and every list is in order, as tokens from outside must be.

    Raises:
        BadMessage: naming what is not.
    """
    if not 1 <= position.segments <= SEGMENTS_MAX:
        raise bad_token(f"{position.segments} segments are not in [1, {SEGMENTS_MAX}]")
    if not 1 <= len(position.cluster.encode()) <= CLUSTER_BYTES_MAX or not 0 <= position.cache_id <= CACHE_MAX:
        raise bad_token("its cluster or cache is out of range")
    _check_place(position.at, position.segments)
    _check_steps(position.steps, position.segments)
    _check_acknowledged(position.acknowledged, position.segments)
    _check_unread(position)
    return position


def _check_place(at: int | SegmentPositions, segments: int) -> None:
    if isinstance(at, int):
        if not 0 <= at <= ID_MAX:
            raise bad_token("its id is out of range")
        return
    of = at.of
    if not len(of) or np.count_nonzero(of[1:] <= of[:-1]) or of[0] < 0 or of[-1] >= segments:
        raise bad_token("its segments are out of range or order")
    if np.count_nonzero(at.ids < 0) or np.count_nonzero(at.offsets < OFFSET_UNKNOWN):
        raise bad_token("an id or offset is negative")
    if np.count_nonzero(at.epochs < 0) or np.count_nonzero(at.epochs > EPOCH_MAX):
        raise bad_token("an epoch is out of range")


def _check_steps(steps: tuple[PinStep, ...], segments: int) -> None:
    if any(step.segment >= segments or step.pin < 0 or len(step.key) > KEY_BYTES_MAX for step in steps):
        raise bad_token("a step is out of range")
    if any((one.segment, one.key) >= (two.segment, two.key) for one, two in pairwise(steps)):
        raise bad_token("its steps are out of order")
    if any(one.segment == two.segment for one, two in zip(steps, steps[STEPS_PER_SEGMENT_MAX:], strict=False)):
        raise bad_token(f"more than {STEPS_PER_SEGMENT_MAX} steps in a segment")


def _check_acknowledged(done: tuple[Acknowledged, ...], segments: int) -> None:
    if any(not 0 <= one.first <= one.last or one.segment >= segments for one in done):
        raise bad_token("an acknowledged range is out of range")
    if any((one.segment, one.last) >= (two.segment, two.first) for one, two in pairwise(done)):
        raise bad_token("its acknowledged ranges overlap or are out of order")


def _check_unread(position: Position) -> None:
    unread, at = position.unread, position.at
    if not unread:
        return
    if not isinstance(at, SegmentPositions) or not np.isin(unread, at.of).all():
        raise bad_token("it reads the state of segments that it has no place in")
    if any(one >= two for one, two in pairwise(unread)):
        raise bad_token("the segments whose state it reads are out of order")


def bad_token(why: str) -> BadMessage:
    """Return the error for what is not a token."""
    return BadMessage(why=f"not a position token: {why}")
