"""The table in front of the blocks of a write: a row a block, by rising segment."""

from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt

from eventlog.batch.layout import TABLE
from eventlog.batch.marks import TABLE_ROW_BYTES

ROW = Struct("<HHIII")  # one row of TABLE, for who has few: an array of one row takes several times as long to make and to ask
assert ROW.size == TABLE_ROW_BYTES


class Table:
    """The rows as they came, which are not looked at any closer: who reads them from somebody else calls `read_table`.

    `events` and `nbytes` are of all blocks together; `only` is the segment of a table of one row, -1 of any other.
    """

    __slots__ = ("_rows", "data", "events", "nbytes", "only")

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = data
        self._rows: npt.NDArray[np.void] | None = None
        if len(data) == ROW.size:
            self.only, _, self.events, self.nbytes, _ = ROW.unpack(data)
        else:
            self.only = -1
            self.events = int(self.rows["count"].sum(dtype=np.int64))
            self.nbytes = int(self.rows["length"].sum(dtype=np.int64))

    @classmethod
    def of(cls, rows: npt.NDArray[Any]) -> "Table":
        """Return a table of rows of TABLE."""
        return cls(rows.tobytes())

    def __len__(self) -> int:
        return len(self.data) // ROW.size

    @property
    def rows(self) -> npt.NDArray[np.void]:
        """Return the rows as an array of TABLE."""
        if self._rows is None:
            self._rows = np.frombuffer(self.data, TABLE)
        return self._rows

    @property
    def segments(self) -> npt.NDArray[np.uint16]:
        """Return the segment of each row."""
        return self.rows["segment"]

    def segment_list(self) -> list[int]:
        """Return the segment of each row."""
        return [self.only] if self.only >= 0 else self.segments.tolist()


def read_table(body: memoryview, blocks: int) -> tuple[Table, memoryview]:
    """Return the table of a write's body and the blocks behind it.

    Raises:
        ValueError: the table does not fit the body, its lengths do not add up, or its segments do not rise.
    """
    size = blocks * ROW.size
    if not 0 < size <= len(body):
        raise ValueError(f"a table of {blocks} blocks does not fit a body of {len(body)} bytes")
    table = Table(body[:size])
    if table.nbytes != len(body) - size:
        raise ValueError("the lengths of the blocks do not add up to the body")
    if blocks > 1 and np.count_nonzero(table.segments[1:] <= table.segments[:-1]):
        raise ValueError("segments of the blocks do not rise")
    return table, body[size:]
