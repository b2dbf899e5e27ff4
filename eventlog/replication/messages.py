"""The two messages between replicas, as numpy tables, and the body that carries stored values.

APPEND rows go from a primary to a backup, ACK rows come back. Rows of one message are taken in their order. What a peer sends is
checked here for form and by the cores for sense; both raise `BadMessage`, and nothing of the message counts then.

    plain      "if your log of this segment ends with `previous`, append `values` values; it then ends with `last`".
               With previous == last an idle row: it carries the watermark and proves that the logs match. No values and a later end:
               what lay between was of caches that have been dropped
    CUT        "if your log ends with `previous` right now, cut it so that nothing above `last` is left"
    HISTORY    epoch `values` begins with id `last`, the log ended with `previous` before; stands before the plain row it belongs to
    BEGIN      the log does not reach back to your end: "if your log ends with `watermark` right now, drop what you have";
               snapshot `previous`, pinned at id `last`, follows
    CHUNK      part `last` (from 0) of snapshot `previous`, in `values` opaque pieces
    END        snapshot `previous` has ended after `values` parts; your log then ends with the pinned id `last`
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from eventlog.errors import BadMessage
from eventlog.ids import ID_MAX
from eventlog.limits import BATCH_BYTES_CAP, SEGMENTS_MAX
from eventlog.replication.terms import Replica

Buffer = bytes | bytearray | memoryview
Table = npt.NDArray[np.void]

APPEND: Final = np.dtype(
    [
        ("segment", "<u2"),
        ("flags", "<u2"),
        ("epoch", "<u4"),
        ("previous", "<i8"),
        ("last", "<i8"),
        ("watermark", "<i8"),
        ("values", "<u4"),
        ("zero", "<u4"),
    ]
)
ACK: Final = np.dtype(
    [("segment", "<u2"), ("status", "<u2"), ("epoch", "<u4"), ("end", "<i8"), ("end_epoch", "<u4"), ("zero", "<u4")],
)
VALUE: Final = np.dtype([("cache", "<u4"), ("length", "<u4")])
assert (APPEND.itemsize, ACK.itemsize, VALUE.itemsize) == (40, 24, 8), "rows are whole words; the layout is frozen"

CUT, HISTORY, BEGIN, CHUNK, END = 1, 2, 4, 8, 16
_FLAGS = (0, CUT, HISTORY, BEGIN, CHUNK, END)

HELD, STALE, MISMATCH, UNKNOWN, REFUSED, TAKEN = 1, 2, 3, 4, 5, 6
"""HELD: my log on disk matches yours in this epoch and holds everything up to `end`. STALE: I know a higher epoch, `epoch`.
MISMATCH: nothing appended; my log ends with `end`, which is of epoch `end_epoch`. UNKNOWN: I do not hold this segment (yet).
REFUSED: I was told to cut what I know to be committed, and did not. TAKEN: part `end` of the snapshot is on disk, or -1: begun."""
_STATUS_MAX = TAKEN

VALUES_PER_MESSAGE_MAX = 1 << 20


@dataclass(slots=True, kw_only=True, eq=False)  # one a group: `frozen` ones take longer to make
class Message:
    """What arrived: `rows` as sent, of `sender`, meant for `recipient`; `correlation` names it, or in an answer what it answers.

    Another process of the sender's may have used the same number: a message equals itself alone.
    """

    sender: Replica
    recipient: Replica
    correlation: int
    rows: Buffer


def decode_appends(rows: Buffer, *, segments: int) -> Table:
    """Return APPEND rows as a view of `rows`.

    Raises:
        BadMessage: no whole number of rows, or one that means nothing.
    """
    table = _table(rows, APPEND)
    previous, last = table["previous"], table["last"]
    _check(not np.count_nonzero(table["segment"] >= segments), "a segment that the cluster does not have")
    _check(not np.count_nonzero(table["epoch"] <= 0), "epoch 0")
    _check(
        not (np.count_nonzero(previous < 0) or np.count_nonzero(last < 0) or np.count_nonzero(table["watermark"] < 0)),
        "an id below 0",
    )
    flags = table["flags"]
    if not np.count_nonzero(flags):
        _check_plain(table)
        return table
    _check(bool(np.isin(flags, _FLAGS).all()), "flags that nobody knows")
    _check_plain(table[flags == 0])
    _check(not np.count_nonzero(last[flags == CUT] >= previous[flags == CUT]), "a cut that does not make a log shorter")
    return table


def _check_plain(table: Table) -> None:
    previous, last = table["previous"], table["last"]
    _check(not np.count_nonzero(previous > last), "a log that would end before it did")
    _check(not np.count_nonzero((table["values"] != 0) & (previous >= last)), "values without ids")


def decode_acks(rows: Buffer, *, segments: int) -> Table:
    """Return ACK rows as a view of `rows`.

    Raises:
        BadMessage: no whole number of rows, or one that means nothing.
    """
    table = _table(rows, ACK)
    status = table["status"]
    _check(not np.count_nonzero(table["segment"] >= segments), "a segment that the cluster does not have")
    _check(not (np.count_nonzero(status < HELD) or np.count_nonzero(status > _STATUS_MAX)), "a status that nobody knows")
    _check(not np.count_nonzero(table["end"] < -1), "an id below 0")
    return table


def _table(rows: Buffer, kind: np.dtype[np.void]) -> Table:
    size = len(rows)
    _check(size > 0 and size % kind.itemsize == 0, f"{size} bytes are no whole number of rows of {kind.itemsize}")
    return np.frombuffer(rows, kind)


def _check(holds: bool, why: str) -> None:  # noqa: FBT001 -- a condition
    if not holds:
        raise BadMessage(why=f"replication: {why}")


# ---------------------------------------------------------------- the body: rows, then values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Body:
    """A decoded body: rows as bytes, and the values of all rows back to back; `bounds[i]:bounds[i + 1]` of `data` is value i."""

    rows: memoryview
    caches: npt.NDArray[np.uint32]
    bounds: npt.NDArray[np.int64]
    data: memoryview


def value_table(caches: Sequence[int], lengths: Sequence[int]) -> bytes:
    """Return the table that stands between the rows and the stored values."""
    table = np.empty(len(caches), VALUE)
    table["cache"], table["length"] = caches, lengths
    return table.tobytes()


def value_places(table: Table) -> npt.NDArray[np.int64]:
    """Return where each row's values lie among those of the message: row i has values `[places[i], places[i + 1])`."""
    places = np.zeros(len(table) + 1, np.int64)
    flags, values = table["flags"], table["values"]
    if np.count_nonzero(flags):
        values = np.where((flags == 0) | (flags == CHUNK), values, 0)
    values.cumsum(out=places[1:])
    return places


def decode_body(body: Buffer, *, rows: int, kind: np.dtype[np.void] = APPEND) -> Body:
    """Return the parts of a body of `rows` rows; the values fill the rest of it exactly.

    Raises:
        BadMessage: the counts and lengths in it do not add up to the body.
    """
    view = memoryview(body).toreadonly()
    _check(0 < rows <= SEGMENTS_MAX * 64, f"{rows} rows")
    at = rows * kind.itemsize
    _check(at <= len(view), f"{rows} rows in {len(view)} bytes")
    table = np.frombuffer(view[:at], kind)
    count = int(value_places(table)[-1])
    _check(count <= VALUES_PER_MESSAGE_MAX and at + count * VALUE.itemsize <= len(view), f"{count} values in {len(view)} bytes")
    values = np.frombuffer(view[at : at + count * VALUE.itemsize], VALUE)
    bounds = np.zeros(count + 1, np.int64)
    values["length"].cumsum(out=bounds[1:])
    data = view[at + count * VALUE.itemsize :]
    _check(int(bounds[-1]) == len(data) <= BATCH_BYTES_CAP, f"values of {int(bounds[-1])} bytes in {len(data)}")
    return Body(rows=view[:at], caches=values["cache"], bounds=bounds, data=data)


assert ID_MAX < 1 << 63, "an id is an i64 in every row"
