"""Durable listeners while things go wrong: everything that matches comes, in order, and goes on from what was acknowledged."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import eventlog.blocking
from eventlog.errors import EventsTrimmed
from eventlog.hashing import hash_key, segment_of
from tests.process.clusters import ClusterProcesses
from tests.process.listener_reader import CACHE, ListenerReader, gaps_and_repeats
from tests.process.network_clusters import NetworkCluster
from tests.process.networks import Network
from tests.process.nodes import NodeProcess
from tests.process.trials import Load

MORE_S = 60
WANTED = "kind <> 'REMOVED'"


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + MORE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {MORE_S} s"
        time.sleep(0.05)  # a poll of files; nothing else tells


def more(reader: ListenerReader, count: int = 30) -> None:
    """Wait until a reader has got that much more."""
    before = len(reader.lines())
    until(lambda: len(reader.lines()) >= before + count)


def home_of(cluster: ClusterProcesses, listener: str, *, node: int = 0) -> int:
    """Return the index of the node that keeps a listener."""
    return cluster.primaries(node)[segment_of(hash_key(listener.encode()), cluster.segments)]


def judge(reader: ListenerReader, load: Load) -> None:
    history = load.end()
    written = {value for operation in history.operations if operation["outcome"] == "ok" for value in operation["values"]}
    until(lambda: written <= {line[2] for line in reader.lines() if line[0] == "read"})
    assert gaps_and_repeats(reader.lines(), written) == []


def test_the_checker_finds_gaps_and_repetitions():
    begin, one, two = ["begin"], ["read", 1, "a"], ["read", 2, "b"]
    assert gaps_and_repeats([begin, one, two, begin, two], {"a", "b"}) == []
    assert gaps_and_repeats([begin, one], {"a", "b"}) == ["b never came"]
    assert gaps_and_repeats([begin, one, two, two], {"a"}) == ["2 came behind 2"]


def test_it_is_registered_at_one_node_and_polled_at_another_when_that_one_is_dead(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        with eventlog.blocking.connect(cluster[0].address) as client:
            cache = client.create_cache(CACHE)
            cache.put("before", 1)
            names = [f"l{number}" for number in range(8)]  # some of them are kept at the first node
            listeners = [cache.register(where="value > 2", durable=True, id=name) for name in names]
            ephemeral = cache.register(where="value > 3")
            assert {home_of(cluster, name) for name in names} >= {0}
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


@pytest.mark.timeout(300)
def test_kills_moves_and_readers_that_come_again(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster, ExitStack() as stack:
        with eventlog.blocking.connect(*cluster.addresses) as client:
            listener = client.create_cache(CACHE, retain_events=1_000).register(where=WANTED, durable=True, hold=1 << 30).id
        load = stack.enter_context(Load(tmp_path, cluster.addresses))
        load.busy()
        reader = stack.enter_context(ListenerReader(tmp_path, "r", listener, cluster.addresses))
        more(reader)
        cluster.kill(0)  # it serves the reader, and leads a third of the segments
        more(reader)
        cluster.start()
        cluster.settle()
        cluster.kill(home_of(cluster, listener))
        more(reader)
        cluster.start()
        cluster.settle()
        cluster.command("admin", "drain", "n2")
        cluster.command("admin", "rebalance", "start", "--wait", node=2)
        more(reader)
        reader.kill()
        load.busy()
        cluster.command("admin", "retention", "run", CACHE)  # it holds back what the reader has not acknowledged
        reader.__enter__()
        more(reader)
        with eventlog.blocking.connect(*cluster.addresses) as client:
            judged = client.listeners.describe(listener)
            assert judged.position_id > judged.last_id
        assert reader.lines().count(["begin"]) == 2
        judge(reader, load)


@pytest.fixture
def network() -> Iterator[Network]:
    with Network("n1", "n2", "n3", "test") as network, network.inside("test"):
        yield network


@pytest.mark.timeout(300)
@pytest.mark.needs_root("networks of our own are made of namespaces")
def test_a_reader_cut_off_from_its_node_goes_on_at_another(tmp_path: Path, network: Network) -> None:
    with NetworkCluster(tmp_path, network) as cluster, ExitStack() as stack:
        with eventlog.blocking.connect(*cluster.addresses) as client:
            listener = client.create_cache(CACHE).register(where=WANTED, durable=True).id
        load = stack.enter_context(Load(tmp_path, cluster.addresses))
        load.busy()
        reader = stack.enter_context(ListenerReader(tmp_path, "r", listener, cluster.addresses))
        more(reader)
        for name in ("n1", "n2", "n3"):
            cluster.part([name], [other for other in ("n1", "n2", "n3", "test") if other != name])
            more(reader)
            cluster.join([name], [other for other in ("n1", "n2", "n3", "test") if other != name])
        judge(reader, load)


def test_retention_waits_for_a_hold_up_to_its_cap_and_then_says_so(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, "--segments", "4") as node, eventlog.blocking.connect(node.address) as client:
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
