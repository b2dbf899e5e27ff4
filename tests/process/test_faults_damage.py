"""Data directories that come back damaged: filled again where others hold everything, given up only when an operator says so."""

import json
import shutil
from functools import partial

import pytest

import eventlog.blocking
from eventlog.node.state.checkpoint import counts_range
from eventlog.segment.keys import parse_log_key, segment_range
from eventlog.segment.port import StoreOptions
from eventlog.segment.recovery import recover
from eventlog.segment.rocks.store import open_store
from tests.process.clusters import ClusterProcesses
from tests.process.nodes import NodeProcess

pytestmark = pytest.mark.timeout(300)
SEGMENTS = 16
EVENTS = 300


def spoil_ends(node, *, segments):
    """Flip a bit in the last stored value of a cache in some segments of a stopped node; return how many."""
    spoilt = 0
    with_store = open_store(node.data / "store", segments=SEGMENTS)
    try:
        for segment in segments:
            pairs = [pair for pair in with_store.read_log(*segment_range(segment), bytes_max=1 << 30) if parse_log_key(pair[0])[1]]
            if pairs:
                key, data = pairs[-1]
                with_store.append([(key, data[:-1] + bytes([data[-1] ^ 1]))], [])
                spoilt += 1
        with_store.sync(with_store.ends)
    finally:
        with_store.close()
    return spoilt


def spoil_counters(node, *, cache_id):
    with_store = open_store(node.data / "store", segments=SEGMENTS)
    with_store.apply([(counts_range(cache_id)[0], b"short")])
    with_store.close()


def spoil_manifest(node):
    file = max((node.data / "store" / "store" / "db").glob("MANIFEST-*"))
    data = bytearray(file.read_bytes())
    data[len(data) // 100] ^= 0x10
    file.write_bytes(data)


def load(command, first=0, *, events=EVENTS):
    rows = b"".join(b'{"key":"key-%d","value":%d}\n' % (number, number) for number in range(first, first + events))
    command("load", "c", "-", "--format", "jsonl", "--key", "key", "--batch", "10", stdin=rows)


def last_line(node):
    return node.log_text().strip().splitlines()[-1]


def refused(node):
    node.spawn()
    assert node.wait() == 1
    return last_line(node)


def test_a_damaged_node_of_a_cluster_comes_back_as_another_replica_and_is_filled_again(tmp_path):
    with ClusterProcesses(tmp_path, segments=SEGMENTS) as cluster:
        cluster.command("cache", "create", "c")
        load(cluster.command)
        node = cluster[1]
        node.stop()
        assert spoil_ends(node, segments=(3, 4, 5))
        cluster.start()
        cluster.settle()
        assert "segments_dropped segments=[3, 4, 5]" in node.log_text()
        assert not (node.data / "store.damaged").exists()
        load(cluster.command, first=EVENTS)
        assert b"all equal" in cluster.command("admin", "rebalance", "verify").stdout

        node.kill()
        spoil_manifest(node)
        cluster.start()
        cluster.settle()
        assert (node.data / "store.damaged").exists()
        assert b"all equal" in cluster.command("admin", "rebalance", "verify").stdout
        keys = [json.loads(line)["key"] for line in cluster.command("consume", "c", "--json", node=1).stdout.splitlines()]
        assert sorted(keys) == sorted(f"key-{number}" for number in range(2 * EVENTS))

        node.kill()
        spoil_manifest(node)
        assert "store.damaged" in refused(node)
        assert "remove that" in last_line(node)


def test_a_node_whose_state_cannot_be_read_at_its_start_is_filled_again(tmp_path):
    with ClusterProcesses(tmp_path, segments=SEGMENTS) as cluster:
        cluster.command("cache", "create", "c")
        load(cluster.command)
        node = cluster[1]
        node.stop()
        spoil_counters(node, cache_id=1)
        cluster.start()
        cluster.settle()
        assert "data_lost" in node.log_text()
        assert b"all equal" in cluster.command("admin", "rebalance", "verify").stdout


def tear_manifest(node):
    """Cut the end of the newest MANIFEST off, as if its last records had never been written."""
    file = max((node.data / "store" / "store" / "db").glob("MANIFEST-*"))
    file.write_bytes(file.read_bytes()[:-100])


def has_values(node, copy):
    """Return whether the engine, in a copy, still knows any stored value of a cache of a node that is stopped."""
    shutil.copytree(node.data / "store", copy)
    store = open_store(copy, segments=SEGMENTS, options=StoreOptions(accepts_loss=True))
    try:
        pairs = [pair for segment in range(SEGMENTS) for pair in store.read_log(*segment_range(segment), bytes_max=1 << 30)]
    finally:
        store.close()
    return any(parse_log_key(key)[1] == 1 for key, _ in pairs)


def two_generations(command, node):
    """Load, kill, start, load and kill again: what was loaded first lies in tables then, the rest in the journal."""
    command("cache", "create", "c")
    load(command, events=2_000)
    node.kill()
    node.start()
    load(command, first=2_000, events=2_000)
    node.kill()


def test_a_node_whose_manifest_lost_its_end_serves_nothing_until_the_loss_is_accepted(tmp_path):
    with NodeProcess(tmp_path, "--segments", str(SEGMENTS), "--node-name", "n1") as node:
        two_generations(node.command, node)
        tear_manifest(node)
        for _ in range(2):
            said = refused(node)
            assert said.startswith("error: LOST_DISK: ")
            assert "MANIFEST" in said
            assert "--accept-data-loss" in said
        assert b"MANIFEST" in node.command("admin", "check", "--data", str(node.data), ok=False).stdout
        is_anything_left = has_values(node, tmp_path / "copy")  # which tables are forgotten varies
        node.options = (*node.options, "--accept-data-loss")
        node.start()
        node.command("admin", "force-primary", "--all-lost", "n1", "--accept-data-loss")
        node.command("admin", "status", "--wait", "1m")  # they take a moment to adopt what is left
        with eventlog.blocking.connect(node.address) as client:
            kept = {event.key for event in client.cache("c").events(accept_diverged=True)}
        assert bool(kept) == is_anything_left, "what was left is not given up"
        node.command("put", "c", "more", "1")
        assert node.stop() == 0
        node.options = node.options[:-1]
        node.start()
        assert node.command("admin", "check").returncode == 0


def test_one_of_three_whose_manifest_lost_its_end_is_filled_again_before_it_is_in_sync(tmp_path):
    with ClusterProcesses(tmp_path, segments=SEGMENTS) as cluster:
        node = cluster[1]
        two_generations(partial(cluster.command, node=0), node)
        tear_manifest(node)
        cluster.start()
        cluster.settle()
        assert "data_lost" in node.log_text()
        assert (node.data / "store.damaged").exists()
        assert b"all equal" in cluster.command("admin", "rebalance", "verify").stdout
        keys = [json.loads(line)["key"] for line in cluster.command("consume", "c", "--json", node=1).stdout.splitlines()]
        assert sorted(keys) == sorted(f"key-{number}" for number in range(4_000))


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_behind_a_check_of_a_directory_a_start_looks_through_nothing(tmp_path, end):
    with NodeProcess(tmp_path, "--segments", str(SEGMENTS)) as node:
        node.command("cache", "create", "c")
        load(node.command)
        node.kill() if end == "kill" else node.stop()
        node.command("admin", "check", "--data", str(node.data))
        store = open_store(node.data / "store", segments=SEGMENTS)
        settled, ends = store.settled.tolist(), recover(store, keyed=()).ends.ids.tolist()
        store.close()
        assert all(ends)
        assert settled == ends


def test_a_check_that_cannot_compare_the_entries_says_so(tmp_path):
    with NodeProcess(tmp_path, "--segments", str(SEGMENTS)) as node:
        node.command("cache", "create", "c")
        load(node.command)
        node.stop()
        assert b"300 entries: all sound" in node.command("admin", "check", "--data", str(node.data)).stdout
        (node.data / "records.json").write_bytes(b"{")
        done = node.command("admin", "check", "--data", str(node.data), ok=False)
        assert done.returncode == 1
        assert b"records.json" in done.stdout
        assert b"entries are not compared" in done.stdout


def test_what_nobody_else_holds_is_given_up_only_when_an_operator_says_so(tmp_path):
    with NodeProcess(tmp_path, "--segments", str(SEGMENTS), "--node-name", "n1") as node:
        node.command("cache", "create", "c")
        load(node.command)
        token = json.loads(node.command("consume", "c", "--json").stdout.splitlines()[-1])["id_str"]
        node.stop()
        spoilt = spoil_ends(node, segments=range(4))
        assert spoilt
        for _ in range(2):
            said = refused(node)
            assert said.startswith("error: CORRUPT_DATA: ")
            assert "no other node holds segments 0 to 15" in said
            assert "--accept-data-loss" in said
        done = node.command("admin", "check", "--data", str(node.data), "--json", ok=False)
        found = json.loads(done.stdout)
        assert done.returncode == 1
        assert [row["segment"] for row in found["lost"]] == [0, 1, 2, 3]
        assert all(0 < row["after"] < row["upto"] for row in found["lost"])
        assert b"--accept-data-loss" in node.command("admin", "check", "--data", str(node.data), ok=False).stdout
        options = node.options
        node.options = (*options, "--accept-data-loss")
        node.start()
        assert "segments_cut segments=[0, 1, 2, 3]" in node.log_text()
        dry = node.command("admin", "force-primary", "--all-lost", "n1", "--dry-run", "--json")
        assert len(dry.stdout.splitlines()) == SEGMENTS
        node.command("admin", "force-primary", "--all-lost", "n1", "--accept-data-loss")
        assert json.loads(node.command("size", "c", "--json").stdout)["size"] == EVENTS, "the state had it all"
        kept = len(node.command("consume", "c", "--json").stdout.splitlines())
        assert EVENTS - 10 * spoilt <= kept < EVENTS
        assert b"POSITION_DIVERGED" in node.command("consume", "c", "--from-id", token, ok=False).stderr
        node.command("put", "c", "more", "1")
        assert node.stop() == 0
        node.options = options
        node.start()
        assert json.loads(node.command("size", "c", "--json").stdout)["size"] == EVENTS + 1
        assert node.command("admin", "check").returncode == 0
        assert b"DIRECTORY_IN_USE" in node.command("admin", "check", "--data", str(node.data), ok=False).stderr
