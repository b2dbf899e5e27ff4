"""A topic held against the log: counts and sums of every stretch of a segment, and the events themselves where these differ. Pure.

Two passes: the first sums stretches, a few numbers for thousands of events; the second looks only at those that differ, and at so many of
them at the most.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from eventlog.arrays import Ints

STRETCH: Final = 4_096  # offsets
STRETCHES_MAX: Final = 64
_FACTORS: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))
Place = tuple[int, int]  # segment, stretch
Event = tuple[int, int, int, int]  # segment, offset, id, letter of the kind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seen:
    """Some events of the log, or some records of a topic: `letters` are those of their kinds."""

    segments: Ints
    offsets: Ints
    ids: Ints
    letters: Ints

    def __len__(self) -> int:
        return len(self.ids)

    def within(self, low: Ints, high: Ints) -> "Seen":
        """Return those behind an id of their segment, and up to another."""
        rows = (self.ids > low[self.segments]) & (self.ids <= high[self.segments])
        return Seen(segments=self.segments[rows], offsets=self.offsets[rows], ids=self.ids[rows], letters=self.letters[rows])


class Sums:
    """What one side adds up to, stretch by stretch."""

    def __init__(self) -> None:
        self.count = 0
        self.stretches: dict[Place, tuple[int, int]] = {}

    def add(self, seen: Seen) -> None:
        """Take in more, in any order."""
        if not len(seen):
            return
        self.count += len(seen)
        places = seen.segments * (1 << 44) + seen.offsets // STRETCH
        mixed = np.zeros(len(seen), np.uint64)
        with np.errstate(over="ignore"):
            for factor, column in zip(_FACTORS, (seen.ids, seen.offsets, seen.letters), strict=True):
                mixed = (mixed ^ column.astype(np.uint64)) * factor
                mixed ^= mixed >> np.uint64(29)
            order = places.argsort(kind="stable")
            found, firsts = np.unique(places[order], return_index=True)
            sums = np.add.reduceat(mixed[order], firsts)
        counts = np.diff(firsts, append=len(seen))
        for place, count, total in zip(found.tolist(), counts.tolist(), sums.tolist(), strict=True):
            key = place >> 44, place & ((1 << 44) - 1)
            had = self.stretches.get(key, (0, 0))
            self.stretches[key] = had[0] + count, (had[1] + total) & ((1 << 64) - 1)


def differing(log: Sums, topic: Sums) -> list[Place]:
    """Return the stretches in which two sides differ, rising."""
    return sorted(
        place for place in log.stretches.keys() | topic.stretches.keys() if log.stretches.get(place) != topic.stretches.get(place)
    )


@dataclass(slots=True)
class Close:
    """The events of a few stretches, one by one."""

    places: frozenset[Place]
    events: Counter[Event] = field(default_factory=Counter)

    def add(self, seen: Seen) -> None:
        """Take in those that are in the stretches."""
        stretches = (seen.offsets // STRETCH).tolist()
        rows = zip(seen.segments.tolist(), seen.offsets.tolist(), seen.ids.tolist(), seen.letters.tolist(), stretches, strict=True)
        for segment, offset, id_, letter, stretch in rows:
            if (segment, stretch) in self.places:
                self.events[segment, offset, id_, letter] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An event that only one side has, or has another number of times."""

    segment: int
    offset: int
    id: int
    in_log: int
    in_topic: int


def differences(log: Close, topic: Close) -> list[Difference]:
    """Return what two sides do not have alike, in the order of the log."""
    found = []
    for event in sorted(log.events.keys() | topic.events.keys()):
        segment, offset, id_, _ = event
        if log.events[event] != topic.events[event]:
            found.append(Difference(segment=segment, offset=offset, id=id_, in_log=log.events[event], in_topic=topic.events[event]))
    return found
