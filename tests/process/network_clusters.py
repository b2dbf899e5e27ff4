"""A cluster of which every node runs on a host of its own in a network that can be cut."""

from pathlib import Path

from tests.process.clusters import ClusterProcesses
from tests.process.jumping_cluster import JumpingNode
from tests.process.networks import Network
from tests.process.nodes import NodeProcess


class NetworkCluster(ClusterProcesses):
    """Nodes n1, n2, ... on the hosts of these names. The test itself must be on a host of the network: `Network.inside`."""

    def __init__(self, directory: Path, network: Network, *options: str, count: int = 3, metastore: str = "") -> None:
        self.network = network
        super().__init__(directory, *options, count=count, metastore=metastore)

    def make(self, directory: Path, *options: str) -> NodeProcess:
        host = directory.name
        node = self._node(directory, "--insecure", *options)
        node.wrapper = self.network.wrapper(host)
        node.address, node.http = f"{self.network.address(host)}:7400", f"{self.network.address(host)}:7480"
        return node

    def _node(self, directory: Path, *options: str) -> NodeProcess:
        return NodeProcess(directory, *options)

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
