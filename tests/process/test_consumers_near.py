"""Near caches while things go wrong: what is served is never older than allowed, and memory serves again when it is over."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import eventlog.blocking
from eventlog.errors import EventLogError
from tests.process.clusters import ClusterProcesses
from tests.process.near_reader import CACHE, NearReader, Read, Write, too_old
from tests.process.network_clusters import NetworkCluster
from tests.process.networks import Network
from tests.process.nodes import NodeProcess

KEYS = [f"k{number}" for number in range(8)]
STALENESS_MS = 1_000
STALENESS_S = STALENESS_MS / 1000


class Writing(threading.Thread):
    """Puts rising numbers under the keys in turn until it is told to end, whatever fails."""

    def __init__(self, addresses: list[str]) -> None:
        super().__init__(daemon=True)
        self.writes: list[Write] = []
        self._addresses = addresses
        self._is_ended = threading.Event()
        self.key = threading.Event()  # set as long as it may write

    def run(self) -> None:
        number = 0
        with eventlog.blocking.connect(*self._addresses) as client:
            cache = client.cache(CACHE)
            while not self._is_ended.wait(0.02):
                number += 1
                key = KEYS[number % len(KEYS)]
                try:
                    cache.put(key, number)
                except EventLogError:
                    continue  # it may be written or not: reads of it are neither asked for nor refused
                self.writes.append(Write(key=key, number=number, ended=time.monotonic()))

    def more(self, count: int = 20) -> None:
        """Wait for further writes."""
        wanted, deadline = len(self.writes) + count, time.monotonic() + 60
        while len(self.writes) < wanted:
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


def test_the_checker_finds_what_is_too_old():
    writes = [Write(key="a", number=1, ended=1.0), Write(key="a", number=2, ended=5.0)]

    def read(number: int | None, began: float) -> Read:
        return Read(key="a", number=number, began=began, ended=began, is_hit=True)

    fine = [read(1, 4.0), read(2, 4.9), read(1, 5.9), read(None, 1.5)]
    assert too_old(writes, fine, staleness_s=1) == []
    assert len(too_old(writes, [read(1, 6.1), read(None, 2.1)], staleness_s=1)) == 2


def test_kills_stops_moves_and_retention(tmp_path: Path):
    with ClusterProcesses(tmp_path) as cluster, eventlog.blocking.connect(*cluster.addresses) as client:
        client.create_cache(CACHE, retain_events=100)
        reader = NearReader(tmp_path, cluster.addresses, keys=KEYS, staleness_ms=STALENESS_MS)
        with reader, writing(cluster.addresses) as writer:
            reader.serves()
            writer.more()
            cluster.kill(0)  # it serves the reader, leads a third of the segments, and has made the cluster
            writer.more()
            reader.serves()
            cluster.start()
            cluster.settle()
            cluster.pause(1)
            time.sleep(2 * STALENESS_S)  # the fault itself
            cluster.resume(1)
            writer.more()
            reader.serves()
            cluster.settle()
            reader.pause()
            time.sleep(2 * STALENESS_S)  # the fault itself
            writer.more()
            reader.resume()
            reader.serves()
            cluster.command("admin", "drain", "n2")
            cluster.command("admin", "rebalance", "start", "--wait", node=2)
            writer.more()
            reader.serves()
            assert reader.now()["resets"] == 0, "nothing so far took word of what happened from it"
            passed_by_retention(cluster, client, reader)
            reader.serves()
            writer.end()
            reads = reader.end()
        assert too_old(writer.writes, reads, staleness_s=STALENESS_S) == []
        assert any(read.is_hit for read in reads)


def passed_by_retention(cluster: ClusterProcesses, client: eventlog.blocking.Client, reader: NearReader) -> None:
    """Have the reader away while all nodes die and what it has not heard of is trimmed.

    A node with a copy that is still to be trimmed may serve it all the same; one without has it forget everything.
    """
    reader.pause()
    cache = client.cache(CACHE)
    for _ in range(5):
        cache.put_many([(f"other{number}", number) for number in range(500)])
    cluster.kill()
    cluster.restart_all()
    cluster.settle()
    cache.put_many([(f"other{number}", number) for number in range(500)])
    client.run_retention(CACHE)
    reader.resume()


@pytest.fixture
def network() -> Iterator[Network]:
    """Hosts for the nodes and the test, which is the client."""
    with Network("n1", "n2", "n3", "test") as network, network.inside("test"):
        yield network


@pytest.mark.timeout(300)
@pytest.mark.needs_root("networks of our own are made of namespaces")
def test_with_its_node_cut_off_from_the_others_it_serves_nothing_old(tmp_path: Path, network: Network):
    with NetworkCluster(tmp_path, network) as cluster, eventlog.blocking.connect(*cluster.addresses) as client:
        client.create_cache(CACHE)
        reader = NearReader(tmp_path, cluster.addresses, keys=KEYS, staleness_ms=STALENESS_MS)
        with reader, writing(cluster.addresses) as writer:
            reader.serves()
            writer.more()
            for small in (["n1"], ["n1", "test"]):
                large = [name for name in ("n1", "n2", "n3", "test") if name not in small]
                cluster.part(small, large)
                time.sleep(2 * STALENESS_S)  # the fault itself
                cluster.join(small, large)
                writer.more()
                reader.serves()
                cluster.settle()
            writer.end()
            reads = reader.end()
        assert too_old(writer.writes, reads, staleness_s=STALENESS_S) == []


def test_blocking_callers_have_near_caches_too(tmp_path: Path):
    with NodeProcess(tmp_path) as node, eventlog.blocking.connect(node.address) as client:
        cache = client.create_cache(CACHE)
        with cache.near(max_bytes=1 << 20, max_staleness_ms=60_000) as near:
            stored = near.put("a", {"n": 1})
            deadline = time.monotonic() + 30
            while near.peek("a") is None and time.monotonic() < deadline:
                assert near.get("a").version == stored.id
            hits = near.statistics.hits
            assert [entry and entry.value for entry in near.get_many(["a", "b"])] == [{"n": 1}, None]
            assert near.statistics.hits == hits + 1
            cache.put("a", {"n": 2})
            assert near.get("a").value == {"n": 2}
            near.remove("a")
            assert near.get("a") is None
            assert near.is_fresh
            assert near.statistics.bytes < 1 << 20
