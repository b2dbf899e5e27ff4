"""Settles what Kafka left open of a shard's last transaction, before the shard goes on.

A coordinator that ends a transaction writes a marker into each of its partitions. From 4.3 on it leaves out those that nobody leads at that
moment, as if they had been deleted (KAFKA-20734), and says that the transaction has ended. What was written there stays open: no reader of
committed records gets beyond it, and the next transaction of the same producer there decides about both. So an event that was given up
would be there twice as soon as it is written again, and one that was committed would be lost with a transaction that is given up.

What was decided shows where the marker came: in the progress, or where that is what was left open, in the partitions of the events. Only
what lies there behind the place where the shard began last tells of it: before that are events of the same ids, where a mirror was reset.
Where it came to none of them either decision keeps each event once in Kafka. It is committed: the log may have lost the events by then.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from eventlog.arrays import Ints
from eventlog.events import Kind
from eventlog.integrations.kafka.copying import Stopped
from eventlog.kafka.records import KIND_LETTERS
from eventlog.limits import MIRROR_TRANSACTION_EVENTS_MAX
from eventlog.mirror import progress
from eventlog.mirror.book import Mirror
from eventlog.mirror.broker import Kafka, Place, TopicRecord, TransactionWriter, Trouble
from eventlog.mirror.progress import SegmentProgress
from eventlog.mirror.shards import NO_LEADER, Reaction, partitions_of
from eventlog.read.position import OFFSET_UNKNOWN, SegmentPositions

log = logging.getLogger("eventlog.mirror")
_TRIES: Final = 5
_LOOKS, _LOOK_AGAIN_S = 10, 0.1
_NOWHERE: Final = inf  # where nothing was left open
_LAST_RECORDS: Final = 3 * MIRROR_TRANSACTION_EVENTS_MAX  # of a partition: those of a transaction, its tombstones and its markers


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

    async def settle_progress(self, *, cluster: str, term: int) -> None:
        """Settle the progress, so that it can be read: committed where an event that it tells of is seen, or all are open, too.

        Raises:
            StaleTerm: it is that of a later term, whose owner is to decide.
            Trouble: nobody knows whether it is.
            Stopped: nothing tells what was decided.
        """
        place = self.mirror.progress_topic, 0
        if place not in self.begins:
            return
        found = await self.kafka.behind(*place, self.begins[place], is_committed=False)
        records = [(record.key, record.value) for record in found if record.key is not None and record.value is not None]
        told = progress.told_of(records, self.mirror, self.of, cluster=cluster, term=term)
        is_commit = await self._is_seen(told)
        if not is_commit and progress.tells_entries(dict(records), self.mirror, self.shard):
            raise Stopped(self._undecided())
        if is_commit is None:
            is_commit = await self._is_all_open(dict(told))
        await self._settle(place, is_commit=is_commit)

    async def settle_events(self, at: SegmentPositions, *, has_entries: bool) -> None:
        """Settle the partitions of the events, by the committed progress: events up to there are committed.

        So are entries of the state, once the progress says that all of them are written.

        Raises:
            Trouble: nobody knows whether they are.
            Stopped: not all entries are written, and progress does not tell which are.
        """
        upto = dict(zip(at.of.tolist(), at.ids.tolist(), strict=True))
        for place in (place for place in self.begins if place[0] != self.mirror.progress_topic):
            told = [one for one in _told(await self.kafka.behind(*place, self.begins[place], is_committed=False)) if one.segment in upto]
            if has_entries and any(one.is_entry for one in told):
                raise Stopped(self._undecided())
            await self._settle(place, is_commit=any(one.is_entry or one.id <= upto.get(one.segment, 0) for one in told))

    async def _is_seen(self, told: Sequence[tuple[int, SegmentProgress]]) -> bool | None:
        """Return whether readers of committed records see one of the events up to which transactions went, the last one first.

        None: nothing shows whether they do. Where a later transaction is open, too, what was before is seen.
        """
        begun, partitions = await self._begun(), self.mirror.partitions
        events: dict[tuple[int, bool], list[_Told]] = {}
        for number in {segment % partitions for segment, _ in told}:
            for is_committed in (True, False):
                records = await self.kafka.behind(self.mirror.topic, number, -_LAST_RECORDS, is_committed=is_committed)
                events[number, is_committed] = [one for one in _told(records) if not one.is_entry and one.offset >= begun.get(number, 0)]
        for segment, upto in reversed(told):
            number = segment % partitions
            if any(one.segment == segment and one.id >= upto.id for one in events[number, True]):
                return True
            written = [one.offset for one in events[number, False] if (one.segment, one.id) == (segment, upto.id)]
            if written and written[-1] < self.begins.get((self.mirror.topic, number), _NOWHERE):
                return False
        return None

    async def _begun(self) -> dict[int, int]:
        """Return where the partitions of the events ended when the shard began last; nothing where that is not known."""
        key = progress.begin_key(self.mirror, self.shard)
        records = await self.kafka.behind(self.mirror.progress_topic, 0, 0, is_committed=False)  # it may be what was left open
        last = next((record.value for record in reversed(records) if record.key == key and record.value is not None), None)
        return {} if last is None else progress.ends_of(last)

    async def _is_all_open(self, told: dict[int, SegmentProgress]) -> bool:
        """Return whether each of the events up to which a transaction went was left open, too, and once.

        Then nobody has seen any, and either decision about all of it keeps each event once. What was committed stays so: the
        mirror may have let go of it. Of dead letters progress tells nothing: one may have been given up elsewhere.
        """
        upto = {segment: one.id for segment, one in told.items() if one.next != OFFSET_UNKNOWN}  # the others have had no event yet
        if not upto or self.mirror.has_letters:
            return False
        found: Counter[tuple[int, int]] = Counter()
        for place in (place for place in self.begins if place[0] == self.mirror.topic):
            records = await self.kafka.behind(*place, self.begins[place], is_committed=False)
            found.update((one.segment, one.id) for one in _told(records) if not one.is_entry)
        return all(found[event] == 1 for event in upto.items())

    async def _settle(self, place: Place, *, is_commit: bool) -> None:
        where = f"mirror={self.mirror.name} shard={self.shard} topic={place[0]} partition={place[1]}"
        for _ in range(_TRIES):
            log.warning("mirror_settles %s as=%s", where, "committed" if is_commit else "aborted")
            await self.writer.settle([place], is_commit=is_commit)
            for _ in range(_LOOKS):  # the marker comes a moment after the answer; or not, where nobody led the partition again
                if not await self.writer.left_open({place[0]: [place[1]]}):
                    return
                await asyncio.sleep(_LOOK_AGAIN_S)
        raise Trouble(NO_LEADER, f"partition {place[1]} of {place[0]} has lost its leader {_TRIES} times while a transaction ended there")

    def _undecided(self) -> Reaction:
        named = ", ".join(f"partition {number} of {topic} at offset {begin}" for (topic, number), begin in sorted(self.begins.items()))
        why = (
            f"Kafka has ended a transaction and left it open in {named} (KAFKA-20734), and nothing tells what it decided: "
            f"pause the mirror, end it there by kafka-transactions.sh abort, eventlog mirror reset {self.mirror.name} --to snapshot, "
            "and resume it"
        )
        return Reaction(next="stop", state="halted", why=why)


class _Told(NamedTuple):
    """What a record tells of."""

    segment: int
    id: int
    is_entry: bool
    offset: int  # of the record


def _told(records: Iterable[TopicRecord]) -> list[_Told]:
    found = [(one.headers, one.offset) for one in records if "off" in one.headers]  # all but what somebody put in by hand
    return [
        _Told(int.from_bytes(one["off"][:4]), int.from_bytes(one["id"]), one["kind"] == KIND_LETTERS[Kind.STATE], offset)
        for one, offset in found
    ]
