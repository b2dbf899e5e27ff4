"""What operators do with a running cluster: look, grow it, move what it holds, take nodes out, and the last resort."""

import json
import random
import time

import pytest

from tests.process.clusters import ClusterProcesses
from tests.process.stalls import Stalls
from tests.process.waiting import until

EVENTS = 3_000


@pytest.fixture
def cluster(tmp_path):
    """Three nodes with events in them."""
    with ClusterProcesses(tmp_path) as started:
        load(started, EVENTS)
        yield started


def load(cluster, count, *, node=0, first=0):
    rows = b"".join(json.dumps({"k": f"k{number}", "n": number}).encode() + b"\n" for number in range(first, first + count))
    cluster.command("load", "orders", "-", "--key", "k", "--create", "--format", "jsonl", stdin=rows, node=node)


def nodes(cluster, node=0):
    return {row["name"]: row for row in cluster.rows("admin", "nodes", node=node)}


def refusal(cluster, *words, node=0):
    done = cluster.command(*words, node=node, ok=False)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    return done.stderr.decode().strip().splitlines()[-1]


def assert_all_there(cluster, count, *, node=0):
    """Every entry is there, and all copies are the same."""
    assert cluster.rows("size", "orders", node=node) == [{"size": count}]
    until(lambda: b"all equal" in cluster.command("admin", "rebalance", "verify", node=node, ok=False).stdout)


def test_a_cluster_grows_is_rebalanced_and_a_node_is_drained_and_removed(cluster):
    cluster.add()
    cluster.start()
    cluster.until(lambda found: found.nodes_live == 4)
    plan = cluster.rows("admin", "rebalance", "plan")
    assert len(plan) == 12
    assert all("n4" in row["target"] for row in plan)
    assert sum(row["bytes"] for row in plan) > 0
    started = cluster.command("admin", "rebalance", "start", "--throttle", "100MiB", "--wait")
    assert started.stdout == b"done: 12 of 12 segments moved\n"
    assert {name: row["segments"] for name, row in nodes(cluster).items()} == {"n1": 12, "n2": 12, "n3": 12, "n4": 12}
    until(lambda: {row["primaries"] for row in nodes(cluster).values()} == {4})
    assert_all_there(cluster, EVENTS)
    assert cluster.rows("admin", "rebalance", "plan") == []
    (status,) = cluster.rows("admin", "rebalance", "status")
    assert (status["state"], status["moves_total"], status["moves_done"]) == ("done", 12, 12)
    assert status["bytes_done"] == status["bytes_total"]

    assert "eventlog admin drain n1" in refusal(cluster, "admin", "remove", "n1")
    cluster.command("admin", "drain", "n1", node=1)
    until(lambda: (nodes(cluster, 1)["n1"]["state"], nodes(cluster, 1)["n1"]["segments"]) == ("draining", 0))
    cluster.command("admin", "remove", "n1", node=1)
    assert set(nodes(cluster, 1)) == {"n2", "n3", "n4"}
    for name in ("n1", "other"):
        assert cluster[0].wait() == 4
        assert "MEMBER_REPLACED" in cluster[0].log_text().splitlines()[-1]
        cluster[0].options = (*cluster[0].options, "--node-name", name)
        cluster[0].spawn()
    assert cluster[0].wait() == 4
    assert set(nodes(cluster, 1)) == {"n2", "n3", "n4"}, "starting it again leaves nothing behind"
    cluster.command("admin", "status", "--check", "--wait", "60s", node=1)
    assert_all_there(cluster, EVENTS, node=1)
    load(cluster, 100, node=1, first=EVENTS)
    assert_all_there(cluster, EVENTS + 100, node=2)


def test_a_dead_node_is_removed_and_the_rest_is_whole(cluster):
    cluster.kill(1)
    cluster.until(lambda found: found.nodes_live == 2 and not found.without_primary)
    until(lambda: {(row["health"], row["under_replicated"]) for row in cluster.rows("admin", "status")} == {("degraded", 16)})
    assert "eventlog admin remove n2" in cluster.command("admin", "status").stdout.decode()
    assert nodes(cluster)["n2"]["state"] == "down"
    assert len(cluster.rows("admin", "segments", "--under-replicated")) == 16
    assert cluster.rows("admin", "segments", "--without-primary") == []
    load(cluster, 100, first=EVENTS)
    cluster.command("admin", "remove", "n2")
    cluster.command("admin", "status", "--check", "--wait", "60s")
    assert {row["segments"] for row in nodes(cluster).values()} == {16}
    assert_all_there(cluster, EVENTS + 100)


def test_replicas_are_set_and_another_node_takes_the_place_of_a_dead_one(cluster):
    cluster.command("admin", "set", "replicas", "2")
    until(lambda: {len(row["in_sync"]) for row in cluster.rows("admin", "segments")} == {2})
    cluster.command("admin", "set", "replicas", "3")
    cluster.command("admin", "status", "--check", "--wait", "60s")
    cluster.add()
    cluster.start()
    cluster.kill(2)
    cluster.until(lambda found: found.nodes_live == 3 and not found.without_primary)
    cluster.command("admin", "replace", "n3", "n4")
    cluster.command("admin", "remove", "n3")
    assert {name: row["segments"] for name, row in nodes(cluster).items()} == {"n1": 16, "n2": 16, "n4": 16}
    assert_all_there(cluster, EVENTS, node=3)


def test_what_would_lose_events_is_refused_and_forcing_a_stale_replica_says_what_may_be_lost(cluster):
    cluster.kill(2)
    cluster.until(lambda found: found.nodes_live == 2 and not found.without_primary)
    load(cluster, 500, first=EVENTS)
    seen = cluster.rows("consume", "orders")[-1]["id"]
    cluster.kill(0, 1)
    cluster[2].start()
    cluster.until(lambda found: found.without_primary == 16, node=2)
    assert "bring it back" in refusal(cluster, "admin", "remove", "n1", node=2)
    assert "force-primary" in cluster.command("admin", "status", node=2).stdout.decode()
    assert len(cluster.rows("admin", "segments", "--without-primary", node=2)) == 16
    candidates = [row for row in cluster.rows("admin", "force-primary", "--all-lost", "--dry-run", node=2) if row["chosen"]]
    assert len(candidates) == 16
    assert {row["node"] for row in candidates} == {"n3"}
    assert all(row["upto"] > row["last_id"] for row in candidates)
    assert {row["node"] for row in cluster.rows("admin", "force-primary", "--all-lost", "n3", "--dry-run", node=2)} == {"n3"}
    [dead] = cluster.rows("admin", "force-primary", "3", "n1", "--dry-run", node=2)
    assert (dead["segment"], dead["node"], dead["chosen"], dead["why_not"]) == (3, "n1", False, "the node does not answer")
    assert "--accept-data-loss" in refusal(cluster, "admin", "force-primary", "0-3", "n3", node=2)
    cluster.command("admin", "force-primary", "--all-lost", "--accept-data-loss", node=2)
    cluster.until(lambda found: found.without_primary == 0, node=2)
    assert cluster.rows("size", "orders", node=2) == [{"size": EVENTS}]
    assert "POSITION_DIVERGED" in refusal(cluster, "consume", "orders", "--from-id", str(seen), node=2)
    load(cluster, 10, node=2, first=10 * EVENTS)
    for index in (0, 1):
        cluster[index].start()
    cluster.settle(live=3)
    assert_all_there(cluster, EVENTS + 10)


def test_a_rebalancing_is_cancelled_and_nothing_is_lost(cluster):
    assert "no rebalancing is running" in refusal(cluster, "admin", "rebalance", "cancel")
    cluster.add()
    cluster.start()
    cluster.until(lambda found: found.nodes_live == 4)
    cluster.command("admin", "rebalance", "start", "--throttle", "1KiB")
    assert "one is running" in refusal(cluster, "admin", "rebalance", "start")
    cluster.command("admin", "rebalance", "cancel")
    cluster.command("admin", "status", "--check", "--wait", "60s")
    assert {len(row["owners"]) for row in cluster.rows("admin", "segments")} == {3}
    (status,) = cluster.rows("admin", "rebalance", "status")
    moved = sum("n4" in row["owners"] for row in cluster.rows("admin", "segments"))
    assert (status["state"], status["moves_done"], status["moves_total"]) == ("cancelled", moved, 12)
    assert status["bytes_done"] <= status["bytes_total"] * moved // 12
    assert_all_there(cluster, EVENTS)


def test_a_rebalancing_goes_on_when_the_node_that_runs_it_is_killed(cluster):
    # Segments of which some are soon moved and others are not for long: in between the node is killed.
    pads = random.Random(1)
    wide = [f"wide{number}" for number in range(8)]
    rows = b"".join(json.dumps({"k": key, "pad": pads.randbytes(500).hex()}).encode() + b"\n" for key in wide for _ in range(60))
    cluster.command("load", "orders", "-", "--key", "k", "--format", "jsonl", stdin=rows)
    cluster.add()
    cluster.start()
    cluster.until(lambda found: found.nodes_live == 4)
    cluster.command("admin", "rebalance", "start", "--throttle", "64KiB")
    until(lambda: 0 < cluster.rows("admin", "rebalance", "status")[0]["moves_done"] < 12)
    victim = cluster.index_of(cluster.status().controller)
    witness = next(index for index in range(4) if index != victim)
    cluster.kill(victim)
    cluster.until(lambda found: found.nodes_live == 3 and found.without_primary == 0, node=witness)
    assert cluster.rows("admin", "rebalance", "status", node=witness)[0]["state"] == "running"
    cluster[victim].start()
    until(lambda: cluster.rows("admin", "rebalance", "status", node=witness)[0]["state"] == "done", within_s=60)
    cluster.command("admin", "status", "--check", "--wait", "60s", node=witness)
    assert {row["segments"] for row in nodes(cluster, witness).values()} == {12}
    assert_all_there(cluster, EVENTS + len(wide), node=witness)


def test_a_controller_that_is_held_up_is_replaced_and_taken_back(cluster):
    victim = cluster.index_of(cluster.status().controller)
    witness = (victim + 1) % 3
    name = f"n{victim + 1}"
    with Stalls() as stalls:
        cluster.pause(victim)
        began = time.monotonic()
        found = cluster.until(lambda found: found.controller != name and found.nodes_live == 2 and not found.without_primary, node=witness)
        ended = time.monotonic()
    assert ended - began - stalls.within(began, ended) < 6, "1.2 s of silence, and then at once; the rest is for a busy machine"
    assert found.controller in {"n1", "n2", "n3"} - {name}
    load(cluster, 100, node=witness, first=EVENTS)
    cluster.resume(victim)
    cluster.settle(live=3)
    until(lambda: cluster.status(victim).controller == cluster.status(witness).controller)
    assert_all_there(cluster, EVENTS + 100, node=victim)
