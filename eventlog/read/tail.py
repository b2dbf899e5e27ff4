"""The tail: the latest committed groups in memory, bounded in bytes, in the order of their ids, whichever node their primary is.

Readers that keep up are served here and never touch the store. Groups are indexed by cache, so that reading one cache costs nothing
for what others write. What falls out is in the store: a group is appended there before it is committed. Groups of one primary come
in the order of their ids and never interleave; those of several come as they are committed, and their runs of ids may overlap.
"""

import bisect
from dataclasses import dataclass, field

from eventlog.ids import ID_STEP
from eventlog.limits import TAIL_RING_BYTES_MAX
from eventlog.read.answer import NO_LIMIT, CacheValues, CommittedGroup

_GROUP_BYTES = 600  # what a group and one of its values cost beside the stored bytes, roughly
_VALUE_BYTES = 150
_COMPACT_AFTER = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class TailSlice:
    """Groups of one cache that follow an id. They hold all of its events up to `upto`."""

    groups: list[CacheValues]
    upto: int
    nbytes: int


@dataclass(slots=True)
class _CacheTail:
    """Groups of one cache by their first ids, from index `start` on. `floor`: what lies at or below it may have fallen out.

    `reach` is the highest id up to and including each group: groups of several primaries may lie within each other.
    """

    floor: int
    start: int = 0
    firsts: list[int] = field(default_factory=list)
    reach: list[int] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)
    groups: list[CacheValues | None] = field(default_factory=list)

    def add(self, values: CacheValues, nbytes: int) -> None:
        first, last = values.bases[0], last_of(values)
        at = len(self.firsts)
        if at > self.start and first < self.firsts[-1]:
            at = bisect.bisect_right(self.firsts, first, lo=self.start)
        before = self.reach[at - 1] if at > self.start else 0
        self.firsts.insert(at, first)
        self.reach.insert(at, max(before, last))
        self.events.insert(at, sum(values.counts))
        self.nbytes.insert(at, nbytes)
        self.groups.insert(at, values)
        for later in range(at + 1, len(self.reach)):
            if self.reach[later] >= last:
                break
            self.reach[later] = last

    def remove(self, values: CacheValues) -> None:
        self.floor = max(self.floor, last_of(values))
        at = next((at for at in range(self.start, len(self.groups)) if self.groups[at] is values), None)
        if at is None:  # of a cache that was dropped
            return
        if at > self.start:
            for column in (self.firsts, self.reach, self.events, self.nbytes, self.groups):
                del column[at]
            return
        self.groups[at] = None
        self.start += 1
        if self.start >= _COMPACT_AFTER and self.start * 2 >= len(self.groups):
            for column in (self.firsts, self.reach, self.events, self.nbytes, self.groups):
                del column[: self.start]
            self.start = 0


class Tail:
    """Committed groups above an id; `start` comes first. `nbytes` is what they weigh."""

    def __init__(self, *, bytes_max: int = TAIL_RING_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._caches: dict[int, _CacheTail] = {}
        self._order: list[tuple[CommittedGroup, int]] = []  # by first id, from `_oldest` on, each with its weight
        self._oldest = 0
        self._start_id = 0
        self.nbytes = 0
        self.peak = 0

    def start(self, last_id: int) -> None:
        """Begin after `last_id`: everything at or below it is in the store."""
        self._start_id = last_id

    def append(self, group: CommittedGroup) -> None:
        """Take a committed group in; the oldest fall out when there is no room."""
        weight = _GROUP_BYTES
        for values in group.caches:
            cache = self._caches.get(values.cache_id)
            if cache is None:
                cache = self._caches[values.cache_id] = _CacheTail(self._start_id)
            nbytes = sum(map(len, values.data))
            cache.add(values, nbytes)
            weight += nbytes + _VALUE_BYTES * len(values.data)
        at = len(self._order)
        if at > self._oldest and group.first_id < self._order[-1][0].first_id:
            at = bisect.bisect_right(self._order, group.first_id, lo=self._oldest, key=_first_id)
        self._order.insert(at, (group, weight))
        self.nbytes += weight
        while self.nbytes > self._bytes_max:
            self._drop_oldest()
        self.peak = max(self.peak, self.nbytes)

    def skip(self, upto: int) -> None:
        """Note that events up to the id `upto` were committed, or came to be held here, without passing: they are in the store."""
        self._start_id = max(self._start_id, upto)
        for cache in self._caches.values():
            cache.floor = max(cache.floor, upto)

    def _drop_oldest(self) -> None:
        group, weight = self._order[self._oldest]
        self._order[self._oldest] = _GONE
        self._oldest += 1
        if self._oldest >= _COMPACT_AFTER and self._oldest * 2 >= len(self._order):
            del self._order[: self._oldest]
            self._oldest = 0
        self.nbytes -= weight
        for values in group.caches:
            cache = self._caches.get(values.cache_id)
            if cache is not None:
                cache.remove(values)

    def drop(self, cache_id: int) -> None:
        """Forget a cache. Its values are counted until their groups fall out."""
        self._caches.pop(cache_id, None)

    def floor(self, cache_id: int) -> int:
        """Return the id above which all committed events of a cache are here."""
        cache = self._caches.get(cache_id)
        return self._start_id if cache is None else cache.floor

    def last_id(self, cache_id: int) -> int:
        """Return the id of the last event of a cache that is here, its floor when there is none."""
        cache = self._caches.get(cache_id)
        return self.floor(cache_id) if cache is None or cache.start == len(cache.groups) else max(cache.reach[-1], cache.floor)

    def reach(self, cache_id: int, id_: int) -> int:
        """Return how far those groups come that lie at or below an id as a whole, the floor where none is here."""
        cache = self._caches.get(cache_id)
        if cache is None:
            return self.floor(cache_id)
        at = bisect.bisect_right(cache.reach, id_, lo=cache.start)
        return cache.reach[at - 1] if at > cache.start else cache.floor

    def read(self, cache_id: int, *, after: int, upto: int, nbytes_max: int, events_max: int = NO_LIMIT) -> TailSlice:
        """Return the groups with ids in `(after, upto]`, at least one, until they hold as much as asked for.

        `after` is at or above the floor. Groups may begin at or below it, and go on above `upto`.
        """
        cache = self._caches.get(cache_id)
        if cache is None:
            return TailSlice(groups=[], upto=upto, nbytes=0)
        low = bisect.bisect_right(cache.reach, after, lo=cache.start)
        events = nbytes = 0
        groups: list[CacheValues] = []
        for index in range(low, len(cache.groups)):
            group = cache.groups[index]
            assert group is not None, "only what lies before `start` has fallen out"
            first = cache.firsts[index]
            if first > upto:
                break
            if last_of(group) <= after:
                continue
            if first > after + 1 and groups and (nbytes >= nbytes_max or events >= events_max):
                return TailSlice(groups=groups, upto=min(upto, first - 1, cache.reach[index - 1]), nbytes=nbytes)
            groups.append(group)
            nbytes += cache.nbytes[index]
            events += cache.events[index]
        return TailSlice(groups=groups, upto=upto, nbytes=nbytes)

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {"tail_bytes": (self.nbytes, self._bytes_max, self.peak)}


def last_of(values: CacheValues) -> int:
    """Return the id of the last event; of an empty last value, the id it stands at."""
    return values.bases[-1] + (max(values.counts[-1], 1) - 1) * ID_STEP


def _first_id(entry: tuple[CommittedGroup, int]) -> int:
    return entry[0].first_id


_GONE = (CommittedGroup(first_id=0, last_id=0, caches=()), 0)
