"""A cache's log indexed by id, coarsely: how many events and bytes it had, over all its life, up to some ids.

A step stands at the end of a group, once so many bytes or events have come since the one before, so no stored value lies on both
sides of it. Readers choose by steps where one answer ends, retention up to where it removes. Rows are written with the group that
makes them; encoding them is the node's business.
"""

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field

from eventlog.limits import STEP_BYTES, STEP_EVENTS

Row = tuple[int, int, int, int]  # cache id, id, events and bytes up to and including it


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Up to and including `id` a cache had `events` events of `nbytes` bytes."""

    id: int
    events: int
    nbytes: int


@dataclass(slots=True)
class _CacheSteps:
    """Rising columns; the first step stays as the base when what lies below it is trimmed. `events`, `nbytes`: at the log's end."""

    ids: list[int] = field(default_factory=lambda: [0])
    events: list[int] = field(default_factory=lambda: [0])
    nbytes: list[int] = field(default_factory=lambda: [0])
    events_now: int = 0
    nbytes_now: int = 0

    def step(self, index: int) -> Step:
        return Step(id=self.ids[index], events=self.events[index], nbytes=self.nbytes[index])

    def append(self, last_id: int) -> None:
        self.ids.append(last_id)
        self.events.append(self.events_now)
        self.nbytes.append(self.nbytes_now)

    def keep(self, low: int, high: int) -> None:
        self.ids, self.events, self.nbytes = self.ids[low:high], self.events[low:high], self.nbytes[low:high]


class StepIndex:
    """The steps of all caches of a node."""

    def __init__(self, *, step_events: int = STEP_EVENTS, step_bytes: int = STEP_BYTES) -> None:
        self._step_events = step_events
        self._step_bytes = step_bytes
        self._caches: dict[int, _CacheSteps] = {}

    # ------------------------------------------------------------ writing

    def add(self, cache_id: int, last_id: int, events: int, nbytes: int) -> list[Row]:
        """Count a group that ends with `last_id`; return the rows to store with it, none or one."""
        cache = self._caches.setdefault(cache_id, _CacheSteps())
        assert last_id > cache.ids[-1], "groups come in the order of their ids"
        cache.events_now += events
        cache.nbytes_now += nbytes
        if cache.nbytes_now - cache.nbytes[-1] < self._step_bytes and cache.events_now - cache.events[-1] < self._step_events:
            return []
        cache.append(last_id)
        return [(cache_id, last_id, cache.events_now, cache.nbytes_now)]

    def load(self, rows: Iterable[Row]) -> None:
        """Take stored rows in at start, in the order of (cache, id). What came after a cache's last step follows by `add_tail`."""
        for cache_id, last_id, events, nbytes in rows:
            cache = self._caches.setdefault(cache_id, _CacheSteps())
            cache.events_now, cache.nbytes_now = events, nbytes
            cache.append(last_id)

    def add_tail(self, cache_id: int, *, events: int, nbytes: int) -> None:
        """Count what the log holds after a cache's last step; once, at start, after `load`."""
        cache = self._caches.setdefault(cache_id, _CacheSteps())
        cache.events_now = cache.events[-1] + events
        cache.nbytes_now = cache.nbytes[-1] + nbytes

    def trim(self, cache_id: int, upto: int) -> int:
        """Forget the steps that retention has passed by removing up to the id `upto`; the highest of them stays as the base.

        Return the id at and below which stored rows may go, 0 for none.
        """
        cache = self._caches.get(cache_id)
        if cache is None:
            return 0
        base = bisect.bisect_right(cache.ids, upto) - 1
        gone = cache.ids[base - 1] if base > 0 else 0
        cache.keep(max(base, 0), len(cache.ids))
        return gone

    def cut(self, cache_id: int, above: int) -> None:
        """Forget the steps above the id `above`: the log was cut there. What remains after the last step follows by `add_tail`."""
        cache = self._caches.get(cache_id)
        if cache is not None:
            cache.keep(0, bisect.bisect_right(cache.ids, above))
            cache.events_now, cache.nbytes_now = cache.events[-1], cache.nbytes[-1]

    def drop(self, cache_id: int) -> None:
        """Forget a cache."""
        self._caches.pop(cache_id, None)

    # ------------------------------------------------------------ reading

    def last(self, cache_id: int) -> Step:
        """Return the last step of a cache; the one at id 0 when it has none."""
        cache = self._caches.get(cache_id)
        return Step(id=0, events=0, nbytes=0) if cache is None else cache.step(-1)

    def now(self, cache_id: int) -> tuple[int, int]:
        """Return events and bytes of all groups counted, trimmed ones included."""
        cache = self._caches.get(cache_id)
        return (0, 0) if cache is None else (cache.events_now, cache.nbytes_now)

    def between(self, cache_id: int, *, after: int, upto: int) -> list[Step]:
        """Return the steps with ids in `(after, upto]`."""
        cache = self._caches.get(cache_id)
        if cache is None:
            return []
        low, high = bisect.bisect_right(cache.ids, after), bisect.bisect_right(cache.ids, upto)
        return [cache.step(index) for index in range(low, high)]

    def at_or_below(self, cache_id: int, id_: int) -> Step:
        """Return the last step at or below `id_`; the base when that lies above."""
        cache = self._caches.get(cache_id)
        if cache is None:
            return Step(id=0, events=0, nbytes=0)
        return cache.step(max(bisect.bisect_right(cache.ids, id_) - 1, 0))

    def choose_cut(self, cache_id: int, *, after: int, nbytes_max: int) -> int | None:
        """Return the id of the step at which an answer that begins after `after` ends: the last within `nbytes_max`, at least one.

        None when no step lies above `after`. Counted from the step at or below `after`, so the answer may be smaller.
        """
        cache = self._caches.get(cache_id)
        if cache is None:
            return None
        low = bisect.bisect_right(cache.ids, after)
        if low == len(cache.ids):
            return None
        fits = bisect.bisect_right(cache.nbytes, cache.nbytes[max(low - 1, 0)] + nbytes_max, lo=low) - 1
        return cache.ids[max(fits, low)]

    # ------------------------------------------------------------ retention

    def removable(self, cache_id: int, *, events_max: int | None = None, nbytes_max: int | None = None, upto: int | None = None) -> int:
        """Return the highest step id at which retention may cut and still keep what it promises, 0 for nowhere.

        It keeps at least the newest `events_max` events or `nbytes_max` bytes (whichever removes more), and with `upto` everything
        above that id counts as too young by time. Limits that are None remove nothing; `upto` alone removes by time.
        """
        cache = self._caches.get(cache_id)
        if cache is None:
            return 0
        index = 0
        if events_max is not None:
            index = max(index, bisect.bisect_right(cache.events, cache.events_now - events_max) - 1)
        if nbytes_max is not None:
            index = max(index, bisect.bisect_right(cache.nbytes, cache.nbytes_now - nbytes_max) - 1)
        if upto is not None:
            index = max(index, bisect.bisect_right(cache.ids, upto) - 1)
        return cache.ids[index] if index > 0 else 0

    def after(self, cache_id: int, id_: int) -> Step | None:
        """Return the first step above `id_`: a cut finer than steps lies between the two."""
        cache = self._caches.get(cache_id)
        if cache is None:
            return None
        index = bisect.bisect_right(cache.ids, id_)
        return cache.step(index) if index < len(cache.ids) else None
