"""What the caches of one client share: its connection, its requests, its writer, its readers."""

from eventlog.client.following import Follower
from eventlog.client.options import ClientOptions
from eventlog.client.requests import Requests
from eventlog.client.uplink import Uplink
from eventlog.client.writer import Writer
from eventlog.errors import ClientClosed
from eventlog.routing.addresses import Address, Candidates
from eventlog.routing.routes import Routes


class ClientCore:
    """The parts of a client, made once and handed to everything that it hands out."""

    def __init__(self, addresses: list[Address], options: ClientOptions) -> None:
        self.options = options
        self.uplink = Uplink(Candidates(addresses), options)
        self.requests = Requests(self.uplink, options)
        self.writer = Writer(self.uplink, options)
        self.follower = Follower(self.uplink, self.requests, options)

    @property
    def cluster(self) -> str:
        """The id of the cluster that answered."""
        return self.uplink.cluster

    @property
    def routes(self) -> Routes:
        """Where requests go.

        Raises:
            ClientClosed: the client was never opened.
        """
        if self.uplink.routes is None:
            raise ClientClosed(what="client")
        return self.uplink.routes
