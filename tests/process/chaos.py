"""Faults by chance over one cluster at work: `python -m tests.process.chaos MINUTES [SEED]`; exits with 1 on a violation.

Processes are killed and stopped, clocks jump, disks are lost, and the network is cut: as root in namespaces, else by proxies. Each
fault waits until the cluster is well again. The seed decides which faults happen, in which order, to whom and for how long; not when
exactly they hit.
"""

import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.process.clusters import ClusterProcesses
from tests.process.jumping_cluster import JumpingNode
from tests.process.network_clusters import AnyNetwork, JumpingNetworkCluster, best_network
from tests.process.trials import Trial

NODES = 3
CLIENT = "client"


class Chaos:
    """What may happen to a cluster; each method is one fault from its begin to its end."""

    def __init__(self, cluster: ClusterProcesses, chance: random.Random, network: AnyNetwork) -> None:
        self._cluster = cluster
        self._chance = chance
        self._network = network

    def faults(self) -> dict[str, Callable[[int], None]]:
        """Return the faults by name; each takes the index of a node."""
        anywhere = {
            "kill -9": self._cluster.kill,
            "kill -9 of two": lambda index: self._cluster.kill(index, (index + 1) % NODES),
            "kill -9 of all": lambda _: self._cluster.kill(),
            "SIGTERM": self._restart,
            "stands still": lambda index: self._stand_still([index]),
            "all stand still": lambda _: self._stand_still(list(range(NODES))),
            "clock jumps": self._jump,
            "disk is lost": self._lose_disk,
        }
        return anywhere | self._cuts(self._network)

    def _cuts(self, network: AnyNetwork) -> dict[str, Callable[[int], None]]:
        def other(index: int) -> str:
            return f"n{(index + 1) % NODES + 1}"

        def cut(host: str) -> None:
            network.pull(host)
            self._last()
            network.plug(host)

        def part(one: str, two: str) -> None:
            network.part(one, two)
            self._last()
            network.join(one, two)

        def mute(one: str, two: str) -> None:
            network.mute(one, two)
            self._last()
            network.unmute(one, two)

        return {
            "is cut off": lambda index: cut(f"n{index + 1}"),
            "the client is cut off": lambda _: cut(CLIENT),
            "and the next are parted": lambda index: part(f"n{index + 1}", other(index)),
            "is not heard by the next": lambda index: mute(f"n{index + 1}", other(index)),
            "is not heard by the client": lambda index: mute(f"n{index + 1}", CLIENT),
        }

    def _last(self) -> None:
        time.sleep(self._chance.choice([0.3, 1.0, 2.5, 6.0]))  # the fault itself

    def _restart(self, index: int) -> None:
        self._cluster[index].stop()

    def _stand_still(self, indexes: list[int]) -> None:
        for index in indexes:
            self._cluster.pause(index)
        self._last()
        for index in indexes:
            self._cluster.resume(index)

    def _jump(self, index: int) -> None:
        node = self._cluster[index]
        assert isinstance(node, JumpingNode)
        node.jump(self._chance.choice([-3_600_000, -1_000, 0, 30_000, 3_600_000]))

    def _lose_disk(self, index: int) -> None:
        self._cluster.kill(index)
        shutil.rmtree(self._cluster[index].data)


def run(directory: Path, *, minutes: float, seed: int) -> int:
    """Let faults happen for so long; print what happened, return the exit code."""
    chance = random.Random(seed)
    with ExitStack() as stack:
        network = stack.enter_context(best_network(*(f"n{number}" for number in range(1, NODES + 1)), CLIENT, "test"))
        stack.enter_context(network.inside("test"))
        cluster = stack.enter_context(JumpingNetworkCluster(directory, network, count=NODES))
        trial = stack.enter_context(Trial(cluster, directory, wrapper=network.wrapper(CLIENT)))
        faults = Chaos(cluster, chance, network).faults()
        print(f"seed {seed}, {minutes:g} minutes, {len(faults)} kinds of faults, a network of {type(network).__name__}", flush=True)
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            name, index = chance.choice(sorted(faults)), chance.randrange(NODES)
            print(f"  {len(trial.faults) + 1}: n{index + 1} {name}", flush=True)
            trial.happen(name, lambda name=name, index=index: faults[name](index))  # type: ignore[misc]
            cluster.start()
            trial.busy(within_s=60)
            cluster.settle()
        found = trial.examine()
    counts, hits = trial.histories["w"].counts(), trial.hits()
    print(f"faults {len(hits)}, which hit {sum(hits.values())} operations in flight ({list(hits.values()).count(0)} of them hit none)")
    print(f"operations {counts.total()}: {counts['ok']} acknowledged, {counts['unknown']} of unknown outcome, {counts['none']} refused")
    print(f"violations {len(found)}", *found[:20], sep="\n  ")
    return int(bool(found) or not sum(hits.values()))


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # with what it began: processes end, and disks in memory are given back
    minutes, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(100_000)
    directory = Path(tempfile.mkdtemp(prefix="eventlog-chaos-"))
    try:
        code = run(directory, minutes=minutes, seed=seed)
    except AssertionError as error:
        print(f"violations 1\n  no progress: {error}")
        code = 1
    if code:
        print(f"the nodes' logs and data are kept in {directory}")
    else:
        shutil.rmtree(directory)
    return code


if __name__ == "__main__":
    sys.exit(main())
