"""What somebody does to a mirror's topics behind its back: each has a state and a sentence, and nothing is repeated or left out unsaid."""

import asyncio
import time
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.structs import TopicPartition

from eventlog import blocking
from eventlog.client.mirrors import ShardInfo
from eventlog.errors import KafkaFailed
from tests.kafka.brokers import Deed, do, emptied
from tests.kafka.gates import Gate
from tests.kafka.mirrors import WAIT_MS, check, folded, read, wait
from tests.process.nodes import NodeProcess

UNTIL_S = 60
pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


def deleted(topic: str) -> Deed:
    return lambda client: client.delete_topics([topic])


def made(topic: str, partitions: int) -> Deed:
    async def make(client: AIOKafkaAdminClient) -> None:
        while (await client.create_topics([NewTopic(topic, partitions, 1)])).topic_errors[0][1]:  # noqa: ASYNC110 -- nothing but asking tells
            await asyncio.sleep(0.1)  # the old one is not gone yet

    return make


def widened(topic: str, partitions: int) -> Deed:
    return lambda client: client.create_partitions({topic: NewPartitions(partitions)})


def truncated(topic: str, offset: int) -> Deed:
    return lambda client: client.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=offset)})


def halted(client: blocking.Client, name: str) -> ShardInfo:
    """Return a shard that stands still, which it does when somebody has to do something."""
    found = next(one for one in client.mirrors.status(name, wait_ms=WAIT_MS).shards if one.why)
    assert found.state == "halted", found
    return found


@pytest.mark.parametrize("is_running", [True, False])
def test_a_topic_that_was_deleted(client: blocking.Client, broker: str, name: str, is_running: bool) -> None:
    cache = client.create_cache(name)
    topic = client.mirrors.add(name, kafka=broker, partitions=2).mirror.topic
    cache.put_many([(f"k{number}", number) for number in range(20)])
    wait(client, name)
    if not is_running:
        client.mirrors.pause(name)
    do(broker, deleted(topic))
    cache.put_many([(f"k{number}", number) for number in range(20)])
    client.mirrors.resume(name)
    assert f"topic {topic} " in halted(client, name).why  # or it has 1 partition: brokers make one for whoever asks


@pytest.mark.parametrize("is_running", [True, False])
def test_a_topic_that_was_deleted_and_made_anew(client: blocking.Client, broker: str, name: str, is_running: bool) -> None:
    cache = client.create_cache(name)
    topic = client.mirrors.add(name, kafka=broker, partitions=1).mirror.topic
    cache.put("k", 1)
    wait(client, name)
    if not is_running:
        client.mirrors.pause(name)
    do(broker, deleted(topic), made(topic, 1))
    cache.put("k", 2)
    if not is_running:
        client.mirrors.resume(name)
    assert f"topic {topic} was deleted and made anew" in halted(client, name).why
    client.mirrors.pause(name)
    client.mirrors.reset(name, to="earliest")
    client.mirrors.resume(name)
    wait(client, name)
    check(read(broker, topic), cache.events(), partitions=1)


def test_a_topic_that_has_other_partitions_now(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    topic = client.mirrors.add(name, kafka=broker, partitions=2).mirror.topic
    wait(client, name)
    client.mirrors.pause(name)
    do(broker, widened(topic, 4))
    cache.put("k", 1)
    client.mirrors.resume(name)
    assert f"topic {topic} has 4 partitions, and not the 2 that it had" in halted(client, name).why


def test_a_topic_that_gets_other_partitions_while_its_mirror_runs(broker: str, name: str, tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(f'[kafka.main]\nbootstrap = "{broker}"\nsettings = {{ metadata_max_age_ms = 300 }}\n')  # five minutes, else
    with NodeProcess(tmp_path / "node", "--config", str(config), "--segments", "4") as node, blocking.connect(node.address) as client:
        cache = client.create_cache(name)
        topic = client.mirrors.add(name, kafka="main", partitions=2).mirror.topic
        cache.put("k", 1)
        wait(client, name)
        do(broker, widened(topic, 4))
        until_any(client, name, cache, "halted")
        assert f"topic {topic} has 4 partitions, and not the 2 that it had" in halted(client, name).why


def until_any(client: blocking.Client, name: str, cache: blocking.Cache, state: str) -> None:
    """Write until a shard is in a state: what brokers say of a topic is heard of now and then, and looked at with a transaction."""
    deadline = time.monotonic() + UNTIL_S
    while all(one.state != state for one in client.mirrors.status(name).shards):
        assert time.monotonic() < deadline
        cache.put("k", 1)
        time.sleep(0.1)


def test_records_that_were_deleted_are_missed_when_topic_and_log_are_compared(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    topic = client.mirrors.add(name, kafka=broker, partitions=1).mirror.topic
    cache.put_many([(f"k{number}", number) for number in range(50)])
    wait(client, name)
    assert client.mirrors.verify(name).is_alike
    do(broker, truncated(topic, 10))
    left = {one.id for one in read(broker, topic)}
    lost = {(event.id, 1, 0) for event in cache.events() if event.id not in left}
    assert 0 < len(lost) <= 10
    assert {(one.id, one.in_log, one.in_topic) for one in client.mirrors.verify(name).differences} == lost


def until_let_go(client: blocking.Client, cache: blocking.Cache, name: str) -> None:
    """Write until the mirror's listener knows of all events but the last: it is moved with a commit, once a second at the most."""
    while client.listeners.describe(f"mirror.{name}").position_id < max(event.id for event in cache.events()):
        cache.put("k", 1)
        wait(client, name)


def begun_where_it_says(client: blocking.Client, name: str, why: str) -> int:
    """Do what the sentence of a shard asks for; return the id up to which it knows everything to be in Kafka."""
    upto = int(why.split("at least at id ")[1].partition(":")[0])
    assert f"eventlog mirror reset {name} --to {upto}" in why
    client.mirrors.pause(name)
    client.mirrors.reset(name, to=upto)
    client.mirrors.resume(name)
    wait(client, name)
    return upto


def test_progress_that_was_deleted_is_asked_for_and_nothing_comes_again(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    added = client.mirrors.add(name, kafka=broker, partitions=1, prefix=name).mirror
    cache.put_many([(f"k{number}", number) for number in range(50)])
    wait(client, name)
    until_let_go(client, cache, name)
    client.mirrors.pause(name)
    do(broker, emptied(added.progress_topic))
    cache.put("after", 1)
    client.mirrors.resume(name)
    why = halted(client, name).why
    assert f"topic {added.progress_topic} has lost how far mirror {name} is" in why
    begun_where_it_says(client, name, why)
    check(read(broker, added.topic), cache.events(), partitions=1)


@pytest.mark.parametrize("keys", [1, 200])
def test_progress_that_is_deleted_under_way_is_missed_by_who_comes_next(
    node: NodeProcess, client: blocking.Client, broker: str, name: str, keys: int
) -> None:
    cache = client.create_cache(name)
    added = client.mirrors.add(name, kafka=broker, partitions=1, prefix=name).mirror
    cache.put_many([(f"k{number}", number) for number in range(200)])
    wait(client, name)
    until_let_go(client, cache, name)
    do(broker, emptied(added.progress_topic))
    cache.put_many([(f"k{number}", -number) for number in range(keys)])
    wait(client, name)  # who runs knows where it is
    check(read(broker, added.topic), cache.events(), partitions=1)
    node.kill()
    node.start()
    cache.put("after", 1)
    upto = begun_where_it_says(client, name, halted(client, name).why) if keys == 1 else cache.put("last", 1).id
    wait(client, name)
    records = read(broker, added.topic)
    again = sorted(one.id for one in records if one.id > upto)  # as the sentence says
    assert sorted({*again}) == [event.id for event in cache.events(upto)], "events are missing"
    check([one for one in records if one.id <= upto], (event for event in cache.events() if event.id <= upto), partitions=1)


def test_progress_of_a_snapshot_that_is_deleted_is_missed(node: NodeProcess, client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    cache.put_many([(f"k{number}", number) for number in range(50)])
    added = client.mirrors.add(name, kafka=broker, partitions=1, prefix=name, from_id="snapshot").mirror
    wait(client, name)
    do(broker, emptied(added.progress_topic))
    node.kill()
    node.start()
    why = halted(client, name).why
    assert f"topic {added.progress_topic} has lost how far mirror {name} is" in why
    assert f"reset {name} --to snapshot" in why
    assert len(read(broker, added.topic)) == 50, "no entry is told twice"
    client.mirrors.pause(name)
    client.mirrors.reset(name, to="snapshot")
    client.mirrors.resume(name)
    cache.put("k1", -1)
    wait(client, name)
    assert folded(read(broker, added.topic)) == {key: {"value": entry.value} for key, entry in cache.entries()}


def test_who_removes_a_mirror_while_kafka_is_away_hears_what_is_left(
    client: blocking.Client, gate: Gate, gated_broker: str, name: str
) -> None:
    client.create_cache(name).put("k", 1)
    client.mirrors.add(name, kafka=gated_broker, partitions=1)
    wait(client, name)
    there, gate.broker = gate.broker, "127.0.0.1:1"
    try:
        with pytest.raises(KafkaFailed, match=f"mirror {name} is removed, topic eventlog.{name} is left"):
            client.mirrors.remove(name, delete_topics=True)
    finally:
        gate.broker = there
    assert name not in {mirror.name for mirror in client.mirrors.list()}
