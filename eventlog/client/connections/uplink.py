"""One connection that heals: whoever needs it gets the live one, or opens the next, to whichever of some addresses answers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from eventlog.client.connections.patience import chance
from eventlog.client.options import ClientOptions
from eventlog.errors import ClientClosed, ConnectionLost, EventLogError
from eventlog.routing.addresses import Address, Candidates
from eventlog.routing.retry import backoff_ms
from eventlog.transport.connect import connect
from eventlog.transport.connection import Connection, Exchange
from eventlog.transport.greeting import ConnectOptions


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
    """Only one connection is live at a time; whoever asks first opens it, the others wait for that."""

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
        last: EventLogError = ClientClosed(what="client")
        for address in self.candidates.order:
            try:
                connection = await self._open_at(address)
            except EventLogError as error:
                self.candidates.failed(address)
                last = self._last_error = error
                continue
            self.candidates.worked(address)
            self._last_error = None
            return connection
        raise last

    async def _open_at(self, address: Address) -> Connection:
        self._demand_open()
        producer = self._hooks.choose_producer()
        connection = await connect(
            address.host,
            address.port,
            options=ConnectOptions(
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
