"""What both shells know: how a connection begins, what can be chosen about it, and when silence is asked about. No event loop.

A paused host keeps its sockets open, so a node that owes an answer, and says nothing, is asked whether it lives.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eventlog import limits
from eventlog.wire.session import SessionOptions

if TYPE_CHECKING:
    from ssl import SSLContext

import socket
from collections.abc import Iterable, Sequence

from eventlog.errors import BadFrame, ConnectionLost, EventLogError, NobodyListens, TimedOut, UnknownHost
from eventlog.wire.eventlog_pb2 import Hello, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class GreetingOptions:
    """How to open a connection, and what this end says it is."""

    client: str = ""  # name and version, for the other side's logs
    member: bool = False  # about to prove to be one: a place is kept for it
    operator: bool = False  # a place is kept for peers that ask what operators ask, and nothing else
    producer: bool = False  # ask for a producer id
    producer_id: int = 0  # or go on as this one
    connect_timeout_ms: int = limits.HANDSHAKE_MS_MAX  # from the first packet to the answer to Hello
    bytes_in_flight_max: int = limits.CONNECTION_BYTES_IN_FLIGHT_MAX
    ssl: "SSLContext | None" = None
    session: SessionOptions = field(default_factory=SessionOptions)


NOT_REACHED = (BadFrame, OSError, OverflowError, UnicodeError)
"""What `unreached` has words for."""


def hello_of(options: GreetingOptions) -> Message:
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


ASK_MS_MAX = 500  # for an answer that needs no disk
LOOK_EVERY_MS = 500
SILENT_LOOKS_MAX = 4  # without a byte from a node that owes an answer, which may be late on purpose
QUICK = frozenset({"write", "get", "get_topology", "size", "near_interest"})
"""Requests that no node keeps for long without a reason."""


def silent_looks_max(kinds: Iterable[str]) -> int:
    """Return after how many looks without a byte a node is asked, which owes answers to requests of some kinds."""
    return SILENT_LOOKS_MAX if QUICK.isdisjoint(kinds) else 1
