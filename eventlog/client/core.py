"""What the caches of one client share: its connections, its requests, its writer, its readers."""

import asyncio
from collections.abc import Mapping

from eventlog.client.connections.nodes import Nodes
from eventlog.client.connections.requests import Requests
from eventlog.client.connections.watchman import Watchman
from eventlog.client.near.table import Nears
from eventlog.client.options import ClientOptions
from eventlog.client.reading.following import Follower
from eventlog.client.writing.writer import Writer
from eventlog.errors import ClientClosed
from eventlog.routing.addresses import Address
from eventlog.routing.routes import Routes


class ClientCore:
    """The parts of a client, made once and handed to everything that it hands out."""

    def __init__(self, addresses: list[Address], options: ClientOptions) -> None:
        self.options = options
        self.nodes = Nodes(addresses, options)
        self.requests = Requests(self.nodes, options)
        self.watchman = Watchman(self.nodes, options)
        self.writer = Writer(self.nodes, options)
        self.follower = Follower(self.nodes, self.requests, options)
        self.nears = Nears()

    def __repr__(self) -> str:
        return repr(self.nodes)

    async def open(self) -> None:
        """Connect to the first address that answers, and learn the topology."""
        await self.nodes.home.open_once()
        await self.watchman.ask()

    async def run(self) -> None:
        """Keep connected and current, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.writer.keep_connected(), name="eventlog-client connection")
                group.create_task(self.watchman.run(), name="eventlog-client watchman")
        finally:  # `asyncio.run` cancels it where nobody has closed the client: calls of a later loop would wait for ever
            self.writer.close()
            self.nodes.close()

    async def close(self, keeper: "asyncio.Task[None]") -> None:
        """End `run`, which is `keeper`, and the connections."""
        keeper.cancel()
        self.nodes.close()  # all of it before the first wait, which may be the last thing that this task is allowed
        if not keeper.done():  # else its loop may be gone
            await asyncio.wait([keeper])
        await self.nodes.wait_closed()

    @property
    def cluster(self) -> str:
        """The id of the cluster that answered."""
        return self.nodes.cluster

    @property
    def addresses(self) -> Mapping[int, str]:
        """Where nodes listen, by their numbers, as far as this client knows."""
        return {} if self.nodes.topology is None else self.nodes.topology.addresses

    @property
    def routes(self) -> Routes:
        """Where requests go.

        Raises:
            ClientClosed: the client was never opened.
        """
        if self.nodes.routes is None:
            raise ClientClosed(what="client")
        return self.nodes.routes
