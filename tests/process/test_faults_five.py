"""Two faults at once in a cluster of five, of which two hold nothing: what both held waits for one of them, and all the rest goes on."""

import time

import pytest

from tests.process.clusters import ClusterProcesses
from tests.process.trials import Trial, controller_of, most_primaries

pytestmark = pytest.mark.timeout(300)


def test_the_new_primary_is_killed_right_after_the_old_one(tmp_path):
    with ClusterProcesses(tmp_path, count=5) as cluster, Trial(cluster, tmp_path) as trial:
        for _ in range(2):
            victim = most_primaries(cluster)
            trial.happen("kill -9", lambda victim=victim: cluster.kill(victim))
            running = [index for index in range(5) if cluster[index].is_running]
            second = most_primaries(cluster, asked=running[0], among=running)
            trial.happen("kill -9 of the next", lambda second=second: cluster.kill(second))
            cluster.start()  # segments that both held wait for one of them: fewer than a majority must not acknowledge
            cluster.settle()
            trial.busy()
        trial.verdict()


def test_the_controller_stands_still_and_another_node_is_killed_meanwhile(tmp_path):
    with ClusterProcesses(tmp_path, count=5) as cluster, Trial(cluster, tmp_path) as trial:
        stopped = controller_of(cluster)
        victim = next(index for index in range(5) if index != stopped)
        trial.happen("SIGSTOP of the controller", lambda: cluster.pause(stopped))
        trial.happen("kill -9 of another", lambda: cluster.kill(victim))
        time.sleep(3)  # time enough to appoint without the controller
        cluster.resume(stopped)
        cluster.start()
        cluster.settle()
        trial.busy()
        trial.verdict()
