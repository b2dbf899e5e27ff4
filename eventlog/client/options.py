"""What can be chosen about a client. Sizes are bytes, times milliseconds."""

from dataclasses import dataclass, field
from typing import Literal, TypedDict

from eventlog.client.values import checked_flag, checked_span, checked_text
from eventlog.errors import InvalidArgument
from eventlog.limits import CONNECTION_BYTES_IN_FLIGHT_MAX, MIB, REQUEST_TIMEOUT_MS_DEFAULT, STREAM_CREDIT_BYTES_DEFAULT
from eventlog.routing.retry import RetryPolicy

FRAME_BYTES_TARGET = 1 * MIB  # no gain above 1 MiB a commit
FRAME_EVENTS_TARGET = 20_000
BULK_EVENTS_MAX = 100_000  # in a frame of one call: with many segments a block should have some events


Routing = Literal["direct", "any"]


class ConnectOptions(TypedDict, total=False):
    """The options of `connect`, for type checkers; `ClientOptions` says what each means and which are the defaults."""

    timeout_ms: int
    connect_timeout_ms: int
    reconnect_ms_max: int
    idempotent: bool
    bytes_unanswered_max: int
    frame_bytes_target: int
    read_ahead_bytes: int
    retry: RetryPolicy
    routing: Routing
    name: str
    operator: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Options of `connect`."""

    timeout_ms: int = REQUEST_TIMEOUT_MS_DEFAULT  # of one operation, with all its retries
    connect_timeout_ms: int = 5_000  # of one attempt at one address
    reconnect_ms_max: int = 60_000  # how long a reader goes on looking for a node after it lost one
    idempotent: bool = True  # without it a write whose answer is lost is reported as OutcomeUnknown, and nothing is sent twice
    bytes_unanswered_max: int = 16 * MIB  # of writes; above, writers wait
    frame_bytes_target: int = FRAME_BYTES_TARGET  # writes of one moment share frames up to this size
    read_ahead_bytes: int = STREAM_CREDIT_BYTES_DEFAULT  # how far a node may send ahead of what a reader has taken
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    routing: Routing = "direct"  # requests go to each segment's primary, or all to one node, which forwards
    name: str = ""  # for the node's log
    operator: bool = False  # where all connections of a node are taken it gets one of a few for what operators ask, and nothing else

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            checked_span(name, getattr(self, name))
        for name in ("idempotent", "operator"):
            checked_flag(name, getattr(self, name))
        checked_text("name", self.name)
        if not isinstance(self.retry, RetryPolicy):
            raise InvalidArgument(why=f"retry is {self.retry!r:.60}: give a RetryPolicy")
        if self.routing not in ("direct", "any"):
            raise InvalidArgument(why=f"routing is {self.routing!r}: use direct or any")
        if self.read_ahead_bytes > CONNECTION_BYTES_IN_FLIGHT_MAX:
            raise InvalidArgument(why=f"read_ahead_bytes is {self.read_ahead_bytes}, at most {CONNECTION_BYTES_IN_FLIGHT_MAX} are useful")

    def limit_ms(self, timeout_ms: int | None) -> int:
        """Return how long one operation may take: `timeout_ms`, or what all may where it is None.

        Raises:
            InvalidArgument: it is not above 0.
        """
        if timeout_ms is None:
            return self.timeout_ms
        limit_ms: int = checked_span("timeout_ms", timeout_ms, or_else=", or None for the client's")
        return limit_ms


_POSITIVE = ("timeout_ms", "connect_timeout_ms", "reconnect_ms_max", "bytes_unanswered_max", "frame_bytes_target", "read_ahead_bytes")
