"""Making APPEND rows from the columns of a primary."""

from collections.abc import Sequence
from struct import Struct

import numpy as np
import numpy.typing as npt

from eventlog.replication.columns import Columns
from eventlog.replication.history import starts_in
from eventlog.replication.messages import ACK, APPEND, HISTORY
from eventlog.replication.terms import EpochStart

Ints = npt.NDArray[np.int64]
Row = tuple[int, int, int, int, int, int, int, int]

ONE_APPEND = Struct("<HHIqqqII")
ONE_ACK = Struct("<HHIqII")
assert (ONE_APPEND.size, ONE_ACK.size) == (APPEND.itemsize, ACK.itemsize), "the same layout without numpy"


def plain(columns: Columns, segments: Ints, *, previous: Ints, last: Ints, counts: Ints | None) -> bytes:
    """Return plain rows; one value each with `counts` None."""
    rows = np.zeros(len(segments), APPEND)
    rows["segment"], rows["epoch"] = segments, columns.epochs[segments]
    rows["previous"], rows["last"] = previous, last
    rows["watermark"] = columns.watermark[segments]
    rows["values"] = 1 if counts is None else counts
    return rows.tobytes()


def plain_one(columns: Columns, segment: int, *, previous: int, last: int, count: int) -> bytes:
    """Do what `plain` does, for one segment and without arrays."""
    return ONE_APPEND.pack(segment, 0, columns.epochs.item(segment), previous, last, columns.watermark.item(segment), count, 0)


def with_history(columns: Columns, spans: Sequence[tuple[int, int, int, int]]) -> bytes:
    """Return plain rows for spans (segment, previous, last, values), each behind the epochs that begin in it."""
    rows: list[Row] = []
    for segment, previous, last, count in spans:
        epoch, watermark = columns.epochs.item(segment), columns.watermark.item(segment)
        rows += history(segment, epoch, starts_in(columns.histories[segment], after=previous, upto=last))
        rows.append((segment, 0, epoch, previous, last, watermark, count, 0))
    return pack(rows)


def history(segment: int, epoch: int, starts: Sequence[EpochStart]) -> list[Row]:
    """Return HISTORY rows."""
    return [(segment, HISTORY, epoch, start.previous, start.first, 0, start.epoch, 0) for start in starts]


def pack(rows: Sequence[Row]) -> bytes:
    """Return rows as they are sent."""
    return np.array(rows, APPEND).tobytes()
