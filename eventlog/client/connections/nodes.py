"""The nodes of one cluster as a client sees them: which answered first, which can be reached directly, which segment is whose.

The road to a node is an `Uplink`: one connection that heals.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from eventlog.client.connections.known import KnownRoutes, of_all
from eventlog.client.connections.requests import chance
from eventlog.client.options import ClientOptions
from eventlog.errors import ClientClosed, ConnectionLost, EventLogError, InvalidArgument
from eventlog.routing.addresses import Address, Candidates, parse_address
from eventlog.routing.retry import backoff_ms
from eventlog.routing.routes import NOBODY
from eventlog.topology import Topology
from eventlog.transport.connect import connect
from eventlog.transport.connection import Connection, Exchange
from eventlog.transport.greeting import GreetingOptions
from eventlog.wire.eventlog_pb2 import Done, Message

log = logging.getLogger("eventlog.client")

DIRECT_AGAIN_MS_MIN = 1_000  # after a node could not be reached; doubles
DIRECT_AGAIN_MS_MAX = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What an uplink asks and tells its owner.

    `choose_producer` says as which producer to go on (0: a new one, None: none). `on_open` is called with each new connection before
    anybody else can use it, and may refuse it by raising; `on_close` when it is gone; `on_request` with what the node asks.
    """

    choose_producer: Callable[[], int | None]
    on_open: Callable[[Connection, Address], None]
    on_close: Callable[[Connection], None]
    on_request: Callable[[Exchange], None]


class Uplink:
    """Only one connection is live at a time; the first caller opens it, the others wait for that."""

    def __init__(self, candidates: Candidates, options: ClientOptions, hooks: Hooks) -> None:
        self.candidates = candidates
        self._options = options
        self._hooks = hooks
        self._live: Connection | None = None
        self._lock = asyncio.Lock()
        self._is_closed = False
        self._last_error: EventLogError | None = None

    @property
    def live(self) -> Connection | None:
        """The connection, if it is open."""
        return self._live if self._live is not None and not self._live.is_closed else None

    async def connection(self, deadline: float) -> Connection:
        """Return the live connection, opening one before `deadline` (in the loop's time) if there is none.

        Raises:
            ClientClosed: the client was closed.
            ConnectionLost, TimedOut, ...: no node could be reached until then; the error of the last one tried.
        """
        if self._live is not None and not self._live.is_closed:
            return self._live
        self._demand_open()
        try:
            async with asyncio.timeout_at(deadline), self._lock:
                return self.live or await self._open_until(deadline)
        except TimeoutError:
            raise self._last_error or ConnectionLost(address=self._names(), why="no node answered in time") from None

    async def open_once(self) -> Connection:
        """Open a connection to the first address that answers, trying each once."""
        async with self._lock:
            return self.live or await self._open()

    async def _open_until(self, deadline: float) -> Connection:
        loop = asyncio.get_running_loop()
        attempt = 0
        while True:
            try:
                return await self._open()
            except EventLogError as error:
                wait = backoff_ms(self._options.retry, attempt=attempt, chance=chance()) / 1000
                if not error.retry or self._is_closed or loop.time() + wait >= deadline:
                    raise
            await asyncio.sleep(wait)
            attempt += 1

    async def _open(self) -> Connection:
        errors: list[EventLogError] = []
        for address in self.candidates.order:
            try:
                connection = await self._open_at(address)
            except EventLogError as error:
                self.candidates.failed(address)
                errors.append(error)
                self._last_error = of_all(errors)
                continue
            self.candidates.worked(address)
            self._last_error = None
            return connection
        raise of_all(errors)

    async def _open_at(self, address: Address) -> Connection:
        self._demand_open()
        producer = self._hooks.choose_producer()
        connection = await connect(
            address.host,
            address.port,
            options=GreetingOptions(
                client=self._options.name,
                operator=self._options.operator,
                producer=producer is not None,
                producer_id=producer or 0,
                connect_timeout_ms=self._options.connect_timeout_ms,
            ),
            dispatch=self._hooks.on_request,
        )
        try:
            self._demand_open()
            if connection.is_closed:
                raise ConnectionLost(address=str(address), why="it closed right after the greeting")
            self._live = connection
            connection.on_close = self._hooks.on_close
            self._hooks.on_open(connection, address)
        except EventLogError:
            connection.on_close = None
            connection.close()
            raise
        return connection

    def _demand_open(self) -> None:
        if self._is_closed:
            raise ClientClosed(what="client")

    def drop(self, connection: Connection) -> None:
        """Close a connection that is of no more use, and prefer other addresses next time."""
        if connection is self._live:
            self.candidates.failed(self.candidates.order[0])
            self._live = None
        connection.close()

    def close(self) -> None:
        """Close for good. What is unanswered fails."""
        self._is_closed = True
        if self._live is not None:
            self._live.close()

    async def wait_closed(self) -> None:
        """Wait until the socket is gone."""
        if self._live is not None:
            await self._live.wait_closed()

    def _names(self) -> str:
        return ", ".join(map(str, self.candidates.order))


class _Direct:
    """The direct connection to a node: opened when it is wanted, missed for a while after a failure."""

    __slots__ = ("attempt", "has_worked", "not_before", "opening", "uplink")

    def __init__(self, uplink: Uplink) -> None:
        self.uplink = uplink
        self.attempt = 0
        self.not_before = 0.0
        self.has_worked = False
        self.opening: asyncio.Task[None] | None = None


class Nodes(KnownRoutes):
    """Roads to nodes. `home` is to whichever node answered; every node forwards, so it will do where there is no direct one.

    `choose_producer`, `on_connection`, `on_lost` and `on_routes` are the writer's; `on_stale` is called when the topology may be
    out of date.
    """

    def __init__(self, addresses: list[Address], options: ClientOptions) -> None:
        super().__init__()
        self._options = options
        self._direct: dict[Address, _Direct] = {}
        self._numbers: dict[Connection, int] = {}
        self._known: set[Address] = set()  # reached once, or warned of
        self.is_closed = False
        self.home = self._uplink(Candidates(addresses))
        self.choose_producer: Callable[[], int | None] = lambda: None
        self.on_connection: Callable[[Connection], None] = lambda _: None
        self.on_lost: Callable[[Connection], None] = lambda _: None
        self.on_routes: Callable[[], None] = lambda: None
        self.on_stale: Callable[[], None] = lambda: None

    def _uplink(self, candidates: Candidates) -> Uplink:
        hooks = Hooks(
            choose_producer=lambda: self.choose_producer(),  # noqa: PLW0108 -- it is set later
            on_open=self._opened,
            on_close=self._closed,
            on_request=self._asked,
        )
        return Uplink(candidates, self._options, hooks)

    def now(self) -> float:
        """Return the time by which deadlines are kept, in seconds."""
        return asyncio.get_running_loop().time()

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def __repr__(self) -> str:
        """Say it for the objects that stand on them: cluster, nodes, addresses."""
        addresses = ", ".join(map(str, self.home.candidates.order))
        topology = self.topology
        cluster = "not connected" if topology is None else f"cluster {self.cluster} of {len(topology.addresses)} nodes"
        return f"{cluster}, at {addresses}{', closed' if self.is_closed else ''}"

    # ------------------------------------------------------------ roads

    def road(self, node: int) -> Connection | None:
        """Return the connection for requests of a node's segments: to that node, else to one that forwards; None if nobody is reached.

        A direct one is opened in the background when it is wanted; until then there is another.
        """
        if node != NOBODY and self._options.routing == "direct":
            direct = self._direct_to(node)
            if direct is not None:
                return direct
        home = self.home.live
        return home if home is not None else next(iter(self._numbers), None)

    def _direct_to(self, node: int) -> Connection | None:
        home = self.home.live
        if home is not None and self._numbers.get(home) == node:
            return home
        text = self.topology.addresses.get(node) if self.topology is not None else None
        if text is None:
            return None
        address = parse_address(text)
        direct = self._direct.get(address)
        if direct is None:
            direct = self._direct[address] = _Direct(self._uplink(Candidates([address])))
        is_missing = direct.uplink.live is None and direct.opening is None and not self.is_closed
        if is_missing and self.now() >= direct.not_before:
            direct.opening = asyncio.create_task(self._open(direct, address), name=f"eventlog-client {address}")
        return direct.uplink.live

    async def _open(self, direct: _Direct, address: Address) -> None:
        try:
            connection = await direct.uplink.open_once()
        except EventLogError as error:
            self._missed(direct, address, error)
        else:
            direct.attempt, direct.has_worked = 0, True
            log.debug("direct_connection address=%s node=%s", address, self._numbers.get(connection))
        finally:
            direct.opening = None
        self.on_routes()

    def _missed(self, direct: _Direct, address: Address, error: EventLogError) -> None:
        wait_ms = min(DIRECT_AGAIN_MS_MAX, DIRECT_AGAIN_MS_MIN << min(direct.attempt, 10))
        direct.attempt += 1
        direct.not_before = self.now() + wait_ms / 1000
        road = self.road(NOBODY)
        if road is not None and address not in self._known:
            self._known.add(address)
            log.warning("%s cannot be reached from here (%s); its requests go through %s", address, error, road.peer)
        self.on_stale()

    def look_again(self) -> None:
        """Have direct connections tried again that were missed for long enough."""
        now = self.now()
        missed = [direct for direct in self._direct.values() if direct.attempt and direct.opening is None and direct.uplink.live is None]
        if any(now >= direct.not_before for direct in missed):
            self.on_routes()

    def uplink_of(self, connection: Connection) -> Uplink:
        """Return whose connection that is, or was."""
        return next((direct.uplink for direct in self._direct.values() if direct.uplink.live is connection), self.home)

    def drop(self, connection: Connection) -> None:
        """Close a connection that is of no more use."""
        self.uplink_of(connection).drop(connection)

    def live(self) -> list[Connection]:
        """Return every open connection, that to `home` first."""
        home = self.home.live
        return sorted(self._numbers, key=lambda connection: connection is not home)

    async def connection(self, node: int, deadline: float, *, is_long: bool = False) -> Connection:
        """Return `road(node)`, opening a connection to any node before `deadline` if there is none. Raises as `Uplink.connection`.

        `is_long`: what is to be asked is worth waiting for a direct connection that is being opened.
        """
        if is_long and node != NOBODY and self._options.routing == "direct":
            direct = await self._straight(node)
            if direct is not None:
                return direct
        return self.road(node) or await self.home.connection(deadline)

    async def _straight(self, node: int) -> Connection | None:
        """Return a connection to a node itself; None where there is none, and none can be opened now."""
        assert self.topology is not None, "known where nodes are"
        connection = self._direct_to(node)
        direct = self._direct.get(parse_address(self.topology.addresses[node])) if node in self.topology.addresses else None
        if connection is None and direct is not None and direct.opening is not None:
            await asyncio.wait([direct.opening])  # it may be cancelled, by the end of the client, and this is not
            connection = direct.uplink.live
        return connection

    # ------------------------------------------------------------ what only some nodes can do

    def note_lacking(self, lacking: set[int], connection: Connection | None) -> bool:
        """Note that a node lacks what was asked of it; return whether there is another one to ask."""
        number = self._numbers.get(connection) if connection is not None else None
        members = set(self.topology.addresses) if self.topology is not None else set()
        if number is None or number in lacking:
            return False
        lacking.add(number)
        return bool(members - lacking)

    async def other_than(self, lacking: set[int]) -> Connection:
        """Return a connection to a member that is none of `lacking`.

        Raises:
            ConnectionLost: none of the others can be reached.
        """
        assert self.topology is not None, "known where others are"
        for node in sorted(set(self.topology.addresses) - lacking):
            connection = await self._straight(node)
            if connection is not None:
                return connection
        raise ConnectionLost(address="any other node", why="those that may have it cannot be reached")

    # ------------------------------------------------------------ what connections tell

    def _opened(self, connection: Connection, address: Address) -> None:
        hello = connection.hello
        self.greeted(hello, where=str(address))
        self._numbers[connection] = hello.number
        self._known.add(address)
        self.on_connection(connection)
        if self.topology is not None and hello.topology_epoch > self.topology.epoch:
            self.on_stale()

    def _closed(self, connection: Connection) -> None:
        self._numbers.pop(connection, None)
        for direct in self._direct.values():
            if direct.uplink.live is None and direct.has_worked:
                direct.not_before = 0.0
        self.on_lost(connection)
        self.on_stale()

    def _asked(self, exchange: Exchange) -> None:
        if exchange.kind != "topology_changed":
            raise InvalidArgument(why="a client answers no requests")
        exchange.answer(Message(done=Done()))
        if self.is_newer(exchange.message.topology_changed.epoch):
            self.on_stale()

    def learn(self, topology: Topology) -> None:
        """Take in a topology, unless it is older than what is known."""
        if not self.took(topology):
            return
        self.home.candidates.learn(map(parse_address, topology.addresses.values()))
        for direct in self._direct.values():
            direct.not_before = min(direct.not_before, self.now() + DIRECT_AGAIN_MS_MIN / 1000)
        self.on_routes()

    def close(self) -> None:
        """Close for good. What is unanswered fails."""
        self.is_closed = True
        for direct in self._direct.values():
            if direct.opening is not None:
                direct.opening.cancel()
            direct.uplink.close()
        self.home.close()

    async def wait_closed(self) -> None:
        """Wait until every socket is gone."""
        openings = [direct.opening for direct in self._direct.values() if direct.opening is not None]
        if openings:
            await asyncio.wait(openings)
        for uplink in (*(direct.uplink for direct in self._direct.values()), self.home):
            await uplink.wait_closed()
