"""kill -9 of nodes of a cluster under load: nothing acknowledged is lost, nothing is there twice, and no writer sees an error."""

import pytest

from tests.process.clusters import ClusterProcesses
from tests.process.trials import Trial, controller_of, fewest_primaries, most_primaries

pytestmark = pytest.mark.timeout(300)
RESTART_MS_MAX = 2_000  # what is promised


def test_primaries_a_backup_and_controllers_are_killed_and_no_writer_sees_an_error(tmp_path):
    with ClusterProcesses(tmp_path) as cluster, Trial(cluster, tmp_path) as trial:

        def kill(name: str, victim: int) -> None:
            trial.happen(f"kill -9 n{victim + 1}, {name}", lambda: cluster.kill(victim))
            trial.busy()
            cluster.start()
            cluster.settle()
            trial.busy()

        for _ in range(2):
            kill("most primaries", most_primaries(cluster))
        kill("fewest primaries", fewest_primaries(cluster))
        for _ in range(2):
            kill("the controller", controller_of(cluster))
        history = trial.verdict()
    assert history.errors() == [], "failures are for the client to hide"


def test_all_nodes_are_killed_and_then_two_of_three(tmp_path):
    with ClusterProcesses(tmp_path) as cluster, Trial(cluster, tmp_path) as trial:
        trial.happen("kill -9 of all", cluster.kill)
        cluster.restart_all()
        trial.busy()
        trial.happen("kill -9 of two", lambda: cluster.kill(0, 1))
        cluster.nodes[0].start()
        trial.busy()
        cluster.start()
        trial.verdict()


def test_every_node_is_restarted_in_turn_by_sigterm_without_an_error(tmp_path):
    with ClusterProcesses(tmp_path) as cluster, Trial(cluster, tmp_path) as trial:
        for index in range(3):
            trial.happen(f"SIGTERM n{index + 1}", lambda index=index: cluster[index].stop())
            trial.busy()
            cluster.start()
            cluster.settle()
        history = trial.verdict()
    assert history.errors() == []
    assert history.longest_s() * 1000 < RESTART_MS_MAX
