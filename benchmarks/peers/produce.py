"""Writing to Kafka from Python, as fast as its two clients do it; run by `processes.in_child`, so that a client's CPU is its own."""

import asyncio
import time
from dataclasses import dataclass
from statistics import mean

from benchmarks.inputs import random_keys, random_values
from benchmarks.processes import cpu_seconds

BATCH_BYTES = 128 * 1024
BATCHES_IN_FLIGHT = 8
PARTITIONS = 3
READY_S = 60
WARM_RECORDS = 500_000  # of one round of warming
WARM_RECORDS_MIN = 3_000_000  # the compiler of a JVM still replaces code after 50,000
WARM_RECORDS_MAX = 12_000_000
WARM_ROUNDS_ALIKE = 4
WARM_GAIN_MAX = 0.05  # a run of rounds that is cheaper by more than this is not the last


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """Records that all brokers acknowledged, and what that took at both sides."""

    records: int
    seconds: float
    client_cpu: float
    brokers_cpu: float

    @property
    def us_per_event(self) -> float:
        """CPU of everything together in microseconds a record."""
        return (self.client_cpu + self.brokers_cpu) / self.records * 1e6


class _Meter:
    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._began, self._client, self._brokers = time.monotonic(), time.process_time(), self._cpu()

    def _cpu(self) -> float:
        return sum(map(cpu_seconds, self._pids))

    def produced(self, records: int) -> Produced:
        seconds, client = time.monotonic() - self._began, time.process_time() - self._client
        return Produced(records=records, seconds=seconds, client_cpu=client, brokers_cpu=self._cpu() - self._brokers)


def create_topic(addresses: str, topic: str, *, replicas: int, flush: bool) -> None:
    """Make a topic as soon as all brokers are there; with `flush` every message is synced before it is acknowledged."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": addresses, "log_level": 0})
    wanted = NewTopic(topic, PARTITIONS, replicas, config={"flush.messages": "1"} if flush else {})
    deadline = time.monotonic() + READY_S
    while True:
        try:
            admin.create_topics([wanted])[topic].result(READY_S)
        except KafkaException:  # not enough brokers yet, or none at all
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            break
    while not all(part.leader >= 0 for part in admin.list_topics(topic, timeout=READY_S).topics[topic].partitions.values()):
        time.sleep(0.1)


def warm(addresses: str, topic: str, *, pids: list[int], records: int) -> list[float]:
    """Write until the brokers' CPU a record stands still, and return that CPU of each round in microseconds.

    At least `records`; rounds go on until the mean of the last `WARM_ROUNDS_ALIKE` lies at most `WARM_GAIN_MAX` below
    the mean of as many before them. Single rounds say nothing: on two cores one may cost half as much again as the next.

    Raises:
        RuntimeError: it did not stand still within `WARM_RECORDS_MAX`.
    """
    size = min(WARM_RECORDS, records)
    found: list[float] = []
    while True:
        produced = send_batches(addresses, topic, pids=pids, records=size, value_bytes=100)
        found.append(produced.brokers_cpu / size * 1e6)
        before, last = found[-2 * WARM_ROUNDS_ALIKE : -WARM_ROUNDS_ALIKE], found[-WARM_ROUNDS_ALIKE:]
        if len(found) * size >= records and len(before) == len(last) and mean(last) >= mean(before) * (1 - WARM_GAIN_MAX):
            return found
        if len(found) * size >= max(WARM_RECORDS_MAX, 2 * records):
            raise RuntimeError(f"the brokers' CPU a record does not stand still: {', '.join(f'{cost:.2f}' for cost in found)} us")


def send_batches(addresses: str, topic: str, *, pids: list[int], records: int, value_bytes: int) -> Produced:
    """Produce with aiokafka's `send_batch`, acks=all: its fastest way."""
    from aiokafka import AIOKafkaProducer

    async def run() -> Produced:
        producer = AIOKafkaProducer(bootstrap_servers=addresses, acks="all", max_batch_size=BATCH_BYTES, linger_ms=0)
        await producer.start()
        keys, values = random_keys(10_000, seed=1), random_values(1_000, value_bytes)

        async def produce(count: int) -> None:
            waiting: set[asyncio.Future[object]] = set()
            sent = batches = 0
            while sent < count:
                batch = producer.create_batch()
                while sent < count and batch.append(key=keys[sent % 10_000], value=values[sent % 1_000], timestamp=None) is not None:
                    sent += 1
                if len(waiting) >= BATCHES_IN_FLIGHT:
                    _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                waiting.add(await producer.send_batch(batch, topic, partition=batches % PARTITIONS))
                batches += 1
            await asyncio.gather(*waiting)

        await produce(records // 10)  # connections, metadata and buffers are there
        meter = _Meter(pids)
        await produce(records)
        found = meter.produced(records)
        await producer.stop()
        return found

    return asyncio.run(run())


def confluent(addresses: str, topic: str, *, pids: list[int], records: int, value_bytes: int) -> Produced:
    """Produce with confluent-kafka, acks=all, in its own batches."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": addresses, "acks": "all", "batch.size": BATCH_BYTES, "linger.ms": 5})
    keys, values = random_keys(10_000, seed=1), random_values(1_000, value_bytes)
    errors: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            errors.append(error)

    def produce(count: int) -> None:
        for number in range(count):
            while True:
                try:
                    producer.produce(topic, values[number % 1_000], keys[number % 10_000], on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.01)
            if number % 1_000 == 0:
                producer.poll(0)
        producer.flush()

    produce(records // 10)
    meter = _Meter(pids)
    produce(records)
    found = meter.produced(records)
    if errors:
        raise RuntimeError(f"Kafka did not take {len(errors)} records: {errors[0]}")
    return found
