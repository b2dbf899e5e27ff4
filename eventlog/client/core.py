"""What the caches of one client share: its connections, its requests, its writer, its readers."""

import asyncio

from eventlog.client.near.table import Nears
from eventlog.client.options import ClientOptions
from eventlog.client.reading.following import Follower
from eventlog.client.small_core import SmallCore
from eventlog.client.writing.writer import Writer
from eventlog.routing.addresses import Address


class ClientCore(SmallCore):
    """The parts of a client, made once and handed to everything that it hands out."""

    def __init__(self, addresses: list[Address], options: ClientOptions) -> None:
        super().__init__(addresses, options)
        self.writer = Writer(self.nodes, options)
        self.follower = Follower(self.nodes, self.requests, options)
        self.nears = Nears()

    async def run(self) -> None:
        """Keep connected and current, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.writer.keep_connected(), name="eventlog-client connection")
            group.create_task(self.watchman.run(), name="eventlog-client watchman")
