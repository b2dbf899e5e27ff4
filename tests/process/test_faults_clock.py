"""Wall clocks that jump, node by node, while a cluster is at work: ids go on rising and no writer sees an error."""

import pytest

from tests.process.jumping_cluster import JumpingCluster, JumpingNode
from tests.process.trials import Trial, most_primaries

pytestmark = pytest.mark.timeout(300)

HOUR_MS = 3_600_000


def test_clocks_jump_node_by_node_and_nobody_notices(tmp_path):
    with JumpingCluster(tmp_path) as cluster, Trial(cluster, tmp_path) as trial:

        def jump(index: int, name: str, ms: int) -> None:
            node = cluster[index]
            assert isinstance(node, JumpingNode)
            trial.happen(f"{name} at n{index + 1}", lambda: node.jump(ms))
            trial.busy()

        for name, ms in (("an hour back", -HOUR_MS), ("30 s ahead", 30_000), ("an hour ahead", HOUR_MS)):
            victim = most_primaries(cluster)
            jump(victim, name, ms)
            trial.happen(f"kill -9 of n{victim + 1} with that clock", lambda victim=victim: cluster.kill(victim))
            trial.busy()
            cluster.start()
            cluster.settle()
            jump(victim, f"back from {name}", 0)
        history = trial.verdict()
    assert history.errors() == []
