"""Durable listeners: known to the cluster and not to a node, and what they hold back. `test_consumers_faults` has the other faults."""

from itertools import count
from pathlib import Path

import pytest

import eventlog.blocking
from eventlog.errors import EventsTrimmed
from eventlog.hashing import hash_key, segment_of
from tests.process.clusters import ClusterProcesses
from tests.process.nodes import RETENTION_WHEN_TOLD, NodeProcess

CACHE = "c"


def home_of(cluster: ClusterProcesses, listener: str, *, node: int = 0) -> int:
    """Return the index of the node that keeps a listener."""
    return cluster.primaries(node)[segment_of(hash_key(listener.encode()), cluster.segments)]


def test_it_is_registered_at_one_node_and_polled_at_another_when_that_one_is_dead(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        cluster.spread(0)
        with eventlog.blocking.connect(cluster[0].address) as client:
            cache = client.create_cache(CACHE)
            cache.put("before", 1)
            names = [f"l{number}" for number in range(8)]
            names.append(next(name for name in map("m{}".format, count()) if home_of(cluster, name) == 0))
            listeners = [cache.register(where="value > 2", durable=True, id=name) for name in names]
            ephemeral = cache.register(where="value > 3")
        cluster.kill(0)
        with eventlog.blocking.connect(cluster[1].address) as client:
            cache = client.cache(CACHE)
            stored = [cache.put(f"k{number}", number).id for number in range(6)]
            for listener in listeners:
                seen: list[int] = []
                answer = cache.poll(listener=listener.id, after=listener.last_id, wait_ms=20_000)
                while len(seen := seen + [event.id for event in answer.events]) < 3:
                    answer = cache.poll(listener=listener.id, position=answer.position, wait_ms=20_000)
                assert seen == sorted(stored[3:]), "ids of different primaries are not in the order of the calls"
            assert cache.poll(listener=ephemeral.id, after=ephemeral.last_id, wait_ms=20_000).events[0].id == min(stored[4:])
            assert {listener.id for listener in client.listeners.list()} == {*names, ephemeral.id}


def test_retention_waits_for_a_hold_up_to_its_cap_and_then_says_so(tmp_path: Path) -> None:
    with (
        NodeProcess(tmp_path, "--segments", "4", environment=RETENTION_WHEN_TOLD) as node,
        eventlog.blocking.connect(node.address) as client,
    ):
        cache = client.create_cache(CACHE, retain_events=100)
        held = cache.register(durable=True, hold=1 << 30)
        capped = cache.register(durable=True, hold=4 << 20)
        for _ in range(12):
            cache.put_many([(f"k{number}", "x" * 900) for number in range(1_000)])
        client.run_retention(CACHE)
        assert len(cache.poll(listener=held.id, max_events=10).events) == 10
        assert client.listeners.describe(capped.id).held_percent >= 95
        client.listeners.remove(held.id)
        assert client.run_retention(CACHE).removed > 0
        with pytest.raises(EventsTrimmed):
            cache.poll(listener=capped.id)
        assert "listener_falls_behind" in node.log_text()
