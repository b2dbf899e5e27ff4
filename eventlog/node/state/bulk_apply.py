"""What many stored values do to the state, in one pass over the bytes of all of them: the fast way to `replay.state_puts`.

Values without lifespans whose items all became events are by far the most; the others are left to the slow way. Runs in the
storage thread.
"""

from collections.abc import Sequence
from itertools import repeat
from operator import add
from struct import Struct

import numpy as np
import numpy.typing as npt

from eventlog.batch.entries import FORMAT
from eventlog.batch.marks import EXPIRY
from eventlog.batch.sections import Unfolded, pad8s, spread
from eventlog.batch.views import decode_value
from eventlog.events import Kind
from eventlog.ids import ID_STEP
from eventlog.node.state.replay import state_puts
from eventlog.segment.keys import entry_prefix

Ints = npt.NDArray[np.int64]
Puts = list[tuple[bytes, bytes | None]]
_ENTRY_HEAD = np.dtype([("version", "u1"), ("flags", "u1"), ("id", "<i8")])
_BYTES_OF_HEAD = Struct(f"{_ENTRY_HEAD.itemsize}s")


def puts_of(cache_id: int, segments: Sequence[int], data: Sequence[bytes], unfolded: Unfolded) -> Puts:
    """Return what the events of stored values, the same `unfolded`, do to the state; a segment's come in the order of their ids.

    Raises:
        CorruptData: a value is not what its header says.
    """
    prefixes = {segment: entry_prefix(segment, cache_id) for segment in set(segments)}
    is_slow = unfolded.is_ragged | (unfolded.heads["bitmap"] & EXPIRY != 0)
    if not np.count_nonzero(is_slow):
        return _puts(unfolded, slice(None), prefixes=[prefixes[segment] for segment in segments])
    puts: Puts = []
    low = 0
    for high in [*is_slow.nonzero()[0].tolist(), len(data)]:
        first, last = unfolded.value.searchsorted((low, high)).tolist()
        if last > first:
            puts += _puts(unfolded, slice(first, last), prefixes=[prefixes[segment] for segment in segments])
        if high < len(data):
            puts += state_puts(decode_value(segments[high], cache_id, data[high]))
        low = high + 1
    return puts


def _puts(unfolded: Unfolded, sections: slice, *, prefixes: list[bytes]) -> Puts:
    words, joined = unfolded.words, unfolded.joined
    counts, at = unfolded.counts[sections], unfolded.at[sections]
    kinds_at = unfolded.kinds_at[sections]
    key_bytes = words[at // 4 + 2].astype(np.int64)
    offsets_bytes = pad8s(4 * (counts + 1))
    key_offsets_at = kinds_at + pad8s(counts)
    keys_at = key_offsets_at + offsets_bytes
    value_offsets_at = keys_at + pad8s(key_bytes)
    values_at = value_offsets_at + offsets_bytes
    section_of = np.arange(len(counts)).repeat(counts)
    keys = _slices(joined, words, keys_at[section_of], spread(key_offsets_at // 4, counts))
    values = _slices(joined, words, values_at[section_of], spread(value_offsets_at // 4, counts))
    heads = entry_heads(unfolded.bases[sections][section_of] + spread(np.zeros_like(counts), counts) * ID_STEP)
    fronts = map(prefixes.__getitem__, unfolded.value[sections][section_of].tolist()) if len(prefixes) > 1 else repeat(prefixes[0])
    puts: Puts = list(zip(map(add, fronts, keys), map(add, heads, values), strict=True))
    kinds = np.frombuffer(joined, np.uint8)[spread(kinds_at, counts)]
    for index in (kinds > Kind.MODIFIED).nonzero()[0].tolist():
        puts[index] = puts[index][0], None
    return puts


def entry_heads(ids: Ints) -> list[bytes]:
    """Return what stands before the values of entries without lifespans."""
    heads = np.zeros(len(ids), _ENTRY_HEAD)
    heads["version"], heads["id"] = FORMAT, ids
    return [head for (head,) in _BYTES_OF_HEAD.iter_unpack(heads.tobytes())]


def _slices(joined: bytes, words: npt.NDArray[np.uint32], at: Ints, offsets: Ints) -> list[bytes]:
    lows, highs = at + words[offsets], at + words[offsets + 1]
    return [joined[low:high] for low, high in zip(lows.tolist(), highs.tolist(), strict=True)]
