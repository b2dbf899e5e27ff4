"""What every way into Kafka must do for a mirror, and whatever only plays Kafka.

Derive a test class from `KafkaContract` and say how a client of your cluster is made; each test uses topics of its own:

    class TestMyKafka(KafkaContract):
        def client(self): ...
"""

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
import pytest

from eventlog.events import Kind
from eventlog.kafka.records import EventHeaders, RecordBatch, Records, build_batches
from eventlog.mirror.broker import Kafka, TopicRecord, Trouble
from eventlog.mirror.shards import BAD_SETTING, outcome_of

PARTITIONS = 2
PATIENCE_S = 20


def batches(ids: Sequence[int], *, size: int = 1, partition: int = 0) -> list[RecordBatch]:
    """Return a batch of records that have these ids in their headers."""
    numbers = np.array(ids)
    kinds = np.full(len(ids), int(Kind.CREATED), np.uint8)
    records = Records(
        partitions=numbers * 0 + partition,
        timestamps=numbers * 0 + 1,
        keys=[b"k"] * len(ids),
        values=[b"v" * size] * len(ids),
        headers=EventHeaders(ids=numbers, segments=numbers * 0, offsets=numbers, kinds=kinds),
    )
    return build_batches(records, bytes_max=1 << 20)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test, which has a minute."""
    asyncio.run(asyncio.wait_for(work, 60))


class KafkaContract(ABC):
    """The suite."""

    @abstractmethod
    def client(self) -> Kafka:
        """Return a client; all of them are of one cluster."""

    @pytest.fixture
    def topic(self) -> str:
        """Return the name of a topic that nobody has used."""
        return f"t-{uuid.uuid4().hex}"

    async def made(self, topic: str, **settings: str) -> Kafka:
        """Return a client, and have a topic and one of progress made."""
        kafka = self.client()
        await kafka.create(topic, partitions=PARTITIONS, settings={"retention.ms": "-1", **settings})
        await kafka.create(f"{topic}.progress", partitions=1, settings={"cleanup.policy": "compact"})
        return kafka

    async def ids(self, kafka: Kafka, topic: str) -> list[int]:
        """Return the ids of what is committed."""
        found: list[TopicRecord] = []
        async for some in kafka.read(topic, PARTITIONS):
            found += some
        return [int.from_bytes(one.headers["id"]) for one in found]

    def test_topics_are_there_once_they_are_made_and_until_they_are_deleted(self, topic: str) -> None:
        async def work() -> None:
            kafka = await self.made(topic)
            assert await kafka.partitions([topic, f"{topic}.progress", f"{topic}-not"]) == {topic: PARTITIONS, f"{topic}.progress": 1}
            await kafka.create(topic, partitions=PARTITIONS + 1, settings={})
            assert await kafka.partitions([topic]) == {topic: PARTITIONS}, "one that is there is left as it is"
            await kafka.delete(topic)
            await kafka.delete(f"{topic}-not")
            while await kafka.partitions([topic]):
                continue

        run(work())

    def test_a_topic_that_cannot_be_made_is_refused_also_where_none_is_to_be_made(self, topic: str) -> None:
        async def work() -> None:
            kafka = self.client()
            await kafka.create(topic, partitions=1, settings={"max.message.bytes": "1000"}, dry_run=True)
            for dry_run in (True, False):
                with pytest.raises(Trouble, match=topic) as refused:
                    await kafka.create(topic, partitions=1, settings={"max.message.bytes": "many"}, dry_run=dry_run)
                assert refused.value.code == BAD_SETTING
            assert await kafka.partitions([topic]) == {}
            await kafka.create(topic, partitions=1, settings={})
            await kafka.create(topic, partitions=1, settings={"max.message.bytes": "many"}, dry_run=True)

        run(work())

    def test_nothing_keeps_topics_from_taking_records_unless_one_is_not_there(self, topic: str) -> None:
        async def work() -> None:
            kafka = await self.made(topic)
            async with kafka.writer(topic):
                await kafka.check_writable([topic, f"{topic}.progress"])
            with pytest.raises(Trouble, match=f"{topic}-not"):
                await kafka.check_writable([topic, f"{topic}-not"])

        run(work())

    def test_data_and_progress_are_committed_together(self, topic: str) -> None:
        async def work() -> None:
            kafka = await self.made(topic)
            assert await kafka.ends(topic, range(PARTITIONS)) == dict.fromkeys(range(PARTITIONS), 0)
            async with kafka.writer(topic) as writer:
                ends = [0]
                for last in (3, 6):
                    some = {topic: [*batches([last - 2, last - 1]), *batches([last], partition=1)]}
                    told = {b"a": b"%d" % last, b"%d" % last: b""}
                    ends.append(await writer.write(some, progress_topic=f"{topic}.progress", progress=told))
                    assert (await kafka.records(f"{topic}.progress", upto=ends[-1]))[b"a"] == b"%d" % last
                assert (ends, await writer.write({topic: batches([7])}, progress_topic=f"{topic}.progress", progress={})) == ([0, 2, 5], 0)
                assert [writer.partitions(one) for one in (topic, f"{topic}.progress", f"{topic}-not")] == [PARTITIONS, 1, 0]
                await writer.write({}, progress_topic=f"{topic}.progress", progress={b"b": b"alone"})
            found = await self.ids(kafka, topic)
            assert ([id_ for id_ in found if id_ % 3], [id_ for id_ in found if not id_ % 3]) == ([1, 2, 4, 5, 7], [3, 6])
            assert await kafka.records(f"{topic}.progress") == {b"a": b"6", b"b": b"alone", b"3": b"", b"6": b""}
            assert (await kafka.ends(topic, [1]))[1] > 0

        run(work())

    def test_a_partition_is_read_from_an_offset_on_and_from_its_end(self, topic: str) -> None:
        async def work() -> None:
            kafka = await self.made(topic)
            async with kafka.writer(topic) as writer:
                for ids in ([1, 2], [3]):
                    await writer.write({topic: batches(ids)}, progress_topic=f"{topic}.progress", progress={})
                async with asyncio.timeout(PATIENCE_S):  # a commit is answered before its end is in each partition
                    while await writer.left_open({topic: range(PARTITIONS), f"{topic}.progress": [0]}):  # noqa: ASYNC110 -- brokers tell nobody
                        await asyncio.sleep(0.05)
                for begin, expected in ((0, [1, 2, 3]), (1, [2, 3]), (-2, [3]), (-99, [1, 2, 3])):  # there is a marker behind the last
                    found = await kafka.behind(topic, 0, begin, is_committed=True)
                    assert [(int.from_bytes(one.headers["id"]), one.key, one.value) for one in found] == [
                        (id_, b"k", b"v") for id_ in expected
                    ]
            assert await kafka.behind(topic, 1, 0, is_committed=False) == []

        run(work())

    def test_a_later_producer_of_an_id_fences_the_earlier(self, topic: str) -> None:
        async def work() -> None:
            first, second = await self.made(topic), self.client()
            async with AsyncExitStack() as stack:
                old = await stack.enter_async_context(first.writer(topic))
                await old.write({topic: batches([1])}, progress_topic=f"{topic}.progress", progress={b"a": b"1"})
                new = await stack.enter_async_context(second.writer(topic))
                with pytest.raises(Trouble) as fenced:
                    await old.write({topic: batches([2])}, progress_topic=f"{topic}.progress", progress={b"a": b"2"})
                assert outcome_of(fenced.value, topic=topic).next == "yield"
                await new.write({topic: batches([3])}, progress_topic=f"{topic}.progress", progress={b"a": b"3"})
            assert await self.ids(first, topic) == [1, 3]
            assert await first.records(f"{topic}.progress") == {b"a": b"3"}

        run(work())

    def test_producers_of_other_ids_are_not_fenced(self, topic: str) -> None:
        async def work() -> None:
            kafka = await self.made(topic)
            async with kafka.writer(f"{topic}.0") as one, kafka.writer(f"{topic}.1") as other:
                await one.write({topic: batches([1])}, progress_topic=f"{topic}.progress", progress={b"a": b"1"})
                await other.write({topic: batches([2])}, progress_topic=f"{topic}.progress", progress={b"b": b"2"})
                await one.write({topic: batches([3])}, progress_topic=f"{topic}.progress", progress={b"a": b"3"})
            assert await kafka.records(f"{topic}.progress") == {b"a": b"3", b"b": b"2"}

        run(work())

    def test_of_a_transaction_that_is_refused_nothing_is_seen(self, topic: str) -> None:
        async def work() -> None:
            kafka = await self.made(topic, **{"max.message.bytes": "5000"})
            assert await kafka.record_bytes_max(topic) == 5_000
            assert await kafka.record_bytes_max(f"{topic}.progress") > 1_000_000
            async with kafka.writer(topic) as writer:
                some = {topic: [*batches([1]), *batches([2], size=6_000)]}
                with pytest.raises(Trouble) as refused:
                    await writer.write(some, progress_topic=f"{topic}.progress", progress={b"a": b"2"})
                assert outcome_of(refused.value, topic=topic).state == "halted"
            async with kafka.writer(topic) as writer:
                await writer.write({topic: batches([3])}, progress_topic=f"{topic}.progress", progress={b"a": b"3"})
            assert await self.ids(kafka, topic) == [3]
            assert await kafka.records(f"{topic}.progress") == {b"a": b"3"}

        run(work())
