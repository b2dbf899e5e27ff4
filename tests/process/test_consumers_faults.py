"""Every way of reading while things go wrong: each event once where that is promised, at least once elsewhere, and never a silent gap.

One cluster for all tests, one node of it a gateway; one process with a consumer of every kind, and writers beside it.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

import eventlog.blocking
from eventlog.errors import CacheNotFound, EventLogError
from tests.process.clusters import ClusterProcesses
from tests.process.consumer_checks import Kept, Logged, Truth
from tests.process.every_consumer import CACHE, NEAR_KEYS, SESSION_MS, STATIC
from tests.process.near_reader import Write
from tests.process.network_clusters import NetworkCluster, best_network
from tests.process.roads import Roads
from tests.process.waiting import until

WRITERS = 3
GATEWAY = 3
WITHIN_S = 60
MOST = ("state", "state-gateway", "iteration", "iteration-gateway")  # stand still in the middle of the entries when a fault comes
_numbers = count(1)


class Writers:
    """Threads that put and remove a few keys until told to end, whatever fails. Keys that begin with `r` may be removed."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses
        self._is_ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(WRITERS)]
        self.acknowledged: list[int] = []
        self.near_writes: list[Write] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _run(self, writer: int) -> None:
        keys = [key for row, key in enumerate([*NEAR_KEYS, *(f"r{number}" for number in range(10))]) if row % WRITERS == writer]
        with eventlog.blocking.connect(*self._addresses) as client:
            cache = client.cache(CACHE)
            for number in count(1):
                if self._is_ended.wait(0.1):
                    return
                key = keys[number % len(keys)]
                try:
                    if key.startswith("r") and number % 5 == 0:
                        stored = cache.remove(key)
                    else:
                        stored = cache.put(key, {"n": (number * 11 + writer) % 21, "number": number})
                except EventLogError:
                    continue  # the log tells whether it was done
                if key in NEAR_KEYS:
                    self.near_writes.append(Write(key=key, number=number, ended=time.monotonic()))
                if stored.id:
                    self.acknowledged.append(stored.id)

    def more(self, wanted: int = 20) -> None:
        """Wait for further writes."""
        before = len(self.acknowledged)
        until(lambda: len(self.acknowledged) >= before + wanted, lambda: "no write is acknowledged")

    def end(self) -> None:
        self._is_ended.set()
        for thread in self._threads:
            thread.join(WITHIN_S)


class Consumers:
    """The process with all consumers, inside `with`; writes go on meanwhile."""

    def __init__(self, cluster: ClusterProcesses, directory: Path, roads: Roads | None = None) -> None:
        self.cluster = cluster
        self._roads = roads
        self.kept = Kept(directory)
        self.writers = Writers(cluster.addresses[:GATEWAY])
        self._directory = directory
        self._log = directory / "consumers.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._listener = f"l{next(_numbers)}"
        self._start = 0

    def __enter__(self) -> Self:
        with eventlog.blocking.connect(*self.cluster.addresses[:GATEWAY]) as client:
            _make_cache(client)
            self._start = client.cache(CACHE).register(durable=True, id=self._listener).last_id
        self.writers.__enter__()
        try:
            self.start()
            self.more()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.writers.end()
        if self._process is not None:
            self.kill()
        if kind is not None:
            print(f"--- consumers\n{self._log.read_text()[-3000:]}")

    def start(self) -> None:
        network = getattr(self.cluster, "network", None) if self._roads is None else None
        addresses = self.cluster.addresses if self._roads is None else self._roads.addresses
        routing = "direct" if self._roads is None else "any"
        words = [str(self._directory), self._listener, str(self._start), routing, addresses[GATEWAY], *addresses[:GATEWAY]]
        command = [*(network.wrapper("client") if network else ()), sys.executable, "-m", "tests.process.every_consumer", *words]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def more(self) -> None:
        """Wait until writers and all consumers have come further."""
        before = self.kept.progress()
        self.writers.more()

        def late() -> list[str]:
            assert self._process is not None
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            return [kind for kind, lines in self.kept.progress().items() if lines <= before[kind]]

        until(lambda: not late(), lambda: f"consumers that get nothing: {late()}")

    @contextmanager
    def in_the_middle(self) -> Iterator[None]:
        """Have those that read entries stand still in the middle of them for the time of a block."""
        hold, held = self._directory / "hold", self._held()
        hold.touch()
        until(
            lambda: all(now > before for now, before in zip(self._held(), held, strict=True)),
            lambda: f"not all came to the middle: {held}, {self._held()}",
        )
        try:
            yield
        finally:
            hold.unlink()

    def _held(self) -> list[int]:
        return [sum("held" in line for line in self.kept.lines(kind)) for kind in MOST]

    def judge(self) -> None:
        """End the writes, have everybody come to the end, and look at all that was seen."""
        self.writers.end()
        with eventlog.blocking.connect(*self.cluster.addresses[:GATEWAY]) as client:
            log = [
                Logged(id=event.id, key=str(event.key), n=_n(event.value), was=_n(event.before)) for event in client.cache(CACHE).events()
            ]
        acknowledged = frozenset(self.writers.acknowledged)
        assert acknowledged <= {one.id for one in log}
        truth = Truth(log=log, acknowledged=acknowledged, near_writes=self.writers.near_writes)
        until(
            lambda: all(self.kept.is_at_end(truth).values()),
            lambda: f"not everybody came to the end: {self.kept.is_at_end(truth)}",
            within_s=2 * WITHIN_S,
        )
        assert self.kept.violations(truth) == {}


def _n(value: dict[str, int] | None) -> int | None:
    return None if value is None else value["n"]


def _make_cache(client: eventlog.blocking.Client) -> None:
    with suppress(CacheNotFound):
        client.drop_cache(CACHE)
    client.create_cache(CACHE).put_many([(f"s{number:05}", {"n": 0, "number": number}) for number in range(STATIC)])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """Three nodes and a gateway, on hosts of their own."""
    directory = tmp_path_factory.mktemp("faults")
    hosts = ("n1", "n2", "n3", "n4", "client", "test")
    with best_network(*hosts) as network, network.inside("test"), running(NetworkCluster(directory, network)) as found:
        yield found


@contextmanager
def running(cluster: ClusterProcesses) -> Iterator[ClusterProcesses]:
    with cluster:
        cluster.add("--gateway")
        cluster.start()
        yield cluster
        for node in cluster:
            assert "Traceback" not in node.log_text()


@pytest.fixture
def consumers(cluster: ClusterProcesses, tmp_path: Path) -> Iterator[Consumers]:
    with Consumers(cluster, tmp_path) as found:
        yield found


def test_each_node_is_killed(consumers: Consumers) -> None:
    cluster = consumers.cluster
    for index in range(GATEWAY):  # one of them serves, one leads the segment, one coordinates, one controls
        with consumers.in_the_middle():
            cluster.kill(index)
            consumers.writers.more()
        consumers.more()
        cluster.start()
        cluster.settle(live=GATEWAY + 1)
    consumers.judge()


def test_a_node_stands_still_and_segments_move(consumers: Consumers) -> None:
    cluster = consumers.cluster
    with consumers.in_the_middle():
        cluster.pause(0)
        consumers.writers.more()
    consumers.more()
    cluster.resume(0)
    cluster.settle(live=GATEWAY + 1)
    with consumers.in_the_middle():
        cluster.command("admin", "drain", "n2", node=2)
        cluster.command("admin", "rebalance", "start", "--wait", node=2)
        assert 1 not in cluster.primaries(2)
    consumers.more()
    cluster.command("admin", "drain", "n2", "--cancel", node=2)
    consumers.more()
    consumers.judge()


def test_the_clients_are_killed_and_go_on_from_where_they_were(consumers: Consumers) -> None:
    with consumers.in_the_middle():
        consumers.kill()
        consumers.writers.more()
    consumers.start()
    consumers.more()
    consumers.signal(19)
    time.sleep(2 * SESSION_MS / 1000)  # the fault itself
    consumers.signal(18)
    consumers.more()
    consumers.judge()


def test_the_roads_between_clients_and_a_node_are_blocked(cluster: ClusterProcesses, tmp_path: Path) -> None:
    with Roads(cluster.addresses) as roads, Consumers(cluster, tmp_path, roads) as consumers:
        for index in range(2):
            with consumers.in_the_middle():
                roads.block(index)
                consumers.writers.more()
            consumers.more()
            roads.unblock(index)
        consumers.judge()


def test_the_network_is_cut_between_clients_and_a_node_and_between_nodes(consumers: Consumers) -> None:
    cluster = consumers.cluster
    assert isinstance(cluster, NetworkCluster)
    for some, others in ((["n1"], ["client"]), (["n1"], ["n2", "n3", "n4"])):
        with consumers.in_the_middle():
            cluster.part(some, others)
            consumers.writers.more()
        consumers.more()
        cluster.join(some, others)
        cluster.settle(live=GATEWAY + 1)
    consumers.judge()
