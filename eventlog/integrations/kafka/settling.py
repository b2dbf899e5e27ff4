"""Settles what Kafka left open of a shard's last transaction, before the shard goes on.

A coordinator that ends a transaction writes a marker into each of its partitions. From 4.3 on it leaves out those that nobody leads at that
moment, as if they had been deleted (KAFKA-20734), and says that the transaction has ended. What was written there stays open: no reader of
committed records gets beyond it, and the next transaction of the same producer there decides about both. So an event that was given up
would be there twice as soon as it is written again, and one that was committed would be lost with a transaction that is given up.

What was decided shows where the marker came: in the progress, or where that is what was left open, in the partitions of the events.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from eventlog.arrays import Ints
from eventlog.integrations.kafka.copying import Stopped
from eventlog.limits import MIRROR_TRANSACTION_EVENTS_MAX
from eventlog.mirror import progress
from eventlog.mirror.book import Mirror
from eventlog.mirror.broker import Kafka, TopicRecord, TransactionWriter
from eventlog.mirror.outcomes import Reaction
from eventlog.mirror.shards import partitions_of
from eventlog.read.position import SegmentPositions

log = logging.getLogger("eventlog.mirror")
_LAST_RECORDS: Final = 3 * MIRROR_TRANSACTION_EVENTS_MAX  # of a partition: those of a transaction, its tombstones and its markers
Place = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOpen:
    """What was found open when the shard's writer had been opened."""

    kafka: Kafka
    writer: TransactionWriter
    mirror: Mirror
    shard: int
    of: Ints
    begins: dict[Place, int]

    @staticmethod
    async def found(kafka: Kafka, writer: TransactionWriter, mirror: Mirror, *, shard: int, of: Ints) -> "LeftOpen":
        """Ask for it. Raises Trouble."""
        own = partitions_of(mirror, of)
        return LeftOpen(kafka=kafka, writer=writer, mirror=mirror, shard=shard, of=of, begins=await writer.left_open(own))

    async def settle_progress(self) -> None:
        """Settle the progress, so that it can be read: committed where an event that it tells of is seen.

        Raises:
            Trouble: nobody knows whether it is.
            Stopped: nothing tells what was decided.
        """
        place = self.mirror.progress_topic, 0
        if place not in self.begins:
            return
        records = await self.kafka.behind(*place, self.begins[place], is_committed=False)
        told = {record.key: record.value for record in records if record.key is not None and record.value is not None}
        upto = progress.ids_of(told, self.mirror, self.of)
        is_commit = await self._is_seen(upto)
        if not is_commit and progress.tells_entries(told, self.mirror, self.shard):
            raise Stopped(self._undecided())
        await self._settle([place], is_commit=is_commit)

    async def settle_events(self, at: SegmentPositions, *, has_entries: bool) -> None:
        """Settle the partitions of the events, by the committed progress: events up to there are committed.

        Raises:
            Trouble: nobody knows whether they are.
            Stopped: what is open are entries of the state, of which progress does not tell the ids.
        """
        data = [place for place in self.begins if place[0] != self.mirror.progress_topic]
        if data and has_entries:
            raise Stopped(self._undecided())
        upto = dict(zip(at.of.tolist(), at.ids.tolist(), strict=True))
        for place in data:
            records = await self.kafka.behind(*place, self.begins[place], is_committed=False)
            await self._settle([place], is_commit=any(id_ <= upto.get(segment, 0) for segment, id_ in _events(records)))

    async def _is_seen(self, upto: dict[int, int]) -> bool:
        """Return whether readers of committed records see one of the events up to which a transaction went."""
        topic, partitions = self.mirror.topic, self.mirror.partitions
        for partition in {segment % partitions for segment in upto} - {number for name, number in self.begins if name == topic}:
            records = await self.kafka.behind(topic, partition, -_LAST_RECORDS, is_committed=True)
            if any(segment in upto and id_ >= upto[segment] for segment, id_ in _events(records)):
                return True
        return False

    async def _settle(self, places: list[Place], *, is_commit: bool) -> None:
        for topic, partition in places:
            where = f"mirror={self.mirror.name} shard={self.shard} topic={topic} partition={partition}"
            log.warning("mirror_settles %s as=%s", where, "committed" if is_commit else "aborted")
        await self.writer.settle(places, is_commit=is_commit)

    def _undecided(self) -> Reaction:
        named = ", ".join(f"partition {number} of {topic} at offset {begin}" for (topic, number), begin in sorted(self.begins.items()))
        why = (
            f"Kafka has ended a transaction and left it open in {named} (KAFKA-20734), and nothing tells what it decided: "
            f"pause the mirror, end it there by kafka-transactions.sh abort, eventlog mirror reset {self.mirror.name} --to snapshot, "
            "and resume it"
        )
        return Reaction(next="stop", state="halted", why=why)


def _events(records: Sequence[TopicRecord]) -> list[tuple[int, int]]:
    """Return segment and id of what records tell of."""
    return [(int.from_bytes(one.headers["off"][:4]), int.from_bytes(one.headers["id"])) for one in records if "off" in one.headers]
