"""How far a listener has acknowledged: never less than before, whoever polls for it, and wherever."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from eventlog.consume.position import OFFSET_UNKNOWN, Position, SegmentPositions

Ints = npt.NDArray[np.int64]


class Progress:
    """A position that moves forward only. Over all segments it is one id; a place in each costs memory for each."""

    __slots__ = ("_epochs", "_ids", "_offsets", "_scope", "all_id")

    def __init__(self, cluster: str, cache_id: int, segments: int, *, all_id: int = 0) -> None:
        self._scope = (cluster, cache_id, segments)
        self.all_id = all_id
        self._ids: Ints | None = None
        self._offsets = self._epochs = np.zeros(0, np.int64)

    def move(self, position: Position) -> bool:
        """Take in where a listener was polled at; return whether that is any further, in any segment.

        Raises:
            PositionMismatch: it is a position of something else.
        """
        cluster, cache_id, segments = self._scope
        position.check(cluster=cluster, cache_id=cache_id, segments=segments)
        at = position.at
        if position.unread:
            return False  # it reads the state, and has nothing of what happened
        if isinstance(at, SegmentPositions):
            return self._move_places(at)
        if at <= self.all_id:
            return False
        self.all_id = at
        if self._ids is not None and bool((self._ids <= at).all()):
            self._ids = None
        return True

    def _move_places(self, at: SegmentPositions) -> bool:
        if not bool((at.ids > self._below(at.of)).any()):
            return False
        if self._ids is None:
            segments = self._scope[2]
            self._ids = np.full(segments, self.all_id, np.int64)
            self._offsets = np.full(segments, OFFSET_UNKNOWN, np.int64)
            self._epochs = np.zeros(segments, np.int64)
        further = at.ids > self._below(at.of)
        rows = at.of[further]
        self._ids[rows], self._offsets[rows], self._epochs[rows] = at.ids[further], at.offsets[further], at.epochs[further]
        return True

    def _below(self, segments: Ints) -> Ints:
        if self._ids is None:
            return np.full(len(segments), self.all_id, np.int64)
        return np.maximum(self._ids[segments], self.all_id)

    @property
    def lowest(self) -> int:
        """Return the id up to which everything is acknowledged, in all segments."""
        return self.all_id if self._ids is None else max(self.all_id, int(self._ids.min()))

    def covers(self, segments: Sequence[int], ids: Sequence[int]) -> bool:
        """Return whether an id in each of some segments is acknowledged."""
        return bool((self._below(np.array(segments, np.int64)) >= np.array(ids, np.int64)).all())

    def position(self) -> Position:
        """Return it as a position to go on from."""
        cluster, cache_id, segments = self._scope
        position = Position(cluster=cluster, cache_id=cache_id, segments=segments, at=self.all_id)
        if self._ids is None:
            return position
        below = self._ids < self.all_id
        at = SegmentPositions(
            of=np.arange(segments),
            ids=np.where(below, self.all_id, self._ids),
            offsets=np.where(below, OFFSET_UNKNOWN, self._offsets),
            epochs=np.where(below, 0, self._epochs),
        )
        return replace(position, at=at)
