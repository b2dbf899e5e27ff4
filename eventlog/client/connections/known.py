"""What a client has been told of its cluster: which one it is, where nodes listen, which segment is whose."""

from collections.abc import Sequence

from eventlog.errors import EventLogError, NobodyListens, WrongCluster
from eventlog.routing.routes import Routes
from eventlog.topology import Topology
from eventlog.wire.eventlog_pb2 import HelloAnswer, TopologyAnswer

ASKED_MAX = 3
"""How many nodes are asked for the topology at a time."""


class KnownRoutes:
    """The newest of what nodes have said. `routes` is None until the first one has."""

    def __init__(self) -> None:
        self.cluster = ""
        self.routes: Routes | None = None
        self.topology: Topology | None = None

    def greeted(self, hello: HelloAnswer, *, where: str) -> None:
        """Take note of the cluster.

        Raises:
            WrongCluster: it is another one behind the same addresses, which would answer with other events.
        """
        if self.routes is None:
            self.cluster = hello.cluster
            self.routes = Routes(segments=hello.segments)
        elif (hello.cluster, hello.segments) != (self.cluster, self.routes.segments):
            raise WrongCluster(where=where, theirs=hello.cluster, ours=self.cluster)

    def is_newer(self, epoch: int) -> bool:
        """Whether that is not known yet."""
        return self.topology is None or epoch > self.topology.epoch

    def took(self, topology: Topology) -> bool:
        """Take in a topology, unless it is older than what is known; return whether primaries or addresses are others now."""
        routes, known = self.routes, self.topology
        if routes is None or topology.segments != routes.segments or (known is not None and topology.epoch < known.epoch):
            return False
        self.topology = topology
        if known is not None and (topology.primaries, topology.addresses) == (known.primaries, known.addresses):
            return False
        self.routes = Routes(segments=routes.segments, primaries=topology.primaries)
        return True


def of_all(errors: Sequence[EventLogError]) -> EventLogError:
    """Return the error of addresses that were tried one after the other: the last one's, which names all where nothing listens at any."""
    silent = [error for error in errors if isinstance(error, NobodyListens)]
    if len(silent) < len(errors):
        return errors[-1]
    return NobodyListens(address=" and ".join(error.address for error in silent), why=silent[-1].why)


def topology_of(answer: TopologyAnswer) -> Topology:
    """Return the topology that a node answered."""
    return Topology(
        epoch=answer.epoch,
        primaries=tuple(answer.primaries),
        addresses={node.number: node.address for node in answer.nodes if node.address},
    )
