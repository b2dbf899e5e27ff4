"""A continuous query while things go wrong: every change once, in order, and none that did not happen."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import eventlog.blocking
from eventlog.errors import EventLogError
from tests.process.clusters import ClusterProcesses
from tests.process.network_clusters import NetworkCluster
from tests.process.networks import Network
from tests.process.query_reader import CACHE, QueryReader

KEYS = [f"k{number}" for number in range(12)]


class Writing(threading.Thread):
    """Puts and removes the keys by turns until it is told to end, whatever fails."""

    def __init__(self, addresses: list[str]) -> None:
        super().__init__(daemon=True)
        self.acknowledged = 0
        self._addresses = addresses
        self._is_ended = threading.Event()

    def run(self) -> None:
        number = 0
        with eventlog.blocking.connect(*self._addresses) as client:
            cache = client.cache(CACHE)
            while not self._is_ended.wait(0.01):
                number += 1
                key = KEYS[number * 5 % len(KEYS)]
                try:
                    if number % 7:
                        cache.put(key, {"n": number * 11 % 21})
                    else:
                        cache.remove(key)
                except EventLogError:
                    continue  # the log tells whether it was done
                self.acknowledged += 1

    def more(self, count: int = 20) -> None:
        """Wait for further writes."""
        wanted, deadline = self.acknowledged + count, time.monotonic() + 60
        while self.acknowledged < wanted:
            assert time.monotonic() < deadline, "no write was acknowledged for a minute"
            time.sleep(0.02)  # a poll of the thread; nothing else tells

    def end(self) -> None:
        self._is_ended.set()
        self.join(60)


@contextmanager
def writing(addresses: list[str]) -> Iterator[Writing]:
    thread = Writing(addresses)
    thread.start()
    try:
        yield thread
    finally:
        thread.end()


def expected_of(client: eventlog.blocking.Client) -> list[tuple[int, str, str]]:
    """Return from the log what a query that began before the first event is to be told: (id, change, key)."""
    found = []
    for event in client.cache(CACHE).events():
        was = event.before is not None and event.before["n"] > 10
        matches = event.value is not None and event.value["n"] > 10
        if was or matches:
            found.append((event.id, "UPDATED" if was and matches else "JOINED" if matches else "LEFT", event.key))
    return found


def told(changes: list[dict[str, Any]]) -> list[tuple[int, str, str]]:
    return [(change["id"], change["change"], change["key"]) for change in changes]


def matching(changes: list[dict[str, Any]]) -> dict[str, int]:
    """Return what matches after some changes; a beginning anew forgets what was before it."""
    found: dict[str, int] = {}
    was_initial = False
    for change in changes:
        if change["initial"] and not was_initial:
            found = {}
        was_initial = change["initial"]
        if change["change"] == "LEFT":
            found.pop(change["key"], None)
        else:
            found[change["key"]] = change["n"]
    return found


def test_kills_stops_moves_and_retention(tmp_path: Path):
    with ClusterProcesses(tmp_path) as cluster, eventlog.blocking.connect(*cluster.addresses) as client:
        cache = client.create_cache(CACHE, retain_events=0)
        cache.put("first", {"n": 11})
        with QueryReader(tmp_path, cluster.addresses) as reader:
            reader.until(lambda changes: len(changes) == 1)
            with writing(cluster.addresses) as writer:
                writer.more()
                cluster.kill(0)  # it serves the reader, leads a third of the segments, and has made the cluster
                writer.more()
                cluster.start()
                cluster.settle()
                reader.kill()
                writer.more()
                reader.start()
                cluster.kill(1)
                writer.more()
                cluster.start()
                cluster.settle()
                cluster.pause(2)
                writer.more()
                cluster.resume(2)
                cluster.settle()
                cluster.command("admin", "drain", "n2")
                cluster.command("admin", "rebalance", "start", "--wait", node=2)
                writer.more()
            expected = expected_of(client)
            assert expected[0] == (reader.changes()[0]["id"], "JOINED", "first")
            changes = reader.until(lambda changes: len(changes) >= len(expected))
            assert told(changes) == expected
            trimmed_while_away(client, reader)
            entries = dict.fromkeys(KEYS) | {key: entry.value["n"] for key, entry in cache.entries() if entry.value["n"] > 10}
            expected_entries = {key: n for key, n in entries.items() if n is not None}
            reader.until(lambda changes: matching(changes) == expected_entries)


def trimmed_while_away(client: eventlog.blocking.Client, reader: QueryReader) -> None:
    """Have the reader begin anew with what matches, where what it missed is gone; a copy still to be trimmed tells it all the same."""
    reader.kill()
    cache = client.cache(CACHE)
    for number in range(50):
        cache.put_many([(key, {"n": (number + row) % 21}) for row, key in enumerate(KEYS)])
    client.alter_cache(CACHE, retain_events=10)
    client.run_retention(CACHE)
    reader.start(on_trimmed="resync")


@pytest.fixture
def network() -> Iterator[Network]:
    """Hosts for the nodes and the test, which is the client."""
    with Network("n1", "n2", "n3", "test") as network, network.inside("test"):
        yield network


@pytest.mark.timeout(300)
@pytest.mark.needs_root("networks of our own are made of namespaces")
def test_with_its_node_cut_off_from_it_and_from_the_others_nothing_is_missed(tmp_path: Path, network: Network):
    with NetworkCluster(tmp_path, network) as cluster, eventlog.blocking.connect(*cluster.addresses) as client:
        client.create_cache(CACHE).put("first", {"n": 11})
        with QueryReader(tmp_path, cluster.addresses) as reader:
            reader.until(lambda changes: len(changes) == 1)
            with writing(cluster.addresses) as writer:
                writer.more()
                for small, large in ((["n1"], ["test"]), (["n1"], ["n2", "n3"])):
                    cluster.part(small, large)
                    writer.more()
                    time.sleep(2)  # the fault itself
                    cluster.join(small, large)
                    writer.more()
                    cluster.settle()
            expected = expected_of(client)
            assert told(reader.until(lambda changes: len(changes) >= len(expected))) == expected
