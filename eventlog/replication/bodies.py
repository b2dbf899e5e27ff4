"""Stored values on their way between nodes: those that go with rows, and those that came, checked before anything counts. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from struct import Struct

import numpy as np
import numpy.typing as npt

from eventlog.arrays import NONE, Ints
from eventlog.batch.layout import FORMAT, HAS_PRODUCERS, VALUE_HEAD, VALUE_HEAD_BYTES, place_seed, read_head
from eventlog.batch.marks import COLUMNS_KNOWN
from eventlog.batch.sections import firsts_of_runs
from eventlog.batch.stored import Values
from eventlog.checksum import crc32c
from eventlog.errors import BadMessage, UnsupportedFormat
from eventlog.ids import ID_STEP
from eventlog.replication.columns import FEW_ROWS_MAX, ONE_APPEND
from eventlog.replication.messages import APPEND, CHUNK, VALUE, Body, decode_body, value_table

_JOINED_BYTES_A_VALUE_MAX = 16 << 10


@dataclass(slots=True, kw_only=True, eq=False)  # one a group: `frozen` ones take longer to make
class Carried:
    """Values that go with the rows of one input, in their order. `bounds`: place i of a group has values `[bounds[i], bounds[i + 1])`."""

    caches: Sequence[int]
    data: Sequence[bytes]
    bounds: Sequence[int] = ()

    def chosen(self, places: Ints | None) -> "Carried":
        """Return the values at some places of the group, None for all."""
        if places is None:
            return self
        picked = [index for place in places.tolist() for index in range(self.bounds[place], self.bounds[place + 1])]
        return Carried(caches=[self.caches[index] for index in picked], data=[self.data[index] for index in picked])

    def buffers(self, rows: bytes) -> list[bytes]:
        """Return a body: the rows, what the values are, the values."""
        if not self.data:
            return [rows]
        lengths = list(map(len, self.data))
        front = [rows, value_table(self.caches, lengths)]
        if sum(lengths) > _JOINED_BYTES_A_VALUE_MAX * len(lengths):
            return [*front, *self.data]
        return [b"".join([*front, *self.data])]  # once for all backups; many small buffers cost each of them more


NOTHING = Carried(caches=(), data=())


@dataclass(slots=True, kw_only=True, eq=False)  # one a group: `frozen` ones take longer to make
class GroupValues:
    """The values of a group over all its caches, segment by segment; a segment's in order of their ids."""

    segments: Ints
    last_ids: Ints
    counts: Ints
    carried: Carried


def group_values(parts: Sequence[tuple[int, Values]]) -> GroupValues:
    """Return the values of (cache, values) of a group, whose ids rise from part to part."""
    cache, values = parts[0]
    if len(parts) == 1:
        many = len(values.segments)
        carried = Carried(caches=[cache] * many, data=values.data, bounds=range(many + 1))
        return GroupValues(segments=values.segments, last_ids=values.last_ids, counts=np.ones(many, np.int64), carried=carried)
    segments = np.concatenate([own.segments for _, own in parts])
    last_ids = np.concatenate([own.last_ids for _, own in parts])
    order = segments.argsort(kind="stable")
    segments, last_ids = segments[order], last_ids[order]
    first = firsts_of_runs(segments)
    counts = np.diff(first, append=len(segments))
    caches = [cache for cache, own in parts for _ in own.data]
    data = [value for _, own in parts for value in own.data]
    picked = order.tolist()
    bounds = [*first.tolist(), len(order)]
    carried = Carried(caches=[caches[index] for index in picked], data=[data[index] for index in picked], bounds=bounds)
    return GroupValues(segments=segments[first], last_ids=last_ids[first + counts - 1], counts=counts, carried=carried)


@dataclass(slots=True, kw_only=True, eq=False)  # one a group: `frozen` ones take longer to make
class Arrived:
    """Values that came with rows: one number a value in the arrays; row i has values `[bounds[i], bounds[i + 1])`."""

    segments: Ints
    caches: Ints
    bases: Ints
    lasts: Ints
    counts: Ints
    offsets: Ints
    bounds: Ints
    data: list[bytes]
    heads: npt.NDArray[np.void]
    cache_ids: frozenset[int]

    def of_rows(self, rows: Ints | None) -> "Arrived":
        """Return the values of some rows, None for all."""
        if rows is None:
            return self
        picked = np.concatenate([np.arange(self.bounds[row], self.bounds[row + 1]) for row in rows.tolist()]) if len(rows) else rows
        return self.picked(picked.astype(np.int64))

    def picked(self, at: Ints) -> "Arrived":
        """Return the values at these places; rows are not told apart any more."""
        return Arrived(
            segments=self.segments[at],
            caches=self.caches[at],
            bases=self.bases[at],
            lasts=self.lasts[at],
            counts=self.counts[at],
            offsets=self.offsets[at],
            bounds=NONE,
            data=[self.data[index] for index in at.tolist()],
            heads=self.heads[at],
            cache_ids=self.cache_ids if len(self.cache_ids) == 1 else frozenset(self.caches[at].tolist()),
        )

    def of_cache(self, cache_id: int) -> "Arrived":
        """Return the values of one cache."""
        return self if len(self.cache_ids) == 1 else self.picked((self.caches == cache_id).nonzero()[0])

    @property
    def nbytes(self) -> int:
        """Return the bytes of the values."""
        return sum(map(len, self.data))


def joined(arrivals: Sequence[Arrived]) -> Arrived:
    """Return the values of several arrivals, one after the other; rows are not told apart any more."""
    if len(arrivals) == 1:
        return arrivals[0]
    return Arrived(
        segments=np.concatenate([arrived.segments for arrived in arrivals]),
        caches=np.concatenate([arrived.caches for arrived in arrivals]),
        bases=np.concatenate([arrived.bases for arrived in arrivals]),
        lasts=np.concatenate([arrived.lasts for arrived in arrivals]),
        counts=np.concatenate([arrived.counts for arrived in arrivals]),
        offsets=np.concatenate([arrived.offsets for arrived in arrivals]),
        bounds=NONE,
        data=[value for arrived in arrivals for value in arrived.data],
        heads=np.frombuffer(b"".join([arrived.heads.tobytes() for arrived in arrivals]), VALUE_HEAD),
        cache_ids=frozenset().union(*(arrived.cache_ids for arrived in arrivals)),
    )


def read_arrived(buffer: memoryview, *, rows: int) -> tuple[memoryview, Arrived]:
    """Return the rows of a body, and its values, each of which is whole, in its place, and above the ones before it.

    Raises:
        BadMessage: something of it is damaged or contradicts itself.
    """
    few = _read_few(buffer, rows) if rows <= FEW_ROWS_MAX else None
    if few is not None:
        return few
    body = decode_body(buffer, rows=rows)
    table = np.frombuffer(body.rows, APPEND)
    bounds = np.zeros(len(table) + 1, np.int64)
    if not len(body.caches) or np.count_nonzero(table["flags"] == CHUNK):
        return body.rows, _no_values(bounds)
    carrying = np.where(table["flags"] == 0, table["values"], 0).astype(np.int64)
    carrying.cumsum(out=bounds[1:])
    of_row = np.arange(len(table)).repeat(carrying)
    segments = table["segment"][of_row].astype(np.int64)
    data = _pieces(body)
    arrived = _arrived(segments, body.caches.astype(np.int64), data, bounds)
    _check_order(arrived, table, of_row)
    return body.rows, arrived


def _read_few(buffer: memoryview, rows: int) -> tuple[memoryview, Arrived] | None:
    """Return a few rows with one value each, without the arrays of many; None where it is anything else, or not as it should be."""
    size = rows * APPEND.itemsize
    at = size + rows * VALUE.itemsize
    if not 0 < at < len(buffer):
        return None
    table, names = ONE_APPEND.iter_unpack(buffer[:size]), _ONE_VALUE.iter_unpack(buffer[size:at])
    segments, caches, heads, data = [], [], [], []
    for (segment, flags, _, previous, last, _, values, _), (cache, length) in zip(table, names, strict=True):
        value = bytes(buffer[at : at + length])
        at += length
        if flags or values != 1 or len(value) != length or length < VALUE_HEAD_BYTES or length % 8:
            return None
        try:
            head = read_head(value, where="")
        except UnsupportedFormat:
            return None
        is_whole = int.from_bytes(value[:4], "little") == crc32c(memoryview(value)[4:], _seed(segment, cache))
        if not is_whole or not previous < head.base <= head.last_id <= last:
            return None
        segments.append(segment)
        caches.append(cache)
        heads.append(head)
        data.append(value)
    if at != len(buffer):
        return None
    arrived = Arrived(
        segments=np.array(segments),
        caches=np.array(caches),
        bases=np.array([head.base for head in heads]),
        lasts=np.array([head.last_id for head in heads]),
        counts=np.array([head.count for head in heads]),
        offsets=np.array([head.first_offset for head in heads]),
        bounds=_BOUNDS[: rows + 1],
        data=data,
        heads=np.frombuffer(b"".join([value[:VALUE_HEAD_BYTES] for value in data]), VALUE_HEAD),
        cache_ids=frozenset(caches),
    )
    return memoryview(buffer)[:size].toreadonly(), arrived


_ONE_VALUE = Struct("<II")
_BOUNDS = np.arange(FEW_ROWS_MAX + 1)


def read_pieces(buffer: memoryview, *, rows: int) -> list[tuple[int, bytes]]:
    """Return the pieces of a part of a snapshot: (kind, content)."""
    body = decode_body(buffer, rows=rows)
    return list(zip(body.caches.tolist(), _pieces(body), strict=True))


def values_from(segments: Ints, caches: Sequence[int], data: Sequence[bytes]) -> Arrived:
    """Return stored values, one number each in the others, as those that arrived are seen.

    Raises:
        BadMessage: one of them is damaged.
    """
    return _arrived(segments, np.array(caches, np.int64), list(data), np.array([0, len(data)]))


def _pieces(body: Body) -> list[bytes]:
    view, bounds = body.data, body.bounds.tolist()
    return [bytes(view[low:high]) for low, high in pairwise(bounds)]


def _arrived(segments: Ints, caches: Ints, data: list[bytes], bounds: Ints) -> Arrived:
    sizes = np.fromiter(map(len, data), np.int64, len(data))
    _refuse((sizes < VALUE_HEAD_BYTES) | (sizes % 8 != 0), segments, "a stored value of a size that none has")
    heads = np.frombuffer(b"".join([value[:VALUE_HEAD_BYTES] for value in data]), VALUE_HEAD)
    checksums = [
        crc32c(memoryview(value)[4:], _seed(segment, cache))
        for segment, cache, value in zip(segments.tolist(), caches.tolist(), data, strict=True)
    ]
    _refuse(np.array(checksums, np.uint32) != heads["crc"], segments, "a stored value whose checksum is wrong")
    columns, flags = heads["bitmap"].astype(np.int64), heads["flags"].astype(np.int64)
    unknown = (heads["format"] != FORMAT) | (columns & ~COLUMNS_KNOWN != 0) | (flags & ~HAS_PRODUCERS != 0)
    _refuse(unknown, segments, "a stored value of a format that this version does not know")
    bases, counts = heads["base"].astype(np.int64), heads["count"].astype(np.int64)
    lasts = bases + (np.maximum(counts, 1) - 1) * ID_STEP
    offsets = heads["first_offset"].astype(np.int64)
    return Arrived(
        segments=segments,
        caches=caches,
        bases=bases,
        lasts=lasts,
        counts=counts,
        offsets=offsets,
        bounds=bounds,
        data=data,
        heads=heads,
        cache_ids=frozenset(caches.tolist()),
    )


@lru_cache(maxsize=1 << 16)
def _seed(segment: int, cache: int) -> int:
    return place_seed(segment, cache)


def _check_order(arrived: Arrived, table: npt.NDArray[np.void], of_row: Ints) -> None:
    """Within a row ids rise from above its `previous` to at most its `last`."""
    if not len(of_row):
        return
    begins = np.ones(len(of_row), bool)
    begins[1:] = of_row[1:] != of_row[:-1]
    before = np.where(begins, table["previous"][of_row], np.concatenate((np.zeros(1, np.int64), arrived.lasts[:-1])))
    _refuse(arrived.bases <= before, arrived.segments, "ids that do not rise")
    _refuse(arrived.lasts > table["last"][of_row], arrived.segments, "ids above the end that the row names")


def _no_values(bounds: Ints) -> Arrived:
    none = NONE
    return Arrived(
        segments=none,
        caches=none,
        bases=none,
        lasts=none,
        counts=none,
        offsets=none,
        bounds=bounds,
        data=[],
        heads=np.zeros(0, VALUE_HEAD),
        cache_ids=frozenset(),
    )


def _refuse(bad: npt.NDArray[np.bool_], segments: Ints, why: str) -> None:
    if np.count_nonzero(bad):
        raise BadMessage(why=f"replicate: segment {int(segments[np.argmax(bad)])}: {why}")
