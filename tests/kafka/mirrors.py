"""What a mirror wrote, read as every reader of committed records reads it, and held against the log."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

import eventlog
from eventlog import blocking

_OFF = Struct(">iq")
WAIT_MS = 60_000
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "total", "type": "double"}, {"name": "note", "type": ["null", "string"]}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record of a topic; `id`, `segment`, `offset` and `kind` are its event's."""

    partition: int
    key: bytes
    value: bytes | None
    id: int
    segment: int
    offset: int
    kind: str
    headers: tuple[tuple[str, bytes], ...]
    timestamp: int


async def _read(addresses: str, topic: str) -> list[Record]:
    found: list[Record] = []
    async with AIOKafkaConsumer(bootstrap_servers=addresses, enable_auto_commit=False) as consumer:
        places = [TopicPartition(topic, partition) for partition in await _partitions(addresses, topic)]
        ends = await consumer.end_offsets(places)
    async with AIOKafkaConsumer(
        bootstrap_servers=addresses, isolation_level="read_committed", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.assign(places)
        while any([await consumer.position(place) < ends[place] for place in places]):
            for place, records in (await consumer.getmany(timeout_ms=500)).items():
                for one in records:
                    headers = dict(one.headers)
                    segment, offset = _OFF.unpack(headers["off"])
                    found.append(
                        Record(
                            partition=place.partition,
                            key=one.key,
                            value=one.value,
                            id=int.from_bytes(headers["id"]),
                            segment=segment,
                            offset=offset,
                            kind=headers["kind"].decode(),
                            headers=tuple(one.headers[3:]),
                            timestamp=one.timestamp,
                        )
                    )
    return found


async def _partitions(addresses: str, topic: str) -> list[int]:
    admin = AIOKafkaAdminClient(bootstrap_servers=addresses)
    await admin.start()
    try:
        (found,) = await admin.describe_topics([topic])
    finally:
        await admin.close()
    return [one["partition"] for one in found["partitions"]]


def read(addresses: str, topic: str, *, within_s: float = 60) -> list[Record]:
    """Return every committed record of a topic, partition by partition in its order."""
    return asyncio.run(asyncio.wait_for(_read(addresses, topic), within_s))


def by_confluent(addresses: str, registry: str, topic: str) -> list[tuple[Any, Any]]:
    """Return keys and values of a topic as Confluent's own deserializer reads them, asking the registry for their schemas."""
    with SchemaRegistryClient({"url": f"http://{registry}"}) as schemas:
        read_key, read_value = AvroDeserializer(schemas), AvroDeserializer(schemas)
        return [
            (
                read_key(one.key, SerializationContext(topic, MessageField.KEY)),
                read_value(one.value, SerializationContext(topic, MessageField.VALUE)),
            )
            for one in read(addresses, topic)
        ]


def check(records: list[Record], events: Iterable[eventlog.Event], *, partitions: int) -> None:
    """Each event is there once, beside a tombstone if it has one; those of a segment stand in the order of the log."""
    enveloped = {one.id for one in records if one.value is not None}
    told = [one for one in records if one.value is not None or one.id not in enveloped]
    twice = sorted(id_ for id_, count in Counter(one.id for one in told).items() if count > 1)
    where = sorted({one.segment for one in told if one.id in set(twice[:1] + twice[-1:])})
    assert not twice, f"written twice: {len(twice)} events, ids {twice[0]} to {twice[-1]}, these of segments {where}"
    log = {event.id: event for event in events}
    assert set(log) - {one.id for one in told} == set(), "events are missing"
    assert {one.id for one in told} - set(log) == set(), "nobody wrote these"
    last: dict[int, int] = {}
    for one in told:
        assert one.partition == one.segment % partitions
        assert one.id > last.get(one.segment, 0), f"segment {one.segment} is out of order"
        last[one.segment] = one.id
        event = log[one.id]
        assert (one.segment, one.offset, one.kind) == (event.segment, event.offset, event.kind[0])


def wait(client: blocking.Client, mirror: str) -> None:
    """Wait until all that was written before this is in Kafka."""
    found = client.mirrors.status(mirror, wait_ms=WAIT_MS)
    if found.is_behind:  # a broker that comes back on a busy machine takes its time
        found = client.mirrors.status(mirror, wait_ms=WAIT_MS)
    assert not found.is_behind, found
    assert {shard.state for shard in found.shards} <= {"running", "starting"}, found  # one that has nothing to write may not have begun


def folded(records: list[Record]) -> dict[str, Any]:
    """Return the entries that a reader of a Debezium topic ends with."""
    state: dict[str, Any] = {}
    for one in records:
        if one.value is None:
            continue
        key, after = json.loads(one.key)["_key"], json.loads(one.value)["after"]
        if after is None:
            state.pop(key, None)
        else:
            state[key] = {name: value for name, value in after.items() if name != "_key"}
    return state
