"""What retention took from a position. Kept per segment of a cache: id and offset of the last event removed.

`trimmed_ids` and `trimmed_offsets` are indexed by segment; an offset of -1 says that no event was removed there.
"""

import numpy as np
import numpy.typing as npt

from eventlog.consume.position import SegmentPositions

Ints = npt.NDArray[np.int64]


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
