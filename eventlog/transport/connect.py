"""Opens connections."""

import asyncio
import socket
from collections.abc import Callable

from eventlog.errors import Misuse
from eventlog.transport.connection import Connection, Dispatch, Exchange
from eventlog.transport.greeting import NOT_REACHED, GreetingOptions, hello_of, telling, unreached
from eventlog.wire.flow import ByteBudget, ProcessBudget
from eventlog.wire.reader import Reader
from eventlog.wire.session import Session


async def connect(host: str, port: int, *, options: GreetingOptions | None = None, dispatch: Dispatch | None = None) -> Connection:
    """Return an open connection that has been greeted: `hello` is the peer's answer. Close it with `close` and `wait_closed`.

    `dispatch` takes what the peer asks on this connection; without it such requests are refused.

    Raises:
        NobodyListens, UnknownHost: there is no node there, or no such host.
        ConnectionLost: the host was not reached, or the peer closed while greeting.
        TimedOut: no answer to Hello in time.
        BadFrame: something else than a node listens there.
        UnsupportedVersion, Overloaded, Stopping: the peer said so.
    """
    chosen = options if options is not None else GreetingOptions()
    try:
        async with asyncio.timeout(chosen.connect_timeout_ms / 1000):
            return await _open(host, port, chosen, dispatch if dispatch is not None else _refuse)
    except NOT_REACHED as error:
        raise unreached(error, address=f"{host}:{port}", timeout_ms=chosen.connect_timeout_ms) from error


async def _open(host: str, port: int, options: GreetingOptions, dispatch: Dispatch) -> Connection:
    def make() -> Connection:
        session = Session("client", options.session)
        claims = ProcessBudget(options.bytes_in_flight_max)
        budget = ByteBudget(options.bytes_in_flight_max, ProcessBudget(options.bytes_in_flight_max))
        return Connection(session, Reader(frame_bytes_max=session.frame_bytes_in_max, claims=claims), budget, dispatch=dispatch)

    connection = await _reach(host, port, options, make)
    if connection.ended_by is not None:  # the peer gave up before it heard anything
        raise connection.ended_by
    try:
        await connection.send(hello_of(options))
    except BaseException:
        connection.abort()
        raise
    return connection


async def _reach(host: str, port: int, options: GreetingOptions, make: Callable[[], Connection]) -> Connection:
    """Return a connection to the first address of a name that takes one; none may use up the time of those after it.

    Raises:
        OSError: no address takes one. A TimeoutError, if one of them said nothing at all.
    """
    loop = asyncio.get_running_loop()
    tls_name = host if options.ssl is not None else None
    deadline = loop.time() + options.connect_timeout_ms / 1000
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    errors: list[OSError] = []
    for index, address in enumerate(addresses):
        share = (deadline - loop.time()) / (len(addresses) - index)
        try:
            async with asyncio.timeout(share):
                _, connection = await loop.create_connection(make, address, port, ssl=options.ssl, server_hostname=tls_name)
                return connection
        except OSError as error:
            errors.append(error)
    raise telling(errors)


def _refuse(_exchange: Exchange) -> None:
    raise Misuse(why="this side answers no requests")
