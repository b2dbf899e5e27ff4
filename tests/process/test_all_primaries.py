"""Clears, retention beside holds, lists and lag while nodes are killed, stand still and are drained."""

import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

import eventlog.blocking
from eventlog.hashing import hash_key, segment_of
from tests.process.clusters import ClusterProcesses

pytestmark = pytest.mark.timeout(300)
ENTRIES = 1_000
OFTEN = {"EVENTLOG_NODE_RETENTION_INTERVAL_MS": "100"}
LIMITS = {"events": {"retain_events": 50}, "bytes": {"retain_bytes": 4_096}, "time": {"retain_time_ms": 200}}
"""What caches keep by themselves: far less than what their listeners hold."""


def faults_of(cluster: ClusterProcesses) -> list[tuple[Callable[[int], object], Callable[[int], object]]]:
    """Return what happens to a node, and what makes it good again."""

    def drain(index: int) -> None:
        cluster.command("admin", "drain", f"n{index + 1}", node=(index + 1) % 3)

    def cancel(index: int) -> None:
        cluster.command("admin", "drain", "--cancel", f"n{index + 1}", node=(index + 1) % 3)

    return [(cluster.kill, lambda _: cluster.start()), (cluster.pause, cluster.resume), (drain, cancel)]


def test_a_clear_beside_a_fault_leaves_nothing_that_was_there_before(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster, eventlog.blocking.connect(*cluster.addresses) as client:
        cluster.spread()
        cache = client.create_cache("c")
        for round_, (happen, mend) in enumerate(faults_of(cluster)):
            victim = round_ % 3
            cache.put_many([(f"k{number}", number) for number in range(ENTRIES)])
            fault = threading.Thread(target=happen, args=(victim,))
            fault.start()
            cache.clear()
            fault.join()
            mend(victim)
            assert cache.size() == 0
            cluster.settle()
            assert (cache.size(), list(cache.keys())) == (0, [])


def write(caches: dict[str, eventlog.blocking.Cache], low: int) -> dict[str, list[int]]:
    """Write into each of the caches; return the ids."""
    return {
        name: list(cache.put_many([(f"k{number}", "x" * 50) for number in range(low, low + 200)]).ids) for name, cache in caches.items()
    }


def test_what_listeners_hold_stays_while_their_homes_are_lost(tmp_path: Path) -> None:
    with (
        ClusterProcesses(tmp_path, environment=OFTEN) as cluster,
        eventlog.blocking.connect(*cluster.addresses) as client,
    ):
        cluster.spread()
        caches = {name: client.create_cache(name, **limits) for name, limits in LIMITS.items()}
        for round_, (happen, mend) in enumerate(faults_of(cluster)):
            primaries, victim = cluster.primaries(), round_ % 3
            names = (f"l{round_}-{number}" for number in count())
            at_home = (name for name in names if primaries[segment_of(hash_key(name.encode()), cluster.segments)] == victim)
            held = {name: cache.register(id=next(at_home), durable=True, hold=1 << 30) for name, cache in caches.items()}
            stored = write(caches, 0)
            fault = threading.Thread(target=happen, args=(victim,))
            fault.start()
            more = write(caches, 200)
            assert {one.id for one in client.listeners.list()} == {one.id for one in held.values()}
            fault.join()
            mend(victim)
            last = write(caches, 400)
            stored = {name: stored[name] + more[name] + last[name] for name in caches}
            cluster.settle()
            lags = {one.cache: one.lag_events for one in client.listeners.list()}
            assert lags == {name: len(ids) for name, ids in stored.items()}
            for name, listener in held.items():
                seen: list[int] = []
                answer = caches[name].poll(listener=listener.id, after=listener.last_id, max_events=1_000, wait_ms=5_000)
                while seen := seen + [event.id for event in answer.events]:
                    if len(seen) >= len(stored[name]):
                        break
                    answer = caches[name].poll(listener=listener.id, position=answer.position, max_events=1_000, wait_ms=5_000)
                assert seen == sorted(stored[name])
                client.listeners.remove(listener.id)
