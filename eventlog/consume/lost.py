"""Places that are there no more: what forced takeovers gave up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eventlog.consume.cursor import Cursor
from eventlog.consume.position import SegmentPositions
from eventlog.errors import PositionDiverged


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Events with ids in `(after, upto]` of a segment may have been read, and are gone since `epoch`."""

    epoch: int
    after: int
    upto: int


def diverged(cursor: Cursor, lost: Mapping[int, Sequence[Lost]]) -> PositionDiverged | None:
    """Return what is to be said to a reader who stands in a lost range, None where it stands in none.

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
