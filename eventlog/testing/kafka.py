"""A cluster of Kafka that only plays it, behind the mirror's own port: what its brokers decide, without them.

Offsets, producer epochs and fencing, transactions with their markers, the last stable offset, transactions that are given up after their
timeout, and the last record of each key. A transaction that ends while nobody leads one of its partitions stays open there, as with brokers
from 4.3 on (KAFKA-20734), until the producer's next one there ends. What is sent is taken apart again, so bytes of a batch are judged as
well. Where a broker would take its time, or an answer would be lost, `Faults` decide. `tests/kafka/test_contract.py` runs the same suite
over this and over brokers.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Final, Protocol

from eventlog.kafka.records import RecordBatch
from eventlog.mirror.broker import RECORD_BYTES_MAX_DEFAULT, Place, TopicRecord, Trouble
from eventlog.mirror.shards import BAD_SETTING, NO_LEADER, UNKNOWN_TOPIC

FENCED: Final = 90
TOO_LARGE: Final = 10
_RECORD_BYTES_MAX: Final = "max.message.bytes"
_TRANSACTION_S: Final = 60.0
_LOOK_AGAIN_S: Final = 0.05
_READ_S: Final = 30.0
RECORDS_MAX: Final = 1 << 30
_READ_MAX: Final = 100


class Faults(Protocol):
    """What happens on the way to a broker."""

    async def at(self, step: str, /) -> None:
        """Take as long as it takes; raise Trouble where the connection is lost.

        Steps: `asked` and `done` around each thing asked, `open` instead of `asked` where a producer is, and in between those of a
        transaction: `data`, `progress`, `commit`.
        """
        ...


class NoFaults:
    """Everything is answered at once."""

    async def at(self, _step: str) -> None:
        """Let others run."""
        await asyncio.sleep(0)


@dataclass(slots=True, kw_only=True, eq=False)
class ProducerTransaction:
    """What a producer wrote between two decisions. `began_at` is in seconds of the loop."""

    began_at: float
    outcome: str = "open"  # open, committed, aborted
    places: dict[Place, str] = field(default_factory=dict)  # and what became of it in each partition


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredRecord:
    """A record, or the marker of a transaction's end, which has no key and no headers."""

    transaction: ProducerTransaction
    place: Place
    key: bytes | None = None
    value: bytes | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    is_marker: bool = False

    @property
    def outcome(self) -> str:
        """What became of its transaction in its partition."""
        return self.transaction.places[self.place]


@dataclass(slots=True, kw_only=True)
class _OpenProducer:
    epoch: int = -1
    transaction: ProducerTransaction | None = None
    left: dict[Place, list[ProducerTransaction]] = field(default_factory=dict)  # that have ended, and not there


@dataclass(slots=True, kw_only=True)
class _Topic:
    partitions: list[list[StoredRecord]]
    record_bytes_max: int


class FakeBrokers:
    """What the brokers of a cluster have; each client of it is a `FakeKafka`."""

    def __init__(self) -> None:
        self.topics: dict[str, _Topic] = {}
        self._producers: dict[str, _OpenProducer] = {}
        self.said_ends: dict[str, int] = {}
        """Where topics of one partition end as a broker says that led them earlier, while it does."""
        self.leaderless: set[Place] = set()
        """Partitions that nobody leads at the moment."""
        self.undone: list[tuple[Place, ProducerTransaction]] = []
        """Transactions that were committed, and given up where they had been left open, since the producer's next one there was."""

    def log(self, topic: str, partition: int) -> list[StoredRecord]:
        """Return a partition. Raises Trouble: there is none."""
        found = self.topics.get(topic)
        if found is None or partition >= len(found.partitions):
            raise Trouble(UNKNOWN_TOPIC, f"there is no partition {partition} of {topic}")
        return found.partitions[partition]

    @property
    def size(self) -> int:
        """How many records and markers there are in all topics."""
        return sum(map(len, (log for topic in self.topics.values() for log in topic.partitions)))

    def stable(self, topic: str, partition: int) -> int:
        """Return the last stable offset: that of the first record whose transaction is open. Those that are too old are given up."""
        self._expire()
        log = self.log(topic, partition)
        return next((offset for offset, one in enumerate(log) if one.outcome == "open"), len(log))

    def committed(self, topic: str, partition: int, *, before: int | None = None) -> list[StoredRecord]:
        """Return what readers of committed records see, all of it or before an offset."""
        log = self.log(topic, partition)[: self.stable(topic, partition)][:before]
        return [one for one in log if one.outcome == "committed" and not one.is_marker]

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        for producer in self._producers.values():
            open_ = producer.transaction
            if open_ is not None and now - open_.began_at > _TRANSACTION_S:
                producer.epoch += 1  # so that its writer cannot commit it any more
                self._end(producer, "aborted")

    def written(self, *, begun_before: float = inf) -> list[Place]:
        """Return the partitions of transactions that were begun before a time of the loop's, in seconds, and have not ended."""
        transactions = [producer.transaction for producer in self._producers.values()]
        return [place for one in transactions if one is not None and one.began_at < begun_before for place in one.places]

    # ------------------------------------------------------------ producers

    def init_producer(self, transactional_id: str) -> int:
        """Return the epoch of a new producer; what an earlier one of the id left open is given up."""
        producer = self._producers.setdefault(transactional_id, _OpenProducer())
        producer.epoch += 1
        self._end(producer, "aborted")
        return producer.epoch

    def begin(self, transactional_id: str, epoch: int) -> None:
        """Begin a transaction. Raises Trouble: a later producer of the id is there."""
        producer = self._current(transactional_id, epoch)
        assert producer.transaction is None, "a producer has one transaction at a time"
        producer.transaction = ProducerTransaction(began_at=asyncio.get_running_loop().time())

    def append(self, transactional_id: str, epoch: int, batch: RecordBatch, *, topic: str) -> None:
        """Append a batch to its partition. Raises Trouble: fenced, no such partition, or too large."""
        transaction = self._writing(transactional_id, epoch, topic, batch.partition)
        if batch.nbytes > self.topics[topic].record_bytes_max:
            raise Trouble(TOO_LARGE, f"{batch.nbytes} bytes")
        place = topic, batch.partition
        self.log(*place).extend(
            StoredRecord(transaction=transaction, place=place, key=key, value=value, headers=headers)
            for key, value, headers in records_of(batch)
        )

    def put(self, transactional_id: str, epoch: int, topic: str, record: tuple[bytes, bytes]) -> int:
        """Append a key and a value to a topic of one partition; return the offset behind. Raises Trouble, likewise."""
        transaction = self._writing(transactional_id, epoch, topic, 0)
        self.log(topic, 0).append(StoredRecord(transaction=transaction, place=(topic, 0), key=record[0], value=record[1]))
        return len(self.log(topic, 0))

    def end(self, transactional_id: str, epoch: int, outcome: str, *, is_on_purpose: bool = False) -> None:
        """Commit or abort; `is_on_purpose` says that this decides about what was left open as well. Raises Trouble: fenced."""
        self._end(self._current(transactional_id, epoch), outcome, is_on_purpose=is_on_purpose)

    def _end(self, producer: _OpenProducer, outcome: str, *, is_on_purpose: bool = False) -> None:
        transaction, producer.transaction = producer.transaction, None
        if transaction is None:
            return
        transaction.outcome = outcome
        for place in sorted(transaction.places):
            if place in self.leaderless:
                producer.left.setdefault(place, []).append(transaction)
            elif place[0] in self.topics:
                for ended in (*producer.left.pop(place, ()), transaction):
                    ended.places[place] = outcome
                    if (ended.outcome, outcome) == ("committed", "aborted") and not is_on_purpose:
                        self.undone.append((place, ended))
                self.log(*place).append(StoredRecord(transaction=transaction, place=place, is_marker=True))

    def _current(self, transactional_id: str, epoch: int) -> _OpenProducer:
        self._expire()
        producer = self._producers[transactional_id]
        if producer.epoch != epoch:
            raise Trouble(FENCED, f"epoch {epoch} of {transactional_id}, which is at {producer.epoch}")
        return producer

    def _writing(self, transactional_id: str, epoch: int, topic: str, partition: int) -> ProducerTransaction:
        transaction = self._current(transactional_id, epoch).transaction
        assert transaction is not None, "it was begun"
        self.log(topic, partition)
        if (topic, partition) in self.leaderless:
            raise Trouble(None, f"nobody leads partition {partition} of {topic}")
        transaction.places.setdefault((topic, partition), "open")
        return transaction

    def touch(self, transactional_id: str, epoch: int, place: Place) -> None:
        """Have a transaction end in a partition into which it writes nothing. Raises Trouble, likewise."""
        self._writing(transactional_id, epoch, *place)

    def left(self, transactional_id: str, epoch: int) -> dict[Place, int]:
        """Return where transactions of a producer are open that have ended, and the offset of the first record there. Raises Trouble."""
        left = self._current(transactional_id, epoch).left
        logs = {place: self.log(*place) for place in left}
        return {place: next(at for at, one in enumerate(logs[place]) if one.transaction is left[place][0]) for place in left}


class FakeKafka:
    """One client of a cluster."""

    def __init__(self, brokers: FakeBrokers, faults: Faults | None = None, *, records_max: int = RECORDS_MAX) -> None:
        """`records_max`: so many records wear a producer out."""
        self._brokers = brokers
        self._faults: Faults = faults or NoFaults()
        self._records_max = records_max

    @asynccontextmanager
    async def _asked(self, step: str = "asked") -> AsyncIterator[FakeBrokers]:
        await self._faults.at(step)
        yield self._brokers
        await self._faults.at("done")

    async def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """Return how many partitions each topic has."""
        async with self._asked() as brokers:
            for topic, partition in sorted(brokers.leaderless):
                if topic in topics:
                    raise Trouble(NO_LEADER, f"nobody leads partition {partition} of {topic}")
            return {topic: len(brokers.topics[topic].partitions) for topic in topics if topic in brokers.topics}

    async def check_writable(self, topics: Sequence[str]) -> None:
        """Raise Trouble where a topic does not take records."""
        async with self._asked() as brokers:
            for topic in topics:
                brokers.log(topic, 0)

    async def record_bytes_max(self, topic: str) -> int:
        """Return how large a batch may be."""
        async with self._asked() as brokers:
            brokers.log(topic, 0)
            return brokers.topics[topic].record_bytes_max

    async def ends(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Return the offset behind the last record of some partitions."""
        async with self._asked() as brokers:
            return {partition: len(brokers.log(topic, partition)) for partition in partitions}

    async def create(self, topic: str, *, partitions: int, settings: Mapping[str, str], dry_run: bool = False) -> None:
        """Make a topic."""
        async with self._asked() as brokers:
            text = settings.get(_RECORD_BYTES_MAX, str(RECORD_BYTES_MAX_DEFAULT))
            if topic not in brokers.topics and not text.isdigit():
                raise Trouble(BAD_SETTING, f"topic {topic} cannot be made: {_RECORD_BYTES_MAX} is {text}")
            if dry_run:
                return
            bytes_max = int(text)
            brokers.topics.setdefault(topic, _Topic(partitions=[[] for _ in range(partitions)], record_bytes_max=bytes_max))

    async def delete(self, topic: str) -> None:
        """Delete a topic."""
        async with self._asked() as brokers:
            brokers.topics.pop(topic, None)

    async def records(self, topic: str, *, upto: int = 0) -> dict[bytes, bytes]:
        """Return the last committed record of each key, up to an offset, and the end that a broker says, open transactions included."""
        async with self._asked() as brokers:
            end = max(upto, brokers.said_ends.get(topic, len(brokers.log(topic, 0))))
            try:
                async with asyncio.timeout(_READ_S):
                    while brokers.stable(topic, 0) < end:  # noqa: ASYNC110 -- what it waits for are brokers that are only played
                        await asyncio.sleep(_LOOK_AGAIN_S)
            except TimeoutError as error:
                raise Trouble(None, "no answer in time") from error
            found: dict[bytes, bytes] = {}
            for one in brokers.committed(topic, 0, before=end):
                assert one.key is not None
                if one.value is None:
                    found.pop(one.key, None)
                else:
                    found[one.key] = one.value
            return found

    async def read(self, topic: str, partitions: int) -> AsyncGenerator[list[TopicRecord], None]:
        """Yield the committed records of all partitions."""
        async with self._asked() as brokers:
            found = [one for partition in range(partitions) for one in brokers.committed(topic, partition)]
        for at in range(0, len(found), _READ_MAX):
            yield [TopicRecord(headers=one.headers, is_null=one.value is None) for one in found[at : at + _READ_MAX]]

    async def behind(self, topic: str, partition: int, begin: int, *, is_committed: bool) -> list[TopicRecord]:
        """Return the records of a partition from an offset on, or the last -begin ones."""
        async with self._asked() as brokers:
            log = brokers.log(topic, partition)
            end = brokers.stable(topic, partition) if is_committed else len(log)
            first = begin if begin >= 0 else max(0, end + begin)
            return [
                TopicRecord(headers=one.headers, is_null=one.value is None, key=one.key, value=one.value, offset=first + at)
                for at, one in enumerate(log[first:end])
                if not (one.is_marker or (is_committed and one.outcome != "committed"))
            ]

    @asynccontextmanager
    async def writer(self, transactional_id: str) -> AsyncIterator["FakeWriter"]:
        """A producer that has fenced all earlier ones of its id."""
        async with self._asked("open") as brokers:
            epoch = brokers.init_producer(transactional_id)
        yield FakeWriter(self._brokers, self._faults, who=(transactional_id, epoch), records_max=self._records_max)


class FakeWriter:
    """A producer. What it has open when its process ends stays open."""

    def __init__(self, brokers: FakeBrokers, faults: Faults, *, who: tuple[str, int], records_max: int) -> None:
        self._brokers = brokers
        self._faults = faults
        self._who = who
        self._records_left = records_max

    @property
    def is_worn(self) -> bool:
        """Whether another producer is to go on."""
        return self._records_left <= 0

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has."""
        return len(self._brokers.topics[topic].partitions) if topic in self._brokers.topics else 0

    async def write(self, batches: Mapping[str, Sequence[RecordBatch]], *, progress_topic: str, progress: Mapping[bytes, bytes]) -> int:
        """Write batches and progress, all or nothing; return the offset behind that. Raises Trouble: it was not, or nobody knows."""
        assert not self.is_worn, "a producer that is worn is given up"
        brokers, at = self._brokers, self._faults.at
        await at("asked")
        brokers.begin(*self._who)
        for topic, some in batches.items():
            for batch in some:
                await at("data")
                brokers.append(*self._who, batch, topic=topic)
        end = 0
        for record in progress.items():
            await at("progress")
            end = brokers.put(*self._who, progress_topic, record)
        await at("commit")
        brokers.end(*self._who, "committed")
        self._records_left -= sum(batch.count for some in batches.values() for batch in some) + len(progress)
        await at("done")
        return end

    async def left_open(self, topics: Mapping[str, Sequence[int]]) -> dict[Place, int]:
        """Return where transactions of its id are open in partitions that have ended."""
        await self._faults.at("asked")
        found = {place: begin for place, begin in self._brokers.left(*self._who).items() if place[1] in topics.get(place[0], ())}
        await self._faults.at("done")
        return found

    async def settle(self, places: Iterable[Place], *, is_commit: bool) -> None:
        """End what was left open in partitions. Raises Trouble: it is not known whether it did."""
        await self._faults.at("asked")
        self._brokers.begin(*self._who)
        for place in places:
            self._brokers.touch(*self._who, place)
        await self._faults.at("commit")
        self._brokers.end(*self._who, "committed" if is_commit else "aborted", is_on_purpose=True)
        await self._faults.at("done")


# ---------------------------------------------------------------- batches taken apart


def records_of(batch: RecordBatch) -> list[tuple[bytes | None, bytes | None, dict[str, bytes]]]:
    """Return key, value and headers of each record of a batch, as its bytes say (Kafka protocol, "Record")."""
    cursor = _Cursor(memoryview(batch.records).cast("B"))
    found: list[tuple[bytes | None, bytes | None, dict[str, bytes]]] = []
    for number in range(batch.count):
        size = cursor.varint()
        end = cursor.at + size
        attributes, _, offset = cursor.take(1), cursor.varint(), cursor.varint()  # the second is the time since the first one's
        assert (attributes, offset) == (b"\0", number), "a record has no attributes, and offsets rise one by one"
        key, value = cursor.text(), cursor.text()
        headers = {(cursor.text() or b"").decode(): cursor.text() or b"" for _ in range(cursor.varint())}
        assert cursor.at == end, "a record is as long as it says"
        found.append((key, value, headers))
    assert cursor.at == len(batch.records), "there is nothing behind the last record"
    return found


class _Cursor:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        self.at += size
        return bytes(self._data[self.at - size : self.at])

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)

    def text(self) -> bytes | None:
        size = self.varint()
        return None if size < 0 else self.take(size)
