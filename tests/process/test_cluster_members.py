"""Nodes that become one cluster: joining, coming back, being missed, being refused; caches that all of them know."""

import asyncio
import json
import shutil
import socket
import subprocess

import pytest

from eventlog.transport.server import Server, ServerOptions
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.process.clusters import ClusterProcesses
from tests.process.nodes import EVENTLOG, NodeProcess

FREE = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory):
    """Three nodes."""
    started = ClusterProcesses(tmp_path_factory.mktemp("cluster"))
    try:
        started.start()
        yield started
    finally:
        started.__exit__(None, None, None)


def see_each_other(cluster: ClusterProcesses, live: int) -> None:
    for index, node in enumerate(cluster):
        if node.is_running:
            cluster.until(lambda found: found.nodes_live == live, node=index)


def serve(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(EVENTLOG), "serve", *options], capture_output=True, text=True, timeout=60, check=False)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_three_nodes_are_one_cluster(cluster):
    see_each_other(cluster, 3)
    found = [cluster.status(index) for index in range(3)]
    assert len({status.cluster for status in found}) == 1
    assert {(status.nodes, status.segments) for status in found} == {(3, cluster.segments)}


def test_a_node_that_is_killed_is_missed_and_comes_back_without_being_told_where(cluster):
    see_each_other(cluster, 3)
    node = cluster[2]
    node.kill()
    see_each_other(cluster, 2)
    assert cluster.status(0).nodes == 3
    node.options = node.options[node.options.index("--node-name") :]  # no --join
    node.start()
    see_each_other(cluster, 3)
    assert cluster.status(2).nodes == 3


def test_a_stopped_node_ends_well_and_is_missed(cluster):
    see_each_other(cluster, 3)
    assert cluster[1].stop() == 0
    see_each_other(cluster, 2)
    cluster[1].start()
    see_each_other(cluster, 3)


def test_every_node_knows_a_cache_as_soon_as_one_has_made_it(cluster):
    see_each_other(cluster, 3)
    cluster.command("cache", "create", "shared", "--retain-events", "1000", node=1)
    for node in range(3):
        assert json.loads(cluster.command("cache", "describe", "shared", "--json", node=node).stdout)["retain_events"] == 1000
    cluster.command("cache", "alter", "shared", "--retain-events", "2000", node=2)
    for node in range(3):
        assert json.loads(cluster.command("cache", "describe", "shared", "--json", node=node).stdout)["retain_events"] == 2000
    cluster.command("cache", "drop", "shared", "--yes", node=0)
    for node in range(3):
        done = cluster.command("cache", "describe", "shared", node=node, ok=False)
        assert b"CACHE_NOT_FOUND" in done.stderr


def test_the_nodes_are_listed_with_what_they_hold(cluster):
    see_each_other(cluster, 3)
    cluster.settle()
    rows = cluster.rows("admin", "nodes", node=1)
    assert {(row["name"], row["state"]) for row in rows} == {("n1", "live"), ("n2", "live"), ("n3", "live")}
    assert {row["address"] for row in rows} == set(cluster.addresses)
    assert {row["segments"] for row in rows} == {cluster.segments}
    assert sum(row["primaries"] for row in rows) == cluster.segments


def test_a_gateway_owns_nothing_and_serves_everything(tmp_path):
    with ClusterProcesses(tmp_path, count=1) as few:
        gateway = few.add("--gateway")
        few.start()
        few.settle()
        few.command("cache", "create", "c", node=1)
        few.command("put", "c", "k", "7", node=1)
        assert few.rows("get", "c", "k", node=1)[0]["value"] == 7
        assert few.rows("size", "c", node=1)[0]["size"] == 1
        assert [row["key"] for row in few.rows("consume", "c", node=1)] == ["k"]
        assert {row["name"]: row["segments"] for row in few.rows("admin", "nodes")} == {"n1": few.segments, "n2": 0}
        assert few.rows("admin", "segments", "--under-replicated", node=1) == []
        assert gateway.stop() == 0


def test_a_gateway_that_reaches_nobody_says_so_to_readers_and_ends_no_log_early(tmp_path):
    with ClusterProcesses(tmp_path, count=1) as few:
        gateway = few.add("--gateway")
        few.start()
        few.command("cache", "create", "c", node=1)
        few.command("put", "c", "k", "7", node=1)
        few.kill(0)
        for began_anew in (False, True):
            if began_anew:
                gateway.stop()
                gateway.start()
            few.until(lambda found: found.without_primary == few.segments, node=1)
            done = few.command("--timeout", "3s", "consume", "c", node=1, ok=False)
            assert (done.returncode, done.stdout) == (3, b""), "an empty answer would be a lie"
            assert b"NOT_PRIMARY: segment 0 " in done.stderr
        assert len(few.rows("admin", "segments", "--under-replicated", node=1)) == few.segments


def test_a_directory_of_another_cluster_does_not_join(cluster, tmp_path):
    with NodeProcess(tmp_path) as other:
        other.stop()
        done = serve("--data", str(other.data), *FREE, "--join", cluster[0].address)
        assert done.returncode == 1
        assert "WRONG_CLUSTER" in last_line(done)
        other.start()
    assert cluster.status(0).nodes == 3


def test_metadata_in_a_file_of_another_host_are_refused_with_what_moves_them(tmp_path):
    async def run() -> subprocess.CompletedProcess[str]:
        def dispatch(exchange):
            if exchange.kind == "hello":
                exchange.answer(Message(hello_answer=pb.HelloAnswer()))
            else:
                there = pb.ClusterInfoAnswer(cluster="far", segments=8, metastore="sqlite:/far/away/meta.db", host="other", file="1:2")
                exchange.answer(Message(cluster_info_answer=there))

        server = Server(dispatch, ServerOptions())
        await server.start("127.0.0.1", 0)
        join = f"127.0.0.1:{server.addresses[0][1]}"
        try:
            return await asyncio.to_thread(serve, "--data", str(tmp_path / "data"), *FREE, "--join", join)
        finally:
            await server.stop(grace_ms=0)

    done = asyncio.run(run())
    assert done.returncode == 1
    assert "METASTORE_LOCAL" in last_line(done)
    assert "eventlog admin metastore copy --from sqlite:/far/away/meta.db --to etcd://" in last_line(done)


def test_the_name_of_another_member_is_refused_to_a_directory_with_data(tmp_path):
    with NodeProcess(tmp_path / "one", "--node-name", "one") as one:
        with NodeProcess(tmp_path / "two", "--join", one.address, "--node-name", "two") as two:
            two.stop()
            done = serve("--data", str(two.data), *FREE, "--node-name", "one")
        assert done.returncode == 2
        assert "one" in last_line(done)


def test_an_empty_directory_does_not_take_the_place_of_a_member_that_is_up(cluster, tmp_path):
    see_each_other(cluster, 3)
    done = serve("--data", str(tmp_path / "data"), *FREE, "--join", cluster[0].address, "--node-name", "n2")
    assert done.returncode == 2
    assert f"'n2' is the member at {cluster[1].address}, which is up" in last_line(done)
    assert cluster[1].is_running
    assert cluster.status(0).nodes == 3


def test_a_copy_of_a_directory_does_not_take_the_place_of_the_member_that_is_up(cluster, tmp_path):
    see_each_other(cluster, 3)
    copied = shutil.copytree(cluster[1].data, tmp_path / "data")
    done = serve("--data", str(copied), *FREE, "--node-name", "n2", "--meta", cluster.metastore)
    assert done.returncode == 2
    assert f"{copied} is a copy of a member's" in last_line(done)
    assert f"'n2' is the member at {cluster[1].address}, which is up" in last_line(done)
    assert cluster[1].is_running
    assert cluster.status(0).nodes_live == 3


def test_a_node_that_listens_everywhere_is_named_after_its_host(tmp_path):
    with NodeProcess(tmp_path, "--listen", "0.0.0.0:0", "--insecure") as node:
        (row,) = [json.loads(line) for line in node.command("admin", "nodes", "--json").stdout.splitlines()]
        assert row["name"] == f"{socket.gethostname()}-{node.address.rpartition(':')[2]}"


def test_a_node_that_gave_everything_away_starts_again(tmp_path):
    with ClusterProcesses(tmp_path, count=2) as two:
        two.command("cache", "create", "c")
        two.command("put", "c", "k", "1")
        two[1].stop()  # its record says now how far its log reaches
        two[1].start()
        two.settle()
        two.command("admin", "drain", "n2")
        two[1].stop()
        two[1].start()
        assert two.rows("get", "c", "k", node=1)[0]["value"] == 1
