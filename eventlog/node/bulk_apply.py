"""What many stored values do to the state, in one pass over the bytes of all of them: the fast way to `replay.state_puts`.

Values of one block without lifespans, whose producer row is whole, are by far the most; the others are left to the slow way. Runs in
the storage thread.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eventlog.batch.entries import FORMAT
from eventlog.batch.layout import BLOCK_HEAD_BYTES, EXPIRY, PRODUCER, VALUE_HEAD, VALUE_HEAD_BYTES
from eventlog.batch.views import decode_value
from eventlog.events import Kind
from eventlog.ids import ID_STEP
from eventlog.node.replay import state_puts
from eventlog.segment.keys import entry_prefix

Ints = npt.NDArray[np.int64]
Puts = list[tuple[bytes, bytes | None]]
_ENTRY_HEAD = np.dtype([("version", "u1"), ("flags", "u1"), ("id", "<i8")])
_LENGTHS_BYTES = 8  # of one section, padded


def puts_of(cache_id: int, segments: Sequence[int], data: Sequence[bytes]) -> Puts:
    """Return what the events of stored values do to the state; a segment's values come in the order of their ids.

    Raises:
        CorruptData: a value is not what its header says.
    """
    joined = b"".join(data)
    sizes = np.fromiter(map(len, data), np.int64, len(data))
    starts = np.cumsum(sizes) - sizes
    heads = np.frombuffer(b"".join([value[:VALUE_HEAD_BYTES] for value in data]), VALUE_HEAD)
    simple = _simple(joined, heads, starts)
    puts: Puts = []
    low = 0
    for high in [*np.flatnonzero(~simple).tolist(), len(data)]:
        if high > low:
            puts += _puts(joined, heads[low:high], starts[low:high], prefixes=[entry_prefix(own, cache_id) for own in segments[low:high]])
        if high < len(data):
            puts += state_puts(decode_value(segments[high], cache_id, data[high]))
        low = high + 1
    return puts


def _simple(joined: bytes, heads: npt.NDArray[np.void], starts: Ints) -> npt.NDArray[np.bool_]:
    """Return which values have one block, no lifespans, and nothing ragged before the block."""
    simple: npt.NDArray[np.bool_] = (heads["sections"] == 1) & (heads["producers"] <= 1) & (heads["bitmap"] & EXPIRY == 0)
    told = np.flatnonzero(simple & (heads["producers"] == 1))
    if len(told):
        words = np.frombuffer(joined, "<u4")
        row = (starts[told] + VALUE_HEAD_BYTES + _LENGTHS_BYTES) // 4
        count, submitted = words[row + 4], words[row + 5]
        simple[told] = count == submitted
    return simple


def _puts(joined: bytes, heads: npt.NDArray[np.void], starts: Ints, *, prefixes: list[bytes]) -> Puts:
    words, octets = np.frombuffer(joined, "<u4"), np.frombuffer(joined, np.uint8)
    counts = heads["count"].astype(np.int64)
    block = starts + VALUE_HEAD_BYTES + _LENGTHS_BYTES + heads["producers"].astype(np.int64) * PRODUCER.itemsize
    bitmaps, key_bytes = words[block // 4 + 1], words[block // 4 + 2].astype(np.int64)
    kinds_at = block + BLOCK_HEAD_BYTES + _pad8(4 * _bits(bitmaps))
    offsets_bytes = _pad8(4 * (counts + 1))
    key_offsets_at = kinds_at + _pad8(counts)
    keys_at = key_offsets_at + offsets_bytes
    value_offsets_at = keys_at + _pad8(key_bytes)
    values_at = value_offsets_at + offsets_bytes
    value_of = np.repeat(np.arange(len(counts)), counts)
    intra = np.arange(len(value_of)) - (np.cumsum(counts) - counts)[value_of]
    kinds = octets[kinds_at[value_of] + intra]
    keys = _slices(joined, words, keys_at[value_of], key_offsets_at[value_of] // 4 + intra)
    values = _slices(joined, words, values_at[value_of], value_offsets_at[value_of] // 4 + intra)
    entry_heads = np.zeros(len(value_of), _ENTRY_HEAD)
    entry_heads["version"], entry_heads["id"] = FORMAT, heads["base"][value_of] + intra * ID_STEP
    front, size = entry_heads.tobytes(), _ENTRY_HEAD.itemsize
    picked = [prefixes[index] for index in value_of.tolist()] if len(counts) > 1 else prefixes * len(value_of)
    puts: Puts = [
        (prefix + key, front[at : at + size] + value)
        for prefix, key, value, at in zip(picked, keys, values, range(0, len(front), size), strict=True)
    ]
    for index in np.flatnonzero(kinds > Kind.MODIFIED).tolist():
        puts[index] = puts[index][0], None
    return puts


def _slices(joined: bytes, words: npt.NDArray[np.uint32], at: Ints, offsets: Ints) -> list[bytes]:
    lows, highs = at + words[offsets], at + words[offsets + 1]
    return [joined[low:high] for low, high in zip(lows.tolist(), highs.tolist(), strict=True)]


def _pad8(sizes: Ints) -> Ints:
    padded: Ints = (sizes + 7) & ~7
    return padded


def _bits(bitmaps: npt.NDArray[np.uint32]) -> Ints:
    counted: Ints = sum(((bitmaps >> bit) & 1).astype(np.int64) for bit in range(5))  # type: ignore[assignment]  # of arrays, not of ints
    return counted
