"""Entries that a signal asks running mirrors for: told among the events, once for each signal, whoever dies meanwhile."""

import json
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eventlog import blocking
from eventlog.errors import OperationRefused
from tests.kafka.brokers import SEGMENTS
from tests.kafka.mirrors import Record, folded, read, wait
from tests.process.cli_ends import Shell
from tests.process.clusters import ClusterProcesses
from tests.process.nodes import NodeProcess
from tests.process.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]
WITHIN_S = 60


def asking(*caches: str) -> dict[str, Any]:
    return {"type": "execute-snapshot", "data": {"data-collections": list(caches)}}


def rows_of(records: list[Record]) -> Counter[str]:
    """Return how often each key was told as an entry."""
    return Counter(json.loads(one.key)["_key"] for one in records if one.kind == "S")


def signals_cache(client: blocking.Client) -> blocking.Cache:
    """Return the cache of signals, which is there soon after the first mirror."""
    until(lambda: "__signals" in {cache.name for cache in client.list_caches(internal=True)})
    return client.cache("__signals")


def test_a_signal_has_every_entry_told_once_more(node: NodeProcess, client: blocking.Client, broker: str, name: str) -> None:
    cache = client.create_cache(name)
    cache.put_many([(f"k{number}", {"n": number}) for number in range(300)])
    for number in range(0, 300, 10):
        cache.remove(f"k{number}")
    topic = client.mirrors.add(name, kafka=broker, from_id="latest").mirror.topic
    aside = client.mirrors.add(
        name, kafka=broker, from_id="latest", where="value.n < 100", format="upsert", name=f"{name}.x", topic=f"{name}.x"
    )
    wait(client, name)
    assert read(broker, topic) == []
    live = {key for key, _ in cache.entries()}
    signals_cache(client).put("s", asking(name))
    until(lambda: len(rows_of(read(broker, topic))) == len(live))
    until(
        lambda: len(rows_of(read(broker, aside.mirror.topic))) == 90,
        lambda: f"{len(rows_of(read(broker, aside.mirror.topic)))} rows, and {client.mirrors.status(aside.mirror.name)}",
    )
    cache.put("k1", {"n": -1})  # before both have told it, it would come as this event alone
    wait(client, name)
    records = read(broker, topic)
    assert rows_of(records) == Counter(live)
    rows = [json.loads(one.value or b"") for one in records if one.kind == "S"]
    assert {(row["op"], row["source"]["snapshot"]) for row in rows} == {("r", "incremental")}
    assert folded(records) == {key: entry.value for key, entry in cache.entries()}
    Shell(node).ok("put", "__signals", "s", json.dumps(asking("other")))  # under the same key
    asked = urllib.request.Request(
        f"http://{node.http}/v1/caches/__signals/entries/s",
        data=json.dumps(asking(name)).encode(),
        headers={"Content-Type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(asked, timeout=WITHIN_S) as answer:
        assert answer.status in {200, 201, 204}
    until(lambda: rows_of(read(broker, topic)).total() >= 2 * len(live))
    wait(client, name)
    assert rows_of(read(broker, topic)) == Counter(dict.fromkeys(live, 2))
    assert client.mirrors.verify(name).is_alike
    client.mirrors.pause(name)
    client.mirrors.resume(name)
    late = client.mirrors.add(name, kafka=broker, from_id="latest", name=f"{name}.late", topic=f"{name}.late").mirror.topic
    cache.put("k1", {"n": -2})
    for mirror in (name, f"{name}.late"):
        wait(client, mirror)
    assert rows_of(read(broker, topic)).total() == 2 * len(live), "what was done is not done again"
    assert rows_of(read(broker, late)) == Counter(), "it was asked before the mirror was there"


def test_what_a_signal_may_not_ask_is_said_in_the_log(node: NodeProcess, client: blocking.Client, broker: str, name: str) -> None:
    client.create_cache(name).put("k", 1)
    topic = client.mirrors.add(name, kafka=broker).mirror.topic
    wait(client, name)
    signals = signals_cache(client)
    asked = {
        "stop-snapshot": {"type": "stop-snapshot"},
        "nothing": {"type": "execute-snapshot", "data": {"data-collections": []}},
        "blocking": {"type": "execute-snapshot", "data": {"data-collections": [name], "type": "BLOCKING"}},
        "part": {"type": "execute-snapshot", "data": {"data-collections": [name], "additional-conditions": []}},
        "other": asking(f"{name}.other", name),
        "text": "execute-snapshot",
    }
    ids = {word: signals.put(word, value).id for word, value in asked.items()}
    said = {
        "stop-snapshot": 'only the type "execute-snapshot" is known',
        "nothing": "has to name caches",
        "blocking": 'only a snapshot of the type "incremental"',
        "part": "'additional-conditions', which is not known",
        "other": f"there is no mirror of cache '{name}.other'",
        "text": 'only the type "execute-snapshot" is known',
    }
    until(lambda: f"signal_refused id={ids['text']} " in node.log_text())
    lines = node.log_text().splitlines()
    for word, why in said.items():
        (line,) = [line for line in lines if f"signal_refused id={ids[word]} " in line]
        assert why in line
    assert f"signal_taken id={ids['other']} cache={name}" in node.log_text()
    until(lambda: rows_of(read(broker, topic)) == Counter("k"))
    assert "service_failed" not in node.log_text(), "shards without entries have nothing to tell"
    with pytest.raises(OperationRefused, match="__mirrors"):
        client.cache("__mirrors").put(b"k", b"x")


def test_entries_are_told_among_the_events_and_once_though_a_node_is_killed(tmp_path: Path, broker: str, name: str) -> None:
    text = "x" * 1_500
    with ClusterProcesses(tmp_path, segments=SEGMENTS) as cluster, blocking.connect(*cluster.addresses) as client:
        cache = client.create_cache(name)
        for part in range(12):
            cache.put_many([(f"k{part}.{key}", {"part": part, "text": text}) for key in range(1_000)])
        topic = client.mirrors.add(name, kafka=broker, from_id="latest", partitions=4, interval_ms=10).mirror.topic
        signals_cache(client).put("s", asking(name))
        shards, written = client.mirrors.status(name).shards, 0
        while sum(shard.events for shard in shards) < written + 500:  # so many rows at least
            cache.put_many([(f"k0.{key}", {"part": -1}) for key in range(0, 500, 25)])
            written += 20
            shards = client.mirrors.status(name).shards
        victim = max(shards, key=lambda shard: shard.events).node
        own = {shard.shard for shard in shards if shard.node == victim}
        cluster.kill(cluster.index_of(victim))
        told = [one.partition for one in read(broker, topic) if one.kind == "S" and one.partition in own]
        cache.put_many([(f"k1.{key}", {"part": -2}) for key in range(500)])
        cache.remove("k2.0")
        cluster.start()
        cluster.settle()
        live = {key: entry.value for key, entry in cache.entries()}
        untouched = {key for key, value in live.items() if value["part"] >= 0}
        until(lambda: set(rows_of(read(broker, topic))) >= untouched)
        wait(client, name)
        records = read(broker, topic)
        assert client.mirrors.verify(name).is_alike
    after = sum(one.kind == "S" and one.partition in own for one in records)
    print(f"{len(told)} of {after} rows of the node's shards before it was killed, {len(records)} records in all")
    assert 0 < len(told) < after, "it was killed in the middle"
    assert max(rows_of(records).values()) == 1
    assert folded(records) == live
    for partition in set(told):
        kinds = [one.kind for one in records if one.partition == partition]
        assert {"C", "M"} & set(kinds[kinds.index("S") :]), "events come between"
