"""What comes back: one answer, one item of a stream, or why there is none."""

from eventlog.errors import ConnectionLost, EventLogError, Outcome, TimedOut
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.kinds import CHANGES


class Reply:
    """`body` is a read-only view whose memory is the caller's, at a multiple of 8; `size` is the payload's, in bytes."""

    __slots__ = ("body", "message", "size")

    def __init__(self, message: Message, body: memoryview, size: int) -> None:
        self.message = message
        self.body = body
        self.size = size


def failure_of(kind: str, error: EventLogError) -> EventLogError:
    """Return why a request of a kind has no answer: a copy of `error`, to which each waiter adds its own traceback."""
    outcome: Outcome = "unknown" if kind in CHANGES and isinstance(error, ConnectionLost | TimedOut) else error.outcome
    return type(error)(outcome=outcome, **error.facts())
