"""Entries as they stream in answer to `get_many` and `keys`: columns of numbers, then one block of keys and values.

versions i64[count] (0: no entry) | [applied ids, deadlines, lifespans: i64[count] each] | block of kind STATE
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.views import decode_block
from eventlog.errors import CorruptData
from eventlog.events import Kind

_METADATA_COLUMNS = 3


class EntryRow(NamedTuple):
    """One key and its entry; `version` is 0 where there is none.

    Metadata, 0 unless they were asked for: everything of the key's segment up to `applied_id` is in the answer; the entry expires at
    `expires_ms` since 1970, in `lifespan_ms` by the clock of the node that read it; 0 for never.
    """

    key: bytes
    value: bytes
    version: int
    applied_id: int = 0
    expires_ms: int = 0
    lifespan_ms: int = 0


def encode_rows(rows: Sequence[EntryRow], *, has_metadata: bool) -> tuple[bytes, bytes]:
    """Return the numbers and the block of some rows, at least one."""
    columns = list(zip(*rows, strict=True))
    numbers = np.array(columns[2:] if has_metadata else columns[2:3], "<i8")
    block, _ = build_blocks(
        Columns(kinds=np.full(len(rows), Kind.STATE, np.uint8), keys=columns[0], values=columns[1]), np.array([len(rows)])
    )
    return numbers.tobytes(), block


def decode_rows(body: memoryview, *, count: int, has_metadata: bool) -> list[EntryRow]:
    """Return the rows of an item.

    Raises:
        CorruptData: lengths contradict each other.
    """
    columns = 1 + _METADATA_COLUMNS * has_metadata
    size = 8 * count * columns
    if len(body) < size:
        raise CorruptData(where="answer", why=f"{count} rows do not fit {len(body)} bytes")
    block = decode_block(body[size:], where="answer")
    if block.count != count:
        raise CorruptData(where="answer", why=f"{block.count} rows in an item of {count}")
    numbers = np.frombuffer(body[:size], "<i8").reshape(columns, count).tolist()
    return list(map(EntryRow, block.keys.to_list(), block.values.to_list(), *numbers))
