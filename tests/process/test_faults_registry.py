"""The schema registry at three nodes of which each fails in turn: what one node answered holds at all of them, from then on."""

import time
from collections.abc import Iterator

import pytest

from tests.process.network_clusters import AnyNetwork, NetworkCluster, best_network
from tests.process.registry_clients import RegistryTrial

pytestmark = pytest.mark.timeout(300)
LAST_S = 1.5  # how long a fault lasts beyond what it takes the others to go on


@pytest.fixture
def network() -> Iterator[AnyNetwork]:
    """Hosts for the nodes and for the test, which reaches all nodes whatever they hear of each other."""
    with best_network("n1", "n2", "n3", "test") as network, network.inside("test"):
        yield network


def last(trial: RegistryTrial) -> None:
    trial.busy()
    time.sleep(LAST_S)  # the fault itself


def test_what_one_node_answers_holds_at_every_node_through_kills_pauses_and_cuts(tmp_path, network):
    with NetworkCluster(tmp_path, network) as cluster, RegistryTrial(cluster, seed=7) as trial:
        trial.busy(60)
        for name, step in (("the registry's primary", 0), ("its neighbour", 1)):
            victim = (trial.primary + step) % 3
            trial.happen(f"kill -9 n{victim + 1}, {name}", lambda victim=victim: cluster.kill(victim))
            trial.busy()
            cluster.start()
            cluster.settle()
        victim = trial.primary
        with trial.lasting(f"SIGSTOP n{victim + 1}", lambda: cluster.pause(victim), lambda: cluster.resume(victim)):
            last(trial)
        cluster.settle()
        victim = trial.primary
        names = [f"n{victim + 1}"], [f"n{index + 1}" for index in range(3) if index != victim]
        with trial.lasting(f"{names[0][0]} is parted", lambda: cluster.part(*names), lambda: cluster.join(*names)):
            last(trial)
        cluster.settle()
        victim = trial.primary
        name, others = f"n{victim + 1}", [f"n{index + 1}" for index in range(3) if index != victim]
        with trial.lasting(f"{name} is not heard", lambda: cluster.mute(name, others), lambda: cluster.unmute(name, others)):
            last(trial)
        trial.busy()
        trial.verdict()
