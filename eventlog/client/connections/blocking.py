"""The roads of a client without an event loop: to whichever node answered, which forwards, and after a failure straight to primaries.

A caller with one question is done before a connection to the primary would be open. Once something has failed, that node's view may be
what failed: then the primary is asked itself, if it can be reached soon.
"""

from math import inf
from time import monotonic, sleep

from eventlog.client.connections.known import ASKED_MAX, KnownRoutes, of_all, topology_of
from eventlog.client.connections.requests import chance
from eventlog.client.options import ClientOptions
from eventlog.errors import ClientClosed, EventLogError, InvalidArgument, Misuse
from eventlog.routing.addresses import Address, Candidates, parse_address
from eventlog.routing.retry import backoff_ms
from eventlog.routing.routes import NOBODY
from eventlog.transport.blocking import BlockingConnection, connect, finished
from eventlog.transport.greeting import ASK_MS_MAX, GreetingOptions
from eventlog.wire.eventlog_pb2 import Done, GetTopology, Message
from eventlog.wire.session import Incoming

STRAIGHT_AGAIN_S = 1.0  # after a primary could not be reached


class BlockingNodes(KnownRoutes):
    """Roads to nodes, opened when they are wanted and while the caller waits. `producer` is asked for with the first one."""

    def __init__(self, addresses: list[Address], options: ClientOptions) -> None:
        super().__init__()
        self._options = options
        self._candidates = Candidates(addresses)
        self._home: BlockingConnection | None = None
        self._straight: dict[int, BlockingConnection] = {}
        self._not_before: dict[int, float] = {}  # when a node is tried again that could not be reached
        self._has_failed = False
        self._is_stale = False
        self.is_closed = False
        self.producer = 0

    def now(self) -> float:
        """Return the time by which deadlines are kept, in seconds."""
        return monotonic()

    async def pause(self, seconds: float) -> None:
        """Wait."""
        sleep(seconds)  # noqa: ASYNC251 -- there is no loop

    def on_stale(self) -> None:
        """Have the topology asked for before the next request, which goes to a primary itself."""
        self._is_stale = self._has_failed = True

    # ------------------------------------------------------------ roads

    def live(self) -> list[BlockingConnection]:
        """Return every open connection, that to home first."""
        home = [] if self._home is None else [self._home]
        return [connection for connection in (*home, *self._straight.values()) if not connection.is_closed]

    async def connection(self, node: int, deadline: float, *, is_long: bool = False) -> BlockingConnection:
        """Return a connection for requests of a node's segments: to that node, or to one that forwards.

        Raises:
            ConnectionLost, TimedOut, ...: no node could be reached before `deadline`; the error of the last one tried.
        """
        if not self.live():
            self._reopened(deadline)
        if self._is_stale:
            self._is_stale = False
            self._ask()
        wants_straight = (self._has_failed or is_long) and self._options.routing == "direct"
        straight = self._straight_to(node, deadline) if wants_straight else None
        return straight or next(iter(self.live()), None) or self._reopened(deadline)

    def _straight_to(self, node: int, deadline: float) -> BlockingConnection | None:
        """Return a connection to a node itself, None if that cannot be had soon."""
        at_hand = [connection for connection in self.live() if connection.hello.number == node]
        text = None if self.topology is None or node == NOBODY else self.topology.addresses.get(node)
        if at_hand or text is None or self.now() < self._not_before.get(node, 0.0):
            return next(iter(at_hand), None)
        try:
            self._straight[node] = self._opened(parse_address(text), deadline=min(deadline, self.now() + ASK_MS_MAX / 1000))
        except EventLogError:
            self._not_before[node] = self.now() + STRAIGHT_AGAIN_S
            return None
        return self._straight[node]

    def open_once(self) -> None:
        """Open a connection to the first address that answers, trying each once, and learn the topology. Raises why none does."""
        self._home = self._first(deadline=inf)
        self._ask()

    def _reopened(self, deadline: float) -> BlockingConnection:
        attempt = 0
        while True:
            try:
                self._home = self._first(deadline=deadline)
            except EventLogError as error:
                wait = backoff_ms(self._options.retry, attempt=attempt, chance=chance()) / 1000
                if not error.retry or self.now() + wait >= deadline:
                    raise
                sleep(wait)
                attempt += 1
            else:
                return self._home

    def _first(self, *, deadline: float) -> BlockingConnection:
        errors: list[EventLogError] = []
        for address in self._candidates.order:
            try:
                connection = self._opened(address, deadline=deadline)
            except EventLogError as error:
                self._candidates.failed(address)
                errors.append(error)
                if self.now() >= deadline:
                    break
            else:
                self._candidates.worked(address)
                return connection
        raise of_all(errors)

    def _opened(self, address: Address, *, deadline: float) -> BlockingConnection:
        if self.is_closed:
            raise ClientClosed(what="client")
        timeout_ms = int(max(1, min(self._options.connect_timeout_ms, 1_000 * (deadline - self.now()))))
        options = GreetingOptions(client=self._options.name, producer=True, producer_id=self.producer, connect_timeout_ms=timeout_ms)
        connection = connect(address.host, address.port, options=options, dispatch=self._answer)
        try:
            self.greeted(connection.hello, where=str(address))
        except EventLogError:
            connection.close()
            raise
        self.producer = self.producer or connection.hello.producer_id
        return connection

    def drop(self, connection: BlockingConnection) -> None:
        """Close a connection that is of no more use, and prefer other addresses next time."""
        if connection is self._home:
            self._candidates.failed(self._candidates.order[0])
        connection.close()

    def close(self) -> None:
        """Close for good."""
        self.is_closed = True
        for connection in self.live():
            connection.close()

    # ------------------------------------------------------------ what nodes know

    def _ask(self) -> None:
        """Ask for the topology, one node after the other until one answers. None may: any node forwards."""
        for connection in self.live()[:ASKED_MAX]:
            try:
                reply = finished(connection.request(Message(get_topology=GetTopology()), timeout_ms=ASK_MS_MAX))
            except EventLogError:
                continue
            if self.took(topology_of(reply.message.topology_answer)) and self.topology is not None:
                self._candidates.learn(map(parse_address, self.topology.addresses.values()))
            return

    def _answer(self, asked: Incoming) -> Message:
        if asked.kind != "topology_changed":
            raise InvalidArgument(why="a client answers no requests")
        self._is_stale = self._is_stale or self.is_newer(asked.message.topology_changed.epoch)
        return Message(done=Done())

    # ------------------------------------------------------------ what only some nodes can do

    def note_lacking(self, lacking: set[int], connection: BlockingConnection | None) -> bool:  # noqa: ARG002 -- as of any roads
        """Return False: nothing is asked here that a node may lack."""
        return False

    async def other_than(self, lacking: set[int]) -> BlockingConnection:
        """Raise: see `note_lacking`."""
        raise Misuse(why=f"no node lacks anything, and so not {lacking}")
