"""Looking through the end of a log at the opening: that no stored value is missing between two others, or before the first.

Offsets of a cache in a segment count its events without a hole, so each value begins where the one before it ended, and the first where
retention stopped. Only headers are looked at. What is damaged, but there, is none of this: it is met, and repaired, by whoever reads it.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from eventlog.batch.layout import VALUE_HEAD, VALUE_HEAD_BYTES, read_head
from eventlog.errors import CorruptData
from eventlog.ids import ID_MAX, ID_STEP
from eventlog.limits import MIB
from eventlog.segment import keys
from eventlog.segment.port import Pair, Range, Store
from eventlog.segment.walking import check_sum

_READ_BYTES = 8 * MIB
_KEY = np.dtype([("segment", ">u2"), ("cache", ">u4"), ("base", ">u8")])


class Gap(NamedTuple):
    """Events that are missing: of a cache in a segment, with ids in `(after, base)` and offsets in `[offset, first_offset)`."""

    segment: int
    cache: int
    after: int
    offset: int
    base: int
    first_offset: int

    def __str__(self) -> str:
        ids = f"between the ids {self.after} and {self.base}"
        return f"its events with the offsets {self.offset} to {self.first_offset - 1} are missing, {ids}"


class Place(NamedTuple):
    """Where a cache stands in a segment: the last id, the next offset, the epoch."""

    id: int
    offset: int
    epoch: int = 0


@dataclass(slots=True)
class Look:
    """A look through the log of a segment above the id `after`.

    `places` has its caches with values above it: first where retention stopped in each, in the end where its values end. `strange` are
    caches and what in them does not follow from what stands before it.
    """

    store: Store
    segment: int
    after: int
    places: dict[int, Place]
    gaps: list[Gap] = field(default_factory=list)
    strange: list[tuple[int, str]] = field(default_factory=list)

    def run(self) -> None:
        """Look. A file that the engine cannot read ends it: the store remembers that, and nobody can read what follows."""
        ranges: list[Range] = []
        for cache, trimmed in sorted(self.places.items()):
            ranges.append(keys.log_range(self.segment, cache, after=max(self.after, trimmed.id), upto=ID_MAX - 1))
            self.places[cache] = self._before(cache, trimmed)
        with suppress(CorruptData):
            for cache, pairs in self._runs(ranges):
                self._take(cache, pairs)

    def _before(self, cache: int, trimmed: Place) -> Place:
        """Return where a cache stands at the id `after`."""
        lower, _ = keys.cache_range(self.segment, cache)
        pair = self.store.last_log(lower, keys.log_key(self.segment, cache, self.after + 1)) if self.after > trimmed.id else None
        if pair is None:
            return trimmed
        head = read_head(pair[1], where=f"segment {self.segment}, cache {cache}")
        return Place(head.last_id, head.first_offset + head.count, head.epoch)

    def _runs(self, ranges: list[Range]) -> Iterator[tuple[int, Sequence[Pair]]]:
        """Yield the values of ranges in the order of their keys, of one cache at a time."""
        while ranges and (pairs := self.store.read_logs(ranges, bytes_max=_READ_BYTES)):
            caches = np.frombuffer(b"".join([key for key, _ in pairs]), _KEY)["cache"]
            for low, high in pairwise([0, *(np.flatnonzero(caches[1:] != caches[:-1]) + 1).tolist(), len(pairs)]):
                yield int(caches[low]), pairs[low:high]
            last = pairs[-1][0]
            ranges = [(max(lower, last + b"\0"), upper) for lower, upper in ranges if upper > last]

    def _take(self, cache: int, pairs: Sequence[Pair]) -> None:
        """Compare a run of values of one cache with what stands before each; go on from the last one."""
        heads = np.frombuffer(b"".join([data[:VALUE_HEAD_BYTES].ljust(VALUE_HEAD_BYTES, b"\0") for _, data in pairs]), VALUE_HEAD)
        before = self.places[cache]
        bases = np.frombuffer(b"".join([key for key, _ in pairs]), _KEY)["base"].astype(np.int64)
        counts, offsets, epochs = (heads[name].astype(np.int64) for name in ("count", "first_offset", "epoch"))
        last_ids = bases + (np.maximum(counts, 1) - 1) * ID_STEP
        self.places[cache] = Place(int(last_ids[-1]), int(offsets[-1] + counts[-1]), int(epochs[-1]))
        ids, due = np.concatenate(([before.id], last_ids[:-1])), np.concatenate(([before.offset], (offsets + counts)[:-1]))
        wrong = (offsets != due) | (heads["base"].astype(np.int64) != bases) | (bases <= ids)
        wrong |= epochs < np.concatenate(([before.epoch], epochs[:-1]))
        for row in np.flatnonzero(wrong).tolist():
            if not all(self._is_sound(cache, pair) for pair in pairs[max(row - 1, 0) : row + 1]):
                continue
            if offsets[row] > due[row] and bases[row] > ids[row]:
                self.gaps.append(Gap(self.segment, cache, int(ids[row]), int(due[row]), int(bases[row]), int(offsets[row])))
            else:
                is_so = f"id {bases[row]}, offset {offsets[row]}, epoch {epochs[row]}"
                self.strange.append((cache, f"the value at {is_so} does not follow id {ids[row]}, offset {due[row]}"))

    def _is_sound(self, cache: int, pair: Pair) -> bool:
        try:
            check_sum(self.segment, cache, pair[1])
        except CorruptData:
            return False
        return len(pair[1]) >= VALUE_HEAD_BYTES
