"""A state read on its way: which entries of which segments were delivered, as of which ids, and what the tail after it leaves out.

A segment is read in the order of its keys, as of an id: a pin, held at one node. Where a pin is lost, or the segment is read on
elsewhere, the read goes on after its last key as of a later id, so a segment's read is a list of steps (key, pin): keys up to and
including `key` were read as of `pin`. The tail begins at the lowest pin and leaves out, key by key, what was read already.

In a position: `unread` are the segments not read to their end; the place of one that was is its lowest pin. If it has several
pins, its steps say which keys each is of, and a step with the empty key that everything above them was read as of that pin.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.entries import StateCursor
from eventlog.errors import BadMessage
from eventlog.read.position import OFFSET_UNKNOWN, STEPS_PER_SEGMENT_MAX, PinStep, Position, SegmentPositions

_REST = b""  # the key of the step of a segment that was read to its end: all keys above the other steps


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRead:
    """What to read next: `segments` in this order; the first after the key `after`, as of `pin` or later, if it was begun."""

    segments: tuple[int, ...]
    after: bytes | None = None
    pin: int = 0


@dataclass(frozen=True, slots=True)
class _Range:
    """Keys up to and including `key` (of the last range of a finished segment: all that are left) as of `pin`."""

    key: bytes
    pin: int


class StateProgress:
    """Where a state read of some segments is. Segments are read one after the other; each at most 16 steps."""

    def __init__(self, segments: Iterable[int]) -> None:
        self._ranges: dict[int, list[_Range]] = {segment: [] for segment in segments}
        self._unread = dict.fromkeys(self._ranges)

    @property
    def is_finished(self) -> bool:
        """Whether every segment was read to its end."""
        return not self._unread

    @property
    def next(self) -> NextRead:
        """Return what is to be read next; something is left. The one that was begun comes first."""
        begun = next((segment for segment in self._unread if self._ranges[segment]), None)
        if begun is None:
            return NextRead(segments=tuple(self._unread))
        last = self._ranges[begun][-1]
        rest = (own for own in self._unread if not self._ranges[own])  # another one that was begun comes first later, from where it is
        return NextRead(segments=(begun, *rest), after=last.key, pin=last.pin)

    def took(self, marks: Iterable[StateCursor]) -> None:
        """Note what was delivered.

        Raises:
            BadMessage: it goes back, or is of a segment that is not being read.
        """
        for mark in marks:
            self._take(mark)

    def _take(self, mark: StateCursor) -> None:
        if mark.segment not in self._unread:
            raise BadMessage(why=f"state of segment {mark.segment}, which is not being read")
        ranges = self._ranges[mark.segment]
        if ranges and (mark.pin < ranges[-1].pin or not (mark.finished or mark.key > ranges[-1].key)):
            raise BadMessage(why=f"the state of segment {mark.segment} goes back")
        if ranges and ranges[-1].pin == mark.pin:
            ranges.pop()
        ranges.append(_Range(_REST if mark.finished else mark.key, mark.pin))
        if mark.finished:
            del self._unread[mark.segment]
        is_ambiguous = mark.finished and len(ranges) > 1 and ranges[0].key == _REST  # of an entry whose key is empty
        if len(ranges) > STEPS_PER_SEGMENT_MAX or is_ambiguous:
            ranges[:2] = [_Range(ranges[1].key, ranges[0].pin)]  # of the second's keys some changes will be told again

    def copy(self) -> "StateProgress":
        """Return the same progress, to move by itself."""
        found = StateProgress(self._ranges)
        found._ranges = {segment: list(ranges) for segment, ranges in self._ranges.items()}
        found._unread = dict(self._unread)
        return found

    # ------------------------------------------------------------ as a position

    def position(self, *, cluster: str, cache_id: int, segments: int) -> Position:
        """Return the place as a position; once finished, the one that the tail begins at."""
        of = np.array(sorted(self._ranges), np.int64)
        ids = [0 if segment in self._unread else self._ranges[segment][0].pin for segment in of.tolist()]
        steps = [
            PinStep(segment=segment, key=one.key, pin=one.pin)
            for segment, ranges in self._ranges.items()
            if segment in self._unread or len(ranges) > 1
            for one in ranges
        ]
        at = SegmentPositions(
            of=of, ids=np.array(ids, np.int64), offsets=np.full(len(of), OFFSET_UNKNOWN), epochs=np.zeros(len(of), np.int64)
        )
        return Position(
            cluster=cluster,
            cache_id=cache_id,
            segments=segments,
            at=at,
            steps=tuple(sorted(steps)),
            unread=tuple(sorted(self._unread)),
        )

    @classmethod
    def of(cls, position: Position) -> "StateProgress":
        """Return the progress of a position that has unread segments.

        Raises:
            BadMessage: its steps are not those of a state read.
        """
        assert isinstance(position.at, SegmentPositions), "what has unread segments has places"
        found = cls(position.at.of.tolist())
        by_segment = _by_segment(position.steps)
        for segment, pin in zip(position.at.of.tolist(), position.at.ids.tolist(), strict=True):
            steps = by_segment.get(segment, ())
            if segment in position.unread:
                found._ranges[segment] = [_Range(step.key, step.pin) for step in steps]
            else:
                del found._unread[segment]
                found._ranges[segment] = _finished(steps) or [_Range(_REST, pin)]
        for segment, ranges in found._ranges.items():
            if any(one.pin > two.pin for one, two in pairwise(ranges)):
                raise BadMessage(why=f"the steps of segment {segment} go back")
        if not by_segment.keys() <= found._ranges.keys():
            raise BadMessage(why="steps of segments that are not read")
        return found


def _by_segment(steps: Iterable[PinStep]) -> dict[int, list[PinStep]]:
    found: dict[int, list[PinStep]] = {}
    for step in steps:
        found.setdefault(step.segment, []).append(step)
    return found


def _finished(steps: Sequence[PinStep]) -> list[_Range]:
    """Return the ranges of a segment that was read to its end; the step of the rest sorts first and comes last."""
    if not steps:
        return []
    if steps[0].key != _REST or len(steps) < 2:  # one pin needs none
        raise BadMessage(why=f"the steps of segment {steps[0].segment} do not end")
    return [_Range(step.key, step.pin) for step in (*steps[1:], steps[0])]


# ---------------------------------------------------------------- the tail


class Overlap:
    """What of the tail after a state read of several pins was read with the state already."""

    def __init__(self, steps: Iterable[PinStep]) -> None:
        self._ranges = {segment: _finished(own) for segment, own in _by_segment(steps).items()}

    @property
    def upto(self) -> int:
        """Return the id above which nothing was; 0 if nothing is left out at all."""
        return max((ranges[-1].pin for ranges in self._ranges.values()), default=0)

    def is_read(self, segment: int, key: bytes, id_: int) -> bool:
        """Return whether an event was part of the state that was read."""
        ranges = self._ranges.get(segment)
        return ranges is not None and id_ <= _pin_of(ranges, key)

    def may_repeat(self, segment: int, key: bytes, id_: int) -> bool:
        """Return whether steps of this key were merged, so that a change which the state had may be told again: compare versions."""
        ranges = self._ranges.get(segment)
        is_merged = ranges is not None and len(ranges) == STEPS_PER_SEGMENT_MAX and key <= ranges[0].key
        return is_merged and ranges is not None and id_ <= ranges[1].pin

    def keep(self, segments: Ints, ids: Ints, keys: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        """Return which events are new to the reader of the state."""
        is_new = np.ones(len(ids), bool)
        close = np.flatnonzero((ids <= self.upto) & np.isin(segments, list(self._ranges)))
        for row in close.tolist():
            is_new[row] = not self.is_read(int(segments[row]), keys[row], int(ids[row]))
        return is_new


def _pin_of(ranges: Sequence[_Range], key: bytes) -> int:
    index = bisect_left(ranges, key, hi=len(ranges) - 1, key=lambda one: one.key)
    return ranges[index].pin


def tail_of(position: Position) -> Position:
    """Return the position to ask events for: without steps, which are for the taker of the answers."""
    return replace(position, steps=()) if position.steps else position


def with_steps(position: Position, steps: tuple[PinStep, ...]) -> Position:
    """Return a position in the tail with those steps of its state read that still leave something out."""
    at = position.at
    if not steps or not isinstance(at, SegmentPositions):
        return position
    ids = dict(zip(at.of.tolist(), at.ids.tolist(), strict=True))
    last = {step.segment: step.pin for step in steps if step.key == _REST}
    kept = tuple(step for step in steps if ids.get(step.segment, 0) < last.get(step.segment, 0))
    return replace(position, steps=kept)
