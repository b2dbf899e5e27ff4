"""A cluster of which every node runs on a host of its own in a network that can be cut."""

from pathlib import Path

from tests.process.clusters import ClusterProcesses
from tests.process.jumping_cluster import JumpingNode
from tests.process.networks import Network, is_possible
from tests.process.nodes import NodeProcess
from tests.process.proxied_networks import ProxiedNetwork

AnyNetwork = Network | ProxiedNetwork


def best_network(*names: str) -> AnyNetwork:
    """Return a network in namespaces where this process may make them, otherwise one by proxies."""
    return Network(*names) if is_possible() else ProxiedNetwork(*names)


class NetworkCluster(ClusterProcesses):
    """Nodes n1, n2, ... on the hosts of these names. The test itself must be on a host of the network: `Network.inside`."""

    def __init__(self, directory: Path, network: AnyNetwork, *options: str, count: int = 3, metastore: str = "") -> None:
        self.network = network
        self._reached: list[str] = []
        super().__init__(directory, *options, count=count, metastore=metastore)

    def make(self, directory: Path, *options: str) -> NodeProcess:
        node = self._node(directory, *options)
        self._reached.append(self.network.place(directory.name, node))
        return node

    def _node(self, directory: Path, *options: str) -> NodeProcess:
        return NodeProcess(directory, *options)

    @property
    def addresses(self) -> list[str]:
        """Where the nodes are reached by others, dead ones included."""
        return self._reached

    # ------------------------------------------------------------ who hears whom

    def part(self, some: list[str], others: list[str]) -> None:
        """Cut two groups of hosts off from each other."""
        for one in some:
            for other in others:
                self.network.part(one, other)

    def join(self, some: list[str], others: list[str]) -> None:
        """End a `part`."""
        for one in some:
            for other in others:
                self.network.join(one, other)

    def mute(self, name: str, towards: list[str]) -> None:
        """Let what a host sends to others vanish."""
        for other in towards:
            self.network.mute(name, other)

    def unmute(self, name: str, towards: list[str]) -> None:
        """End a `mute`."""
        for other in towards:
            self.network.unmute(name, other)


class JumpingNetworkCluster(NetworkCluster):
    """The same, and each node's wall clock can be moved."""

    def _node(self, directory: Path, *options: str) -> NodeProcess:
        return JumpingNode(directory, *options)
