"""Promises as bytes: one row a segment, as they travel between nodes."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from eventlog.consume.watermark import Promise
from eventlog.errors import BadMessage

PROMISE: Final = np.dtype([("id", "<i8"), ("segment", "<u2"), ("zero", "<u2"), ("epoch", "<u4"), ("last_id", "<i8")])
assert PROMISE.itemsize == 24, "rows are whole words; the layout is frozen"


def encode_promises(promises: Sequence[Promise]) -> bytes:
    """Return the rows of promises."""
    rows = np.zeros(sum(len(promise.segments) for promise in promises), PROMISE)
    low = 0
    for promise in promises:
        own = rows[low : low + len(promise.segments)]
        own["id"], own["segment"], own["epoch"], own["last_id"] = promise.id, promise.segments, promise.epochs, promise.last_ids
        low += len(own)
    return rows.tobytes()


def decode_promises(body: bytes | memoryview, *, segments: int) -> list[Promise]:
    """Return promises from their rows, one for each id.

    Raises:
        BadMessage: no whole number of rows, or a segment that the cluster does not have, or has been named twice.
    """
    if len(body) % PROMISE.itemsize:
        raise BadMessage(why=f"{len(body)} bytes are no whole number of promises")
    rows = np.frombuffer(body, PROMISE)
    of = rows["segment"].astype(np.int64)
    is_once = not np.count_nonzero(of[1:] <= of[:-1]) or len(np.unique(of)) == len(of)
    if not is_once or np.count_nonzero(of >= segments) or np.count_nonzero(rows["id"] < 0) or np.count_nonzero(rows["last_id"] < 0):
        raise BadMessage(why="a promise of segments or ids that cannot be")
    if len(rows) and not np.count_nonzero(rows["id"] != rows["id"][0]):
        epochs, last_ids = rows["epoch"].astype(np.int64), rows["last_id"].astype(np.int64)
        return [Promise(id=rows["id"].item(0), segments=of, epochs=epochs, last_ids=last_ids)]
    found = []
    for id_ in np.unique(rows["id"]).tolist():
        own = rows["id"] == id_
        epochs, last_ids = rows["epoch"][own].astype(np.int64), rows["last_id"][own].astype(np.int64)
        found.append(Promise(id=id_, segments=of[own], epochs=epochs, last_ids=last_ids))
    return found
