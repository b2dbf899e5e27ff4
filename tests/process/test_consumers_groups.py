"""A consumer group while things go wrong: every event is read, and none again that was committed."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import pytest

import eventlog.blocking
from eventlog.consume.membership.record import GROUPS_CACHE, route_of
from eventlog.errors import EventsTrimmed
from eventlog.hashing import hash_key, route_bytes, segment_of
from tests.process.clusters import ClusterProcesses
from tests.process.group_checks import gaps, read_twice
from tests.process.group_member import CACHE, SESSION_MS, GroupMember
from tests.process.network_clusters import NetworkCluster
from tests.process.networks import Network
from tests.process.nodes import NodeProcess
from tests.process.trials import Load

MORE_S = 60


def more(members: list[GroupMember], count: int = 60, what: str = "read") -> None:
    """Wait until the members together have seen that much more."""

    def seen() -> int:
        return sum(line[0] == what for member in members for line in member.lines())

    before = seen()
    until(lambda: seen() >= before + count)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + MORE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {MORE_S} s"
        time.sleep(0.05)  # a poll of files; nothing else tells


def coordinator_of(cluster: ClusterProcesses, group: str = "g", *, node: int = 0) -> int:
    """Return the index of the node that coordinates a group."""
    return cluster.primaries(node)[segment_of(hash_key(route_bytes(route_of(group), by_prefix=True)), cluster.segments)]


def read_all(members: list[GroupMember], values: set[str]) -> None:
    """Wait until every value has been read by somebody."""
    until(lambda: values <= {line[4] for member in members for line in member.lines() if line[0] == "read"})


def judge(members: list[GroupMember], load: Load) -> None:
    history = load.end()
    written = {value for operation in history.operations if operation["outcome"] == "ok" for value in operation["values"]}
    read_all(members, written)
    lines = [line for member in members for line in member.lines()]
    assert gaps(lines) == []
    assert read_twice(lines) == []


@pytest.mark.timeout(400)
def test_kills_stops_moves_and_members_that_come_and_go(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster, ExitStack() as stack:
        addresses = cluster.addresses
        load = stack.enter_context(Load(tmp_path, addresses))
        load.busy()
        members = [stack.enter_context(GroupMember(tmp_path, f"m{number}", addresses)) for number in range(3)]
        more(members)
        cluster.kill(coordinator_of(cluster))
        more(members)
        cluster.start()
        cluster.settle()
        for index in (1, 2):
            cluster.kill(index)
            more(members)
            cluster.start()
            cluster.settle()
        cluster.command("admin", "drain", "n2")
        cluster.command("admin", "rebalance", "start", "--wait", node=2)
        more(members)
        members[0].kill()
        more(members[1:])
        members[1].process.send_signal(19)
        time.sleep(2 * SESSION_MS / 1000)  # the fault itself
        more(members[2:])
        members[1].process.send_signal(18)
        members.append(stack.enter_context(GroupMember(tmp_path, "m0", addresses)))  # killed, and started again
        more(members[3:])
        members[2].end()
        more(members)
        judge(members[:3], load)  # the fourth writes into the file of the first
        assert f'"{GROUPS_CACHE}"' not in cluster.command("cache", "list", "--json").stdout.decode()


@pytest.fixture
def network() -> Iterator[Network]:
    with Network("n1", "n2", "n3", "m1", "m2", "test") as network, network.inside("test"):
        yield network


@pytest.mark.timeout(300)
@pytest.mark.needs_root("networks of our own are made of namespaces")
def test_a_member_that_is_cut_off_is_replaced_and_comes_back(tmp_path: Path, network: Network) -> None:
    with NetworkCluster(tmp_path, network) as cluster, ExitStack() as stack:
        load = stack.enter_context(Load(tmp_path, cluster.addresses))
        load.busy()
        members = [
            stack.enter_context(GroupMember(tmp_path, name, cluster.addresses, wrapper=network.wrapper(name))) for name in ("m1", "m2")
        ]
        more(members[:1])
        more(members[1:])
        everybody = ["n1", "n2", "n3"]
        cluster.part(["m1"], everybody)
        time.sleep(2 * SESSION_MS / 1000)  # the fault itself
        more(members[1:])
        cluster.join(["m1"], everybody)
        more(members[:1])
        for name in everybody:  # from one node alone: the way round is taken
            cluster.part(["m2"], [name])
            more(members[1:])
            cluster.join(["m2"], [name])
        judge(members, load)


def test_retention_that_passes_the_position_is_said(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, "--segments", "4") as node, eventlog.blocking.connect(node.address) as client:
        cache = client.create_cache(CACHE)
        cache.put_many([(f"k{n}", n) for n in range(100)])
        with cache.consumer("g", auto_commit=False) as consumer:
            for batch in consumer.batches(10):
                consumer.commit(batch)
                break
        for part in range(20):
            cache.put_many([(f"k{n}", f"{part}-{n}") for n in range(1_000)])
        client.alter_cache(CACHE, retain_events=100)
        assert client.run_retention(CACHE).removed > 0
        with cache.consumer("g") as consumer, pytest.raises(EventsTrimmed) as trimmed:
            for _ in consumer:
                pass  # of segments where nothing was committed, what is kept
        assert trimmed.value.lost > 0
        with cache.consumer("g", on_trimmed="earliest") as consumer:
            assert all(event.id >= trimmed.value.first_id for event in islice(consumer, 50))


def test_blocking_callers_consume_too(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, "--segments", "4") as node, eventlog.blocking.connect(node.address) as client:
        cache = client.create_cache(CACHE)
        cache.put_many([(f"k{n}", n) for n in range(100)])
        with cache.consumer("g") as consumer:
            found = [event.value for event in islice(consumer, 60)]
        with cache.consumer("g") as consumer:
            found += [event.value for event in islice(consumer, 40)]
        assert sorted(found) == list(range(100))
        assert [group.group for group in client.groups.list()] == ["g"]
        with cache.consumer("w", mode="work") as workers:
            for task in islice(workers, 100):
                assert task.deliveries == 1
                task.ack()
        assert sum(row.lag_events for row in client.groups.describe("w")[0].segments) == 0
