"""Stored values that rot on one node's disk, or vanish from it, come back from another's.

The last of a log, and what has not settled of it, is looked at by whoever starts, and refused. So what vanishes here does so behind a store
that has settled.
"""

import contextlib
import json
import re

from eventlog.segment.keys import TAG_ENTRY, parse_log_key, segment_range, tag_range
from eventlog.segment.recovery import recover
from eventlog.segment.rocks.store import open_store
from tests.process.clusters import ClusterProcesses
from tests.process.nodes import NodeProcess

EVENTS = 300
SEGMENTS = 16


def damage(path, *, every):
    """Flip a bit in every so many stored values of a stopped node; return how many."""
    store = open_store(path, segments=SEGMENTS)
    try:
        pairs = [pair for segment in range(SEGMENTS) for pair in store.read_log(*segment_range(segment), bytes_max=1 << 30)[:-2]]
        chosen = [pair for pair in pairs if parse_log_key(pair[0])[1]][::every]  # cache 0 holds marks of the log itself
        store.append([(key, data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]) for key, data in chosen], [])
        store.sync(store.ends)
    finally:
        store.close()
    return len(chosen)


def drop_values(path, *, every):
    """Have every so many stored values vanish from a stopped node, the first of each segment and the second always; return their keys."""
    with contextlib.closing(open_store(path, segments=SEGMENTS)) as store:
        store.settle(recover(store, keyed=()).ends)
        chosen = []
        for segment in range(SEGMENTS):
            own = [key for key, _ in store.read_log(*segment_range(segment), bytes_max=1 << 30) if parse_log_key(key)[1]][:-2]
            chosen += {key for at, key in enumerate(own) if at < 2 or not at % every}
        store.trim([(key, key + b"\0") for key in chosen], [])
        store.sync(store.ends)
    return chosen


def drop_entries(path, *, segments):
    """Have an entry in each of some segments vanish from the state of a stopped node."""
    with contextlib.closing(open_store(path, segments=SEGMENTS)) as store:
        store.settle(recover(store, keyed=()).ends)
        store.apply([(store.read_state(*tag_range(segment, 1, TAG_ENTRY), limit=1)[0][0], None) for segment in segments])
        store.flush_state()


def load(command):
    rows = b"".join(b'{"key":"key-%d","value":%d}\n' % (number, number) for number in range(EVENTS))
    command("load", "c", "-", "--format", "jsonl", "--key", "key", "--batch", "10", stdin=rows)


def keys_at(cluster, node):
    return [json.loads(line)["key"] for line in cluster.command("consume", "c", "--json", node=node).stdout.splitlines()]


def repairs(cluster):
    """Return what the damaged node has said that it repaired, each time."""
    return re.findall(r"log_repaired .* (segment=\d+) .* (after=\d+) (upto=\d+)", cluster[1].log_text())


def test_rotten_values_are_read_again_from_another_node_and_stored(tmp_path):
    with ClusterProcesses(tmp_path, segments=SEGMENTS) as cluster:
        cluster.command("cache", "create", "c")
        load(cluster.command)
        wanted = keys_at(cluster, 0)
        assert len(wanted) == EVENTS
        cluster[1].stop()
        damaged = damage(cluster[1].data / "store", every=3)
        assert damaged > 10
        cluster[1].start()
        cluster.settle()
        assert keys_at(cluster, 1) == wanted
        assert repairs(cluster)
        cluster[1].kill()
        cluster[1].start()
        cluster.settle()
        assert keys_at(cluster, 1) == wanted
        assert cluster.command("admin", "check", node=1).returncode == 0
        assert len(repairs(cluster)) == len(set(repairs(cluster))), "what was repaired was so for good"


def test_values_that_vanished_are_read_again_from_another_node_and_stored(tmp_path):
    with ClusterProcesses(tmp_path, segments=SEGMENTS) as cluster:
        cluster.command("cache", "create", "c")
        load(cluster.command)
        wanted = keys_at(cluster, 0)
        cluster[1].stop()
        assert len(drop_values(cluster[1].data / "store", every=5)) > SEGMENTS
        cluster[1].start()
        cluster.settle()
        assert "data_lost" not in cluster[1].log_text(), "a start does not look at what has settled"
        assert keys_at(cluster, 1) == wanted
        assert repairs(cluster)
        assert b"all equal" in cluster.command("admin", "rebalance", "verify").stdout


def test_what_vanished_from_a_node_that_is_alone_is_refused_with_its_place(tmp_path):
    with NodeProcess(tmp_path, "--segments", str(SEGMENTS)) as node:
        node.command("cache", "create", "c")
        load(node.command)
        node.stop()
        dropped = drop_values(node.data / "store", every=5)
        node.start()
        done = node.command("consume", "c", "--json", ok=False)
        assert done.returncode == 1
        said = done.stderr.decode()
        place = re.search(r"CORRUPT_DATA: .*segment (\d+)", said)
        assert place, said
        assert int(place[1]) in {parse_log_key(key)[0] for key in dropped}
        assert "missing" in said


def test_a_copy_that_has_fewer_entries_than_its_counters_say_is_not_equal(tmp_path):
    with ClusterProcesses(tmp_path, segments=SEGMENTS) as cluster:
        cluster.command("cache", "create", "c")
        load(cluster.command)
        cluster[1].stop()
        drop_entries(cluster[1].data / "store", segments=(3, 4))
        cluster[1].start()
        cluster.settle()
        done = cluster.command("admin", "rebalance", "verify", ok=False)
        assert done.returncode == 1
        assert re.findall(rb"different, or not readable: segment (\d+)", done.stdout) == [b"3", b"4"]
