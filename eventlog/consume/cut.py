"""At which id one answer ends: all asked segments are cut there, so that what follows is `after` one id again."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eventlog.ids import ID_STEP

Ints = npt.NDArray[np.int64]
NO_LIMIT = np.iinfo(np.int64).max
WHOLE_VALUE_FACTOR = 4  # a stored value goes out whole, uncopied, while it is at most this many times what was asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one answer may hold. `events` is exact; `nbytes` is counted in stored bytes and may be passed by the first value.

    `is_raw`: it is for another node, stored values as they are, even where some of their events are not wanted.
    """

    events: int = NO_LIMIT
    nbytes: int = NO_LIMIT
    is_raw: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spans:
    """Events of stored values that a reader wants: of each value `counts` ids from `firsts` on; `nbytes` is their share of it.

    One row a value, values without a wanted event left out.
    """

    firsts: Ints
    counts: Ints
    nbytes: Ints

    @property
    def lasts(self) -> Ints:
        """Return the last id of each span."""
        return self.firsts + (self.counts - 1) * ID_STEP


def choose_cut(spans: Spans, *, top: int, limits: Limits) -> int:
    """Return the id at which the answer ends: `top` when everything fits, else the id of the last event in it.

    At least one event is taken if there is any and `limits.events` allows it.
    """
    if not len(spans.firsts):
        return top
    if int(spans.counts.sum()) <= limits.events and int(spans.nbytes.sum()) <= limits.nbytes:
        return top
    order = spans.firsts.argsort(kind="stable")
    firsts, lasts = spans.firsts[order], spans.lasts[order]
    counts, nbytes = spans.counts[order], spans.nbytes[order]
    if np.count_nonzero(firsts[1:] <= lasts[:-1]):
        return _cut_interleaved(firsts, counts, nbytes, limits=limits)
    return min(_cut_by_events(firsts, counts, limits.events), _cut_by_bytes(firsts, counts, nbytes, limit=limits.nbytes), top)


def _cut_by_events(firsts: Ints, counts: Ints, limit: int) -> int:
    """Return the id of the event with which `limit` is reached."""
    ends = counts.cumsum()
    row = int(ends.searchsorted(limit))
    if row == len(ends):
        return int(NO_LIMIT)
    return int(firsts[row]) + (limit - int(ends[row] - counts[row]) - 1) * ID_STEP


def _cut_by_bytes(firsts: Ints, counts: Ints, nbytes: Ints, *, limit: int) -> int:
    """Return the last id of the last span that fits; of a first one far too large, a part in proportion."""
    fitting = int(nbytes.cumsum().searchsorted(limit, side="right"))
    if fitting == len(firsts):
        return int(NO_LIMIT)
    taken = int(counts[max(fitting - 1, 0)])
    if fitting == 0 and nbytes[0] > limit * WHOLE_VALUE_FACTOR:
        taken = max(1, taken * limit // int(nbytes[0]))
    return int(firsts[max(fitting - 1, 0)]) + (taken - 1) * ID_STEP


def _cut_interleaved(firsts: Ints, counts: Ints, nbytes: Ints, *, limits: Limits) -> int:
    """Return the cut when runs of ids of several primaries overlap: every id is laid out; bytes count at their average."""
    rows = np.arange(len(firsts)).repeat(counts)
    intra = np.arange(len(rows)) - (counts.cumsum() - counts)[rows]
    ids = np.sort(firsts[rows] + intra * ID_STEP)
    by_bytes = max(1, len(ids) * limits.nbytes // max(int(nbytes.sum()), 1)) if limits.nbytes != NO_LIMIT else len(ids)
    return int(ids[min(len(ids), limits.events, by_bytes) - 1])
