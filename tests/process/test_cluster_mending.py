"""Stored values that rot on one node's disk come back from another's. The last of a log is looked at by whoever starts, and refused."""

import json
import re

from eventlog.segment.keys import parse_log_key, segment_range
from eventlog.segment.rocks.store import open_store
from tests.process.clusters import ClusterProcesses

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


def keys_at(cluster, node):
    return [json.loads(line)["key"] for line in cluster.command("consume", "c", "--json", node=node).stdout.splitlines()]


def repairs(cluster):
    """Return what the damaged node has said that it repaired, each time."""
    return re.findall(r"log_repaired .* (segment=\d+) .* (after=\d+) (upto=\d+)", cluster[1].log_text())


def test_rotten_values_are_read_again_from_another_node_and_stored(tmp_path):
    with ClusterProcesses(tmp_path, segments=SEGMENTS) as cluster:
        cluster.command("cache", "create", "c")
        rows = b"".join(b'{"key":"key-%d","value":%d}\n' % (number, number) for number in range(EVENTS))
        cluster.command("load", "c", "-", "--format", "jsonl", "--key", "key", "--batch", "10", stdin=rows)
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
