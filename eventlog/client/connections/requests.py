"""One request and its answer, tried again until the operation's deadline."""

import asyncio

from eventlog.client.connections.nodes import Nodes
from eventlog.client.connections.uplink import chance
from eventlog.client.options import ClientOptions
from eventlog.errors import EventLogError, FilterNotFound, TimedOut
from eventlog.routing.retry import MOVES, decide
from eventlog.transport.connection import Connection
from eventlog.transport.reply import Reply
from eventlog.wire.eventlog_pb2 import Message


class Requests:
    """Asks nodes on behalf of a client's calls."""

    def __init__(self, nodes: Nodes, options: ClientOptions) -> None:
        self._nodes = nodes
        self._options = options

    async def ask(self, message: Message, *, segment: int | None = None, repeatable: bool = True, wait_ms: int = 0) -> Reply:
        """Return the answer to a request. `wait_ms`: how long the node itself may take on purpose.

        It goes to the primary of `segment`, without one to any node. What is not `repeatable` is sent at most once, unless the node
        says that it did nothing.

        Raises:
            TimedOut: no answer until the deadline.
            EventLogError: the node's refusal, or why no node could be asked.
        """
        loop = asyncio.get_running_loop()
        timeout_ms = self._options.timeout_ms + wait_ms
        deadline = loop.time() + timeout_ms / 1000
        attempt = 0
        lacking: set[int] = set()
        while True:
            connection: Connection | None = None
            try:
                connection = await (self._nodes.other_than(lacking) if lacking else self._connection(segment, deadline, attempt))
                left_ms = max(1, int((deadline - loop.time()) * 1000))
                return await connection.request(message, timeout_ms=left_ms)
            except TimedOut as error:
                raise TimedOut(outcome=error.outcome, what=message.WhichOneof("kind"), timeout_ms=timeout_ms) from None
            except FilterNotFound:
                if not self._nodes.note_lacking(lacking, connection):
                    raise
                continue
            except EventLogError as error:
                left_ms = int((deadline - loop.time()) * 1000)
                decision = decide(self._options.retry, error, attempt=attempt, left_ms=left_ms, repeatable=repeatable, chance=chance())
                if not decision.again:
                    raise
                if isinstance(error, MOVES):
                    self._nodes.on_stale()
            if decision.reconnect and connection is not None:
                self._nodes.drop(connection)
            await asyncio.sleep(decision.wait_ms / 1000)
            attempt += 1

    async def _connection(self, segment: int | None, deadline: float, attempt: int) -> Connection:
        routes = self._nodes.routes
        if segment is not None and routes is not None:
            return await self._nodes.connection(routes.primary(segment), deadline)
        live = self._nodes.live()
        return live[attempt % len(live)] if live else await self._nodes.home.connection(deadline)
