"""A mirror's topic compared with the log, as far as the progress says that it was written: every event once, and nothing else.

Counts and sums of every stretch of a segment are compared, and the events themselves where these differ. So there are two passes: the
first sums stretches, a few numbers for thousands of events; the second looks only at those that differ, and at so many of them at the most.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from struct import Struct, error
from typing import Final

import numpy as np

from eventlog.arrays import Ints
from eventlog.batch.columns import columns_of_joined
from eventlog.events import Kind
from eventlog.ids import ID_MAX
from eventlog.integrations.kafka.source import Inside
from eventlog.kafka.records import KIND_LETTERS
from eventlog.mirror import progress
from eventlog.mirror.book import Mirror
from eventlog.mirror.broker import Kafka, TopicRecord
from eventlog.mirror.shards import segments_of
from eventlog.read.position import EPOCH_MAX, SegmentPositions

_OFF: Final = Struct(">iq")
_STATE: Final = KIND_LETTERS[Kind.STATE]
_LETTERS: Final = np.array([KIND_LETTERS[kind][0] for kind in Kind], np.int64)
STRETCH: Final = 4_096  # offsets
STRETCHES_MAX: Final = 64
_FACTORS: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))
Place = tuple[int, int]  # segment, stretch
Event = tuple[int, int, int, int]  # segment, offset, id, letter of the kind


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRange:
    """What is compared of each segment: behind an id, and up to another."""

    low: Ints
    high: Ints


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An event that only one side has, or has another number of times."""

    segment: int
    offset: int
    id: int
    in_log: int
    in_topic: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorVerified:
    """What a comparison found. `foreign` records are not a mirror's; of many differences the first are there."""

    events: int
    records: int
    foreign: int
    found: list[Difference]
    stretches: int


class Verifying:
    """One comparison."""

    def __init__(self, inside: Inside, kafka: Kafka, mirror: Mirror, *, cluster: str, segments: int) -> None:
        self._inside = inside
        self._kafka = kafka
        self._mirror = mirror
        self._cluster = cluster
        self._segments = segments
        self._foreign = 0

    async def run(self, *, first_kept: int, from_id: int, until_id: int) -> MirrorVerified:
        """Compare what was written behind `from_id` and up to `until_id`, 0 for any, of what the log still has.

        Raises:
            Trouble: Kafka is away, or does not say.
            EventLogError: the log cannot be read.
        """
        bounds = await self._bounds(max(from_id, first_kept - 1), until_id or ID_MAX)
        log, topic = Sums(), Sums()
        await self._both(bounds, log.add, topic.add)
        places = differing(log, topic)
        found: list[Difference] = []
        if places:
            near = frozenset(places[:STRETCHES_MAX])
            close = Close(near), Close(near)
            await self._both(bounds, close[0].add, close[1].add)
            found = differences(*close)
        return MirrorVerified(events=log.count, records=topic.count, foreign=self._foreign, found=found, stretches=len(places))

    async def _bounds(self, low: int, high: int) -> ComparedRange:
        """Return what is to be there: behind where the mirror began, and up to where the progress says that each segment was written."""
        mirror = self._mirror
        records = await self._kafka.records(mirror.progress_topic)
        every = np.arange(self._segments)
        begun = progress.places({}, mirror, of=every, cluster=self._cluster, term=EPOCH_MAX).ids.copy()
        if mirror.has_snapshot:
            for shard in range(mirror.shards):
                kept = progress.snapshot_of(records, mirror, shard, cluster=self._cluster, term=EPOCH_MAX)
                at = kept.position.at if kept.is_done and kept.position is not None else None
                own = segments_of(shard, mirror, segments=self._segments)
                begun[own] = at.ids if isinstance(at, SegmentPositions) else begun[own]
        written = progress.places(records, mirror, of=every, cluster=self._cluster, term=EPOCH_MAX).ids
        return ComparedRange(low=np.maximum(begun, low), high=np.minimum(written, high))

    async def _both(self, bounds: ComparedRange, of_log: Callable[[Seen], None], of_topic: Callable[[Seen], None]) -> None:
        self._foreign = 0
        async for seen in self._log(bounds):
            of_log(seen.within(bounds.low, bounds.high))
        mirror = self._mirror
        topics = {mirror.topic: mirror.partitions}
        topics |= await self._kafka.partitions([mirror.letters_topic])  # what is told there is no less written
        for topic, partitions in topics.items():
            records = self._kafka.read(topic, partitions)
            async with aclosing(records):
                async for some in records:
                    of_topic(self._seen(some).within(bounds.low, bounds.high))

    async def _log(self, bounds: ComparedRange) -> AsyncIterator[Seen]:
        after, until = int(bounds.low.min()), int(bounds.high.max())
        if after >= until:
            return
        reading = self._inside.source(self._mirror, cluster=self._cluster, segments=self._segments)
        async with reading as source, aclosing(source.past(after, until)) as answers:
            async for answer in answers:
                if answer.events:
                    events = columns_of_joined(answer.parts)
                    yield Seen(segments=events.segments, offsets=events.offsets, ids=events.ids, letters=_LETTERS[events.kinds])

    def _seen(self, records: list[TopicRecord]) -> Seen:
        """Return what records say in their headers of whose they are; entries of a snapshot and tombstones are told beside events."""
        rows: list[tuple[int, int, int, int]] = []
        skips_null = self._mirror.format == "debezium" and self._mirror.has_tombstones
        for record in records:
            try:
                segment, offset = _OFF.unpack(record.headers["off"])
                id_, letter = int.from_bytes(record.headers["id"]), record.headers["kind"]
            except (KeyError, error):
                self._foreign += 1
                continue
            if letter == _STATE or (skips_null and record.is_null):
                continue
            if not 0 <= segment < self._segments or len(letter) != 1:
                self._foreign += 1
                continue
            rows.append((segment, offset, id_, letter[0]))
        columns = np.array(rows, np.int64).reshape(-1, 4).T
        return Seen(segments=columns[0], offsets=columns[1], ids=columns[2], letters=columns[3])


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


def differences(log: Close, topic: Close) -> list[Difference]:
    """Return what two sides do not have alike, in the order of the log."""
    found = []
    for event in sorted(log.events.keys() | topic.events.keys()):
        segment, offset, id_, _ = event
        if log.events[event] != topic.events[event]:
            found.append(Difference(segment=segment, offset=offset, id=id_, in_log=log.events[event], in_topic=topic.events[event]))
    return found
