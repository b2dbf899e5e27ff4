"""What can be chosen about the two ends of a connection."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eventlog import limits
from eventlog.wire.session import SessionOptions

if TYPE_CHECKING:
    from ssl import SSLContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """How to open a connection, and who we say we are."""

    client: str = ""  # name and version, for the other side's logs
    member: bool = False  # about to prove to be one: a place is kept for it
    operator: bool = False  # a place is kept for who asks what operators ask, and nothing else
    producer: bool = False  # ask for a producer id
    producer_id: int = 0  # or go on as this one
    connect_timeout_ms: int = limits.HANDSHAKE_MS_MAX  # from the first packet to the answer to Hello
    bytes_in_flight_max: int = limits.CONNECTION_BYTES_IN_FLIGHT_MAX
    ssl: "SSLContext | None" = None
    session: SessionOptions = field(default_factory=SessionOptions)


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
