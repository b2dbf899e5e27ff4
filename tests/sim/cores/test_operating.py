"""What operators do under load: each kind of it alone, on a quiet cluster, does what it says and harms nothing."""

import random
from dataclasses import replace

import pytest

from tests.sim.cluster.swarm import Fault
from tests.sim.cores.checks import check
from tests.sim.cores.cluster import Cluster
from tests.sim.cores.swarm import Swarm, choose
from tests.sim.cores.world import Trace

KINDS = {Fault.JOIN: "joined under load", Fault.DRAIN: "drained", Fault.REMOVE: "removed", Fault.FORCE: "forced"}


def calm(seed: int) -> Swarm:
    """Return a run of three nodes on which no fault falls."""
    while True:
        swarm = choose(random.Random(seed), seed=seed)
        if swarm.nodes == 3 and swarm.replicas == 3 and swarm.store_unknown == 0.0:
            return replace(swarm, intervals_ms={}, faults_ms=6_000, segments=4)
        seed += 1_000


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_reached_and_what_was_acknowledged_stays(kind):
    reached = 0
    for seed in range(4):
        faults = {kind: 1_200} if kind is not Fault.FORCE else {kind: 900, Fault.CRASH: 900}
        cluster = Cluster(replace(calm(seed), intervals_ms=faults), chance=random.Random(seed), trace=Trace())
        cluster.run()
        assert check(cluster.world.history, cluster.logs()) == []
        assert cluster.world.errors == []
        assert cluster.world.history.acknowledged > 0
        reached += cluster.world.reached[KINDS[kind]]
    assert reached


def test_a_member_that_was_removed_is_no_owner_at_the_end():
    cluster = Cluster(replace(calm(2), intervals_ms={Fault.REMOVE: 1_200}), chance=random.Random(2), trace=Trace())
    cluster.run()
    view = cluster.mischief.view()
    removed = {number for number, node in view.nodes.items() if node.record.removed_id}
    assert removed
    assert not any(removed.intersection(found.record.owners) for found in view.segments.values())


def test_a_host_that_joins_gets_its_share_of_the_segments():
    cluster = Cluster(replace(calm(1), intervals_ms={Fault.JOIN: 1_200}, segments=8), chance=random.Random(1), trace=Trace())
    cluster.run()
    view = cluster.mischief.view()
    owners = {owner for found in view.segments.values() for owner in found.record.owners}
    assert len(cluster.hosts) > 3
    assert owners & {number for number, node in view.nodes.items() if int(node.record.name[1:]) > 3}


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_run_has_as_many_copies_as_it_was_given(replicas):
    cluster = Cluster(replace(calm(4), replicas=replicas), chance=random.Random(4), trace=Trace())
    cluster.run()
    assert {len(found.record.owners) for found in cluster.mischief.view().segments.values()} == {replicas}
