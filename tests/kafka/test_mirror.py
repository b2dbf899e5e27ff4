"""A mirror of one node in a real broker: what it writes, what it refuses, and where it goes on."""

import asyncio
import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from eventlog import blocking
from eventlog.errors import (
    BadPredicate,
    InvalidArgument,
    KafkaFailed,
    MirrorExists,
    MirrorNotFound,
    MirrorRuns,
    NoConnection,
    OperationRefused,
    OutboundRefused,
    SchemaRefused,
)
from tests.kafka.brokers import SEGMENTS
from tests.kafka.mirrors import ORDER, WAIT_MS, by_confluent, check, folded, read, wait
from tests.process.cli_ends import Shell
from tests.process.nodes import NodeProcess
from tests.process.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


def write(cache: blocking.Cache, *, rounds: int = 3, keys: int = 50) -> None:
    for number in range(rounds):
        cache.put_many([(f"k{key}", {"n": number, "key": key, "text": 'ä "\\ \n'}) for key in range(keys)])
    for key in range(0, keys, 7):
        cache.remove(f"k{key}")


def test_everything_is_there_once_before_it_and_after(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    write(cache)
    added = client.mirrors.add(name, kafka=broker)
    assert (added.mirror.format, added.mirror.partitions, added.why_format) == ("debezium", SEGMENTS, "the cache keeps before-images")
    wait(client, name)
    write(cache, rounds=2)
    wait(client, name)
    records = read(broker, added.mirror.topic)
    check(records, cache.events(), partitions=SEGMENTS)
    state: dict[str, object] = {}
    for one in records:
        if one.value is None:
            continue
        envelope = json.loads(one.value)
        key = json.loads(one.key)["_key"]
        assert envelope["before"] == state.get(key)
        assert envelope["op"] == {"C": "c", "M": "u", "R": "d"}[one.kind]
        state[key] = envelope["after"]
    assert {key: value for key, value in state.items() if value} == {key: {"_key": key, **entry.value} for key, entry in cache.entries()}
    assert all(later.id == one.id for one, later in pairwise(records) if later.value is None and one.partition == later.partition)


@pytest.mark.parametrize("form", ["upsert", "raw"])
def test_values_are_told_as_they_are(client: blocking.Client, broker: str, name: str, form: str) -> None:
    cache = client.create_cache(name, before=False)
    write(cache)
    topic = client.mirrors.add(name, kafka=broker, format=form, partitions=4, prefix="shop").mirror.topic
    assert topic == f"shop.{name}"
    wait(client, name)
    records = read(broker, topic)
    events = list(cache.events())
    check(records, events, partitions=4)
    values = {event.id: event.value for event in events}
    keys = {event.id: event.key for event in events}
    for one in records:
        assert (None if one.value is None else json.loads(one.value)) == values[one.id]
        assert one.key.decode() == (keys[one.id] if form == "raw" else json.dumps({"_key": keys[one.id]}, separators=(",", ":")))


def test_a_filter_chooses_and_the_place_goes_on_past_what_it_leaves_out(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    cache.put_many([(f"k{number}", {"n": number}) for number in range(200)])
    topic = client.mirrors.add(name, kafka=broker, where="value.n >= 100 AND value.n < 150", format="upsert").mirror.topic
    wait(client, name)
    check(read(broker, topic), [event for event in cache.events() if 100 <= event.value["n"] < 150], partitions=SEGMENTS)


def test_a_mirror_of_bytes_and_of_avro(client: blocking.Client, broker: str, name: str) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "total", "type": "double"}]}
    plain, typed = (
        client.create_cache(f"{name}.b", format="bytes", before=True),
        client.create_cache(f"{name}.a", format="avro", schema=json.dumps(schema), before=True),
    )
    plain.put("k", b"\x00\xff", headers={"h": b"1"})
    typed.put("k", {"total": 1.5})
    for cache in (plain, typed):
        added = client.mirrors.add(cache.name, kafka=broker, encoding="json-schema", format="debezium")
        wait(client, cache.name)
        (record,) = read(broker, added.mirror.topic)
        found = json.loads(record.value or b"")
        assert found["schema"]["name"] == f"{added.mirror.topic}.Envelope"
        assert found["payload"]["after"] == ({"_key": "k", "value": "AP8="} if cache is plain else {"_key": "k", "total": 1.5})
        assert dict(record.headers) == ({"h": b"1"} if cache is plain else {})


@pytest.mark.parametrize("is_subject", [False, True])
def test_readers_of_avro_find_the_schemas_in_the_registry(
    node: NodeProcess, client: blocking.Client, broker: str, name: str, is_subject: bool
) -> None:
    if is_subject:
        with SchemaRegistryClient({"url": f"http://{node.http}"}) as schemas:
            schemas.register_schema(name, Schema(json.dumps(ORDER), "AVRO"))
    cache = client.create_cache(name)
    cache.put("k", {"total": 1.5})
    cache.put("k", {"total": 2.5, "note": "n"})
    cache.remove("k")
    if is_subject:
        asked = ("--kafka", broker, "--encoding", "avro", "--schema", name, "--json")
        topic = Shell(node).ok("mirror", "add", name, *asked).row["topic"]
    else:
        topic = client.mirrors.add(name, kafka=broker, encoding="avro", schema=json.dumps(ORDER)).mirror.topic
    wait(client, name)
    found = by_confluent(broker, node.http, topic)
    assert [key for key, _ in found] == [{"_key": "k"}] * 4
    rows = [None if value is None else (value["op"], value["before"], value["after"]) for _, value in found]
    first, second = {"_key": "k", "total": 1.5, "note": None}, {"_key": "k", "total": 2.5, "note": "n"}
    assert rows == [("c", None, first), ("u", first, second), ("d", second, None), None]


def test_a_field_that_a_schema_has_grown_by_is_told_of_every_event_that_has_it(
    node: NodeProcess, client: blocking.Client, broker: str, name: str
) -> None:
    total, paid = {"name": "total", "type": "double"}, {"name": "paid", "type": "boolean", "default": True}

    def order(*fields: dict[str, Any]) -> str:
        return json.dumps({"type": "record", "name": "Order", "fields": fields})

    cache = client.create_cache(name, format="avro", schema=order(total))
    cache.put_many([(f"k{number}", {"total": number}) for number in range(40)])
    topic = client.mirrors.add(name, kafka=broker, encoding="avro").mirror.topic
    wait(client, name)
    client.alter_cache(name, schema=order(total, paid))
    with blocking.connect(node.address) as other:  # it writes at once by what the cache has become
        other.cache(name).put_many([(f"k{number}", {"total": -number, "paid": False}) for number in range(40)])
    wait(client, name)
    found = [value for _, value in by_confluent(broker, node.http, topic)]
    assert sorted(row["after"]["total"] for row in found if row["op"] == "c") == list(range(40))
    assert [(row["before"]["paid"], row["after"]["paid"]) for row in found if row["op"] == "u"] == [(True, False)] * 40
    assert client.mirrors.verify(name).is_alike


def test_a_value_that_does_not_fit_stands_still_and_goes_on_when_it_is_mended(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    cache.put("k", {"total": "much"})
    client.mirrors.add(name, kafka=broker, encoding="avro", schema=json.dumps(ORDER), partitions=1)
    status = client.mirrors.status(name, wait_ms=WAIT_MS)
    (shard,) = status.shards
    assert (status.is_behind, shard.state) == (True, "halted")
    assert f"event at offset {next(iter(cache.events())).offset} of segment" in shard.why
    assert "value.total" in shard.why
    client.mirrors.pause(name)
    client.mirrors.reset(name, to="latest")
    cache.put("other", {"total": 1.5})  # what replaced it would say it again
    client.mirrors.resume(name)
    wait(client, name)


def test_a_schema_that_readers_of_the_topic_cannot_follow_is_refused(
    node: NodeProcess, client: blocking.Client, broker: str, name: str
) -> None:
    client.create_cache(name)
    client.mirrors.add(name, kafka=broker, encoding="avro", schema=json.dumps(ORDER))
    client.mirrors.remove(name)
    other = {**ORDER, "fields": [{"name": "total", "type": "string"}]}
    with pytest.raises(SchemaRefused, match=f"{name}-value"):
        client.mirrors.add(name, kafka=broker, encoding="avro", schema=json.dumps(other))
    with pytest.raises(SchemaRefused, match="nothing-of-the-kind"):
        client.mirrors.add(name, kafka=broker, encoding="avro", schema_subject="nothing-of-the-kind")
    with pytest.raises(InvalidArgument, match="no JSON"):
        client.mirrors.add(name, kafka=broker, encoding="avro", schema="{")


def test_a_snapshot_has_the_entries_first_and_then_what_followed_them(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    write(cache, rounds=2, keys=500)
    versions = {key: entry.version for key, entry in cache.entries()}
    last = max(event.id for event in cache.events())
    topic = client.mirrors.add(name, kafka=broker, from_id="snapshot", partitions=4).mirror.topic
    wait(client, name)
    first = read(broker, topic)
    assert {json.loads(one.key)["_key"]: one.id for one in first} == versions
    assert {(one.kind, json.loads(one.value or b"")["op"], json.loads(one.value or b"")["source"]["snapshot"]) for one in first} == {
        ("S", "r", "true")
    }
    assert len(first) == len(versions)
    write(cache, rounds=1, keys=200)
    wait(client, name)
    records = read(broker, topic)
    later = [one for one in records if one.kind != "S"]
    assert sorted({one.id for one in later}) == [event.id for event in cache.events(last)]
    assert folded(records) == {key: entry.value for key, entry in cache.entries()}


def test_a_snapshot_of_nothing_and_of_a_cache_without_state(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    topic = client.mirrors.add(name, kafka=broker, from_id="snapshot", partitions=2).mirror.topic
    cache.put("k", {"n": 1})
    wait(client, name)
    (only,) = read(broker, topic)
    assert only.kind in "CS"
    client.mirrors.pause(name)
    client.mirrors.reset(name, to="snapshot")
    client.mirrors.resume(name)
    cache.put("k", {"n": 2})
    wait(client, name)
    assert folded(read(broker, topic)) == {"k": {"n": 2}}
    client.create_cache(f"{name}.log", state=False)
    with pytest.raises(InvalidArgument, match="keeps no state, so there is no snapshot"):
        client.mirrors.add(f"{name}.log", kafka=broker, from_id="snapshot", format="upsert")


def test_a_snapshot_goes_on_in_the_middle_after_a_kill_while_others_write(tmp_path: Path, broker: str, name: str) -> None:
    text = "x" * 2_000
    with NodeProcess(tmp_path, "--segments", str(SEGMENTS)) as node:
        with blocking.connect(node.address) as client:
            cache = client.create_cache(name)
            for part in range(20):
                cache.put_many([(f"k{part}.{key}", {"part": part, "text": text}) for key in range(1_000)])
            versions = {key: entry.version for key, entry in cache.entries()}
            topic = client.mirrors.add(name, kafka=broker, from_id="snapshot", partitions=2).mirror.topic
            for _ in range(2_000):
                if sum(shard.transactions for shard in client.mirrors.status(name).shards) >= 3:
                    break
        node.kill()
        node.start()
        with blocking.connect(node.address) as client:
            cache = client.cache(name)
            cache.put_many([(f"k0.{key}", {"part": -1}) for key in range(500)])
            wait(client, name)
            records = read(broker, topic)
            entries = [one for one in records if one.kind == "S"]
            assert len({json.loads(one.key)["_key"] for one in entries}) == len(entries), "no entry is told twice"
            untouched = {key for key in versions if not key.startswith("k0.")}
            assert {json.loads(one.key)["_key"] for one in entries} >= untouched
            assert folded(records) == {key: entry.value for key, entry in cache.entries()}


def test_it_begins_where_it_is_told_and_again_where_it_is_reset_to(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    cache.put_many([(f"k{number}", number) for number in range(10)])
    first = client.mirrors.add(name, kafka=broker, from_id="latest")
    cache.put_many([(f"k{number}", -number) for number in range(10)])
    wait(client, name)
    events = list(cache.events())
    assert {one.id for one in read(broker, first.mirror.topic)} == {event.id for event in events[10:]}
    with pytest.raises(MirrorRuns):
        client.mirrors.reset(name, to="earliest")
    client.mirrors.pause(name)
    assert {shard.state for shard in client.mirrors.status(name).shards} == {"paused"}
    until(lambda: not sum(shard.lag_events for shard in client.mirrors.status(name).shards))
    assert all(shard.position_id >= events[9].id for shard in client.mirrors.status(name).shards), "it shows how far it is"
    cache.put("late", 1)
    assert sum(shard.lag_events for shard in client.mirrors.status(name).shards) == 1
    assert client.mirrors.reset(name, to=events[4].id, dry_run=True).from_id == events[4].id
    assert client.mirrors.describe(name).from_id == first.mirror.from_id
    client.mirrors.reset(name, to=events[14].id)
    paused = client.mirrors.status(name, wait_ms=1_000)
    assert paused.is_behind
    assert {shard.state for shard in paused.shards} == {"paused"}
    assert sum(shard.lag_events for shard in paused.shards) == 6, "what comes again is not there yet"
    client.mirrors.resume(name)
    wait(client, name)
    again = [one.id for one in read(broker, first.mirror.topic)]
    assert sorted(again) == sorted(
        [event.id for event in events[10:]] + [event.id for event in events[15:]] + [list(cache.events())[-1].id]
    )


def test_what_cannot_be_is_refused_in_one_sentence(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name, before=False)
    cache.put("k", 1)
    with pytest.raises(InvalidArgument, match="keeps no before-images: use --format upsert"):
        client.mirrors.add(name, kafka=broker, format="debezium")
    with pytest.raises(InvalidArgument, match="give 1 to 16"):
        client.mirrors.add(name, kafka=broker, partitions=17)
    with pytest.raises(InvalidArgument, match="hold is 0"):
        client.mirrors.add(name, kafka=broker, hold=0)
    for dry_run in (True, False):
        with pytest.raises(InvalidArgument, match="lies ahead"):
            client.mirrors.add(name, kafka=broker, from_id=1 << 62, dry_run=dry_run)
        with pytest.raises(BadPredicate):
            client.mirrors.add(name, kafka=broker, where="value.x <", dry_run=dry_run)
    assert f"eventlog.{name}" not in AdminClient({"bootstrap.servers": broker}).list_topics(timeout=10).topics
    with pytest.raises(NoConnection, match=r"no table \[kafka.main\]"):
        client.mirrors.add(name, kafka="main")
    with pytest.raises(OutboundRefused, match="allow_outbound"):
        client.mirrors.add(name, kafka="192.0.2.1:9092")
    with pytest.raises(KafkaFailed):
        client.mirrors.add(name, kafka="127.0.0.1:1")
    assert f"mirror.{name}" not in {one.id for one in client.listeners.list()}, "nothing is left of those"
    with pytest.raises(MirrorNotFound):
        client.mirrors.status(name)
    client.mirrors.add(name, kafka=broker)
    with pytest.raises(MirrorExists):
        client.mirrors.add(name, kafka=broker, topic="other")
    with pytest.raises(MirrorExists):
        client.mirrors.add(name, kafka=broker, name="other")
    listener = f"mirror.{name}"
    for change in (
        lambda: client.listeners.remove(listener),
        lambda: client.listeners.acknowledge(listener, 1),
        lambda: client.listeners.alter(listener, hold=1),
        lambda: cache.poll(after=1, listener=listener),
    ):
        with pytest.raises(OperationRefused, match=f"mirror alter {name} --hold .* eventlog mirror remove {name}"):
            change()
    wait(client, name)


def test_envelopes_of_events_that_do_not_say_what_they_replaced_are_refused(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name, before=False)
    for number in range(3):
        cache.put("k", number)
    lacking = cache.put("k", 3).id
    client.alter_cache(name, before=True)
    cache.put("k", 4)
    for dry_run in (True, False):
        with pytest.raises(InvalidArgument, match=f"only behind id {lacking}: give --from {lacking}, or --format upsert"):
            client.mirrors.add(name, kafka=broker, dry_run=dry_run)
    assert f"mirror.{name}" not in {one.id for one in client.listeners.list()}
    topic = client.mirrors.add(name, kafka=broker, from_id=lacking, partitions=1).mirror.topic
    wait(client, name)
    (record,) = read(broker, topic)
    assert json.loads(record.value or b"")["before"] == {"_key": "k", "value": 3}
    with pytest.raises(OperationRefused, match=f"mirror {name} tells what its events replaced"):
        client.alter_cache(name, before=False)
    client.mirrors.pause(name)
    client.mirrors.reset(name, to="earliest")
    client.mirrors.resume(name)
    (shard,) = client.mirrors.status(name, wait_ms=WAIT_MS).shards
    assert shard.state == "halted"
    assert "does not say what it replaced" in shard.why
    assert f"eventlog mirror reset {name} --to" in shard.why


def test_events_that_replaced_nothing_need_not_say_what(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name, before=False)
    cache.put_many([(f"k{number}", number) for number in range(20)])
    client.alter_cache(name, before=True)
    added = client.mirrors.add(name, kafka=broker)
    assert added.mirror.format == "debezium"
    wait(client, name)
    check(read(broker, added.mirror.topic), cache.events(), partitions=SEGMENTS)


def test_of_those_who_add_one_at_once_one_does_and_has_its_listener(client: blocking.Client, broker: str, name: str) -> None:
    client.create_cache(name).put("k", 1)

    def add(_: int) -> str:
        try:
            return client.mirrors.add(name, kafka=broker, partitions=1).mirror.name
        except MirrorExists:
            return ""

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(add, range(4))) == ["", "", "", name]
    wait(client, name)
    assert client.listeners.describe(f"mirror.{name}").durable


def test_a_topic_that_is_there_has_to_have_the_right_number_of_partitions(client: blocking.Client, broker: str, name: str) -> None:
    client.create_cache(name)
    client.mirrors.add(name, kafka=broker, partitions=4)
    wait(client, name)
    client.mirrors.remove(name)
    with pytest.raises(InvalidArgument, match="is there with 4 partitions, and has to have 8"):
        client.mirrors.add(name, kafka=broker, partitions=8)
    client.cache(name).put("k", 1)
    again = client.mirrors.add(name, kafka=broker, partitions=4)
    wait(client, name)
    assert len(read(broker, again.mirror.topic)) == 1


def test_a_topic_that_is_deleted_stands_still_and_says_so(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    cache.put("k", 1)
    topic = client.mirrors.add(name, kafka=broker, partitions=1).mirror.topic
    wait(client, name)
    other = client.create_cache(f"{name}.x")
    other.put("k", 1)
    client.mirrors.add(f"{name}.x", kafka=broker)
    client.mirrors.pause(name)
    client.mirrors.remove(name, delete_topics=True)
    assert [one.name for one in client.mirrors.list() if one.cache == name] == []
    again = client.mirrors.add(name, kafka=broker, partitions=1)
    assert again.mirror.topic == topic
    wait(client, name)
    assert len(read(broker, topic)) == 1


def test_the_durable_listener_follows_what_is_in_kafka(client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    client.mirrors.add(name, kafka=broker, partitions=1, hold=1 << 20)
    cache.put_many([(f"k{number}", number) for number in range(100)])
    wait(client, name)
    last = cache.put("last", 1).id
    for _ in range(100):
        wait(client, name)
        found = client.listeners.describe(f"mirror.{name}")
        if found.position_id >= last:
            break
        cache.put("again", 1)
    assert found.position_id >= last
    assert (found.durable, found.hold_bytes) == (True, 1 << 20)
    client.mirrors.remove(name)
    assert [one for one in client.listeners.list() if one.id == f"mirror.{name}"] == []


def test_the_command_line_says_the_same(node: NodeProcess, broker: str, name: str) -> None:
    node.command("cache", "create", name)
    node.command("put", name, "k", "1")

    def rows(*words: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in node.command("mirror", *words, "--json").stdout.splitlines()]

    assert rows("add", name, "--kafka", broker, "--partitions", "2", "--dry-run")[0]["shards"] == 2
    assert name not in {row["mirror"] for row in rows("list")}
    (added,) = rows("add", name, "--kafka", broker, "--partitions", "2", "--set", "max.message.bytes=2000000")
    assert set(added) == {"mirror", "cache", "topic", "progress_topic", "partitions", "shards", "format", "encoding"}
    status = rows("status", name, "--wait", "60s")
    assert [row["shard"] for row in status] == [0, 1]
    assert all(row["state"] == "running" and row["lag_events"] == 0 and row["error"] is None for row in status)
    assert "running" in node.command("mirrors", "list").stdout.decode()
    assert rows("pause", name)[0]["state"] == "paused"
    node.command("put", name, "k", "2")
    assert node.command("mirror", "status", name, "--wait", "1s", ok=False).returncode == 3
    assert rows("reset", name, "--to", "latest")[0]["state"] == "paused"
    assert node.command("mirror", "remove", name, ok=False).returncode == 2
    assert rows("remove", name, "--yes", "--delete-topics") == [{"mirror": name, "removed": True}]


async def produce(addresses: str, topic: str, *records: tuple[bytes, list[tuple[str, bytes]]]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=addresses) as producer:
        for value, headers in records:
            await producer.send_and_wait(topic, value, partition=0, headers=headers)


@pytest.mark.parametrize("start", ["earliest", "latest", "snapshot"])
def test_a_topic_is_as_the_log_says_until_somebody_else_writes_into_it(
    node: NodeProcess, client: blocking.Client, broker: str, name: str, start: str, tmp_path: Path
) -> None:
    cache = client.create_cache(name)
    write(cache)
    topic = client.mirrors.add(name, kafka=broker, from_id=start, partitions=2).mirror.topic
    while {shard.state for shard in client.mirrors.status(name).shards} != {"running"}:
        continue  # what a snapshot has of an event is no event
    write(cache, rounds=2)
    wait(client, name)
    found = client.mirrors.verify(name)
    assert found.is_alike, found
    assert found.events >= 2 * 50
    half = list(cache.events())[-20].id
    assert client.mirrors.verify(name, from_id=half).events == 19
    with pytest.raises(InvalidArgument, match="nothing would be compared"):
        client.mirrors.verify(name, from_id=half, until_id=half)
    assert node.command("mirror", "verify", name).stdout.endswith(b" 0 differences, 0 foreign records\n")
    path = str(tmp_path / "archive")
    audit = ("pipeline", "audit", name, "--archive", path, "--mirror", name)
    assert node.command("pipeline", "archive", name, "--to", path).returncode == 0
    assert node.command(*audit).stdout.endswith(b" 0 differences, 0 foreign records\n")
    again = next(one for one in read(broker, topic) if one.id > half and one.value is not None and one.partition == 0)
    own = [("id", again.id.to_bytes(8)), ("off", again.segment.to_bytes(4) + again.offset.to_bytes(8)), ("kind", again.kind.encode())]
    asyncio.run(produce(broker, topic, (b"again", own), (b"foreign", [])))
    found = client.mirrors.verify(name)
    assert (found.foreign, [(one.id, one.in_log, one.in_topic) for one in found.differences]) == (1, [(again.id, 1, 2)])
    refused = node.command("mirror", "verify", name, "--json", ok=False)
    row = json.loads(refused.stdout)
    assert (refused.returncode, row["differences"], row["first_difference"]["id"]) == (1, 2, again.id)
    refused = node.command(*audit, "--json", ok=False)
    told = json.loads(refused.stdout)
    assert (refused.returncode, told["differing"], told["mirror"]) == (1, 0, row | {"foreign": told["mirror"]["foreign"]})
    client.create_cache(f"{name}-other")
    alien = node.command("pipeline", "audit", f"{name}-other", "--archive", path, "--mirror", name, ok=False)
    assert (alien.returncode, f"is a mirror of {name}".encode() in alien.stderr) == (2, True)


def test_what_shards_count_is_among_the_metrics(node: NodeProcess, client: blocking.Client, broker: str, name: str) -> None:
    client.create_cache(name).put("k", 1)
    client.mirrors.add(name, kafka=broker, partitions=1)
    wait(client, name)
    with urllib.request.urlopen(f"http://{node.http}/metrics") as page:
        found = page.read().decode()
    assert f'eventlog_mirror_events_total{{mirror="{name}",shard="0"}} 1\n' in found
    assert f'eventlog_mirror_state{{mirror="{name}",shard="0",state="running"}} 1\n' in found
    held = {line.split()[0]: int(line.split()[1]) for line in found.splitlines() if "mirror_bytes_held" in line and line[0] != "#"}
    assert held, "what all mirrors hold is told"


def test_a_node_that_is_killed_goes_on_where_it_was(tmp_path: Path, broker: str, name: str) -> None:
    with NodeProcess(tmp_path, "--segments", str(SEGMENTS)) as node:
        for number in range(4):
            with blocking.connect(node.address) as client:
                cache = client.create_cache(name, if_exists="use")
                if not number:
                    client.mirrors.add(name, kafka=broker, partitions=4)
                cache.put_many([(f"k{key}", [number, key]) for key in range(2_000)])
                if number == 3:
                    wait(client, name)
                    check(read(broker, f"eventlog.{name}"), cache.events(), partitions=4)
                    break
            node.kill()
            node.start()
