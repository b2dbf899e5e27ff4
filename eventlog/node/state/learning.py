"""What stored values say of their producers, many values in one pass: the fast way to what `ProducerTable.learn` does one by one.

Values all of whose items became events are by far the most; the others are left to the slow way.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eventlog.batch.layout import HAS_PRODUCERS
from eventlog.batch.sections import Unfolded, spread
from eventlog.batch.views import decode_value
from eventlog.ids import ID_STEP
from eventlog.interceptor.producers import FrameResult, ProducerTable

Ints = npt.NDArray[np.int64]


def learn_values(table: ProducerTable, unfolded: Unfolded, *, segments: Ints, cache_id: int, data: Sequence[bytes]) -> None:
    """Have `table` learn the values in `data`, the same `unfolded`, in the order of the log; `segments` has one number a value."""
    told = unfolded.heads["flags"] & HAS_PRODUCERS != 0
    if not np.count_nonzero(told):
        return
    fast = ~unfolded.is_ragged
    if np.count_nonzero(fast) < len(fast):
        fast &= ~np.isin(segments, segments[~fast])  # a segment's values are learnt in their order
    if np.count_nonzero(fast):
        _learn(table, unfolded, segments=segments, fast=fast)
    for index in (told & ~fast).nonzero()[0].tolist():
        table.learn(decode_value(int(segments[index]), cache_id, data[index]))


def _learn(table: ProducerTable, unfolded: Unfolded, *, segments: Ints, fast: npt.NDArray[np.bool_]) -> None:
    """Rows of other producers between two of one change nothing: each has results of its own."""
    rows, value = unfolded.rows, unfolded.row_value
    kinds = unfolded.kinds()
    bases, counts = unfolded.heads["base"].astype(np.int64), unfolded.heads["count"].astype(np.int64)
    lasts = bases + (np.maximum(counts, 1) - 1) * ID_STEP
    ends = np.where(unfolded.is_ragged, 0, counts).cumsum()
    kinds_of_value = ends - counts
    for number in dict.fromkeys(rows["producer"].tolist()):
        own = (rows["producer"] == number) & fast[value]
        picked, of = rows[own], value[own]
        first, count = picked["first"].astype(np.int64), picked["count"].astype(np.int64)
        starts = np.zeros(len(count) + 1, np.int64)
        count.cumsum(out=starts[1:])
        intra = np.arange(starts[-1]) - starts[:-1].repeat(count)
        frame = FrameResult(
            segments=segments[of],
            sequences=picked["sequence"].astype(np.int64),
            starts=starts,
            ids=(bases[of] + first * ID_STEP).repeat(count) + intra * ID_STEP,
            kinds=kinds[spread(kinds_of_value[of] + first, count)],
        )
        table.learn_frame(number, frame, last_ids=lasts[of])
