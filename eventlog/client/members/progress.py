"""How far a member of a group is in each of its segments. Pure.

fetch       where it asks for more
handed      where it goes on behind what the application has been handed
done        what the application is through with: it has asked for what comes next
committed   what the group knows of
"""

import threading
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from eventlog.arrays import Ints
from eventlog.client.reading.batches import EventBatch
from eventlog.events import Event
from eventlog.groups.record import Place
from eventlog.read.position import Position, SegmentPositions

Places = dict[int, Place]


class MemberProgress:
    """The places of one member. Segments come with `begin` and go with `drop`; everything else is about segments that it has."""

    def __init__(self) -> None:
        self.fetch: Places = {}
        self.handed: Places = {}
        self.done: Places = {}
        self.committed: Places = {}
        self._epochs: dict[int, int] = {}
        self._passed: dict[int, Event] = {}  # handed or done one by one: made into places when they are asked for
        self._last: Event | None = None
        self._lock = threading.Lock()  # the blocking facade hands out events in the application's thread

    @property
    def owned(self) -> frozenset[int]:
        """The segments that it has."""
        return frozenset(self.handed)

    def begin(self, places: Mapping[int, Place]) -> None:
        """Take segments in, each at the place up to which the group is through."""
        for segment, place in places.items():
            self.fetch[segment] = self.handed[segment] = self.done[segment] = self.committed[segment] = place

    def drop(self, segments: Iterable[int]) -> None:
        """Let go of segments."""
        self._settle()
        for segment in segments:
            for places in (self.fetch, self.handed, self.done, self.committed, self._epochs, self._passed):
                places.pop(segment, None)
        if self._last is not None and self._last.segment not in self.handed:
            self._last = None

    def rewind(self, segments: Iterable[int]) -> None:
        """Fetch again what was fetched and not handed out."""
        self._settle()
        for segment in segments:
            self.fetch[segment] = self.handed[segment]

    # ------------------------------------------------------------ handing out

    def fetched(self, after: Mapping[int, Place]) -> None:
        """Note where to ask for more."""
        self.fetch.update({segment: place for segment, place in after.items() if segment in self.fetch})

    def hand_event(self, event: Event) -> None:
        """Note that an event is handed out; the one before it is done."""
        with self._lock:
            last, self._last = self._last, event
            if last is not None:
                self._passed[last.segment] = last

    def hand_batch(self, batch: EventBatch) -> None:
        """Note that a batch is handed out; what was before it is done."""
        self.all_done()
        for segment, place in ends_of(batch).items():
            if segment in self.handed:
                self.handed[segment] = place

    def know_epochs(self, batch: EventBatch) -> None:
        """Note the epochs of a batch whose events are handed out one by one."""
        segments, firsts = np.unique(batch.segments[::-1], return_index=True)
        epochs = batch.epochs[::-1][firsts]
        self._epochs.update(zip(segments.tolist(), epochs.tolist(), strict=True))

    def pass_over(self, after: Mapping[int, Place]) -> None:
        """Note that all of an answer was handed out: its places are further than its events, by what did not match."""
        self._settle()
        for segment, place in after.items():
            if segment in self.handed and self.handed[segment].id <= place.id:
                is_done = self.done[segment] == self.handed[segment]
                self.handed[segment] = place
                if is_done:
                    self.done[segment] = place

    def all_done(self) -> None:
        """Note that the application is through with all it was handed."""
        self._settle()
        self.done.update(self.handed)

    def _settle(self) -> None:
        """Make places of events that were handed out one by one."""
        with self._lock:
            passed, self._passed = self._passed, {}
            last = self._last
        for segment, event in passed.items():
            if segment in self.handed:
                self.handed[segment] = self.done[segment] = self.place_of(event)
        if last is not None and last.segment in self.handed and last.id > self.handed[last.segment].id:
            self.handed[last.segment] = self.place_of(last)

    def finish_event(self) -> None:
        """Note that the application is through with the event it was handed last."""
        with self._lock:
            last, self._last = self._last, None
            if last is not None:
                self._passed[last.segment] = last

    # ------------------------------------------------------------ committing

    def place_of(self, event: Event) -> Place:
        """Return the place behind an event."""
        return Place(id=event.id, next_offset=event.offset + 1, epoch=self._epochs.get(event.segment, 0))

    def uncommitted(self, *, all_handed: bool, segments: Collection[int] | None = None) -> Places:
        """Return places that the group does not know of: behind all that was handed out, or only behind what is done."""
        self._settle()
        wanted = self.handed if all_handed else self.done
        return {
            segment: place
            for segment, place in wanted.items()
            if place.id > self.committed[segment].id and (segments is None or segment in segments)
        }

    def was_committed(self, places: Mapping[int, Place]) -> None:
        """Note what the group knows of."""
        for segment, place in places.items():
            if segment in self.committed and self.committed[segment].id < place.id:
                self.committed[segment] = place


def ends_of(batch: EventBatch) -> Places:
    """Return the place behind the last event of each segment in a batch."""
    order = np.argsort(batch.ids, kind="stable")
    segments, lasts = np.unique(batch.segments[order][::-1], return_index=True)
    rows = order[::-1][lasts]
    columns = (segments, batch.ids[rows], batch.offsets[rows] + 1, batch.epochs[rows])
    found = zip(*(column.tolist() for column in columns), strict=True)
    return {segment: Place(id=id_, next_offset=offset, epoch=epoch) for segment, id_, offset, epoch in found}


def position_of(places: Mapping[int, Place], scope: tuple[str, int, int]) -> Position:
    """Return places as a position of (cluster, cache, number of segments)."""
    cluster, cache_id, segments = scope
    of = sorted(places)
    ordered = [places[segment] for segment in of]

    def column(numbers: list[int]) -> Ints:
        return np.array(numbers, np.int64)

    at = SegmentPositions(
        of=column(of),
        ids=column([place.id for place in ordered]),
        offsets=column([place.next_offset for place in ordered]),
        epochs=column([place.epoch for place in ordered]),
    )
    return Position(cluster=cluster, cache_id=cache_id, segments=segments, at=at)


def places_of(position: Position) -> Places:
    """Return the places of a position per segment."""
    at = position.at
    assert isinstance(at, SegmentPositions), "it was asked for by segment"
    columns = (at.of, at.ids, at.offsets, at.epochs)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return {segment: Place(id=id_, next_offset=offset, epoch=epoch) for segment, id_, offset, epoch in rows}
