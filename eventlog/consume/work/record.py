"""What is known of the events above a segment's position, as it is kept: MessagePack behind a version.

Rows are `[id, deliveries, member, ready ms]`; deliveries of -1 stands for done, and then there is no more. The first element is the time of
writing. That and `ready ms` (0 for at once) are times of the bounded clock that members agree on (`FlakeClock.agreed_ms`): the coordinator
that loads the rows is another one, and its monotonic clock began at another moment. Version 1 had the rows alone, and times of the
wall clock.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from eventlog.consume.membership.record import GROUPS_CACHE
from eventlog.consume.work.queue import Known
from eventlog.errors import CorruptData, UnsupportedFormat
from eventlog.ids import AGREED_WITHIN_MS

TASK_ROW = np.dtype([("id", "<i8"), ("offset", "<i8"), ("segment", "<u2"), ("deliveries", "<u2"), ("epoch", "<u4"), ("zero", "<i8")])
"""A task as it goes over the wire; the events themselves follow as one block."""

VERSION = 2
_WALL_CLOCK_VERSION = 1
_DONE = -1


def encode_known(rows: Iterable[Known], *, now_ms: int, agreed_ms: int) -> bytes:
    """Return rows as they are stored at a moment that is `now_ms` here, and `agreed_ms` by the clock that members agree on."""
    fields = [
        [row.id, _DONE]
        if row.is_done
        else [row.id, row.deliveries, row.member, agreed_ms + row.ready_ms - now_ms if row.ready_ms > now_ms else 0]
        for row in rows
    ]
    return bytes((VERSION,)) + msgspec.msgpack.encode([agreed_ms, fields])


def decode_known(data: bytes, *, now_ms: int, agreed_ms: int) -> list[Known]:
    """Return rows that were stored, with times of the clock that shows `now_ms`.

    Two nodes' agreed times may be `AGREED_WITHIN_MS` apart. So much longer an event waits, but never longer than was left of its delay when
    it was stored: nothing is handed out too early, or an hour too late.

    Raises:
        UnsupportedFormat: a newer node wrote it.
        CorruptData: none did.
    """
    if not data or data[0] not in (VERSION, _WALL_CLOCK_VERSION):
        raise UnsupportedFormat(what="a work group's segment", found=data[0] if data else 0, known=f"{_WALL_CLOCK_VERSION} to {VERSION}")
    try:
        if data[0] == VERSION:
            stored_ms, rows = msgspec.msgpack.decode(data[1:], type=tuple[int, list[list[Any]]])
        else:
            stored_ms, rows = agreed_ms, msgspec.msgpack.decode(data[1:], type=list[list[Any]])

        def ready_ms(stored_ready_ms: int) -> int:
            left_ms = min(stored_ready_ms - stored_ms, stored_ready_ms + AGREED_WITHIN_MS - agreed_ms)
            return now_ms + left_ms if stored_ready_ms and left_ms > 0 else 0

        return [
            Known(id=row[0], is_done=True)
            if row[1] == _DONE
            else Known(id=row[0], deliveries=row[1], member=row[2], ready_ms=ready_ms(row[3]))
            for row in rows
        ]
    except (msgspec.MsgspecError, IndexError, TypeError) as error:
        raise CorruptData(where=GROUPS_CACHE, why=f"no work of a segment: {error!r}") from error
