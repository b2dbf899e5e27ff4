"""What a topic cannot have: a shard stands still, or goes on and tells of it in the dead letters."""

import asyncio
import json
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from eventlog import blocking
from eventlog.errors import InvalidArgument, MirrorNotFound
from tests.kafka.mirrors import ORDER, WAIT_MS, Record, check, read, wait
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


def dead_letters(broker: str, topic: str) -> list[tuple[Record, dict[str, Any]]]:
    return [(one, json.loads(one.value or b"")) for one in read(broker, f"{topic}.dlq")]


def test_a_record_that_is_too_large_is_a_dead_letter_where_that_was_asked_for(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    cache.put_many([(f"k{number}", "x" * 50) for number in range(300)])
    large = cache.put("large", "x" * 20_000).id
    after = cache.put("large", "small again").id  # whose envelope says what it replaced
    cache.put("large", "and smaller")
    added = client.mirrors.add(
        name, kafka=broker, partitions=2, on_too_large="dead-letter", topic_settings={"max.message.bytes": "10000"}
    )  # fmt: skip
    assert added.mirror.on_too_large == "dead-letter"
    wait(client, name)
    topic = added.mirror.topic
    check(read(broker, topic), [event for event in cache.events() if event.id not in {large, after}], partitions=2)
    letters = dead_letters(broker, topic)
    assert [(one.key, one.id, one.kind) for one, _ in letters] == [(b"large", large, "C"), (b"large", after, "M")]
    for one, told in letters:
        assert (told["event_id"], told["segment"], told["offset"]) == (one.id, one.segment, one.offset)
        assert 20_000 < told["size"] < 22_000
        assert told["reason"] == f"a record of {told['size']} bytes, and the topic takes 10000"
    assert sum(shard.dead_letters for shard in client.mirrors.status(name).shards) == 2
    assert client.mirrors.verify(name).is_alike, "what is in the dead letters is not missing"
    client.mirrors.remove(name, delete_topics=True)


def test_a_record_that_is_too_large_stands_still_until_the_topic_takes_it(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    large = cache.put("k", "x" * 2_000).id
    topic = client.mirrors.add(name, kafka=broker, partitions=1, topic_settings={"max.message.bytes": "1500"}).mirror.topic
    (shard,) = client.mirrors.status(name, wait_ms=WAIT_MS).shards
    assert shard.state == "halted"
    assert f"event {large} is a record of" in shard.why
    assert f"raise its max.message.bytes, then eventlog mirror resume {name}" in shard.why
    asyncio.run(configure(broker, topic, {"max.message.bytes": "5000"}))
    client.mirrors.resume(name)
    wait(client, name)
    check(read(broker, topic), cache.events(), partitions=1)


def test_a_mirror_is_altered_where_it_is(client: blocking.Client, node: NodeProcess, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    cache.put("k", 1)
    large = cache.put("k", "x" * 2_000).id
    after = cache.put("k", 2).id
    topic = client.mirrors.add(name, kafka=broker, partitions=1, topic_settings={"max.message.bytes": "1500"}).mirror.topic
    (shard,) = client.mirrors.status(name, wait_ms=WAIT_MS).shards
    assert f"eventlog mirror alter {name} --on-too-large dead-letter" in shard.why
    with pytest.raises(InvalidArgument, match="interval_ms is 0: give a whole number"):
        client.mirrors.alter(name, interval_ms=0, on_too_large="dead-letter")
    with pytest.raises(InvalidArgument, match="hold is 0"):
        client.mirrors.alter(name, hold=0)
    assert client.mirrors.describe(name).on_too_large == "halt", "nothing is altered by half"
    node.command("mirror", "alter", name, "--on-too-large", "dead-letter", "--interval", "5ms", "--hold", "2MiB")
    found = client.mirrors.describe(name)
    assert (found.on_too_large, found.interval_ms, found.state) == ("dead-letter", 5, "running")
    assert client.listeners.describe(f"mirror.{name}").hold_bytes == 2 << 20
    wait(client, name)
    assert [one.id for one, _ in dead_letters(broker, topic)] == [large, after]
    client.mirrors.alter(name, on_too_large="halt")
    cache.put("other", 1)
    wait(client, name)
    check(read(broker, topic), [event for event in cache.events() if event.id not in {large, after}], partitions=1)
    assert client.mirrors.verify(name).is_alike
    with pytest.raises(MirrorNotFound):
        client.mirrors.alter(f"{name}-not", interval_ms=5)


async def configure(addresses: str, topic: str, settings: dict[str, str]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=addresses)
    await admin.start()
    try:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=settings)])
    finally:
        await admin.close()


def test_a_value_that_does_not_fit_is_a_dead_letter_where_that_was_asked_for(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    cache.put_many([(f"k{number}", {"total": number if number % 3 else "much", "note": None}) for number in range(300)])
    topic = client.mirrors.add(
        name, kafka=broker, encoding="json-schema", schema=json.dumps(ORDER), partitions=1, on_too_large="dead-letter"
    ).mirror.topic
    wait(client, name)
    events = list(cache.events())
    check(read(broker, topic), [event for event in events if event.value["total"] != "much"], partitions=1)
    letters = dead_letters(broker, topic)
    assert {one.id for one, _ in letters} == {event.id for event in events if event.value["total"] == "much"}
    assert len(letters) == 100
    assert all(told["reason"].startswith("value.total is ") for _, told in letters)
    assert client.mirrors.verify(name).is_alike
