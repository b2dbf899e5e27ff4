"""Checksums of the state of a segment's copies, as of one moment for all of them.

Copies apply the same log at different times, so each is read from a pin of its own. What the log changed between the lowest and the
highest of these pins is left out on every node; everything else must be the same bytes, whichever pin it was read from. A pin is named by
the last id that changed the segment: every copy gets there with the event itself, without waiting for a promise beyond it.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from eventlog.batch.entries import decode_entry
from eventlog.batch.views import decode_value
from eventlog.checksum import crc32c
from eventlog.errors import CorruptData, Unavailable
from eventlog.node.background import aside
from eventlog.node.state.pins import Pin
from eventlog.node.state.state_reads import StateReads
from eventlog.segment import keys
from eventlog.segment.port import Pair, Range, Snapshot, Store
from eventlog.segment.walking import read_segment
from eventlog.state.caches import Caches
from eventlog.wire import eventlog_pb2 as pb

_READ_BYTES = 4 << 20
_READ_ROWS = 2_000
_PREFIX_BYTES = len(keys.entry_prefix(0, 0))
_DEADLINE_BYTES = 8
_WAIT_S = 10
_PAUSE_S = 0.05


class StateDigestsGround(Protocol):
    """What this module needs of the node."""

    name: str
    store: Store
    caches: Caches
    state_reads: StateReads


@dataclass(slots=True)
class StateDigest:
    """Entries read so far, and the checksums of their keys and of what is stored under them, each as one long text."""

    entries: int = 0
    of_keys: int = 0
    of_values: int = 0

    @property
    def digest(self) -> int:
        """Return both checksums as one number."""
        return self.of_keys << 32 | self.of_values

    def take(self, rows: Collection[Pair]) -> None:
        """Take in rows, which come in the order of their keys."""
        self.entries += len(rows)
        self.of_keys = crc32c(b"".join([key for key, _ in rows]), self.of_keys)
        self.of_values = crc32c(b"".join([value for _, value in rows]), self.of_values)


class StateDigests:
    """Checksums of the state of this node's copies."""

    def __init__(self, node: StateDigestsGround) -> None:
        self._node = node
        self.wait_s = _WAIT_S  # for a copy to know of what it is compared up to

    async def pin_of(self, segment: int) -> int:
        """Pin the state of a segment as it is now; return one above the last id that changed it, 0 where the state is not whole here."""
        counted = {cache.cache_id: int(cache.live[segment]) for cache in self._node.caches if cache.options.state}
        pin = await self._node.state_reads.pins.take()  # of the moment of the call, as the counters are
        pin.counted.setdefault(segment, counted)
        return pin.applied_of(segment) + 1

    async def own(self, segment: int, asked: pb.DigestSegments) -> StateDigest:
        """Return the digest of the own copy's state, read from the pin that `pin_of` set.

        Raises:
            CorruptData: it has more entries than its counter, or fewer.
            Unavailable: the pin is gone, or this copy does not get as far as the others.
        """
        pin = self._node.state_reads.pins.find_applied(segment, asked.state_pin - 1)
        if pin is None:
            raise Unavailable(why=f"the state of segment {segment} is not pinned at {asked.state_pin} any more")
        await self._reach(segment, asked.state_upto)
        trims = {cache.cache_id: cache.trimmed_ids for cache in self._node.caches if cache.options.state}
        bounds = _Bounds(segment=segment, after=asked.state_from, upto=asked.state_upto, pin=pin)
        found = await aside(partial(_read, self._node.store, bounds, sorted(trims)))
        if asked.state_from < asked.state_upto and any(trimmed[segment] > asked.state_from for trimmed in trims.values()):
            raise trimmed_meanwhile(segment)
        return found

    async def _reach(self, segment: int, upto: int) -> None:
        """Wait until this copy knows of everything up to `upto`."""
        try:
            async with asyncio.timeout(self.wait_s):
                while self._node.state_reads.pins.places().applied[segment] < upto:  # noqa: ASYNC110  # watermarks move it, which tell nobody
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            raise Unavailable(why=f"the copy of segment {segment} at {self._node.name} does not reach id {upto}") from None


def trimmed_meanwhile(segment: int) -> Unavailable:
    """Return what is raised where retention removed what was to be compared."""
    return Unavailable(why=f"retention passed the moment at which segment {segment} is compared")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    """The segment, the ids `(after, upto]` whose keys are left out, and what to read the rest from."""

    segment: int
    after: int
    upto: int
    pin: Pin


def _read(store: Store, bounds: _Bounds, caches: Collection[int]) -> StateDigest:
    found = StateDigest()
    changed = changed_keys(store, bounds.segment, after=bounds.after, upto=bounds.upto)
    counted = bounds.pin.counted.get(bounds.segment, {})
    for cache in caches:
        rows = read_state(bounds.pin.snapshot, bounds.segment, cache, without=changed.get(cache, frozenset()), found=found)
        if rows != counted.get(cache, rows):
            why = f"there are {rows} entries, and the counter knows {counted[cache]}"
            raise CorruptData(where=f"state of segment {bounds.segment}, cache {cache}", why=why)
    return found


def changed_keys(store: Store, segment: int, *, after: int, upto: int) -> Mapping[int, Collection[bytes]]:
    """Return the keys, by cache, of all events in `(after, upto]`."""
    changed: dict[int, set[bytes]] = {}
    while after < upto:
        part = read_segment(store, segment, after=after, upto=upto, bytes_max=_READ_BYTES)
        for cache, data in zip(part.caches, part.data, strict=True):
            for block in decode_value(segment, cache, data).blocks:
                changed.setdefault(cache, set()).update(block.keys.to_list())
        after = part.upto
    return changed


def read_state(snapshot: Snapshot, segment: int, cache: int, *, without: Collection[bytes], found: StateDigest) -> int:
    """Take in the entries of one cache but those of the keys `without`, and which of them lack the row that ends them.

    Return how many entries there are, left out or not.
    """
    entries = 0
    deadlines: dict[bytes, int] = {}  # of entries that end; left over in the end is what nothing would end
    for rows in _pages(snapshot, keys.tag_range(segment, cache, keys.TAG_ENTRY)):
        entries += len(rows)
        kept = [row for row in rows if row[0][_PREFIX_BYTES:] not in without] if without else rows
        found.take(kept)
        for key, value in kept:
            if value[1] and (expiry := decode_entry(value).expiry):  # the second byte says what stands before the value
                deadlines[key[_PREFIX_BYTES:]] = expiry
    if not deadlines:
        return entries
    for rows in _pages(snapshot, keys.tag_range(segment, cache, keys.TAG_EXPIRY)):
        for key, _ in rows:
            rest = keys.parse_state_key(key)[3]
            if deadlines.get(rest[_DEADLINE_BYTES:]) == int.from_bytes(rest[:_DEADLINE_BYTES]):
                del deadlines[rest[_DEADLINE_BYTES:]]
    found.take([(key, b"") for key in sorted(deadlines)])
    return entries


def _pages(snapshot: Snapshot, span: Range) -> Iterator[list[Pair]]:
    lower, upper = span
    while True:
        rows = snapshot.read(lower, upper, rows_max=_READ_ROWS, bytes_max=_READ_BYTES)
        if rows.keys:
            yield list(zip(rows.keys, rows.values, strict=True))
        if rows.is_end:
            return
        lower = rows.keys[-1] + b"\0"
