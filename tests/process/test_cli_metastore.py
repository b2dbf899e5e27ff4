"""`eventlog admin metastore copy`: from a file to etcd and back, with the node stopped and started as a user would."""

import asyncio
import json
import shutil
import subprocess
import time

import pytest

from eventlog.control.metastores.location import open_metastore, parse_location
from eventlog.control.records import CLUSTER_KEY
from tests.process.etcds import EtcdCluster
from tests.process.nodes import EVENTLOG, NodeProcess


def copy(source: str, target: str) -> subprocess.CompletedProcess[str]:
    command = [str(EVENTLOG), "admin", "metastore", "copy", "--from", source, "--to", target, "--json"]
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=120)


def cluster_key(metastore: str) -> bytes:
    """Return the cluster key's record as it lies in a metastore."""

    async def run() -> bytes:
        store = await open_metastore(parse_location(metastore), create=False)
        try:
            item = await store.get(CLUSTER_KEY)
        finally:
            await store.close()
        assert item is not None
        return item.value

    return asyncio.run(run())


def shell(node: NodeProcess, *arguments: str) -> str:
    return node.command(*arguments).stdout.decode()


@pytest.fixture
def etcd(tmp_path):
    with EtcdCluster(tmp_path / "etcd") as cluster:
        yield f"etcd://{cluster.endpoints[0]}"


def test_a_cluster_moves_from_a_file_to_etcd_and_goes_on_there(tmp_path, etcd):
    old = f"sqlite:{tmp_path / 'n1' / 'data.meta' / 'meta.db'}"
    with NodeProcess(tmp_path / "n1") as node:
        shell(node, "cache", "create", "orders")
        shell(node, "put", "orders", "k", '"before"')
        running = copy(old, etcd)
        assert running.returncode == 1
        assert "stop them all first" in running.stderr
        assert node.stop() == 0

        moved = copy(old, etcd)
        assert moved.returncode == 0, moved.stderr
        assert json.loads(moved.stdout)["records"] > 256
        assert cluster_key(etcd) == cluster_key(old)

        node.options = ()
        with pytest.raises(AssertionError, match="were moved to etcd://"):
            node.start()  # with the old store

        node.options = ("--meta", etcd)
        node.start()
        assert shell(node, "get", "orders", "k") == '"before"'
        shell(node, "put", "orders", "k", '"after"')
        assert node.stop() == 0

    again = copy(etcd, f"sqlite:{tmp_path / 'third' / 'meta.db'}")
    assert again.returncode == 0, again.stderr
    assert cluster_key(f"sqlite:{tmp_path / 'third' / 'meta.db'}") == cluster_key(old)
    assert {oct(path.stat().st_mode & 0o077) for path in (tmp_path / "third").rglob("*")} == {"0o0"}
    node.options = ("--meta", f"sqlite:{tmp_path / 'third' / 'meta.db'}")
    with node:
        assert shell(node, "get", "orders", "k") == '"after"'


def test_what_cannot_be_moved_is_said_in_one_line(tmp_path):
    for source, code, why in (("sqlite:", 2, "neither sqlite:PATH nor etcd://"), (f"sqlite:{tmp_path / 'none.db'}", 1, "METADATA_LOST")):
        done = copy(source, f"sqlite:{tmp_path / 'new.db'}")
        assert done.returncode == code
        assert why in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_lost_metadata_are_made_again_from_a_data_directory(tmp_path):
    with NodeProcess(tmp_path / "n1") as node:
        shell(node, "cache", "create", "orders")
        shell(node, "put", "orders", "k", '"before"')
        kept = node.data / "records.json"
        deadline = time.monotonic() + 60
        while not (kept.exists() and "cache/orders" in kept.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)  # it is written a moment after the change
        node.kill()
        shutil.rmtree(tmp_path / "n1" / "data.meta")
        with pytest.raises(AssertionError, match="METADATA_LOST"):
            node.start()

        new = f"sqlite:{tmp_path / 'new' / 'meta.db'}"
        command = [str(EVENTLOG), "admin", "metastore", "rebuild", "--data", str(node.data), "--to", new, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        again = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert again.returncode != 0
        assert "into an empty store" in again.stderr

        node.options = ("--meta", new)
        node.start()
        assert shell(node, "get", "orders", "k") == '"before"'
        before = [json.loads(line)["id"] for line in shell(node, "consume", "orders", "--json").splitlines()]
        shell(node, "put", "orders", "k", '"after"')
        after = [json.loads(line)["id"] for line in shell(node, "consume", "orders", "--json").splitlines()]
        assert after[: len(before)] == before
        assert max(after) > max(before)


def test_a_node_whose_metadata_are_gone_stops_in_order(tmp_path):
    with NodeProcess(tmp_path / "n1") as node:
        shutil.rmtree(tmp_path / "n1" / "data.meta")
        deadline = time.monotonic() + 60
        while "writes have stopped" not in (said := shell(node, "admin", "status")):
            assert time.monotonic() < deadline, said
        assert "reading goes on: metadata at " in said
        assert "admin metastore rebuild" in said
        assert "does not answer" not in said
        assert node.stop() == 0
        assert "stopped clean=True" in node.log_text()


def test_a_directory_without_a_copy_is_named(tmp_path):
    command = [str(EVENTLOG), "admin", "metastore", "rebuild", "--data", str(tmp_path / "none"), "--to", f"sqlite:{tmp_path / 'm.db'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert "keeps no copy of the records" in done.stderr
    assert not (tmp_path / "none").exists()
