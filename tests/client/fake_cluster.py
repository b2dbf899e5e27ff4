"""Several addresses of one small node: each is primary of some segments, may forward, hang or die, and tells the topology."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import numpy as np

from eventlog.batch.layout import TABLE
from eventlog.errors import NotPrimary
from eventlog.transport.connection import Exchange
from eventlog.transport.server import Server
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.session import ConnectionStage
from tests.client.fake_node import FakeNode
from tests.ports import free_port


class FakeCluster:
    """Members have the numbers 1 to `members`. Whatever one of them writes, all of them have: `node` is what they share.

    `asked` counts requests by member and kind; `passed_on` those that another member was primary for. Members in `hung` answer nothing
    but pings.
    """

    def __init__(self, *, members: int = 3, forwards: bool = True) -> None:
        self.node = FakeNode()
        self.forwards = forwards
        self.primaries = [1 + segment % members for segment in range(self.node.segments)]
        self.epoch = 1
        self.hung: set[int] = set()
        self.advertised: dict[int, str] = {}
        self.addresses: dict[int, str] = {}
        self.asked: Counter[tuple[int, str]] = Counter()
        self.passed_on: Counter[str] = Counter()
        self._servers: dict[int, Server] = {}

    async def start(self, number: int) -> None:
        """Have a member listen, always at the same place."""
        server = Server(lambda exchange: self._dispatch(number, exchange))
        address = self.addresses.setdefault(number, f"127.0.0.1:{free_port()}")
        await server.start("127.0.0.1", int(address.rpartition(":")[2]))
        self.advertised.setdefault(number, self.addresses[number])
        self._servers[number] = server

    async def kill(self, number: int) -> None:
        """Close every connection of a member, and its port."""
        server = self._servers.pop(number)
        for connection in server.connections:
            connection.abort()
        await server.stop(grace_ms=0)

    def hang(self, number: int) -> None:
        """Have a member say nothing any more, with its connections open, and take nothing: it has more at hand than it may."""
        self.hung.add(number)
        for connection in self._servers[number].connections:
            connection.budget.used += 2 * connection.budget.limit

    async def close(self) -> None:
        for number in list(self._servers):
            await self.kill(number)
        for task in list(self.node.tasks):
            task.cancel()

    def move(self, segments: list[int], number: int, *, tell: bool = True) -> None:
        """Make a member primary of some segments; `tell`: those that do not hang tell whoever has greeted them."""
        for segment in segments:
            self.primaries[segment] = number
        self.epoch += 1
        if tell:
            for member, server in self._servers.items():
                if member not in self.hung:
                    for connection in server.connections:
                        if connection.session.stage is ConnectionStage.OPEN:  # one that has yet to greet gets the epoch with the answer
                            connection.send(Message(topology_changed=pb.TopologyChanged(epoch=self.epoch)))

    def stages(self, number: int) -> list[ConnectionStage]:
        """Where each connection of a member is."""
        return [connection.session.stage for connection in self._servers[number].connections]

    @property
    def asked_for_topology(self) -> int:
        """How often any member was asked who leads what."""
        return sum(count for (_, kind), count in self.asked.items() if kind == "get_topology")

    def segments_of(self, number: int) -> list[int]:
        return [segment for segment, owner in enumerate(self.primaries) if owner == number]

    # ------------------------------------------------------------ requests

    def _dispatch(self, number: int, exchange: Exchange) -> None:
        if number in self.hung and exchange.kind != "ping":
            return
        self.asked[number, exchange.kind] += 1
        if exchange.kind == "hello":
            self._hello(number, exchange)
        elif exchange.kind == "get_topology":
            self._topology(number, exchange)
        elif exchange.kind == "ping":
            exchange.answer(Message(done=pb.Done()))
        else:
            elsewhere = [segment for segment in self._segments_in(exchange) if self.primaries[segment] != number]
            if elsewhere:
                self.passed_on[exchange.kind] += 1
                if not self.forwards or any(self.primaries[segment] not in self._servers for segment in elsewhere):
                    exchange.fail(NotPrimary(segment=elsewhere[0]))
                    return
            self.node.dispatch(exchange)

    def _segments_in(self, exchange: Exchange) -> list[int]:
        if exchange.kind == "write":
            table = np.frombuffer(exchange.body[: exchange.message.write.blocks * TABLE.itemsize], TABLE)
            return table["segment"].tolist()
        if exchange.kind == "get":
            return [self.node.segment(exchange.message.get.key)]
        if exchange.kind == "get_many":
            count = exchange.message.get_many.count
            offsets = np.frombuffer(exchange.body[: 4 * (count + 1)], "<i4").tolist()
            data = bytes(exchange.body[4 * (count + 1) :])
            return [self.node.segment(data[low:high]) for low, high in pairwise(offsets)]
        return list(exchange.message.keys.segments) if exchange.kind == "keys" else []

    def _hello(self, number: int, exchange: Exchange) -> None:
        hello, message = exchange.message.hello, Message()
        if hello.producer and not hello.producer_id:
            self.node.producers += 1
        answer = message.hello_answer
        answer.cluster, answer.segments, answer.number, answer.topology_epoch = "c1", self.node.segments, number, self.epoch
        answer.producer_id = hello.producer_id or (self.node.producers if hello.producer else 0)
        exchange.answer(message)

    def _topology(self, number: int, exchange: Exchange) -> None:
        answer = pb.TopologyAnswer(epoch=self.epoch, primaries=self.primaries, number=number)
        for member, address in self.advertised.items():
            answer.nodes.add(number=member, address=address)
        exchange.answer(Message(topology_answer=answer))


@asynccontextmanager
async def cluster_of(members: int = 3, *, forwards: bool = True) -> AsyncIterator[FakeCluster]:
    """A cluster, all of whose members run."""
    cluster = FakeCluster(members=members, forwards=forwards)
    try:
        for number in range(1, members + 1):
            await cluster.start(number)
        yield cluster
    finally:
        await cluster.close()
