"""A mirror from history into one broker, beside aiokafka sending the same records ready-made: CPU of an event, at either.

The peer has every envelope before it begins, appends it to a batch and sends that, in transactions of as many records. So it makes none,
reads no log and keeps no progress. Since it holds all of it in memory, it sends the first of what the mirror wrote. Both by turns, into
topics of the same partitions. What a mirror costs before its first event and behind its last one is in its figures, and told beside them.
"""

import asyncio
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from benchmarks.figures import MILLION, Row, Scale, against, note
from benchmarks.peers.kafka import KafkaBrokers
from benchmarks.processes import Address, Node, cpu_seconds, in_child, scratch
from eventlog.limits import MIRROR_BATCH_BYTES_MAX, MIRROR_TRANSACTION_EVENTS_MAX

EVENTS = 2_000_000
PEER_EVENTS = 300_000
READ_S_MAX = 300
BATCH = 10_000
PARTITIONS = 16
ROUNDS = 3
CPU_AT_MOST = 1.3
CACHE, EMPTY = "c", "empty"
FORMATS = ("debezium", "upsert", "raw")
Ready = list[tuple[int, bytes, bytes | None, int, list[tuple[str, bytes]]]]


def run(scale: Scale) -> Iterator[Row]:
    """Yield a row for each format."""
    events, rounds = scale.of(EVENTS, quick=20_000), scale.of(ROUNDS, quick=1)
    ready = min(events, PEER_EVENTS)
    with scratch() as directory, KafkaBrokers(directory, 1) as brokers, Node(directory / "data") as node:
        in_child(_fill, node.address, brokers.addresses, events)
        for form in FORMATS:
            ours: list[float] = []
            walls: list[float] = []
            bare: list[float] = []
            for number in range(rounds):
                topic = f"{form}-{number}"
                taken, wall = _mirrored(node, brokers, CACHE, topic=topic, form=form)
                walls.append(wall)
                ours.append(taken / events)
                bare.append(in_child(_send, brokers.addresses, topic, ready))
            yield against(
                f"{form}, from history", ours=MILLION * median(ours), bare=MILLION * median(bare), unit="us CPU", at_most=CPU_AT_MOST
            )
            yield note(f"{form}, all in", f"{events / median(walls):,.0f} events/s, the commands and the look for the end among them")
        none = [_mirrored(node, brokers, EMPTY, topic=f"empty-{number}", form="raw")[0] for number in range(rounds)]
        yield note("a mirror of nothing", f"{median(none):.2f} s of the node's CPU to begin and to end")


def _mirrored(node: Node, brokers: KafkaBrokers, cache: str, *, topic: str, form: str) -> tuple[float, float]:
    """Mirror a cache as a whole, and return the node's CPU and how long that took, in seconds."""
    before, began = cpu_seconds(node.address.pid), time.perf_counter()
    in_child(_mirror, (node.address, brokers.addresses), cache, topic, form)
    return cpu_seconds(node.address.pid) - before, time.perf_counter() - began


def _fill(address: Address, brokers: str, events: int) -> None:
    from eventlog import blocking

    asyncio.run(until_ready(brokers))
    with blocking.connect(address.text) as client:
        client.create_cache(EMPTY)
        cache = client.create_cache(CACHE)
        for low in range(0, events, BATCH):
            cache.put_many([(f"key-{number}", {"n": number, "text": "x" * 80}) for number in range(low, low + BATCH)])


async def until_ready(brokers: str) -> None:
    """Return when a broker answers."""
    while True:
        admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
        try:
            await admin.start()
        except (KafkaError, OSError):
            await asyncio.sleep(0.3)
        else:
            return
        finally:
            await admin.close()


def _mirror(at: tuple[Address, str], cache: str, topic: str, form: str) -> None:
    """Mirror a cache as a whole, and return when all of it is in Kafka."""
    from eventlog import blocking

    address, brokers = at
    with blocking.connect(address.text) as client:
        client.mirrors.add(cache, kafka=brokers, name=topic, topic=topic, partitions=PARTITIONS, format=form)
        assert not client.mirrors.status(topic, wait_ms=300_000).is_behind
        client.mirrors.remove(topic)


def _send(brokers: str, topic: str, events: int) -> float:
    """Return the CPU of a process for an event, when it sends the first events of a topic into another."""

    async def story() -> float:
        ready = await _read(brokers, topic, events)
        assert len(ready) == events
        admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
        await admin.start()
        await admin.create_topics([NewTopic(f"{topic}-peer", PARTITIONS, 1, topic_configs={"retention.ms": "-1"})])
        await admin.close()
        producer = AIOKafkaProducer(
            bootstrap_servers=brokers, transactional_id=f"{topic}-peer", acks="all", max_batch_size=MIRROR_BATCH_BYTES_MAX
        )
        await producer.start()
        began = time.process_time()
        for low in range(0, events, MIRROR_TRANSACTION_EVENTS_MAX):
            async with producer.transaction():
                await _transaction(producer, f"{topic}-peer", ready[low : low + MIRROR_TRANSACTION_EVENTS_MAX])
        taken = time.process_time() - began
        await producer.stop()
        return taken / events

    return asyncio.run(story())


async def _transaction(producer: AIOKafkaProducer, topic: str, records: Ready) -> None:
    batches: dict[int, Any] = {}
    sent = []
    for partition, key, value, timestamp, headers in records:
        batch = batches.get(partition) or batches.setdefault(partition, producer.create_batch())
        if batch.append(key=key, value=value, timestamp=timestamp, headers=headers) is None:
            batch.close()
            sent.append(await producer.send_batch(batch, topic, partition=partition))
            batches[partition] = batch = producer.create_batch()
            batch.append(key=key, value=value, timestamp=timestamp, headers=headers)
    for partition, batch in batches.items():
        batch.close()
        sent.append(await producer.send_batch(batch, topic, partition=partition))
    await asyncio.gather(*sent)


async def _read(brokers: str, topic: str, count: int) -> Ready:
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found: Ready = []
    async with (
        asyncio.timeout(READ_S_MAX),
        AIOKafkaConsumer(bootstrap_servers=brokers, isolation_level="read_committed", enable_auto_commit=False) as consumer,
    ):
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        while len(found) < count:
            for place, records in (await consumer.getmany(timeout_ms=500)).items():
                found += [(place.partition, one.key, one.value, one.timestamp, list(one.headers)) for one in records]
    return found[:count]
