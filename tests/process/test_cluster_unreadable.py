"""Files that a node's engine cannot read: others serve what lies there, and the next start fills the node again."""

import contextlib
import json
import shutil
import time

import pytest

import eventlog.blocking
from eventlog.errors import CorruptData
from eventlog.ids import ID_MAX
from eventlog.segment.keys import decode_step, log_range, segment_range, step_range
from eventlog.segment.recovery import read_found
from eventlog.segment.rocks.store import open_store
from tests.process.clusters import ClusterProcesses
from tests.process.nodes import NodeProcess

pytestmark = pytest.mark.timeout(300)
SEGMENTS = 16
EVENTS = 6_000  # a start looks through a part of their log
SOME = 900  # ... and through all of the log of so many
FEW = 400
FILES_TO_MERGE = 4
CACHE = 1
VALUE = "v" * 1_000


def load(command, first=0, *, count=EVENTS):
    rows = [json.dumps({"key": f"key-{number}", "value": f"{number}{VALUE}"}) for number in range(first, first + count)]
    command("load", "c", "-", "--format", "jsonl", "--key", "key", "--batch", "100", stdin="\n".join(rows).encode())


def keys_at(cluster, node):
    return sorted(json.loads(line)["key"] for line in cluster.command("consume", "c", "--json", node=node).stdout.splitlines())


def names(count=EVENTS):
    return sorted(f"key-{number}" for number in range(count))


def table_spots(node):
    """Return places in the middle of the table files of a stopped node, those in the largest files first."""
    files = sorted((node.data / "store" / "store" / "db").glob("*.sst"), key=lambda file: -file.stat().st_size)
    return [(file, where / 20) for file in files[:4] for where in range(3, 18)]


def flip(file, where):
    data = bytearray(file.read_bytes())
    data[int(len(data) * where)] ^= 0x10
    file.write_bytes(data)


def is_read(read):
    try:
        read()
    except CorruptData:
        return False
    return True


def is_end_read(store):
    """Whether what a start looks through at the log's end can be read."""
    step = max((decode_step(pair)[1] for pair in store.read_meta(*step_range(CACHE))), default=0)
    ends = [log_range(segment, CACHE, after=step, upto=ID_MAX - 1) for segment in range(SEGMENTS)]
    return is_read(lambda: store.read_logs(ends, bytes_max=1 << 30))


def log_is_damaged_before_its_end(store):
    ranges = [segment_range(segment) for segment in range(SEGMENTS)]
    return is_end_read(store) and not is_read(lambda: store.read_logs(ranges, bytes_max=1 << 30))


def log_is_damaged_at_its_end(store):
    return is_read(lambda: read_found(store)) and not is_end_read(store)


def log_is_not_found(store):
    return not is_read(lambda: read_found(store))


def state_is_damaged(store):
    return not is_read(lambda: store.read_state(b"", b"\xff" * 20, limit=1 << 30))


def spoil(node, is_as_wanted):
    """Flip a bit in a table file of a stopped node, such that its store is as wanted; nothing else in it is changed by looking."""
    tried = node.directory / "tried"
    for file, where in table_spots(node):
        shutil.copytree(node.data / "store", tried)
        flip(tried / file.relative_to(node.data / "store"), where)
        try:
            with contextlib.closing(open_store(tried, segments=SEGMENTS)) as store:
                is_found = is_as_wanted(store)
        except CorruptData:  # where opening or closing it meets the damage, it is not as wanted
            is_found = False
        shutil.rmtree(tried)
        if is_found:
            flip(file, where)
            return
    raise AssertionError("no file can be damaged like that")


@contextlib.contextmanager
def spoilt(path, is_as_wanted, *, count=EVENTS):
    """Give a cluster that holds some rows, and its second node, which is stopped and whose store is damaged as wanted."""
    with ClusterProcesses(path, segments=SEGMENTS) as cluster:
        cluster.command("cache", "create", "c")
        load(cluster.command, count=count)
        node = cluster[1]
        assert node.stop() == 0
        spoil(node, is_as_wanted)
        yield cluster, node


def met(status):
    return any("n2 met a damaged file" in advice for advice in status.advice)


def test_others_serve_what_a_node_cannot_read_of_its_log_and_fill_it_again(tmp_path):
    with spoilt(tmp_path, log_is_damaged_before_its_end) as (cluster, node):
        cluster.start()
        cluster.settle()
        cluster.spread()
        assert keys_at(cluster, 1) == names()
        assert "log_unreadable" in node.log_text()
        assert cluster.until(met).health == "degraded"
        cluster.until(lambda _: all(found.primary != "n2" for found in cluster.segments_of()))
        load(cluster.command, EVENTS, count=100)
        assert keys_at(cluster, 1) == keys_at(cluster, 0) == names(EVENTS + 100)
        assert node.stop() == 0
        cluster.start()
        cluster.settle()
        assert "store_set_aside" in node.log_text()
        assert b"all equal" in cluster.command("admin", "rebalance", "verify").stdout
        assert keys_at(cluster, 1) == names(EVENTS + 100)


def test_others_serve_what_a_node_cannot_read_of_its_state(tmp_path):
    with spoilt(tmp_path, state_is_damaged) as (cluster, node):
        cluster.start()
        cluster.settle()
        cluster.spread()
        with eventlog.blocking.connect(node.address) as client:
            cache = client.cache("c")
            found = [entry and entry.value["value"] for entry in cache.get_many(names())]
            assert found == [f"{name.removeprefix('key-')}{VALUE}" for name in names()]
            assert sorted(cache.keys()) == names()
        cluster.until(met)
        node.stop()
        cluster.start()
        cluster.settle()
        assert "store_set_aside" in node.log_text()


def test_a_node_whose_start_meets_a_damaged_file_is_filled_by_the_same_start(tmp_path):
    with spoilt(tmp_path, log_is_damaged_at_its_end, count=SOME) as (cluster, node):
        cluster.start()
        cluster.settle()
        assert "store_set_aside" in node.log_text()
        assert b"all equal" in cluster.command("admin", "rebalance", "verify").stdout
        assert keys_at(cluster, 1) == names(SOME)


def test_a_node_that_a_merge_of_a_damaged_file_ended_is_filled_again(tmp_path):
    with spoilt(tmp_path, log_is_damaged_before_its_end) as (cluster, node):
        codes, count = [], EVENTS
        while "store_set_aside" not in node.log_text():
            codes.append(write_one_file_more(cluster, node, count))
            count += FEW
            assert len(codes) < 2 * FILES_TO_MERGE
        assert any(codes), "no merge met it"
        cluster.start()
        cluster.settle()
        assert b"all equal" in cluster.command("admin", "rebalance", "verify").stdout
        assert keys_at(cluster, 1) == names(count)


def write_one_file_more(cluster, node, first):
    """Have a node start, write and stop: each stop writes a file, and some of them are merged. Return its exit code."""
    node.spawn()
    with contextlib.suppress(AssertionError):  # it may end at once
        node.wait_ready()
    load(cluster.command, first, count=FEW)
    return node.stop() if node.is_running else node.wait()


def until_status_says(node, words):
    deadline = time.monotonic() + 60
    while words not in (said := node.command("admin", "status").stdout):
        assert time.monotonic() < deadline, said


def test_a_check_of_a_running_node_meets_what_is_damaged_of_its_state(tmp_path):
    with NodeProcess(tmp_path, "--segments", str(SEGMENTS)) as node:
        node.command("cache", "create", "c")
        load(node.command)
        assert f"{EVENTS:,} events and {EVENTS:,} entries: all sound".encode() in node.command("admin", "check").stdout
        node.stop()
        spoil(node, state_is_damaged)
        node.start()
        done = node.command("admin", "check", ok=False)
        assert (done.returncode, done.stdout.count(b"damaged: ")) == (1, 1)
        assert done.stdout.endswith(b"entries: damaged\n")
        assert b"cache c" in done.stdout


def test_a_node_that_holds_its_segments_alone_keeps_its_damaged_files_and_serves_the_rest(tmp_path):
    with NodeProcess(tmp_path, "--segments", str(SEGMENTS), "--node-name", "n2") as node:
        node.command("cache", "create", "c")
        load(node.command)
        node.stop()
        spoil(node, log_is_damaged_before_its_end)
        for options in ((), ("--accept-data-loss",)):
            node.options = (*node.options, *options)
            node.start()
            assert b"CORRUPT_DATA" in node.command("consume", "c", "--json", ok=False).stderr
            until_status_says(node, b"n2 met a damaged file, and no other node")  # once its lease is renewed
            assert json.loads(node.command("size", "c", "--json").stdout)["size"] == EVENTS
            assert node.stop() == 0
        assert "unreadable_kept" in node.log_text()
        assert not (node.data / "store.damaged").exists()


@pytest.mark.parametrize("is_spoilt", [log_is_not_found, log_is_damaged_at_its_end])
def test_a_node_alone_whose_ends_of_logs_cannot_be_read_says_how_to_go_on_without_them(tmp_path, is_spoilt):
    with NodeProcess(tmp_path, "--segments", str(SEGMENTS), "--node-name", "n2", "--accept-data-loss") as node:
        node.command("cache", "create", "c")
        load(node.command, count=SOME)
        node.stop()
        spoil(node, is_spoilt)
        for _ in range(2):
            node.spawn()
            assert node.wait() == 1
            said = node.log_text().strip().splitlines()[-1]
            assert "CORRUPT_DATA" in said
            assert f"move {node.data / 'store'} away and give --accept-data-loss" in said
        (node.data / "store").rename(tmp_path / "away")
        node.start()
        node.command("admin", "force-primary", "--all-lost", "--accept-data-loss")
        node.command("put", "c", "more", "1")
        assert json.loads(node.command("size", "c", "--json").stdout)["size"] == 1
