"""Nodes that stand still: what was stopped acknowledges nothing that its successor does not have, and the others go on."""

import time

import pytest

from tests.process.clusters import ClusterProcesses
from tests.process.trials import Trial, most_primaries

pytestmark = pytest.mark.timeout(300)


def stand_still(cluster: ClusterProcesses, indexes: list[int], seconds: float) -> None:
    for index in indexes:
        cluster.pause(index)
    time.sleep(seconds)  # the fault itself
    for index in indexes:
        cluster.resume(index)


def test_the_node_with_most_primaries_stands_still_and_then_all(tmp_path):
    with ClusterProcesses(tmp_path) as cluster, Trial(cluster, tmp_path) as trial:
        for seconds in (0.5, 2.0, 7.0):
            victim = most_primaries(cluster)
            trial.happen(f"SIGSTOP n{victim + 1} for {seconds} s", lambda at=victim, s=seconds: stand_still(cluster, [at], s))
            trial.busy()
            cluster.settle()
        trial.happen("SIGSTOP of all for 3 s", lambda: stand_still(cluster, [0, 1, 2], 3))
        trial.busy()
        history = trial.verdict()
    assert history.errors() == []
