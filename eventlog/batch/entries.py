"""Entries of the current state: as they are stored, as rows that stream in an answer, and as columns.

stored      version u8 = 1 | flags u8 | id i64 | [expiry i64] | [schema id u32] | value        (little-endian)
rows        versions i64[count] (0: no entry) | [applied ids, deadlines, lifespans: i64[count] each] | block of kind STATE
part        version of each entry (i64) | table of runs (a row a segment: `base` is the id as of which it was read, offsets are not known)
            | one block whose kinds are STATE; what the store keeps of an entry before its value is taken off for all of them at once
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from struct import Struct

import msgspec
import numpy as np
import numpy.typing as npt

from eventlog.arrays import NONE, Ints, Mask
from eventlog.batch.columns import EventColumns
from eventlog.batch.join import cut_out
from eventlog.batch.layout import RUN
from eventlog.batch.marks import EXPIRY
from eventlog.batch.texts import Texts
from eventlog.batch.views import Block, decode_block
from eventlog.errors import CorruptData, UnsupportedFormat
from eventlog.events import Kind

FORMAT = 1
HAS_EXPIRY = 1
HAS_SCHEMA = 2
HEAD = Struct("<BBq")
HEAD_EXPIRY = Struct("<BBqq")
_SCHEMA = Struct("<I")
Bytes = bytes | memoryview
_STATE = bytes((Kind.STATE,))


class StoredEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An entry as stored. `expiry` is milliseconds since 2020, 0 for never; `version` is the id of its last event.

    A struct because a group may read one an event: made in a fifth of the time of a dataclass.
    """

    version: int
    expiry: int
    schema_id: int | None
    value: bytes


def encode_entry(version: int, value: bytes, *, expiry: int = 0) -> bytes:
    """Return the stored form of an entry."""
    return (HEAD_EXPIRY.pack(FORMAT, HAS_EXPIRY, version, expiry) if expiry else HEAD.pack(FORMAT, 0, version)) + value


def decode_entry(data: bytes, *, where: str = "entry") -> StoredEntry:
    """Return what `data` stands for.

    Raises:
        CorruptData: shorter than its head.
        UnsupportedFormat: written by a newer version.
    """
    if len(data) < HEAD.size:
        raise CorruptData(where=where, why=f"a stored entry of {len(data)} bytes is shorter than its head")
    form, flags, version = HEAD.unpack_from(data)
    if form == FORMAT and not flags:
        return StoredEntry(version=version, expiry=0, schema_id=None, value=data[HEAD.size :])
    if form != FORMAT or flags & ~(HAS_EXPIRY | HAS_SCHEMA):
        raise UnsupportedFormat(what=where, found=form | flags << 8, known=str(FORMAT))
    at = HEAD.size
    expiry, schema_id = 0, None
    if len(data) < at + 8 * (flags & HAS_EXPIRY) + 2 * (flags & HAS_SCHEMA):
        raise CorruptData(where=where, why=f"a stored entry of {len(data)} bytes is shorter than its head")
    if flags & HAS_EXPIRY:
        expiry = int.from_bytes(data[at : at + 8], "little", signed=True)
        at += 8
    if flags & HAS_SCHEMA:
        (schema_id,) = _SCHEMA.unpack_from(data, at)
        at += _SCHEMA.size
    return StoredEntry(version=version, expiry=expiry, schema_id=schema_id, value=data[at:])


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCursor:
    """Where a segment's state was left: keys up to and including `key` were read as of the id `pin`, or (`finished`) all of them."""

    segment: int
    pin: int
    key: bytes = b""
    finished: bool = False


class StateColumns(EventColumns):
    """Entries as filters look at them: like events of kind STATE whose id is the entry's version."""

    def __init__(self, *, segments: Ints, ids: Ints, keys: Texts, values: Texts, expiry: Ints | None) -> None:
        self.segments = segments
        self.ids = ids
        self.keys = keys
        self.values = values
        self.expiry = expiry
        self.before = self.headers = self.schema_ids = None

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def kinds(self) -> npt.NDArray[np.uint8]:
        return np.full(len(self), Kind.STATE, np.uint8)

    @cached_property
    def offsets(self) -> Ints:
        """Offsets, which are not known."""
        return np.full(len(self), -1, np.int64)

    @cached_property
    def epochs(self) -> Ints:
        """Epochs, which are not known."""
        return np.zeros(len(self), np.int64)

    def take(self, rows: "Ints | Mask | slice") -> "StateColumns":
        """Return some of the entries, by index, by mask, or some that follow each other."""
        return StateColumns(
            segments=self.segments[rows],
            ids=self.ids[rows],
            keys=self.keys.take(rows),
            values=self.values.take(rows),
            expiry=None if self.expiry is None else self.expiry[rows],
        )

    def promoted(self, field: str) -> Texts | None:
        """Return None: the state has no promoted fields."""
        del field
        return None


def state_columns(keys: Sequence[bytes], values: Sequence[bytes], *, segments: Ints, prefix_bytes: int) -> StateColumns:
    """Return stored rows of the state as columns; `prefix_bytes` stand before the key of the entry in each.

    Raises:
        CorruptData, UnsupportedFormat: a row is no entry.
    """
    key_sizes, value_sizes = (np.fromiter(map(len, column), np.int64, len(column)) for column in (keys, values))
    data = b"".join(values)
    starts = value_sizes.cumsum() - value_sizes
    if len(values) and int(value_sizes.min()) < HEAD.size:
        decode_entry(values[int(value_sizes.argmin())], where="state")
    octets = np.frombuffer(data, np.uint8)
    flags = octets[starts + 1]
    odd = (octets[starts] != FORMAT) | (flags > (HAS_EXPIRY | HAS_SCHEMA))
    heads = HEAD.size + 8 * (flags & HAS_EXPIRY).astype(np.int64) + 4 * ((flags & HAS_SCHEMA) > 0)
    odd |= heads > value_sizes
    if odd.any():
        decode_entry(values[int(odd.argmax())], where="state")
    expiry = None
    if (flags & HAS_EXPIRY).any():
        expiry = np.zeros(len(values), np.int64)
        has = np.flatnonzero(flags & HAS_EXPIRY)
        expiry[has] = _numbers(data, starts[has] + HEAD.size)
    joined = b"".join(keys)
    return StateColumns(
        segments=segments,
        ids=_numbers(data, starts + 2),
        keys=Texts(data=joined, starts=key_sizes.cumsum() - (key_sizes - prefix_bytes), sizes=key_sizes - prefix_bytes),
        values=Texts(data=data, starts=starts + heads, sizes=value_sizes - heads),
        expiry=expiry,
    )


def _numbers(data: bytes, at: Ints) -> Ints:
    """Return the i64 at each place, aligned or not: an array whose items overlap is looked into."""
    if not len(at):
        return NONE
    found: Ints = np.ndarray((len(data) - 7,), "<i8", data, strides=(1,))[at].astype(np.int64)
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StatePart:
    """Entries as they are answered: `buffers` are the body of the part."""

    buffers: tuple[Bytes, ...]
    runs: int
    entries: int
    nbytes: int


def state_part(
    columns: StateColumns,
    *,
    pins: Mapping[int, int],
    values: tuple[bytes, Bytes] | None = None,
    metadata: bool = True,
    without: frozenset[str] = frozenset(),
) -> StatePart:
    """Return entries, which are sorted by segment, as a part. `values` (offsets, bytes) stand in for their own; `metadata`: with expiry.

    Keys or values in `without` are empty.
    """
    count = len(columns)
    nothing = bytes(4 * (count + 1)), b""
    segments = columns.segments
    bounds = [0, *((segments[1:] != segments[:-1]).nonzero()[0] + 1).tolist(), count] if count else [0]
    own = segments[bounds[:-1]].tolist()
    runs = np.zeros(len(own), RUN)
    runs["segment"], runs["count"] = own, [high - low for low, high in pairwise(bounds)]
    runs["base"], runs["first_offset"] = [pins[segment] for segment in own], -1
    key_offsets, key_bytes = nothing if "key" in without else _column(columns.keys)
    value_offsets, value_bytes = nothing if "value" in without else values or _column(columns.values)
    expiry = columns.expiry if metadata else None
    head = [count, 0, len(key_bytes), len(value_bytes)]
    if expiry is not None:
        head[1:] = [EXPIRY, *head[2:], 8 * count]
    pieces = (np.array(head, "<u4").tobytes(), _STATE * count, key_offsets, key_bytes, value_offsets, value_bytes)
    padded = [piece for column in pieces for piece in (column, bytes(-len(column) & 7)) if len(piece)]
    buffers = (columns.ids.tobytes(), runs.tobytes(), *padded, *(() if expiry is None else (expiry.tobytes(),)))
    return StatePart(buffers=buffers, runs=len(runs), entries=count, nbytes=sum(map(len, buffers)))


def _column(texts: Texts) -> tuple[bytes, Bytes]:
    offsets = np.zeros(len(texts) + 1, "<i4")
    texts.sizes.cumsum(out=offsets[1:])
    return offsets.tobytes(), _cut_out(texts)


def _cut_out(texts: Texts) -> Bytes:
    """Return the items one after the other; those of one size, as far apart, are one copy: a third of the time."""
    starts, sizes = texts.starts, texts.sizes
    if len(starts) > 1 and (size := sizes.item(0)):
        apart = starts.item(1) - starts.item(0)
        if apart >= size and bool((sizes == size).all()) and bool((np.diff(starts) == apart).all()):
            rows = np.ndarray((len(starts), size), np.uint8, texts.data, offset=starts.item(0), strides=(apart, 1))
            return rows.tobytes()
    return cut_out(texts.data, starts, sizes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StateBlock:
    """A part taken apart: an entry a row, a segment a run, read as of `pins`."""

    versions: Ints
    segments: Ints
    counts: Ints
    pins: Ints
    block: Block


def read_state_part(data: memoryview, *, entries: int, runs: int) -> StateBlock:
    """Return what a part holds, as views.

    Raises:
        CorruptData: lengths or counts contradict each other.
    """
    table_at = 8 * entries
    block_at = table_at + RUN.itemsize * runs
    if block_at > len(data):
        raise CorruptData(where="answer", why=f"{entries} entries in {runs} segments do not fit {len(data)} bytes")
    table = np.frombuffer(data[table_at:block_at], RUN)
    block = decode_block(data[block_at:], where="answer")
    counts = table["count"].astype(np.int64)
    if int(counts.sum()) != entries or block.count != entries or block.nbytes != len(data) - block_at:
        raise CorruptData(where="answer", why="versions, runs and columns contradict each other")
    return StateBlock(
        versions=np.frombuffer(data[:table_at], "<i8"),
        segments=table["segment"].astype(np.int64),
        counts=counts,
        pins=table["base"].astype(np.int64),
        block=block,
    )
