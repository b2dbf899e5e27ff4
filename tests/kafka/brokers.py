"""Kafka for tests: the cluster named by EVENTLOG_TEST_KAFKA, that of an image where a container engine answers, else a broker from Maven's
jars as a process of the test. Where none can be had the tests fail and say what is missing."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, NodeNotReadyError, PolicyViolationError
from aiokafka.structs import TopicPartition

from benchmarks.peers.kafka import KafkaBrokers
from tests.process.etcds import engine_answers

VARIABLE = "EVENTLOG_TEST_KAFKA"
SEGMENTS = 16  # of the node beside the broker
READY_S = 180  # three brokers that were killed look through all they have, beside whatever else the machine does
_AGAIN_S = 0.2
Deed = Callable[[AIOKafkaAdminClient], Awaitable[object]]


@contextmanager
def kafka(directory: Path) -> Iterator[str]:
    """Run a broker, or use the one that is there; yield what clients bootstrap from."""
    if named := os.environ.get(VARIABLE):
        yield named
    elif engine_answers():
        from testcontainers.community.kafka import KafkaContainer

        container = KafkaContainer().with_kraft()
        container.with_env("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", "1").with_env("KAFKA_TRANSACTION_STATE_LOG_MIN_ISR", "1")
        with container:
            yield container.get_bootstrap_server()
    else:
        with KafkaBrokers(directory, 1, quick=True) as brokers:
            asyncio.run(until_ready(brokers.addresses))
            yield brokers.addresses


async def until_ready(addresses: str) -> None:
    """Return when all of the brokers are members: their ports open earlier."""
    deadline = time.monotonic() + READY_S
    while True:
        admin = AIOKafkaAdminClient(bootstrap_servers=addresses)
        try:
            await admin.start()
            found = await admin.describe_cluster()
        except (KafkaError, OSError):
            found = {"brokers": []}
        finally:
            await admin.close()
        if len(found["brokers"]) == addresses.count(",") + 1:
            return
        assert time.monotonic() < deadline, f"the brokers at {addresses} are not ready after {READY_S} s"
        await asyncio.sleep(_AGAIN_S)


async def create_topic(addresses: str, topic: str, *, partitions: int) -> None:
    """Make a topic as soon as a broker answers; records with old timestamps stay in it."""
    deadline = time.monotonic() + READY_S
    while True:
        admin = AIOKafkaAdminClient(bootstrap_servers=addresses)
        try:
            await admin.start()
            made = NewTopic(topic, partitions, 1, topic_configs={"retention.ms": "-1"})
            await admin.create_topics([made])
        except (KafkaError, OSError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_AGAIN_S)
        else:
            return
        finally:
            await admin.close()


@asynccontextmanager
async def _admin(addresses: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=addresses)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def do(addresses: str, *deeds: Deed) -> None:
    """Carry out what an administrator does, in this order."""

    async def done() -> None:
        async with _admin(addresses) as client:
            for deed in deeds:
                await deed(client)

    asyncio.run(done())


def emptied(topic: str) -> Deed:
    """Delete all records of a compacted topic of one partition; Kafka refuses that of one that is only compacted."""

    async def empty(client: AIOKafkaAdminClient) -> None:
        also = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"cleanup.policy": "compact,delete"})
        while True:
            try:
                await client.alter_configs([also])
                await client.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=-1)})
            except (PolicyViolationError, NodeNotReadyError):
                await asyncio.sleep(0.1)  # the broker has not heard of the other policy yet, or comes back from a fault
            else:
                return

    return empty
