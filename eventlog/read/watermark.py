"""How far a reader may see: what primaries promise about ids to come, and the limit that follows for some segments.

A promise (w, [(segment, epoch, last id)]) says: no event of these segments with an id at or below w will be committed any more,
and what is committed up to w ends with `last id`. A replica serves such a segment up to w once its committed prefix holds that
last event. One node is no special case: it makes promises for the segments that it leads and hears them like those of others.

Between nodes promises travel as rows, one a segment (`encode_promises`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from eventlog.arrays import NONE, Ints, Mask
from eventlog.errors import BadMessage

_NOWHERE = np.iinfo(np.int64).max
PROMISE: Final = np.dtype([("id", "<i8"), ("segment", "<u2"), ("zero", "<u2"), ("epoch", "<u4"), ("last_id", "<i8")])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Promise:
    """Nothing with an id at or below `id` will be committed any more in `segments`; one number a segment in the arrays."""

    id: int
    segments: Ints
    epochs: Ints
    last_ids: Ints

    def of(self, chosen: npt.NDArray[np.bool_]) -> "Promise":
        """Return the same for some of its segments."""
        if np.count_nonzero(chosen) == len(chosen):
            return self
        return Promise(id=self.id, segments=self.segments[chosen], epochs=self.epochs[chosen], last_ids=self.last_ids[chosen])


class Promises:
    """The primary's side: which segments may be promised, and what is in flight in each.

    Invariants: an event in flight has an id at or above `_first` of its segment; nothing is begun at or below `_made`.
    """

    def __init__(self, segments: int) -> None:
        self._epochs = np.zeros(segments, np.int64)
        self._leads = np.zeros(segments, bool)
        self._last_ids = np.zeros(segments, np.int64)
        self._first = np.full(segments, _NOWHERE)
        self._last = np.zeros(segments, np.int64)
        self._made = 0

    def lead(self, segments: Ints, *, epochs: Ints, last_ids: Ints) -> None:
        """Promise for `segments` from now on: they are led and adopted under `epochs`; `last_ids` are their last committed events."""
        self._leads[segments] = True
        self._epochs[segments] = epochs
        self._last_ids[segments] = last_ids
        self._first[segments] = _NOWHERE

    @property
    def leads(self) -> Mask:
        """Whether promises are made for each segment."""
        return self._leads

    def resign(self, segments: Ints) -> None:
        """Promise nothing for `segments` any more."""
        self._leads[segments] = False

    def begin(self, segments: Ints, *, first_id: int, last_id: int) -> None:
        """Register events with ids in `[first_id, last_id]` as in flight in `segments`; in the same step as they are stamped."""
        assert first_id > self._made, f"id {first_id} was stamped at or below the promise {self._made}"
        if len(segments) == 1:  # one number is worth a way without arrays
            only = segments.item(0)
            if first_id < self._first.item(only):
                self._first[only] = first_id
            self._last[only] = last_id
            return
        self._first[segments] = np.minimum(self._first[segments], first_id)
        self._last[segments] = last_id

    def commit(self, segments: Ints, last_ids: Ints | int, *, upto: int) -> None:
        """Note the last committed events of `segments`, and that nothing with an id at or below `upto` is in flight there any more."""
        self._last_ids[segments] = last_ids
        if len(segments) == 1:
            only = segments.item(0)
            if self._last.item(only) <= upto:
                self._first[only] = _NOWHERE
            elif self._first.item(only) <= upto:
                self._first[only] = upto + 1
            return
        first = self._first[segments]
        self._first[segments] = np.where(self._last[segments] <= upto, _NOWHERE, np.where(first <= upto, upto + 1, first))

    def make(self, now_id: int) -> list[Promise]:
        """Return what can be promised when nothing at or below `now_id` will be stamped any more.

        One promise up to `now_id` for what has nothing in flight there, and one below each group in flight for its segments: a group
        that stalls keeps back no readers but its own.
        """
        busy = self._first <= now_id
        free = self._leads & ~busy
        found = [self._promise(now_id, free.nonzero()[0])] if np.count_nonzero(free) else []
        busy &= self._leads
        if np.count_nonzero(busy):
            firsts = sorted(set(self._first[busy].tolist()))  # of the few groups in flight
            found += [self._promise(first - 1, (busy & (self._first == first)).nonzero()[0]) for first in firsts]
        self._made = max([self._made, *(promise.id for promise in found)])
        return found

    def _promise(self, id_: int, segments: Ints) -> Promise:
        return Promise(id=id_, segments=segments, epochs=self._epochs[segments], last_ids=self._last_ids[segments])


class LowWatermark:
    """The reader's side: promises heard and the committed prefix held, segment by segment, as one limit each.

    A segment is read `here`, from the copy of this node, or where its primary says; `is_all_here` sums that up, for every reader asks.
    Invariant: `limits` never falls, except by `drop`; every event of a segment at or below its limit is committed, and held here if the
    segment is read here.
    """

    def __init__(self, segments: int) -> None:
        self._closed = np.zeros(segments, np.int64)
        self._epochs = np.zeros(segments, np.int64)
        self._named = np.zeros(segments, np.int64)
        self._held = np.zeros(segments, np.int64)
        self._is_placed = np.ones(segments, bool)
        self.here = np.ones(segments, bool)
        self.is_all_here = True
        self.limits = np.zeros(segments, np.int64)

    def place(self, is_placed: npt.NDArray[np.bool_]) -> None:
        """Say which segments have a copy at this node that is kept up. One that is new is read here as soon as it has caught up."""
        self._is_placed = is_placed.copy()
        self.here &= is_placed
        self.is_all_here = np.count_nonzero(self.here) == len(self.here)
        self._raise(slice(None))

    def far(self, asked: Ints | None) -> Ints:
        """Return the segments of `asked` (None: all) that are read at other nodes."""
        if self.is_all_here:
            return NONE
        return np.flatnonzero(~self.here) if asked is None else asked[~self.here[asked]]

    def named(self, segments: Ints) -> int:
        """Return the highest id of those that were named with the highest promises known of some segments; 0: none."""
        return int(self._named[segments].max(initial=0))

    def hear(self, promise: Promise) -> None:
        """Take a promise in, from any node; one of an earlier epoch adds nothing."""
        of = promise.segments
        newer = (promise.id > self._closed[of]) & (promise.epochs >= self._epochs[of])
        if np.count_nonzero(newer) < len(newer):
            of = of[newer]
            self._named[of], self._epochs[of] = promise.last_ids[newer], promise.epochs[newer]
        else:
            self._named[of], self._epochs[of] = promise.last_ids, promise.epochs
        self._closed[of] = promise.id
        self._raise(promise.segments)

    def hear_own(self, promise: Promise) -> None:
        """Take a promise of this node in: a primary holds the committed prefix of what it leads."""
        of = promise.segments
        self._held[of] = np.maximum(self._held[of], promise.last_ids)
        self.hear(promise)

    def hold(self, segments: Ints | slice, last_ids: Ints | int) -> None:
        """Note that this node holds the committed prefix of `segments` up to `last_ids`."""
        self._held[segments] = np.maximum(self._held[segments], last_ids)
        self._raise(segments)

    def drop(self, segments: Ints) -> None:
        """Note that the copies of `segments` here are gone, or are about to be replaced: nothing of them can be served."""
        self._held[segments] = self.limits[segments] = 0
        self._raise(segments[~self.here[segments]])

    def _raise(self, of: Ints | slice) -> None:
        """Move limits. Without the event that a promise names, a segment is served as far as its prefix reaches.

        That much is safe without any promise: ids of a segment rise, so nothing comes below the end of a committed prefix.
        """
        closed, held = self._closed[of], self._held[of]
        reach = np.where(held >= self._named[of], np.maximum(closed, held), held)
        if not (self.is_all_here or (here := self.here[of]).all()):
            here = here | (self._is_placed[of] & (reach >= self.limits[of]) & (held >= self._named[of]))
            self.here[of] = here
            self.is_all_here = np.count_nonzero(self.here) == len(self.here)
            reach = np.where(here, reach, closed)
        self.limits[of] = np.maximum(self.limits[of], reach)

    def limit(self, asked: Ints | None = None) -> int:
        """Return the id up to which a reader of `asked` (None: all segments) may see."""
        return int((self.limits if asked is None else self.limits[asked]).min())

    def holders(self, asked: Ints | None, *, below: int) -> Ints:
        """Return the asked segments whose limit lies below the id `below`: they are why a reader stands still."""
        found = (self.limits < below).nonzero()[0]
        return found if asked is None or not len(found) else np.intersect1d(found, asked, assume_unique=True)


assert PROMISE.itemsize == 24, "rows are whole words; the layout is frozen"


def encode_promises(promises: Sequence[Promise]) -> bytes:
    """Return the rows of promises."""
    rows = np.zeros(sum(len(promise.segments) for promise in promises), PROMISE)
    low = 0
    for promise in promises:
        own = rows[low : low + len(promise.segments)]
        own["id"], own["segment"], own["epoch"], own["last_id"] = promise.id, promise.segments, promise.epochs, promise.last_ids
        low += len(own)
    return rows.tobytes()


def decode_promises(body: bytes | memoryview, *, segments: int) -> list[Promise]:
    """Return promises from their rows, one for each id.

    Raises:
        BadMessage: no whole number of rows, or a segment that the cluster does not have, or has been named twice.
    """
    if len(body) % PROMISE.itemsize:
        raise BadMessage(why=f"{len(body)} bytes are no whole number of promises")
    rows = np.frombuffer(body, PROMISE)
    of = rows["segment"].astype(np.int64)
    is_once = not np.count_nonzero(of[1:] <= of[:-1]) or len(np.unique(of)) == len(of)
    if not is_once or np.count_nonzero(of >= segments) or np.count_nonzero(rows["id"] < 0) or np.count_nonzero(rows["last_id"] < 0):
        raise BadMessage(why="a promise of segments or ids that cannot be")
    if len(rows) and not np.count_nonzero(rows["id"] != rows["id"][0]):
        epochs, last_ids = rows["epoch"].astype(np.int64), rows["last_id"].astype(np.int64)
        return [Promise(id=rows["id"].item(0), segments=of, epochs=epochs, last_ids=last_ids)]
    found = []
    for id_ in np.unique(rows["id"]).tolist():
        own = rows["id"] == id_
        epochs, last_ids = rows["epoch"][own].astype(np.int64), rows["last_id"][own].astype(np.int64)
        found.append(Promise(id=id_, segments=of[own], epochs=epochs, last_ids=last_ids))
    return found
