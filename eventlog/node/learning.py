"""What stored values say of their producers, many values in one pass: the fast way to what `ProducerTable.learn` does one by one.

Values of one block by one producer, all of whose items became events, are by far the most; the others are left to the slow way.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eventlog.batch.layout import BLOCK_HEAD, BLOCK_HEAD_BYTES, HAS_PRODUCERS, PRODUCER, VALUE_HEAD, pad8
from eventlog.batch.views import decode_value
from eventlog.ids import ID_STEP
from eventlog.interceptor.producers import FrameResult, ProducerTable

Ints = npt.NDArray[np.int64]
_FRONT = np.dtype([("head", VALUE_HEAD), ("length", "<u4"), ("padding", "<u4"), ("row", PRODUCER), ("block", BLOCK_HEAD)])
_KINDS_AT = _FRONT.itemsize
assert VALUE_HEAD.itemsize + 8 + PRODUCER.itemsize + BLOCK_HEAD_BYTES == _KINDS_AT


def learn_values(table: ProducerTable, heads: npt.NDArray[np.void], *, segments: Ints, cache_id: int, data: Sequence[bytes]) -> None:
    """Have `table` learn the values in `data`, in the order of the log; `heads` are their headers, one a value like `segments`."""
    told = heads["flags"] & HAS_PRODUCERS != 0
    if not told.any():
        return
    simple = told & (heads["sections"] == 1) & (heads["producers"] == 1)
    at = np.flatnonzero(simple)
    if len(at):
        fronts = np.frombuffer(b"".join([data[index][:_KINDS_AT] for index in at.tolist()]), _FRONT)
        rows, counts = fronts["row"], fronts["head"]["count"]
        simple[at] = (rows["first"] == 0) & (rows["count"] == counts) & (rows["submitted"] == counts)
        if not simple[told].all():
            simple &= ~np.isin(segments, segments[told & ~simple])  # a segment's values are learnt in their order
        kept = simple[at]
        at, fronts = at[kept], fronts[kept]
        _learn_simple(table, fronts, segments=segments[at], data=[data[index] for index in at.tolist()])
    for index in np.flatnonzero(told & ~simple).tolist():
        table.learn(decode_value(int(segments[index]), cache_id, data[index]))


def _learn_simple(table: ProducerTable, fronts: npt.NDArray[np.void], *, segments: Ints, data: list[bytes]) -> None:
    """Values of other blocks between two of one producer change nothing: each has the results of its own segment alone."""
    producers = fronts["row"]["producer"]
    for number in dict.fromkeys(producers.tolist()):
        own = np.flatnonzero(producers == number)
        picked = fronts[own]
        frame = _frame(picked, segments[own], [data[index] for index in own.tolist()])
        lasts = picked["head"]["base"] + (np.maximum(picked["head"]["count"].astype(np.int64), 1) - 1) * ID_STEP
        table.learn_frame(number, frame, last_ids=lasts)


def _frame(fronts: npt.NDArray[np.void], segments: Ints, data: list[bytes]) -> FrameResult:
    counts, bases = fronts["head"]["count"].astype(np.int64), fronts["head"]["base"].astype(np.int64)
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    intra = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
    kinds = []
    bounds = zip(data, fronts["block"]["bitmap"].tolist(), counts.tolist(), strict=True)
    for value, bitmap, count in bounds:
        low = _KINDS_AT + pad8(4 * bitmap.bit_count())
        kinds.append(value[low : low + count])
    return FrameResult(
        segments=segments,
        sequences=fronts["row"]["sequence"].astype(np.int64),
        starts=starts,
        ids=np.repeat(bases, counts) + intra * ID_STEP,
        kinds=np.frombuffer(b"".join(kinds), np.uint8),
    )
