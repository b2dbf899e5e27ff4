"""Transactions that Kafka has ended and left open in a partition: what a coordinator does whose marker has no leader to go to.

Brokers that do not verify with the coordinator let a test make one: it writes into a partition of which the coordinator is not told.
"""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition

from benchmarks.peers.kafka import KafkaBrokers
from eventlog import blocking
from eventlog.client.mirrors import MirrorInfo
from eventlog.integrations.kafka.broker import AioKafka
from eventlog.integrations.kafka.shared_reads import SharedReads
from eventlog.mirror.broker import TopicRecord, Trouble
from eventlog.mirror.progress import SegmentProgress
from eventlog.node.outbound import Outbound
from eventlog.testing.kafka_contract import batches
from tests.kafka.brokers import until_ready
from tests.kafka.mirrors import Record, check, read, wait

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

TOPIC, PROGRESS = "t", "t.progress"
HUNG = 1
PLACES = {TOPIC: [0, HUNG], PROGRESS: [0]}


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"transaction.partition.verification.enable": "false"}
    with KafkaBrokers(tmp_path_factory.mktemp("kafka"), 1, quick=True, settings=settings) as brokers:
        asyncio.run(until_ready(brokers.addresses))
        yield brokers.addresses


def kafka_at(addresses: str) -> AioKafka:
    return AioKafka(addresses, Outbound(node="n", kafka={}, allow=()), SharedReads())


def untold(producer: AIOKafkaProducer, topic: str, partition: int) -> None:
    """Have a producer take a partition for one of its transaction, of which the coordinator knows nothing: no marker comes there."""
    producer._txn_manager._txn_partitions.add(TopicPartition(topic, partition))


@pytest.mark.parametrize("is_commit", [True, False])
def test_what_was_left_open_is_found_and_ended_either_way(trusting: str, is_commit: bool) -> None:
    async def work() -> None:
        kafka = kafka_at(trusting)
        await kafka.create(TOPIC, partitions=2, settings={})
        await kafka.create(PROGRESS, partitions=1, settings={"cleanup.policy": "compact"})
        before = len(await kafka.behind(TOPIC, HUNG, 0, is_committed=True))
        async with AIOKafkaProducer(bootstrap_servers=trusting, transactional_id="s") as producer:
            await producer.begin_transaction()
            untold(producer, TOPIC, HUNG)
            await producer.send_and_wait(TOPIC, b"v", partition=0)
            await producer.send_and_wait(TOPIC, b"hung", partition=HUNG)
            await producer.commit_transaction()
        async with kafka.writer("s") as writer:
            found = await writer.left_open(PLACES)
            assert list(found) == [(TOPIC, HUNG)]
            assert [one.value for one in await kafka.behind(TOPIC, HUNG, found[TOPIC, HUNG], is_committed=False)] == [b"hung"]
            assert len(await kafka.behind(TOPIC, HUNG, 0, is_committed=True)) == before
            await writer.settle(found, is_commit=is_commit)
            while await writer.left_open(PLACES):  # the marker comes a moment after the answer
                continue
            await writer.write({TOPIC: batches([3], partition=HUNG)}, progress_topic=PROGRESS, progress={b"a": b"3"})
        seen = [one.value for one in await kafka.behind(TOPIC, HUNG, 0, is_committed=True)][before:]
        assert seen == [*([b"hung"] if is_commit else []), b"v"]

    asyncio.run(asyncio.wait_for(work(), 120))


async def read_all(kafka: AioKafka, topic: str) -> list[TopicRecord]:
    return [one async for some in kafka.read(topic, 1) for one in some]


def test_reading_names_a_transaction_that_nobody_ends(trusting: str) -> None:
    async def work() -> None:
        kafka = kafka_at(trusting)
        kafka.stands_s = 0.5
        await kafka.create("open", partitions=1, settings={})
        async with AIOKafkaProducer(bootstrap_servers=trusting, transactional_id="o") as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("open", b"v", key=b"k", partition=0)
            with pytest.raises(Trouble, match="a transaction is open in partition 0 of open at offset 0"):
                await kafka.records("open")
            with pytest.raises(Trouble, match="a transaction is open in partition 0 of open at offset 0"):
                await read_all(kafka, "open")
            await producer.commit_transaction()
        assert await kafka.records("open") == {b"k": b"v"}

    asyncio.run(asyncio.wait_for(work(), 120))


async def left_open(mirror: MirrorInfo, transactional_id: str, record: Record, *, progress: dict[bytes, bytes]) -> None:
    """Write a record as a shard, in a transaction of which the coordinator does not know that it is there."""
    async with AIOKafkaProducer(bootstrap_servers=mirror.kafka, transactional_id=transactional_id) as producer:
        await producer.begin_transaction()
        untold(producer, mirror.topic, record.partition)
        own = [
            ("id", record.id.to_bytes(8)),
            ("off", record.segment.to_bytes(4) + record.offset.to_bytes(8)),
            ("kind", record.kind.encode()),
        ]
        await producer.send_and_wait(mirror.topic, record.value, key=record.key, partition=record.partition, headers=own)
        untold(producer, mirror.progress_topic, 0)
        for key, value in progress.items():
            await producer.send_and_wait(mirror.progress_topic, value, key=key, partition=0)


@pytest.mark.parametrize("telling", ["nothing", "progress from before a reset", "progress"])
def test_what_was_left_open_everywhere_is_there_once(client: blocking.Client, trusting: str, name: str, telling: str) -> None:
    cache = client.create_cache(name)
    mirror = client.mirrors.add(name, kafka=trusting, partitions=1, format="upsert").mirror
    cache.put("k", 1)
    wait(client, name)
    client.mirrors.pause(name)
    cache.put("k", 2)
    (event,) = list(cache.events())[1:]
    where = {"partition": 0, "id": event.id, "segment": event.segment, "offset": event.offset}
    record = Record(**where, key=b'{"_key":"k"}', value=b"2", kind=event.kind[0], headers=(), timestamp=0)
    key = f"{name}/{name}/{event.segment}".encode()
    committed = asyncio.run(kafka_at(trusting).records(mirror.progress_topic))[key]
    told = msgspec.structs.replace(msgspec.json.decode(committed, type=SegmentProgress), id=event.id, next=event.offset + 1)
    if telling == "progress from before a reset":
        told = msgspec.structs.replace(told, generation=told.generation + 1)
    progress = {} if telling == "nothing" else {key: msgspec.json.encode(told)}
    asyncio.run(left_open(mirror, f"{client.cluster}.{name}.0", record, progress=progress))
    client.mirrors.resume(name)
    cache.put("k", 3)
    wait(client, name)
    check(read(trusting, mirror.topic), cache.events(), partitions=1)
