"""Opens connections."""

import asyncio
import socket
from collections.abc import Callable

from eventlog.errors import BadFrame, ConnectionLost, Misuse, NobodyListens, TimedOut, UnknownHost
from eventlog.transport.connection import Connection, Dispatch
from eventlog.transport.exchange import Exchange
from eventlog.transport.options import ConnectOptions
from eventlog.wire.eventlog_pb2 import Hello, Message
from eventlog.wire.flow import ByteBudget, ProcessBudget
from eventlog.wire.reader import Reader
from eventlog.wire.session import Session


async def connect(host: str, port: int, *, options: ConnectOptions | None = None, dispatch: Dispatch | None = None) -> Connection:
    """Return an open connection that has been greeted: `hello` is the peer's answer. Close it with `close` and `wait_closed`.

    `dispatch` takes what the peer asks on this connection; without it such requests are refused.

    Raises:
        NobodyListens, UnknownHost: there is no node there, or no such host.
        ConnectionLost: the host was not reached, or the peer closed while greeting.
        TimedOut: no answer to Hello in time.
        BadFrame: something else than a node listens there.
        UnsupportedVersion, Overloaded, Stopping: the peer said so.
    """
    chosen = options if options is not None else ConnectOptions()
    address = f"{host}:{port}"
    try:
        async with asyncio.timeout(chosen.connect_timeout_ms / 1000):
            return await _open(host, port, chosen, dispatch if dispatch is not None else _refuse)
    except BadFrame as error:
        raise BadFrame(why=f"what {address} says is not of this protocol ({error.why})") from None
    except TimeoutError:
        raise TimedOut(what=f"Hello at {address}", timeout_ms=chosen.connect_timeout_ms) from None
    except ConnectionRefusedError as error:
        raise NobodyListens(address=address, why=error.strerror or "refused") from error
    except (socket.gaierror, UnicodeError) as error:  # the latter of a name that no host can have
        raise UnknownHost(address=address, why=getattr(error, "strerror", None) or str(error)) from error
    except (OSError, OverflowError) as error:  # the latter of a port that there is not
        raise ConnectionLost(address=address, why=str(error) or type(error).__name__) from error


async def _open(host: str, port: int, options: ConnectOptions, dispatch: Dispatch) -> Connection:
    def make() -> Connection:
        session = Session("client", options.session)
        claims = ProcessBudget(options.bytes_in_flight_max)
        budget = ByteBudget(options.bytes_in_flight_max, ProcessBudget(options.bytes_in_flight_max))
        return Connection(session, Reader(frame_bytes_max=session.frame_bytes_in_max, claims=claims), budget, dispatch=dispatch)

    connection = await _reach(host, port, options, make)
    if connection.ended_by is not None:  # the peer gave up before it heard anything
        raise connection.ended_by
    own = connection.session.options
    hello = Hello(
        version_min=own.version_min,
        version_max=own.version_max,
        features=own.features,
        producer=options.producer,
        producer_id=options.producer_id,
        client=options.client,
        member=options.member,
    )
    try:
        await connection.send(Message(hello=hello))
    except BaseException:
        connection.abort()
        raise
    return connection


async def _reach(host: str, port: int, options: ConnectOptions, make: Callable[[], Connection]) -> Connection:
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
    silent = [error for error in errors if isinstance(error, TimeoutError)]
    is_alike = len({type(error) for error in errors}) == 1
    raise (silent or errors)[0] if silent or is_alike else OSError("; ".join(map(str, errors)))


def _refuse(_exchange: Exchange) -> None:
    raise Misuse(why="this side answers no requests")
