"""Programs that know nothing of us read what a mirror wrote: other clients of Kafka, and Debezium's own transform."""

import asyncio
import json
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from confluent_kafka import Consumer

from benchmarks.peers.kafka import CONNECT, jars
from eventlog import blocking
from tests.kafka import java_mains
from tests.kafka.mirrors import ORDER, Record, read, wait
from tests.kafka.test_mirror import write
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]
PARTITIONS = 4


def by_java(addresses: str, topic: str, count: int) -> list[list[str]]:
    """Return partition, key and value of records as Kafka's own console consumer prints them."""
    words = ["--bootstrap-server", addresses, "--topic", topic, "--from-beginning", "--isolation-level", "read_committed"]
    words += ["--max-messages", str(count), "--timeout-ms", "30000"]
    for name in ("print.partition", "print.key"):
        words += ["--formatter-property", f"{name}=true"]
    classes = ":".join(map(str, sorted(jars().glob("*.jar"))))
    command = [
        "java",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-cp",
        classes,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, stdin=subprocess.DEVNULL)
    return [line.split("\t") for line in done.stdout.splitlines()]


def by_confluent_consumer(addresses: str, topic: str, count: int) -> list[list[str]]:
    """Return the same as confluent-kafka reads it, as a member of a group."""
    consumer = Consumer(
        {"bootstrap.servers": addresses, "group.id": topic, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[list[str]] = []
    while len(found) < count:
        message = consumer.poll(60)
        assert message is not None, f"{len(found)} of {count} came"
        assert message.error() is None
        value = message.value()
        found.append([f"Partition:{message.partition()}", message.key().decode(), "null" if value is None else value.decode()])
    consumer.close()
    return found


class Shares(ConsumerRebalanceListener):
    """Says when a member has no more partitions than its share."""

    def __init__(self, share: int) -> None:
        self.is_shared = asyncio.Event()
        self._share = share

    def on_partitions_revoked(self, revoked: object) -> None:
        pass

    def on_partitions_assigned(self, assigned: Collection[object]) -> None:
        if len(assigned) == self._share:
            self.is_shared.set()


async def by_aiokafka_group(addresses: str, topic: str, count: int) -> list[list[str]]:
    """Return the same as two members of a group of aiokafka share it."""
    found: list[list[str]] = []
    both = asyncio.Barrier(2)

    async def member() -> int:
        own, shares = 0, Shares(PARTITIONS // 2)
        async with AIOKafkaConsumer(
            bootstrap_servers=addresses, group_id=f"{topic}.a", isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe([topic], listener=shares)
            await shares.is_shared.wait()
            await both.wait()
            while len(found) < count:
                for place, records in (await consumer.getmany(timeout_ms=500)).items():
                    own += len(records)
                    for one in records:
                        value = "null" if one.value is None else one.value.decode()
                        found.append([f"Partition:{place.partition}", one.key.decode(), value])
        return own

    async with asyncio.timeout(60):
        assert all(await asyncio.gather(member(), member())), "both read"
    return found


def by_kcat(addresses: str, topic: str) -> list[list[str]]:
    """Return the same as kcat reads it."""
    reads = ["-C", "-e", "-q", "-Z", "-X", "isolation.level=read_committed", "-f", "Partition:%p\t%k\t%s\n"]
    done = subprocess.run(["kcat", "-b", addresses, "-t", topic, *reads], capture_output=True, text=True, check=True, timeout=60)
    return [line.replace("\tNULL", "\tnull").split("\t") for line in done.stdout.splitlines()]


@pytest.mark.needs_program("kcat")
def test_kcat_reads_the_same(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    write(cache)
    topic = client.mirrors.add(name, kafka=broker, partitions=PARTITIONS).mirror.topic
    wait(client, name)
    assert sorted(by_kcat(broker, topic)) == sorted(as_shown(broker, topic))


def as_shown(addresses: str, topic: str) -> list[list[str]]:
    """Return what we read ourselves as these clients show it."""
    return [
        [f"Partition:{one.partition}", one.key.decode(), "null" if one.value is None else one.value.decode()]
        for one in read(addresses, topic)
    ]


def test_other_clients_read_the_same(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    write(cache)
    topic = client.mirrors.add(name, kafka=broker, partitions=PARTITIONS).mirror.topic
    wait(client, name)
    ours = as_shown(broker, topic)
    assert sorted(by_confluent_consumer(broker, topic, len(ours))) == sorted(ours)
    assert sorted(asyncio.run(by_aiokafka_group(broker, topic, len(ours)))) == sorted(ours)
    assert sorted(by_java(broker, topic, len(ours))) == sorted(ours)


def by_debezium(records: list[Record], place: Path, *, options: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Return keys and rows as Debezium's own transform unwraps them, None for a removal."""

    def text(data: bytes | None) -> str:
        return "-" if data is None else b64encode(data).decode()

    lines = "".join(f"{text(one.key)} {text(one.value)}\n" for one in records)
    found = java_mains.run("Unwrap", lines, artifacts=CONNECT, folder="debezium", place=place, options=options)
    pairs = [line.split(" ", 1) for line in found]
    return [(b64decode(key).decode(), json.loads(row)) for key, row in pairs]


@pytest.mark.parametrize("encoding", ["json-schema", "avro"])
def test_what_debeziums_own_transform_leaves_folds_into_the_cache(
    node: NodeProcess, client: blocking.Client, broker: str, name: str, tmp_path: Path, encoding: Any
) -> None:
    cache = client.create_cache(name)
    for number in range(3):
        cache.put_many([(f"k{key} ä", {"total": number + key / 2, "note": None if key % 3 else "n"}) for key in range(40)])
    for key in range(0, 40, 7):
        cache.remove(f"k{key} ä")
    topic = client.mirrors.add(name, kafka=broker, encoding=encoding, schema=json.dumps(ORDER), partitions=PARTITIONS).mirror.topic
    wait(client, name)
    state: dict[str, Any] = {}
    removed = 0
    options = (f"-Dregistry=http://{node.http}",) if encoding == "avro" else ()
    for key, row in by_debezium(read(broker, topic), tmp_path, options=options):
        if row is None:
            removed += state.pop(key, None) is not None
        else:
            assert row.pop("_key") == key
            state[key] = row
    assert state == {key: entry.value for key, entry in cache.entries()}
    assert removed == 6
