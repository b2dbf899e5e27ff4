"""Checking blocks that somebody else built, all of a group in one pass, before anything is stamped.

Every length, offset and padding byte is looked at; a block that fails is named and nothing of its frame is written. Work per
block would cost more than the whole append (2.7 us a block against 0.05 us an event), so each rule is one array operation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.marks import BEFORE, BLOCK_HEAD_BYTES, EXPIRY, HEADERS
from eventlog.batch.one import find_one
from eventlog.batch.sections import pad8s
from eventlog.errors import TooLarge
from eventlog.events import Kind, decode_headers

Number = TypeVar("Number", bound=np.number[Any])
FROM_CLIENTS = EXPIRY | HEADERS
_BITS = np.array([bitmap.bit_count() for bitmap in range(32)], np.int64)
# the padding in the last word of a column, by how many bytes of that word are the column's; 0: all of them
_PADDING = np.array([0, *((0xFFFF_FFFF_FFFF_FFFF << 8 * used) & 0xFFFF_FFFF_FFFF_FFFF for used in range(1, 8))], np.uint64)
_LEGAL = np.zeros(256, bool)
_LEGAL[[Kind.CREATED, Kind.REMOVED]] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLimits:
    """What a block of one cache may hold, in bytes."""

    key_bytes: int
    value_bytes: int
    header_bytes: int
    columns: int = FROM_CLIENTS


@dataclass(frozen=True, kw_only=True)
class CheckedBlocks:
    """Blocks in `data`, and where their columns are (byte positions). `events` is the sum of `counts`.

    `key_at`, `key_end` (and the same for values) have one number an event, in the order of the blocks; they are made when asked for.
    """

    data: npt.NDArray[np.uint8]
    starts: Ints
    lengths: Ints
    counts: Ints
    bitmaps: Ints
    kinds_at: Ints
    kinds: npt.NDArray[np.uint8]
    key_column: "CheckedColumn | LoneColumn"
    value_column: "CheckedColumn | LoneColumn"

    @cached_property
    def kinds_index(self) -> Ints:
        """Return where the kind of each event stands."""
        return self.kinds_at if len(self.kinds) == len(self.counts) else _Runs(self.counts).places(self.kinds_at)

    @cached_property
    def key_at(self) -> Ints:
        return self.key_column.begins()

    @cached_property
    def key_end(self) -> Ints:
        return self.key_column.ends()

    @cached_property
    def value_at(self) -> Ints:
        return self.value_column.begins()

    @cached_property
    def value_end(self) -> Ints:
        return self.value_column.ends()


class BadBlocks(ValueError):
    """Some blocks break the rules: `found` has (index of the block, why). Nothing but a size is wrong where why is `TooLarge`.

    A broken block is a fault of the client's code. A size is its user's, whose program has to read the size and the limit.
    """

    def __init__(self, found: Sequence[tuple[int, str | TooLarge]]) -> None:
        super().__init__(found)
        self.found = found


def check_blocks(
    data: npt.NDArray[np.uint8], *, lengths: Ints, counts: Ints, bounds: BlockLimits, starts: Ints | None = None, text_keys: bool = False
) -> CheckedBlocks:
    """Return the columns of all blocks; `data` begins at a multiple of 8 and holds them back to back, or where `starts` says.

    With `text_keys`, keys must be UTF-8.

    Raises:
        BadBlocks: naming every block that breaks a rule, by the first rule it breaks.
    """
    if len(lengths) == 1 and (one := _lone(data, lengths, counts, bounds, text_keys=text_keys)) is not None:
        return one
    if starts is None:
        starts = lengths.cumsum() - lengths
    _fail((lengths < BLOCK_HEAD_BYTES + 16) | (lengths & 7 != 0), "its length is no multiple of 8 or too short")
    words = data.view("<u4")
    head = words[(starts >> 2)[:, None] + np.arange(4)].astype(np.int64)
    bitmaps, key_bytes, value_bytes = head[:, 1], head[:, 2], head[:, 3]
    _fail(head[:, 0] != counts, "its count is not that of the table")
    _fail(counts > lengths, "its count does not fit its length")
    _fail(bitmaps & ~bounds.columns != 0, "it has a column that clients may not send")
    optional = np.zeros(len(starts), np.int64)
    optional_at: list[tuple[int, Ints, Ints]] = []
    if np.count_nonzero(bitmaps):
        optional, optional_at = _optional_sizes(words, starts, bitmaps, lengths)
    kinds_at = starts + BLOCK_HEAD_BYTES + pad8s(4 * _BITS[bitmaps])
    key_offsets_at = kinds_at + pad8s(counts)
    keys_at = key_offsets_at + pad8s(4 * (counts + 1))
    value_offsets_at = keys_at + pad8s(key_bytes)
    values_at = value_offsets_at + pad8s(4 * (counts + 1))
    ends = values_at + pad8s(value_bytes)
    _fail(ends + optional != starts + lengths, "its columns do not fill its length")

    rows = _Runs(counts)
    kinds = rows.take(data, kinds_at)
    if np.count_nonzero(kinds):
        rows.fail(~_LEGAL[kinds], "a kind is neither put nor remove")
    key_column, value_column = _columns(data, counts, [(key_offsets_at, keys_at, key_bytes), (value_offsets_at, values_at, value_bytes)])
    rows.fail_longer(key_column, bounds.key_bytes, "a key")
    rows.fail_longer(value_column, bounds.value_bytes, "a value")
    columns_end = [kinds_at + counts, key_offsets_at + 4 * (counts + 1), keys_at + key_bytes]
    columns_end += [value_offsets_at + 4 * (counts + 1), values_at + value_bytes]
    _check_padding(data, columns_end)
    if text_keys:
        _check_texts(data, keys_at, size=key_bytes, column=key_column, rows=rows)
    if optional_at:
        _check_optional(data, optional_at, ends=ends, counts=counts, bounds=bounds)
    return CheckedBlocks(
        data=data,
        starts=starts,
        lengths=lengths,
        counts=counts,
        bitmaps=bitmaps,
        kinds_at=kinds_at,
        kinds=kinds,
        key_column=key_column,
        value_column=value_column,
    )


def _lone(data: npt.NDArray[np.uint8], lengths: Ints, counts: Ints, bounds: BlockLimits, *, text_keys: bool) -> CheckedBlocks | None:
    """Return the columns of one block of one event, or None for the long way round."""
    found = find_one(data.data, lengths.item(0)) if counts.item(0) == 1 else None
    if found is None:
        return None
    if found.key_end - found.key_at > bounds.key_bytes or found.value_end - found.value_at > bounds.value_bytes:
        return None
    if text_keys and not data.data[found.key_at : found.key_end].tobytes().isascii():
        return None
    places = np.array([0, 0, found.kind_at, found.key_at, found.key_end, found.value_at, found.value_end])
    return CheckedBlocks(
        data=data,
        starts=places[0:1],
        lengths=lengths,
        counts=counts,
        bitmaps=places[1:2],
        kinds_at=places[2:3],
        kinds=data[found.kind_at : found.kind_at + 1].copy(),  # it stays when the frame is gone
        key_column=LoneColumn(places[3:4], places[4:5]),
        value_column=LoneColumn(places[5:6], places[6:7]),
    )


def _fail(bad: npt.NDArray[np.bool_], why: str) -> None:
    if np.count_nonzero(bad):
        raise BadBlocks([(block, why) for block in bad.nonzero()[0].tolist()])


class CheckedColumn:
    """The offsets of one column of all blocks, checked.

    Block i has `counts[i] + 1` of them from `firsts[i]` on, relative to `bytes_at[i]`.
    """

    __slots__ = ("_bytes_at", "_counts", "_firsts", "_offsets", "longest")

    def __init__(self, offsets: npt.NDArray[np.int32], *, firsts: Ints, counts: Ints, bytes_at: Ints, longest: int) -> None:
        self._offsets = offsets
        self._firsts = firsts
        self._counts = counts
        self._bytes_at = bytes_at
        self.longest = longest

    def begins(self) -> Ints:
        return self._items(without=self._firsts + self._counts)

    def ends(self) -> Ints:
        return self._items(without=self._firsts)

    def firsts(self) -> tuple[Ints, Ints]:
        """Return where the first item of each block begins and ends; no block is empty."""
        return self._bytes_at, self._bytes_at + self._offsets[self._firsts + 1]

    def _items(self, *, without: Ints) -> Ints:
        inner = np.ones(len(self._offsets), bool)
        inner[without] = False
        items = self._bytes_at.repeat(self._counts)
        items += self._offsets[inner]
        return items


class LoneColumn:
    """The same of a column of one item."""

    __slots__ = ("_at", "_end")

    def __init__(self, at: Ints, end: Ints) -> None:
        self._at = at
        self._end = end

    def begins(self) -> Ints:
        return self._at

    def ends(self) -> Ints:
        return self._end

    def firsts(self) -> tuple[Ints, Ints]:
        return self._at, self._end


class _Runs:
    """Runs of items, one a block: `counts[i]` of them, which are taken together from anywhere."""

    __slots__ = ("counts", "ends", "firsts")

    def __init__(self, counts: Ints) -> None:
        self.counts = counts
        self.ends = counts.cumsum()
        self.firsts = self.ends - counts

    def places(self, at: Ints) -> Ints:
        """Return `at[i], at[i] + 1, ...` of each run."""
        found = (at - self.firsts).repeat(self.counts)
        found += np.arange(len(found))
        return found

    def take(self, data: npt.NDArray[Number], at: Ints) -> npt.NDArray[Number]:
        """Return the items that begin at `at[i]` of each run, one run after the other."""
        if self.ends[-1] < _LONG_RUN * len(at):
            return data.take(self.places(at))
        return np.frombuffer(bytearray().join(slices(data.data, at, at + self.counts)), data.dtype)

    def fail(self, bad: npt.NDArray[np.bool_], why: str) -> None:
        if np.count_nonzero(bad):
            blocks = np.arange(len(self.counts)).repeat(self.counts)
            raise BadBlocks([(block, why) for block in np.unique(blocks[bad]).tolist()])

    def fail_longer(self, column: CheckedColumn, limit: int, what: str) -> None:
        """Name every block that has an item above `limit` bytes, by its first one."""
        if column.longest <= limit:
            return
        sizes = column.ends() - column.begins()
        rows = (sizes > limit).nonzero()[0]
        blocks, firsts = np.unique(self.ends.searchsorted(rows, side="right"), return_index=True)
        found = zip(blocks.tolist(), sizes[rows[firsts]].tolist(), strict=True)
        raise BadBlocks([(block, TooLarge(what=what, size=size, limit=limit)) for block, size in found])


_LONG_RUN = 128  # items, from which on cutting a run out is cheaper than an index for each of them


def _columns(data: npt.NDArray[np.uint8], counts: Ints, columns: list[tuple[Ints, Ints, Ints]]) -> list[CheckedColumn]:
    """Return columns whose offsets are right, looked at in one pass; given are where offsets and bytes begin, and how many bytes."""
    offsets_at, bytes_at, sizes = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    runs = _Runs(np.concatenate([counts + 1] * len(columns)))
    offsets = runs.take(data.view("<i4"), offsets_at >> 2)
    steps = offsets[1:] - offsets[:-1]  # fits int32 where no offset is negative
    steps[runs.firsts[1:] - 1] = 0  # from the end of a run to the beginning of the next
    wrong = (offsets[runs.firsts] != 0) | (offsets[runs.ends - 1] != sizes)
    if np.count_nonzero(wrong) or offsets.min() < 0 or steps.min(initial=0) < 0:
        falling = np.diff(offsets.astype(np.int64)) < 0
        falling[runs.firsts[1:] - 1] = False
        wrong[(runs.ends - 1).searchsorted(falling.nonzero()[0], side="left")] = True
        _fail(wrong.reshape(len(columns), -1).any(axis=0), "offsets do not rise from 0 to the size of their column")
    found = []
    firsts, room = runs.firsts[: len(counts)], len(offsets) // len(columns)
    for index in range(len(columns)):
        own, blocks = slice(index * room, (index + 1) * room), slice(index * len(counts), (index + 1) * len(counts))
        longest = int(steps[own].max(initial=0))
        found.append(CheckedColumn(offsets[own], firsts=firsts, counts=counts, bytes_at=bytes_at[blocks], longest=longest))
    return found


def _check_padding(data: npt.NDArray[np.uint8], ends: list[Ints], blocks: Ints | None = None) -> None:
    flat = np.concatenate(ends)
    padding = data.view("<u8").take((flat - 1) >> 3) & _PADDING.take(flat & 7)
    if np.count_nonzero(padding):
        wrong = padding.reshape(len(ends), -1).any(axis=0)
        found = np.flatnonzero(wrong) if blocks is None else blocks[wrong]
        raise BadBlocks([(block, "padding is not zero") for block in found.tolist()])


def _check_texts(data: npt.NDArray[np.uint8], at: Ints, *, size: Ints, column: CheckedColumn, rows: _Runs) -> None:
    """Refuse keys that readers could not decode. The columns are looked at as a whole; all of them ASCII is the usual case."""
    words = _Runs(pad8s(size) >> 3).take(data.view("<u8"), at >> 3)
    if words.tobytes().isascii():
        return
    rows.fail(np.array([not _decodes(bytes(key)) for key in slices(data.data, column.begins(), column.ends())]), "a key is not UTF-8")


def _decodes(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _optional_sizes(words: npt.NDArray[np.uint32], starts: Ints, bitmaps: Ints, lengths: Ints) -> tuple[Ints, list[tuple[int, Ints, Ints]]]:
    """Return the room of all optional columns of each block, and (bit, blocks, bytes) for each column there is."""
    _fail(pad8s(4 * _BITS[bitmaps]) + BLOCK_HEAD_BYTES > lengths, "its columns do not fill its length")
    room = np.zeros(len(starts), np.int64)
    at = (starts + BLOCK_HEAD_BYTES) >> 2
    found = []
    for bit in (EXPIRY, BEFORE, HEADERS):
        blocks = (bitmaps & bit).nonzero()[0]
        if len(blocks):
            sizes = words[at[blocks]].astype(np.int64)
            found.append((bit, blocks, sizes))
            room[blocks] += pad8s(sizes)
            at[blocks] += 1
    odd = (_BITS[bitmaps] & 1).nonzero()[0]
    _fail_some(words[at[odd]] != 0, odd, "padding is not zero")
    return room, found


def _check_optional(
    data: npt.NDArray[np.uint8], columns: list[tuple[int, Ints, Ints]], *, ends: Ints, counts: Ints, bounds: BlockLimits
) -> None:
    at = ends.copy()
    for bit, blocks, sizes in columns:
        own_counts = counts[blocks]
        _check_padding(data, [at[blocks] + sizes], blocks)
        if bit == EXPIRY:
            _fail_some(sizes != 8 * own_counts, blocks, "its expiry column has the wrong length")
            rows = _Runs(own_counts)
            expiries = rows.take(data.view("<i8"), at[blocks] >> 3)
            _fail_some_rows(rows, expiries < 0, blocks, "an expiry is negative")
        else:
            offsets_room = pad8s(4 * (own_counts + 1))
            _fail_some(sizes < offsets_room, blocks, "its headers column is shorter than its offsets")
            rows = _Runs(own_counts)
            try:
                (column,) = _columns(data, own_counts, [(at[blocks], at[blocks] + offsets_room, sizes - offsets_room)])
                rows.fail_longer(column, bounds.header_bytes, "the headers of an event")
            except BadBlocks as error:
                raise BadBlocks([(int(blocks[block]), why) for block, why in error.found]) from None
            unreadable = [not are_headers(bytes(item)) for item in slices(data.data, column.begins(), column.ends())]
            _fail_some_rows(rows, np.array(unreadable), blocks, "headers are not what headers look like")
        at[blocks] += pad8s(sizes)


def are_headers(data: bytes) -> bool:
    """Whether readers can decode them."""
    try:
        decode_headers(data)
    except ValueError:
        return False
    return True


def _fail_some(bad: npt.NDArray[np.bool_], blocks: Ints, why: str) -> None:
    if np.count_nonzero(bad):
        raise BadBlocks([(block, why) for block in blocks[bad].tolist()])


def _fail_some_rows(rows: _Runs, bad: npt.NDArray[np.bool_], blocks: Ints, why: str) -> None:
    if np.count_nonzero(bad):
        own = blocks.repeat(rows.counts)
        raise BadBlocks([(block, why) for block in np.unique(own[bad]).tolist()])


def slices(data: Any, at: Ints, end: Ints) -> list[Any]:
    """Return `data[at[i]:end[i]]` for each i; of a memoryview, views."""
    return [data[low:high] for low, high in zip(at.tolist(), end.tolist(), strict=True)]
