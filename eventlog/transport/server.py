"""Accepts connections, keeps them within bounds, closes those that say nothing.

Where all places are taken, idle connections give way to new ones, and members never do. Some places beyond the limit are for members
alone: a peer there has to prove to be one before it asks anything else. A few are for operators: a peer there asks what they ask,
or is closed. As nobody proves to be one, the next operator takes the place of another, of the host with most of these places.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from eventlog import limits
from eventlog.errors import Overloaded, Stopping, TimedOut
from eventlog.transport.connection import Connection, Dispatch, Exchange
from eventlog.wire.flow import Arena, ByteBudget, ProcessBudget
from eventlog.wire.reader import Reader
from eventlog.wire.session import ConnectionStage, Session, SessionOptions

if TYPE_CHECKING:
    from ssl import SSLContext

SWEEPS_PER_HANDSHAKE: Final = 4  # how finely deadlines are kept
DRAIN_POLL_MS: Final = 5
BACKLOG_MAX: Final = 1_024
MEMBER_PLACES: Final = 32  # beyond the limit, for members that have not proved to be some yet
OPERATOR_PLACES: Final = 8  # beyond the limit, for peers that ask nothing but what operators ask
MEMBER_GREETINGS: Final = ("peer_hello", "peer_proof")
BACKLOG_PARTS: Final = 4  # of the connections: as many may be accepted in one turn of the loop before those above the limit are closed


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """What a server accepts."""

    connections_max: int = limits.CONNECTIONS_MAX
    bytes_in_flight_max: int = limits.CONNECTION_BYTES_IN_FLIGHT_MAX  # of one connection
    process_bytes_in_flight_max: int = limits.PROCESS_BYTES_IN_FLIGHT_MAX
    handshake_ms_max: int = limits.HANDSHAKE_MS_MAX  # from accepting to the answer to Hello; also for a started frame to go on
    idle_ms_min: int = limits.IDLE_MS_MIN  # without a request in flight, then it gives way where all places are taken
    idle_ms_max: int = limits.IDLE_MS_MAX  # without a request in flight, or with answers that nobody reads
    ssl: "SSLContext | None" = None
    session: SessionOptions = field(default_factory=SessionOptions)


class Server:
    """The listening side. `dispatch` is called once per request, Hello first: see the package's list of duties.

    `is_member` says of a connection whether its other end has proved to be a member; `operators` are the kinds of requests that operators
    make.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        options: ServerOptions | None = None,
        *,
        is_member: Callable[[Connection], bool] = lambda _: False,
        operators: Container[str] = (),
    ) -> None:
        self._dispatch = dispatch
        self._is_member = is_member
        self._operators = operators
        self._options = options if options is not None else ServerOptions()
        self._budget = ProcessBudget(self._options.process_bytes_in_flight_max)
        self._claims = ProcessBudget(self._options.process_bytes_in_flight_max)
        self._arena = Arena()
        self._connections: dict[Connection, _Watch] = {}
        self._for_members: dict[Connection, None] = {}  # of them, those beyond the limit, oldest first; also the ones not greeted yet
        self._for_operators: dict[Connection, None] = {}  # likewise
        self._give_way: list[Connection] = []  # as found at the last sweep, the first to go at the end
        self._connections_peak = 0
        self._requests_peak = 0
        self._streams_peak = 0
        self._is_stopping = False
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each listening socket."""
        return [socket_.getsockname()[:2] for socket_ in self._server.sockets] if self._server is not None else []

    @property
    def connections(self) -> list[Connection]:
        """Every open connection."""
        return list(self._connections)

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError when the address cannot be had."""
        await self.start_at(bind(host, port))

    async def start_at(self, bound: socket.socket) -> None:
        """Listen at an address that was bound before. Raises OSError when somebody else listens there by now."""
        options = self._options
        backlog = min(BACKLOG_MAX, -(-options.connections_max // BACKLOG_PARTS))
        bound.listen(backlog)  # uvloop would take no notice of its failure
        tls_handshake_s = options.handshake_ms_max / 1000 if options.ssl is not None else None
        self._server = await asyncio.get_running_loop().create_server(
            self._accept, sock=bound, ssl=options.ssl, backlog=backlog, ssl_handshake_timeout=tls_handshake_s
        )
        self._next_sweep()

    async def stop(self, *, grace_ms: int, at_once: Callable[[Connection], bool] | None = None) -> None:
        """Listen no more, refuse new requests, wait for the answers in flight, at most `grace_ms`, and close everything.

        Streams are ended with Stopping. Connections for which `at_once` is true are closed without waiting for anything.
        """
        self._is_stopping = True
        if self._server is not None:
            self._server.close()
        for connection in self.connections:
            connection.dispatch = _refuse_request
            if at_once is not None and at_once(connection):
                connection.close()
            else:
                connection.refuse_streams(Stopping())
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_ms / 1000
        while any(connection.is_busy for connection in self._connections) and loop.time() < deadline:  # noqa: ASYNC110  # once
            await asyncio.sleep(DRAIN_POLL_MS / 1000)  # once in a life; an event would cost every answer something
        closing = self.connections
        for connection in closing:
            connection.close()
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in closing:
            await connection.wait_closed()

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of everything bounded here."""
        options = self._options
        requests, streams = self._count()
        per_connection = options.session
        return {
            "connections": (self._taken, options.connections_max, self._connections_peak),
            "bytes_in_flight": (self._budget.used, self._budget.limit, self._budget.peak),
            "bytes_arriving": (self._claims.used, self._claims.limit, self._claims.peak),
            "requests_in_flight": (requests, options.connections_max * per_connection.requests_max, self._requests_peak),
            "streams": (streams, options.connections_max * per_connection.streams_max, self._streams_peak),
        }

    def _count(self) -> tuple[int, int]:
        """Return how many requests and streams are in flight, and keep their peaks: as seen once a sweep, not in between."""
        requests = sum(len(connection.session.incoming) for connection in self._connections)
        streams = sum(connection.session.streams for connection in self._connections)
        self._requests_peak = max(self._requests_peak, requests)
        self._streams_peak = max(self._streams_peak, streams)
        return requests, streams

    # ------------------------------------------------------------ connections

    def _accept(self) -> Connection:
        options = self._options
        session = Session("server", options.session)
        reader = Reader(frame_bytes_max=session.frame_bytes_in_max, arena=self._arena, claims=self._claims)
        connection = Connection(session, reader, ByteBudget(options.bytes_in_flight_max, self._budget), dispatch=self._dispatch)
        connection.on_open = self._on_open
        connection.on_close = self._on_close
        return connection

    def _on_open(self, connection: Connection) -> None:
        if self._is_stopping:
            connection.give_up(Stopping())
            return
        if self._taken >= self._options.connections_max and not self._made_room():
            self._keep_for_members(connection)
        self._connections[connection] = _Watch(asyncio.get_running_loop().time())
        self._connections_peak = max(self._connections_peak, self._taken)
        connection.bound_unsent()

    @property
    def _taken(self) -> int:
        """The connections that count for the limit."""
        return len(self._connections) - len(self._for_members) - len(self._for_operators)

    def _made_room(self) -> bool:
        """Return whether somebody idle has given way."""
        while self._give_way:
            idle = self._give_way.pop()
            if idle in self._connections and not (idle.is_busy or idle.is_heard or self._is_member(idle)):
                self._refuse(idle)
                return True
        return False

    def _keep_for_members(self, connection: Connection) -> None:
        """Take a connection beyond the limit; of those that have not proved anything the oldest gives way."""
        unproved = [other for other in self._for_members if not self._is_member(other)]
        if len(unproved) >= MEMBER_PLACES:
            self._refuse(unproved[0])
        self._for_members[connection] = None
        connection.dispatch = self._on_limited

    def _keep_for_operators(self, connection: Connection) -> None:
        """Keep a connection beyond the limit for an operator; where there are enough of them one gives way, an idle one if there is any."""
        del self._for_members[connection]
        if len(self._for_operators) >= OPERATOR_PLACES:
            idle = [other for other in self._for_operators if not other.is_busy] or list(self._for_operators)
            hosts = {other: _host(other) for other in self._for_operators}
            found = [Idle(other, hosts[other], self._connections[other].heard_at) for other in idle]
            self._refuse(in_order(found, Counter(hosts.values()))[0])
        self._for_operators[connection] = None

    def _refuse(self, connection: Connection) -> None:
        self._on_close(connection)
        connection.give_up(Overloaded(what="the number of connections", limit=self._options.connections_max))

    def _on_close(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._for_members.pop(connection, None)
        self._for_operators.pop(connection, None)

    def _on_limited(self, exchange: Exchange) -> None:
        """Pass on what a connection beyond the limit may ask, and close it with anything else."""
        if self._may_ask(exchange):
            self._dispatch(exchange)
        else:
            self._refuse(exchange.connection)

    def _may_ask(self, exchange: Exchange) -> bool:
        """Return whether a request is one for which its connection was taken; say what for with the first one."""
        connection = exchange.connection
        if connection in self._for_operators:
            return exchange.kind in self._operators
        if exchange.kind == "hello":
            if exchange.message.hello.operator:
                self._keep_for_operators(connection)
            return exchange.message.hello.member or exchange.message.hello.operator
        return exchange.kind in MEMBER_GREETINGS or self._is_member(connection)

    # ------------------------------------------------------------ deadlines

    def _next_sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(min(1000, self._options.handshake_ms_max / SWEEPS_PER_HANDSHAKE) / 1000, self._sweep_all)

    def _sweep_all(self) -> None:
        now = asyncio.get_running_loop().time()
        self._count()
        for connection, watch in list(self._connections.items()):
            self._check(connection, watch, now)
        if self._taken >= self._options.connections_max - self._options.connections_max // 8:
            self._give_way = self._idle_ones(now)
        self._next_sweep()

    def _idle_ones(self, now: float) -> list[Connection]:
        """Return the connections that would give way, the first at the end."""
        heard_before = now - self._options.idle_ms_min / 1000
        hosts = {connection: _host(connection) for connection in self._connections}
        found = [
            Idle(connection, hosts[connection], watch.heard_at)
            for connection, watch in self._connections.items()
            if watch.heard_at <= heard_before and not (connection.is_busy or self._is_beyond(connection) or self._is_member(connection))
        ]
        return in_order(found, Counter(hosts.values()))[::-1]

    def _is_beyond(self, connection: Connection) -> bool:
        return connection in self._for_members or connection in self._for_operators

    def _check(self, connection: Connection, watch: "_Watch", now: float) -> None:
        unsent = connection.unsent_bytes
        if connection.is_heard or (connection.is_congested and unsent != watch.unsent_bytes):
            watch.heard_at = now
        connection.is_heard = False
        watch.unsent_bytes = unsent
        options = self._options
        silent_ms = (now - watch.heard_at) * 1000
        is_unproved = connection in self._for_members and not self._is_member(connection)
        if connection.session.stage is not ConnectionStage.OPEN or is_unproved:
            if (now - watch.opened_at) * 1000 >= options.handshake_ms_max:
                connection.give_up(TimedOut(what="Hello", timeout_ms=options.handshake_ms_max))
        elif not connection.is_between_frames and connection.is_reading and silent_ms >= options.handshake_ms_max:
            connection.give_up(TimedOut(what="the rest of a frame", timeout_ms=options.handshake_ms_max))
        elif silent_ms >= options.idle_ms_max and (connection.is_congested or not connection.session.incoming):
            connection.give_up(TimedOut(what="anything on an idle connection", timeout_ms=options.idle_ms_max))


def _refuse_request(_exchange: Exchange) -> None:
    raise Stopping


def _host(connection: Connection) -> str:
    return connection.peer.rpartition(":")[0]


def bind(host: str, port: int) -> socket.socket:
    """Return a socket at an address of this host, 0 for any free port; it refuses connections until it listens.

    Raises:
        OSError: the address cannot be had.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)  # of a name, what most others take
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound


class _Watch:
    """When a connection was last seen alive."""

    __slots__ = ("heard_at", "opened_at", "unsent_bytes")

    def __init__(self, now: float) -> None:
        self.opened_at = now
        self.heard_at = now
        self.unsent_bytes = 0


C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Idle(Generic[C]):
    """A connection that is asked nothing: the host at its other end, and since when nothing was heard of it."""

    connection: C
    host: str
    heard_at: float


def in_order(idle: Iterable[Idle[C]], hosts: Counter[str]) -> list[C]:
    """Return idle connections in the order in which they give way: each time the one of the host with most that is idle longest.

    `hosts` counts the connections of each host, busy ones too.
    """
    found: list[tuple[int, float, int, C]] = []
    gone: Counter[str] = Counter()
    for number, one in enumerate(sorted(idle, key=lambda one: one.heard_at)):
        found.append((gone[one.host] - hosts[one.host], one.heard_at, number, one.connection))
        gone[one.host] += 1
    return [connection for *_, connection in sorted(found, key=lambda row: row[:3])]
