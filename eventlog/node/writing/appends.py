"""What a group puts into the store: its values in the log, and the steps by which readers of history find them."""

from collections.abc import Callable, Sequence
from itertools import starmap

import numpy as np
import numpy.typing as npt

from eventlog.node.writing.few import Few
from eventlog.node.writing.results import CachePart
from eventlog.node.writing.storage import Append
from eventlog.segment.keys import encode_step, log_key, log_keys
from eventlog.segment.port import Pair

Steps = Callable[[int, int, int, int], list[tuple[int, int, int, int]]]
"""Indexes a group by id: takes and returns rows of (cache, last id, events, bytes), returns those to keep."""


def append_of_parts(parts: Sequence[CachePart], steps: Steps, *, epochs: npt.NDArray[np.uint32]) -> Append:
    """Return what the stamped parts of a group put into the store."""
    log: list[Pair] = []
    meta: list[Pair] = []
    for part in parts:
        values, cache = part.stored, part.cache
        log += zip(log_keys(values.segments.tolist(), cache.cache_id, values.bases.tolist()), values.data, strict=True)
        meta += starmap(encode_step, steps(cache.cache_id, values.last_id, int(values.counts.sum()), values.nbytes))
    of_all = [part.stored for part in parts]
    segments, ends = of_all[0].segments, of_all[0].last_ids
    if len(of_all) > 1:  # ids rise from part to part: of a segment's ends the last counts
        segments = np.concatenate([own.segments for own in of_all])
        ends = np.concatenate([own.last_ids for own in of_all])
    nbytes = sum(own.nbytes for own in of_all)
    return Append(log=log, meta=meta, segments=segments, ends=ends, epochs=epochs[segments], nbytes=nbytes)


def append_of_few(few: Few, steps: Steps, *, epochs: npt.NDArray[np.uint32]) -> Append:
    """Return what a few stamped events put into the store."""
    cache_id, nbytes = few.cache.cache_id, few.nbytes
    return Append(
        log=[(log_key(lone.segment, cache_id, lone.id), lone.stored) for lone in few.lones],
        meta=list(starmap(encode_step, steps(cache_id, few.lones[-1].id, len(few.lones), nbytes))),
        segments=few.segments,
        ends=few.ids,
        epochs=epochs[few.segments],
        nbytes=nbytes,
    )
