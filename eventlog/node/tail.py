"""The tail: the latest committed groups in memory, bounded in bytes, in the order of their ids.

Readers who keep up are served here and never touch the store. Groups are indexed by cache, so that reading one cache costs nothing
for what others write. What falls out is in the store: a group is appended there before it is committed.
"""

import bisect
from collections import deque
from dataclasses import dataclass, field

from eventlog.consume.cut import NO_LIMIT
from eventlog.consume.groups import CacheValues, CommittedGroup
from eventlog.limits import TAIL_RING_BYTES_MAX

_GROUP_BYTES = 600  # what a group and one of its values cost beside the stored bytes, roughly
_VALUE_BYTES = 150
_COMPACT_AFTER = 1_024
_NEVER = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class TailSlice:
    """Groups of one cache that follow an id. They hold all of its events up to `upto`."""

    groups: list[CacheValues]
    upto: int
    nbytes: int


@dataclass(slots=True)
class _CacheTail:
    """Groups of one cache, oldest first, from index `start` on. `floor`: what lies at or below it may have fallen out."""

    floor: int
    start: int = 0
    is_dropped: bool = False
    last_ids: list[int] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)
    groups: list[CacheValues | None] = field(default_factory=list)

    def drop_oldest(self) -> None:
        self.floor = self.last_ids[self.start]
        self.groups[self.start] = None
        self.start += 1
        if self.start >= _COMPACT_AFTER and self.start * 2 >= len(self.groups):
            for column in (self.last_ids, self.events, self.nbytes, self.groups):
                del column[: self.start]
            self.start = 0


_NOTHING = CacheValues(cache_id=0, segments=[], bases=[_NEVER], counts=[], data=[])


class Tail:
    """Committed groups above an id; `start` comes first. `nbytes` is what they weigh."""

    def __init__(self, *, bytes_max: int = TAIL_RING_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._caches: dict[int, _CacheTail] = {}
        self._order: deque[tuple[tuple[int, ...], int]] = deque()
        self._start_id = 0
        self._last_id = 0
        self.nbytes = 0
        self.peak = 0

    def start(self, last_id: int) -> None:
        """Begin after `last_id`: everything at or below it is in the store."""
        self._start_id = self._last_id = last_id

    def append(self, group: CommittedGroup) -> None:
        """Take a committed group in; the oldest fall out when there is no room."""
        assert group.first_id > self._last_id, "groups come in the order of their ids"
        self._last_id = group.last_id
        weight = _GROUP_BYTES
        for values in group.caches:
            cache = self._caches.get(values.cache_id)
            if cache is None:
                cache = self._caches[values.cache_id] = _CacheTail(self._start_id)
            nbytes = sum(map(len, values.data))
            cache.last_ids.append(values.bases[-1] + (max(values.counts[-1], 1) - 1 << 10))
            cache.events.append(sum(values.counts))
            cache.nbytes.append(nbytes)
            cache.groups.append(values)
            weight += nbytes + _VALUE_BYTES * len(values.data)
        self._order.append((tuple(values.cache_id for values in group.caches), weight))
        self.nbytes += weight
        while self.nbytes > self._bytes_max:
            self._drop_oldest()
        self.peak = max(self.peak, self.nbytes)

    def _drop_oldest(self) -> None:
        cache_ids, weight = self._order.popleft()
        self.nbytes -= weight
        for cache_id in cache_ids:
            cache = self._caches[cache_id]
            cache.drop_oldest()
            if cache.is_dropped and cache.start == len(cache.groups):
                del self._caches[cache_id]

    def drop(self, cache_id: int) -> None:
        """Forget the values of a cache. They are counted until their groups fall out."""
        cache = self._caches.get(cache_id)
        if cache is not None:
            cache.is_dropped = True
            cache.groups[cache.start :] = [_NOTHING] * (len(cache.groups) - cache.start)

    def floor(self, cache_id: int) -> int:
        """Return the id above which all events of a cache are here. No group lies on both sides of it."""
        cache = self._caches.get(cache_id)
        return self._start_id if cache is None else cache.floor

    def last_id(self, cache_id: int) -> int:
        """Return the id of the last event of a cache that is here, its floor when there is none."""
        cache = self._caches.get(cache_id)
        return self.floor(cache_id) if cache is None or cache.start == len(cache.groups) else cache.last_ids[-1]

    def read(self, cache_id: int, *, after: int, upto: int, nbytes_max: int, events_max: int = NO_LIMIT) -> TailSlice:
        """Return the groups with ids in `(after, upto]`, at least one, until they hold as much as asked for.

        `after` is at or above the floor. The first group may begin at or below it, the last may go on above `upto`.
        """
        cache = self._caches.get(cache_id)
        if cache is None:
            return TailSlice(groups=[], upto=upto, nbytes=0)
        low = bisect.bisect_right(cache.last_ids, after, lo=cache.start)
        events = nbytes = 0
        groups: list[CacheValues] = []
        for index in range(low, len(cache.groups)):
            group = cache.groups[index]
            assert group is not None, "only what lies before `start` has fallen out"
            if group.bases[0] > upto:
                break
            if groups and (nbytes >= nbytes_max or events >= events_max):
                return TailSlice(groups=groups, upto=min(upto, cache.last_ids[index - 1]), nbytes=nbytes)
            groups.append(group)
            nbytes += cache.nbytes[index]
            events += cache.events[index]
        return TailSlice(groups=groups, upto=upto, nbytes=nbytes)

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {"tail_bytes": (self.nbytes, self._bytes_max, self.peak)}
