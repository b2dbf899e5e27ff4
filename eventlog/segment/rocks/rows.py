"""The sum of the meta rows: one more row, changed with all others, that says whether they are those that were written last.

The rows are few, and their loss shows nowhere else: a database that has forgotten a file opens with older ones, or with some of them.
The sum is that of all rows but this one and the identity; a change adds what it puts and takes off what it deletes, so that it need not
read the others. `change` is one higher with each; the side file knows it too, and so tells a family that is older as a whole.
"""

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from eventlog.errors import CorruptData
from eventlog.segment import keys
from eventlog.segment.port import Pair, Range

SUM_KEY = b"sum"
_ROW = Struct("<QQ")
_ALL = 1 << 64

Get = Callable[[list[bytes]], list[bytes | None]]
Read = Callable[[Range], Sequence[Pair]]


class RowSum(NamedTuple):
    """The sum of all meta rows after their change number `change`."""

    change: int = 0
    total: int = 0

    @property
    def row(self) -> Pair:
        """Return the row that says so."""
        return SUM_KEY, _ROW.pack(self.change, self.total)


def decode_sum(row: bytes, *, where: str) -> RowSum:
    """Return what the row says. Raises CorruptData where it is of another size."""
    if len(row) != _ROW.size:
        raise CorruptData(where=where, why=f"the sum of its rows has {len(row)} bytes instead of {_ROW.size}")
    return RowSum(*_ROW.unpack(row))


def total_of(rows: Iterable[Pair]) -> int:
    """Return the sum of rows, whatever their order."""
    return sum(xxh3_64_intdigest(value, xxh3_64_intdigest(key)) for key, value in rows if key not in (SUM_KEY, keys.IDENTITY_KEY)) % _ALL


def changed(before: RowSum, *, puts: Sequence[Pair], ranges: Sequence[Range], get: Get, read: Read) -> RowSum:
    """Return the sum after `ranges` were deleted and then `puts` put; `get` and `read` give the rows as they are before."""
    new = dict(puts)
    single = {lower for lower, upper in ranges if upper == lower + b"\0"}
    old = {key: value for lower, upper in ranges if upper != lower + b"\0" for key, value in read((lower, upper))}
    asked = sorted((single | new.keys()) - old.keys())
    old |= {key: value for key, value in zip(asked, get(asked) if asked else [], strict=True) if value is not None}
    return RowSum(before.change + 1, (before.total - total_of(old.items()) + total_of(new.items())) % _ALL)
