"""How a connection begins, whichever shell opens it: what is said first, and what it means that nobody answers."""

import socket
from collections.abc import Sequence

from eventlog.errors import BadFrame, ConnectionLost, EventLogError, NobodyListens, TimedOut, UnknownHost
from eventlog.transport.options import ConnectOptions
from eventlog.wire.eventlog_pb2 import Hello, Message

NOT_REACHED = (BadFrame, OSError, OverflowError, UnicodeError)
"""What `unreached` has words for."""


def hello_of(options: ConnectOptions) -> Message:
    """Return what the side that connects says first."""
    session = options.session
    hello = Hello(
        version_min=session.version_min,
        version_max=session.version_max,
        features=session.features,
        producer=options.producer,
        producer_id=options.producer_id,
        client=options.client,
        member=options.member,
        operator=options.operator,
    )
    return Message(hello=hello)


def unreached(error: BaseException, *, address: str, timeout_ms: int) -> EventLogError:
    """Return an error that kept a connection from opening, one of `NOT_REACHED`, as callers see it."""
    if isinstance(error, BadFrame):
        return BadFrame(why=f"what {address} says is not of this protocol ({error.why})")
    if isinstance(error, TimeoutError):
        return TimedOut(what=f"Hello at {address}", timeout_ms=timeout_ms)
    if isinstance(error, ConnectionRefusedError):
        return NobodyListens(address=address, why=error.strerror or "refused")
    if isinstance(error, (socket.gaierror, UnicodeError)):  # the latter of a name that no host can have
        return UnknownHost(address=address, why=getattr(error, "strerror", None) or str(error))
    return ConnectionLost(address=address, why=str(error) or type(error).__name__)  # OverflowError: of a port that there is not


def telling(errors: Sequence[OSError]) -> OSError:
    """Return the error of a name of which no address took a connection: a TimeoutError if one of them said nothing at all."""
    silent = [error for error in errors if isinstance(error, TimeoutError)]
    is_alike = len({type(error) for error in errors}) == 1
    return (silent or errors)[0] if silent or is_alike else OSError("; ".join(map(str, errors)))
