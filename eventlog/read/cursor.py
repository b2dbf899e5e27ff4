"""A reader's place while it is being served: which segments it asked for, and how far it has read.

What retention took from it is known from ids and offsets of the last event removed, indexed by segment; an offset of -1 says that no
event was removed there. What forced takeovers gave up is `Lost`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from eventlog.arrays import NONE, Ints
from eventlog.errors import PositionDiverged
from eventlog.read.position import Position, SegmentPositions, place_in


class SegmentEnds:
    """Where an answer left each segment it had events of: offset after the last one, and that one's epoch."""

    __slots__ = ("epochs", "next_offsets", "segments")

    def __init__(self, segments: Sequence[int], next_offsets: Sequence[int], epochs: Sequence[int]) -> None:
        self.segments = segments
        self.next_offsets = next_offsets
        self.epochs = epochs


class Cursor:
    """Everything up to here is read: one id, or one for each asked segment. Moves forward only.

    `asked` is None for all segments. With places per segment it is never None, and ids, offsets and epochs follow its order.
    """

    __slots__ = ("_epochs", "_ids", "_key", "_offsets", "_scalar", "asked", "segments")

    def __init__(self, segments: int, at: int | SegmentPositions) -> None:
        self.segments = segments
        self._key: tuple[bytes, int] | None = None
        self._scalar = 0
        if isinstance(at, SegmentPositions):
            self.asked: Ints | None = at.of
            self._ids, self._offsets, self._epochs = at.ids.copy(), at.offsets.copy(), at.epochs.copy()
        else:
            self.asked = None
            self._scalar = at
            self._ids = self._offsets = self._epochs = NONE

    @classmethod
    def at_id(cls, segments: int, id_: int, *, asked: Ints | None) -> Self:
        """Return a cursor that has read everything up to `id_`, of some segments place by place."""
        return cls(segments, id_ if asked is None else place_in(id_, asked))

    @property
    def at(self) -> int | SegmentPositions:
        """Return the place as a position holds it."""
        if self.asked is None:
            return self._scalar
        return SegmentPositions(of=self.asked, ids=self._ids, offsets=self._offsets, epochs=self._epochs)

    @property
    def lowest(self) -> int:
        """Return the least id among the places."""
        return self._scalar if self.asked is None else int(self._ids.min())

    @property
    def last(self) -> int:
        """Return the segment that is furthest behind, any of them where they stand together."""
        return 0 if self.asked is None else int(self.asked[self._ids.argmin()])

    @property
    def key(self) -> tuple[bytes, int]:
        """Return what two cursors at the same place share."""
        if self._key is None:
            places = b"" if self.asked is None else np.concatenate((self.asked, self._ids, self._offsets, self._epochs)).tobytes()
            self._key = (places, self._scalar)
        return self._key

    @property
    def share(self) -> int:
        """Return how many segments there are for each one asked for."""
        return 1 if self.asked is None else self.segments // len(self.asked)

    def after(self, segments: Ints) -> tuple[int | Ints, npt.NDArray[np.bool_] | None]:
        """Return the id read last in each of `segments`, and which of them are asked for (None: all)."""
        if self.asked is None:
            return self._scalar, None
        ids, wanted = np.zeros(self.segments, np.int64), np.zeros(self.segments, bool)
        ids[self.asked] = self._ids
        wanted[self.asked] = True
        return ids[segments], wanted[segments]

    def advance(self, upto: int, ends: SegmentEnds | None = None) -> None:
        """Note that everything up to `upto` is read; `ends` where events were among it."""
        self._key = None
        if self.asked is None:
            self._scalar = max(self._scalar, upto)
            return
        self._ids = np.maximum(self._ids, upto)
        if ends is not None and len(ends.segments):
            rows = np.searchsorted(self.asked, np.asarray(ends.segments, np.int64))
            self._offsets = self._offsets.copy()
            self._epochs = self._epochs.copy()
            self._offsets[rows], self._epochs[rows] = ends.next_offsets, ends.epochs

    def skip_trimmed(self, trimmed_ids: Ints, trimmed_offsets: Ints) -> None:
        """Go on where something is kept: behind the last event that retention removed."""
        self._key = None
        if self.asked is None:
            self._scalar = max(self._scalar, earliest_id(trimmed_ids, asked=None))
            return
        ids, offsets = trimmed_ids[self.asked], trimmed_offsets[self.asked] + 1
        behind = (self._ids < ids) | (self._ids == 0)  # at 0 nothing was read, so the offset is known as well
        self._ids = np.where(behind, ids, self._ids)
        self._offsets = np.where(behind, offsets, self._offsets)

    def lost(self, trimmed_ids: Ints, trimmed_offsets: Ints) -> int:
        """Return how many events behind this place retention removed: see `trimmed.lost_events`."""
        return lost_events(self.at, asked=None, trimmed_ids=trimmed_ids, trimmed_offsets=trimmed_offsets)

    def copy(self) -> "Cursor":
        """Return a cursor at the same place that moves by itself."""
        return Cursor(self.segments, self.at)

    def position(self, *, cluster: str, cache_id: int) -> Position:
        """Return the place as a position to go on from."""
        return Position(cluster=cluster, cache_id=cache_id, segments=self.segments, at=self.at)


def lost_events(at: int | SegmentPositions, *, asked: Ints | None, trimmed_ids: Ints, trimmed_offsets: Ints) -> int:
    """Return how many events after `at` retention removed; 0 says that none was and reading can go on.

    As far as the trimmed rows given reach; other copies may have removed more. Exact then for segment positions with known offsets. For
    a scalar id, and where an offset is not known, everything that was ever removed from a segment that lost something after the
    position. `asked` (None: all) narrows a scalar id.
    """
    if isinstance(at, SegmentPositions):
        ids, offsets = trimmed_ids[at.of], trimmed_offsets[at.of]
        lost = offsets + 1 - np.maximum(at.offsets, 0)  # none where only values without events went
        return int(np.where(at.ids < ids, np.maximum(lost, 0), 0).sum())
    ids, offsets = (trimmed_ids, trimmed_offsets) if asked is None else (trimmed_ids[asked], trimmed_offsets[asked])
    if at >= ids.max(initial=0):
        return 0
    return int((offsets[at < ids] + 1).sum())  # a segment that lost no event has the offset -1


def earliest_id(trimmed_ids: Ints, *, asked: Ints | None) -> int:
    """Return the scalar position that misses nothing kept and is not trimmed: the highest id that retention removed, 0 for none."""
    return int((trimmed_ids if asked is None else trimmed_ids[asked]).max(initial=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Events with ids in `(after, upto]` of a segment may have been read, and are gone since `epoch`."""

    epoch: int
    after: int
    upto: int


def diverged(cursor: Cursor, lost: Mapping[int, Sequence[Lost]]) -> PositionDiverged | None:
    """Return what is to be said to a reader that stands in a lost range, None where it stands in none.

    A place in a segment that was read under the forced primary, or a later one, is sound. A scalar id cannot tell.
    """
    at = cursor.at
    for segment, ranges in lost.items():
        epoch = 0
        if isinstance(at, SegmentPositions):
            row = int(np.searchsorted(at.of, segment))
            if row == len(at.of) or at.of[row] != segment:
                continue
            place, epoch = int(at.ids[row]), int(at.epochs[row])
        else:
            place = at
        for found in ranges:
            if found.after < place <= found.upto and epoch < found.epoch:
                return PositionDiverged(segment=segment, after=found.after, upto=found.upto)
    return None
