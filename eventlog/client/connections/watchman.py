"""Keeps what a client knows of its cluster current: asks for the topology when it may be out of date, and nodes whether they live."""

import asyncio
from contextlib import suppress

from eventlog.client.connections.known import ASKED_MAX, topology_of
from eventlog.client.connections.nodes import Nodes
from eventlog.client.connections.requests import chance
from eventlog.client.options import ClientOptions
from eventlog.errors import EventLogError
from eventlog.routing.retry import backoff_ms
from eventlog.transport.connection import Connection
from eventlog.transport.greeting import ASK_MS_MAX, LOOK_EVERY_MS, silent_looks_max
from eventlog.wire.eventlog_pb2 import GetTopology, Message, Ping


class Watchman:
    """`run` it as long as the client is open. `refresh` makes it ask for the topology, at most once a time and with growing pauses."""

    def __init__(self, nodes: Nodes, options: ClientOptions) -> None:
        self._nodes = nodes
        self._options = options
        self._is_stale = asyncio.Event()
        self._silent: dict[Connection, int] = {}
        nodes.on_stale = self.refresh

    def refresh(self) -> None:
        """Ask for the topology soon."""
        self._is_stale.set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_topology(), name="eventlog-client topology")
            group.create_task(self._keep_alive(), name="eventlog-client liveness")

    async def _keep_topology(self) -> None:
        attempt = 0
        while True:
            await self._is_stale.wait()
            self._is_stale.clear()
            attempt = 0 if await self.ask() else attempt + 1
            # A request that still has trouble says so again: a pause keeps that from becoming a storm.
            pause_ms = min(PAUSE_MS_MAX, backoff_ms(self._options.retry, attempt=attempt, chance=chance()))
            await asyncio.sleep(pause_ms / 1000)

    async def ask(self) -> bool:
        """Ask some nodes for the topology, take what they know, and return once one of them has a newer one; whether one did.

        At once, because one that has fallen silent would keep the others' word back.
        """
        known = self._nodes.topology
        answers = []
        for connection in self._nodes.live()[:ASKED_MAX]:
            with suppress(EventLogError):  # closed, or full: others know as much
                answers.append(connection.send(Message(get_topology=GetTopology()), timeout_ms=ASK_MS_MAX))
        for answer in asyncio.as_completed(answers):
            try:
                found = topology_of((await answer).message.topology_answer)
            except EventLogError:
                continue
            self._nodes.learn(found)
            if known is None or found.epoch > known.epoch:
                return True
        return False

    async def _keep_alive(self) -> None:
        """Close connections to nodes that have gone silent: a paused host keeps its sockets open."""
        while True:
            await asyncio.sleep(LOOK_EVERY_MS / 1000)
            live = self._nodes.live()
            self._silent = {connection: self._silent.get(connection, 0) + 1 for connection in live if _owes(connection)}
            for connection in live:
                connection.is_heard = False
            suspects = [connection for connection, looks in self._silent.items() if looks >= self._patience(connection)]
            await asyncio.gather(*map(self._demand_life, suspects))
            self._nodes.look_again()

    def _patience(self, connection: Connection) -> int:
        return silent_looks_max(asked.kind for asked in connection.session.outgoing.values())

    async def _demand_life(self, connection: Connection) -> None:
        """Drop a connection whose node neither answers nor takes what is sent; one that takes it slowly has a long road."""
        is_full, taken = not connection.has_room, connection.taken_bytes
        try:
            await connection.request(Message(ping=Ping()), timeout_ms=ASK_MS_MAX)
        except EventLogError:
            if is_full and not connection.has_room and connection.taken_bytes > taken:
                return
            self._nodes.drop(connection)
            self.refresh()


PAUSE_MS_MAX = 200


def _owes(connection: Connection) -> bool:
    return not connection.is_heard and bool(connection.session.outgoing)
