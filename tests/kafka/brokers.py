"""Kafka for tests: the cluster named by EVENTLOG_TEST_KAFKA, that of an image where a container engine answers, else a broker from Maven's
jars as a process of the test. Where none can be had the tests fail and say what is missing."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from benchmarks.peers.kafka import KafkaBrokers
from tests.process.etcds import engine_answers

VARIABLE = "EVENTLOG_TEST_KAFKA"
READY_S = 60
_AGAIN_S = 0.2


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
