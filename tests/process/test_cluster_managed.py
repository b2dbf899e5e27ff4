"""`--meta managed-etcd`: nodes that run the etcd which holds their cluster's metadata."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog.control.metastores.etcd_members import EtcdMember, EtcdMembers
from tests.ports import free_base
from tests.process.clusters import ClusterProcesses
from tests.process.etcds import etcd_binary
from tests.process.nodes import NodeProcess
from tests.process.waiting import until

ADDED = (0, 100, 200)


@pytest.fixture
def cluster(tmp_path, request) -> Iterator[ClusterProcesses]:
    meta, count = getattr(request, "param", ("managed-etcd", 3))
    environment = {"PATH": f"{etcd_binary().parent}:{os.environ['PATH']}"}
    found = ClusterProcesses(tmp_path, "--meta", meta, "--replicas", str(count), count=count, environment=environment)
    base = free_base([added + index for added in ADDED for index in range(count)])
    for index, node in enumerate(found):
        node.address = f"127.0.0.1:{base + index}"
    with found as started:
        yield started


def members(cluster: ClusterProcesses) -> list[EtcdMember]:
    """Return etcd's members, by name."""

    async def read() -> list[EtcdMember]:
        ports = [int(address.rpartition(":")[2]) for address in cluster.addresses]
        seen = EtcdMembers([f"127.0.0.1:{port + ADDED[1]}" for port in ports])
        try:
            return sorted(await seen.read(), key=lambda member: member.name)
        finally:
            await seen.close()

    return asyncio.run(read())


def etcd_of(node: NodeProcess) -> int:
    """Return the number of the process that holds a node's part of etcd."""
    own = f"--data-dir={node.data / 'etcd'}".encode()
    return next(int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if own in read_cmdline(path))


def read_cmdline(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        return []


def test_three_nodes_run_three_members_and_lose_one_of_them(cluster):
    assert [(member.name, member.is_learner) for member in members(cluster)] == [("n1", False), ("n2", False), ("n3", False)]
    assert {cluster.status(index).metastore for index in range(3)} == {"etcd"}
    cluster.command("cache", "create", "c")
    cluster.command("put", "c", "k", "1")
    cluster[0].kill()
    cluster.until(lambda found: found.nodes_live == 2 and not found.without_primary, node=1)
    cluster.command("cache", "create", "later", node=1)
    cluster.command("put", "c", "k", "2", node=2)
    cluster[0].start()
    cluster.settle()
    assert json.loads(cluster.command("get", "c", "k", "--json").stdout)["value"] == 2
    assert b"later" in cluster.command("cache", "list", node=0).stdout

    fourth = cluster.add()
    cluster.start()
    cluster.settle()
    assert len(members(cluster)) == 3, "the fourth only uses what is there"
    assert "etcd_started" not in fourth.log_text()

    cluster.kill()
    cluster.restart_all()
    cluster.settle()
    assert json.loads(cluster.command("get", "c", "k", "--json", node=3).stdout)["value"] == 2


def test_a_node_that_lost_its_directory_gets_a_member_that_counts(cluster):
    cluster.command("cache", "create", "c")
    before = {member.name: member.id for member in members(cluster)}
    cluster[1].kill()
    shutil.rmtree(cluster[1].data)
    cluster[1].start()
    cluster.settle()
    found = {member.name: member for member in members(cluster)}
    assert [name for name in sorted(found) if found[name].id != before[name]] == ["n2"], "a new member took the place of the lost one"
    assert not any(member.is_learner for member in found.values())
    assert "etcd_died" not in cluster[1].log_text()
    cluster[2].kill()
    cluster.until(lambda status: status.nodes_live == 2 and not status.without_primary, node=1)
    cluster.command("cache", "create", "later", node=1)
    cluster.command("put", "later", "k", "1", node=0)


def test_another_node_takes_the_seat_of_a_removed_one_and_the_next_loss_stops_nothing(cluster):
    cluster.command("cache", "create", "c")
    cluster[1].kill()
    cluster.until(lambda status: status.nodes_live == 2 and not status.without_primary)
    cluster.add().address = f"127.0.0.1:{free_base(list(ADDED))}"
    cluster[3].options = (*cluster[3].options, "--join", cluster.addresses[0])
    cluster[3].start()
    cluster.command("admin", "remove", "n2")
    cluster.settle()
    until(lambda: [(member.name, member.is_learner) for member in members(cluster)] == [("n1", False), ("n3", False), ("n4", False)])
    cluster[2].kill()
    cluster.until(lambda status: status.nodes_live == 2 and not status.without_primary)
    cluster.command("cache", "create", "later", node=3)
    cluster.command("put", "later", "k", "1")


def test_nodes_that_are_removed_one_after_the_other_take_their_members_with_them(cluster):
    cluster.command("cache", "create", "c")
    for name in ("n3", "n2"):
        cluster.command("admin", "drain", name)
        cluster.command("admin", "remove", name)
        cluster[int(name[1:]) - 1].wait()
    assert [member.name for member in members(cluster)] == ["n1"]
    cluster.command("cache", "create", "later")
    cluster.command("put", "later", "k", "1")


def test_a_member_of_etcd_that_does_not_answer_is_said_while_its_node_lives(cluster):
    etcd = etcd_of(cluster[1])
    os.kill(etcd, signal.SIGSTOP)
    try:
        found = cluster.until(lambda status: status.health == "degraded" and status.nodes_live == 3)
        assert any(line.startswith("etcd of n2 does not answer") for line in found.advice)
    finally:
        os.kill(etcd, signal.SIGCONT)
    cluster.settle()


@pytest.mark.parametrize("cluster", [("managed-etcd:5", 5)], indirect=True)
def test_five_nodes_run_five_members_and_lose_two_of_them(cluster):
    assert [member.is_learner for member in members(cluster)] == [False] * 5
    for index in (0, 1):
        cluster[index].kill()
    cluster.until(lambda found: found.nodes_live == 3 and not found.without_primary, node=2)
    cluster.command("cache", "create", "c", node=2)
    cluster.command("put", "c", "k", "1", node=3)
    assert json.loads(cluster.command("get", "c", "k", "--json", node=4).stdout)["value"] == 1
