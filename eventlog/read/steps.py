"""A cache's log indexed by id, coarsely: how many events and bytes it had, over all its life, up to some ids.

A step stands at the end of a group, once so many bytes or events of its primary have come since the one before. It says about how much
there is: groups of several primaries may overlap. Readers choose by steps where one answer ends, retention up to where it removes. Rows are
written with the group that makes them and count its primary's alone; encoding them is the node's business.

`LastEvents` finds where the last events of a log begin, by counts of what lies behind one id after the other.
"""

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from eventlog.ids import ID_STEP
from eventlog.limits import STEP_BYTES, STEP_EVENTS

Row = tuple[int, int, int, int]  # cache id, id, its primary's events and bytes up to and including it
_ORIGIN = ID_STEP - 1  # the part of an id that says whose it is


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStep:
    """Up to and including `id` a cache had `events` events of `nbytes` bytes."""

    id: int
    events: int
    nbytes: int


@dataclass(slots=True)
class _Origin:
    """What came from one primary: in all, and since its last step. Its groups come in the order of their ids."""

    last_id: int = 0
    events: int = 0
    nbytes: int = 0
    events_since: int = 0
    nbytes_since: int = 0


@dataclass(slots=True)
class _CacheSteps:
    """Rising columns; the first step stays as the base when what lies below it is trimmed. `events`, `nbytes`: at the log's end."""

    ids: list[int] = field(default_factory=lambda: [0])
    events: list[int] = field(default_factory=lambda: [0])
    nbytes: list[int] = field(default_factory=lambda: [0])
    events_now: int = 0
    nbytes_now: int = 0
    origins: dict[int, _Origin] = field(default_factory=dict)

    def step(self, index: int) -> IndexStep:
        return IndexStep(id=self.ids[index], events=self.events[index], nbytes=self.nbytes[index])

    def origin(self, id_: int) -> _Origin:
        found = self.origins.get(id_ & _ORIGIN)
        if found is None:
            found = self.origins[id_ & _ORIGIN] = _Origin()
            if len(self.origins) == 1:  # what was counted at start without a step is its
                found.events = found.events_since = self.events_now - self.events[-1]
                found.nbytes = found.nbytes_since = self.nbytes_now - self.nbytes[-1]
        return found

    def add_step(self, id_: int, *, events: int, nbytes: int) -> None:
        """Put a step where it belongs; all above it have as much more below them."""
        at = len(self.ids) if id_ > self.ids[-1] else bisect.bisect_right(self.ids, id_)
        before = max(at - 1, 0)
        self.ids.insert(at, id_)
        self.events.insert(at, self.events[before] + events)
        self.nbytes.insert(at, self.nbytes[before] + nbytes)
        for later in range(at + 1, len(self.ids)):
            self.events[later] += events
            self.nbytes[later] += nbytes

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
        cache = self._caches.get(cache_id)
        if cache is None:
            cache = self._caches[cache_id] = _CacheSteps()
        origin = cache.origin(last_id)
        assert last_id > origin.last_id, "groups of a primary come in the order of their ids"
        origin.last_id = last_id
        origin.events += events
        origin.nbytes += nbytes
        origin.events_since += events
        origin.nbytes_since += nbytes
        cache.events_now += events
        cache.nbytes_now += nbytes
        if origin.nbytes_since < self._step_bytes and origin.events_since < self._step_events:
            return []
        cache.add_step(last_id, events=origin.events_since, nbytes=origin.nbytes_since)
        origin.events_since = origin.nbytes_since = 0
        return [(cache_id, last_id, origin.events, origin.nbytes)]

    def load(self, rows: Iterable[Row]) -> None:
        """Take stored rows in at start, in the order of (cache, id). What came after a cache's last step follows by `add_tail`."""
        for cache_id, own in groupby(rows, key=itemgetter(0)):
            self._load(self._caches.setdefault(cache_id, _CacheSteps()), list(own))

    def _load(self, cache: _CacheSteps, rows: list[Row]) -> None:
        several = len({row[1] & _ORIGIN for row in rows}) > 1
        for _, last_id, events, nbytes in rows:
            is_first = last_id & _ORIGIN not in cache.origins
            origin = cache.origin(last_id)
            more = events - origin.events, nbytes - origin.nbytes
            origin.last_id, origin.events, origin.nbytes = last_id, events, nbytes
            if is_first and several:  # how much of it retention has removed is not known: all of it stands below the first step
                cache.events = [count + more[0] for count in cache.events]
                cache.nbytes = [count + more[1] for count in cache.nbytes]
                more = 0, 0
            cache.add_step(last_id, events=more[0], nbytes=more[1])
        cache.events_now, cache.nbytes_now = cache.events[-1], cache.nbytes[-1]

    def add_tail(self, cache_id: int, *, events: int, nbytes: int) -> None:
        """Count what the log holds after a cache's last step; once, at start, after `load`."""
        cache = self._caches.setdefault(cache_id, _CacheSteps())
        cache.events_now = cache.events[-1] + events
        cache.nbytes_now = cache.nbytes[-1] + nbytes
        if len(cache.origins) == 1:
            (origin,) = cache.origins.values()
            origin.events, origin.events_since = origin.events + events, events
            origin.nbytes, origin.nbytes_since = origin.nbytes + nbytes, nbytes

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
            low = bisect.bisect_right(cache.ids, above)
            for at in range(low, len(cache.ids)):
                origin = cache.origin(cache.ids[at])
                origin.events -= cache.events[at] - cache.events[at - 1]
                origin.nbytes -= cache.nbytes[at] - cache.nbytes[at - 1]
            for origin in cache.origins.values():
                origin.events, origin.events_since = origin.events - origin.events_since, 0
                origin.nbytes, origin.nbytes_since = origin.nbytes - origin.nbytes_since, 0
                origin.last_id = min(origin.last_id, above)
            cache.keep(0, low)
            cache.events_now, cache.nbytes_now = cache.events[-1], cache.nbytes[-1]

    def drop(self, cache_id: int) -> None:
        """Forget a cache."""
        self._caches.pop(cache_id, None)

    # ------------------------------------------------------------ reading

    def last(self, cache_id: int) -> IndexStep:
        """Return the last step of a cache; the one at id 0 when it has none."""
        cache = self._caches.get(cache_id)
        return IndexStep(id=0, events=0, nbytes=0) if cache is None else cache.step(-1)

    def now(self, cache_id: int) -> tuple[int, int]:
        """Return events and bytes of all groups counted, trimmed ones included."""
        cache = self._caches.get(cache_id)
        return (0, 0) if cache is None else (cache.events_now, cache.nbytes_now)

    def between(self, cache_id: int, *, after: int, upto: int) -> list[IndexStep]:
        """Return the steps with ids in `(after, upto]`."""
        cache = self._caches.get(cache_id)
        if cache is None:
            return []
        low, high = bisect.bisect_right(cache.ids, after), bisect.bisect_right(cache.ids, upto)
        return [cache.step(index) for index in range(low, high)]

    def at_or_below(self, cache_id: int, id_: int) -> IndexStep:
        """Return the last step at or below `id_`; the base when that lies above."""
        cache = self._caches.get(cache_id)
        if cache is None:
            return IndexStep(id=0, events=0, nbytes=0)
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

    def after(self, cache_id: int, id_: int) -> IndexStep | None:
        """Return the first step above `id_`: a cut finer than steps lies between the two."""
        cache = self._caches.get(cache_id)
        if cache is None:
            return None
        index = bisect.bisect_right(cache.ids, id_)
        return cache.step(index) if index < len(cache.ids) else None


class LastEvents:
    """Looks for an id behind which exactly `events` lie.

    `behind`, which are more, lie behind `low`, and none behind `high`. A guess lies on the straight line between what is known of two
    ids, for logs mostly grow evenly, and in their middle after one that did not halve what is between them. Where the events around a
    guess are told, what lies between two bursts of events is passed over at once.
    """

    def __init__(self, events: int, *, low: int, high: int, behind: int) -> None:
        self._events = events
        self._low, self._high = low, high
        self._behind_low, self._behind_high = behind, 0
        self._takes_middle = False

    def guess(self) -> int:
        """Return an id behind which events are to be counted."""
        width = self._high - self._low
        if self._takes_middle:
            return self._low + width // 2
        part = width * (self._behind_low - self._events) // (self._behind_low - self._behind_high)
        return self._low + min(max(part, 1), width - 1)

    def take(self, id_: int, behind: int, *, last_id: int, next_id: int) -> int | None:
        """Take in how many events lie behind an id, and return the id that is looked for once it is known.

        `last_id` is of the last event at or below `id_`, and `next_id` of the first one above; 0 where that is not known.
        """
        width = self._high - self._low
        if behind == self._events:
            return id_
        if behind > self._events:
            self._low, self._behind_low = max(id_, next_id - 1), behind
        else:
            self._high, self._behind_high = last_id or id_, behind
        self._takes_middle = not self._takes_middle and 2 * (self._high - self._low) > width
        return self._high if self._high - self._low <= 1 else None  # retention took some while they were counted: there are fewer now
