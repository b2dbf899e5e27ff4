"""A mirror's topic compared with the log, as far as the progress says that it was written: every event once, and nothing else."""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
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
from eventlog.mirror.comparison import STRETCHES_MAX, Close, Difference, Seen, Sums, differences, differing
from eventlog.mirror.shards import segments_of
from eventlog.read.position import EPOCH_MAX, SegmentPositions

_OFF: Final = Struct(">iq")
_STATE: Final = KIND_LETTERS[Kind.STATE]
_LETTERS: Final = np.array([KIND_LETTERS[kind][0] for kind in Kind], np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRange:
    """What is compared of each segment: behind an id, and up to another."""

    low: Ints
    high: Ints


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
