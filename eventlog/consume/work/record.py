"""What is known of the events above a segment's position, as it is kept: MessagePack behind a version.

Rows are `[id, deliveries, member, ready ms]`; deliveries of -1 stands for done, and then there is no more.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from eventlog.consume.membership.record import GROUPS_CACHE
from eventlog.consume.work.queue import Known
from eventlog.errors import CorruptData, UnsupportedFormat

TASK_ROW = np.dtype([("id", "<i8"), ("offset", "<i8"), ("segment", "<u2"), ("deliveries", "<u2"), ("epoch", "<u4"), ("zero", "<i8")])
"""A task as it goes over the wire; the events themselves follow as one block."""

VERSION = 1
_DONE = -1


def encode_known(rows: Iterable[Known]) -> bytes:
    """Return rows as they are stored."""
    fields = [[row.id, _DONE] if row.is_done else [row.id, row.deliveries, row.member, row.ready_ms] for row in rows]
    return bytes((VERSION,)) + msgspec.msgpack.encode(fields)


def decode_known(data: bytes) -> list[Known]:
    """Return rows that were stored.

    Raises:
        UnsupportedFormat: a newer node wrote it.
        CorruptData: none did.
    """
    if not data or data[0] != VERSION:
        raise UnsupportedFormat(what="a work group's segment", found=data[0] if data else 0, known=str(VERSION))
    try:
        return [
            Known(id=row[0], is_done=True) if row[1] == _DONE else Known(id=row[0], deliveries=row[1], member=row[2], ready_ms=row[3])
            for row in msgspec.msgpack.decode(data[1:], type=list[list[Any]])
        ]
    except (msgspec.MsgspecError, IndexError) as error:
        raise CorruptData(where=GROUPS_CACHE, why=f"no work of a segment: {error!r}") from error
