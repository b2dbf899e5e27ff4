"""The log ends beside the log: what RocksDB must still have when it opens again.

RocksDB can open empty or shortened after damage without an error. This file says how far each segment's log had come at some
sync: never further than what was durable then, so the log can only be longer. It is written without a sync of its own, because
an older copy only weakens the check. Two slots take turns, so a torn write leaves the one before:

    magic 4s | format u16 | 0 u16 | segments u32 | 0 u32 | generation u64 | token u64 | rows u64 | flush u64
    | id i64[segments] | epoch u32[segments] | crc32c u32

`rows` counts the changes of the meta rows (`RowSum`), `flush` those flushes of the state that somebody relied on: a database that has
fewer is older than this file. Format 1 lacks both, and is read as 0.

The sum of the meta rows is one more row, changed with all others, that says whether they are those that were written last. The rows are
few, and their loss shows nowhere else: a database that has forgotten a file opens with older ones, or with some of them. The sum is that
of all rows but this one and the identity; a change adds what it puts and takes off what it deletes, so that it need not read the others.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_64_intdigest

from eventlog.checksum import crc32c
from eventlog.errors import CorruptData, LostDisk, UnsupportedFormat
from eventlog.segment import keys
from eventlog.segment.port import Pair, Range, StoreEnds

FORMAT = 2
_MAGIC = b"ends"
_HEAD = Struct("<4sHHIIQQ")
_COUNTS = Struct("<QQ")
_HEAD_BYTES = {1: _HEAD.size, 2: _HEAD.size + _COUNTS.size}
_SLOT_ALIGN = 4096  # the slots share no block of the disk


class DurableCounts(NamedTuple):
    """How often the meta rows were changed, and the state was flushed, when that was last known to be durable."""

    rows: int = 0
    flush: int = 0


def slot_bytes(segments: int, *, form: int = FORMAT) -> int:
    """Return how far the second slot is from the first."""
    return -(-(_HEAD_BYTES[form] + 12 * segments + 4) // _SLOT_ALIGN) * _SLOT_ALIGN


def encode_slot(ends: StoreEnds, *, token: int, reached: DurableCounts, form: int = FORMAT) -> bytes:
    """Return one slot; a later format than ours is only said to be one."""
    body = b"".join(
        (
            _HEAD.pack(_MAGIC, form, 0, len(ends.ids), 0, ends.generation, token),
            _COUNTS.pack(*reached),
            ends.ids.astype("<i8", copy=False).tobytes(),
            ends.epochs.astype("<u4", copy=False).tobytes(),
        )
    )
    return body + int(crc32c(body)).to_bytes(4, "little")


def decode_slot(data: bytes, *, segments: int, token: int, where: str) -> tuple[StoreEnds, DurableCounts]:
    """Return what a slot says.

    Raises:
        CorruptData: damaged, or written for another directory.
        UnsupportedFormat: undamaged and of another format.
    """
    magic, form, _, found, _, generation, owner = _HEAD.unpack_from(data.ljust(_HEAD.size, b"\0"))
    head_bytes = _HEAD_BYTES.get(form, _HEAD_BYTES[FORMAT])
    size = head_bytes + 12 * segments
    if len(data) < size + 4 or crc32c(data[:size]) != int.from_bytes(data[size : size + 4], "little"):
        raise CorruptData(where=where, why="the checksum is wrong")
    if magic != _MAGIC or found != segments:
        raise CorruptData(where=where, why="these are no log ends of this store")
    if form not in _HEAD_BYTES:
        raise UnsupportedFormat(what=where, found=form, known=str(FORMAT))
    if owner != token:
        raise CorruptData(where=where, why="it was written for another data directory")
    ids = np.frombuffer(data, "<i8", segments, head_bytes).astype(np.int64)
    epochs = np.frombuffer(data, "<u4", segments, head_bytes + 8 * segments).astype(np.uint32)
    reached = DurableCounts(*_COUNTS.unpack_from(data, _HEAD.size)) if form > 1 else DurableCounts()
    return StoreEnds(ids=ids, epochs=epochs, generation=generation), reached


class EndsFile:
    """The open side file. Only the writing thread writes it. `reached` is what it said when it was opened."""

    __slots__ = ("_generation", "_handle", "_slot_bytes", "_token", "reached")

    def __init__(self, handle: int, *, segments: int, token: int, generation: int, reached: DurableCounts) -> None:
        self.reached = reached
        self._handle = handle
        self._slot_bytes = slot_bytes(segments)
        self._token = token
        self._generation = generation

    def write(self, ends: StoreEnds, reached: DurableCounts) -> None:
        """Put both into the slot that holds the older copy; not synced.

        Raises:
            OSError: what the disk said.
        """
        self._generation += 1
        data = encode_slot(replace(ends, generation=self._generation), token=self._token, reached=reached)
        done = os.pwrite(self._handle, data, (self._generation & 1) * self._slot_bytes)
        if done != len(data):
            raise OSError(f"{done} of {len(data)} bytes of the log ends were written")

    def write_both(self, ends: StoreEnds, reached: DurableCounts) -> None:
        """Put both into both slots and sync: afterwards nothing says that the log was longer.

        Raises:
            OSError: what the disk said.
        """
        self.write(ends, reached)
        os.fsync(self._handle)
        self.write(ends, reached)
        os.fsync(self._handle)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def create_ends(path: Path, *, segments: int, token: int) -> None:
    """Make the side file of an empty store."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    file = EndsFile(handle, segments=segments, token=token, generation=0, reached=DurableCounts())
    try:
        file.write_both(StoreEnds.empty(segments), DurableCounts())
    finally:
        file.close()


def open_ends(path: Path, *, segments: int, token: int) -> tuple[EndsFile, StoreEnds]:
    """Return the open file and the newest ends in it.

    Raises:
        LostDisk: the file is missing or both slots are damaged: nobody knows how long the log was.
        UnsupportedFormat: written by another version.
    """
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        raise LostDisk(where=str(path), why="the log ends are missing") from None
    data = os.pread(handle, 2 * slot_bytes(segments), 0)
    slots: list[tuple[StoreEnds, DurableCounts]] = []
    why: list[str] = []
    for at in sorted({0, *(slot_bytes(segments, form=form) for form in _HEAD_BYTES)}):  # the second slot lies where its format has it
        own = data[at : at + slot_bytes(segments)]
        try:
            slots.append(decode_slot(own, segments=segments, token=token, where=f"{path} at byte {at}"))
        except CorruptData as error:
            why.append(f"at byte {at}: {error.why}")
        except UnsupportedFormat:
            os.close(handle)
            raise
    if not slots:
        os.close(handle)
        raise LostDisk(where=str(path), why="; ".join(why))
    ends, reached = max(slots, key=lambda slot: slot[0].generation)
    return EndsFile(handle, segments=segments, token=token, generation=ends.generation, reached=reached), ends


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
