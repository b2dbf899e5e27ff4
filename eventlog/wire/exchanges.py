"""The values of a session: where connections and exchanges can be, what moves them on, and what receiving a frame can mean.

asking side   ask -> Answered | Failed                     ask -> Item* -> [Failed] -> Ended, `end_stream` in between or not
answering     Incoming -> answer | fail                    Incoming -> item* -> end | fail, ReaderEnded in between or not
"""

from enum import IntEnum
from typing import Any, Final, NamedTuple

from eventlog.errors import EventLogError
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.flow import Credit


class Stage(IntEnum):
    """Where the connection is."""

    NEW = 0
    GREETING = 1  # Hello is out, not answered
    OPEN = 2
    CLOSED = 3


class Step(IntEnum):
    """What moves a connection or an exchange on."""

    HELLO = 0
    WELCOME = 1  # the answer to Hello
    CLOSE = 2
    ANSWER = 3
    ERROR = 4
    ITEM = 5
    END = 6
    END_STREAM = 7


class Phase(IntEnum):
    """Where an exchange is."""

    WAITING = 0  # one answer is due
    STREAMING = 1
    ENDING = 2  # the reader wants no more; residue may come
    FAILED = 3  # the error was said, the end is due
    OVER = 4


STAGES: Final = {
    (Stage.NEW, Step.HELLO): Stage.GREETING,
    (Stage.GREETING, Step.WELCOME): Stage.OPEN,
    (Stage.NEW, Step.CLOSE): Stage.CLOSED,
    (Stage.GREETING, Step.CLOSE): Stage.CLOSED,
    (Stage.OPEN, Step.CLOSE): Stage.CLOSED,
    (Stage.CLOSED, Step.CLOSE): Stage.CLOSED,
}

ANSWERING: Final = {
    (Phase.WAITING, Step.ANSWER): Phase.OVER,
    (Phase.WAITING, Step.ERROR): Phase.OVER,
    (Phase.STREAMING, Step.ITEM): Phase.STREAMING,
    (Phase.STREAMING, Step.ERROR): Phase.FAILED,
    (Phase.STREAMING, Step.END): Phase.OVER,
    (Phase.STREAMING, Step.END_STREAM): Phase.ENDING,
    (Phase.ENDING, Step.ITEM): Phase.ENDING,
    (Phase.ENDING, Step.ERROR): Phase.FAILED,
    (Phase.ENDING, Step.END): Phase.OVER,
    (Phase.ENDING, Step.END_STREAM): Phase.ENDING,
    (Phase.FAILED, Step.END): Phase.OVER,
}
"""What the side that answers may do; END_STREAM is the reader's."""

ASKING: Final = ANSWERING | {(Phase.FAILED, Step.END_STREAM): Phase.FAILED}
"""The same seen by the side that asked: it may end a stream whose error is on its way."""


class Incoming:
    """A request of the peer, from its arrival to its last answer. An event and the session's record in one; `token` is the caller's.

    `size` is in bytes what is held of it: decompressed, where it came compressed.
    """

    __slots__ = ("body", "credit", "kind", "message", "opaque", "phase", "size", "token")

    def __init__(self, kind: str, message: Message, body: memoryview, size: int) -> None:
        self.opaque: int = message.opaque
        self.kind = kind
        self.message = message
        self.body = body
        self.size = size
        self.phase = Phase.WAITING
        self.credit: Credit | None = None  # of a stream
        self.token: Any = None


class Outgoing:
    """A request of ours, until its last answer. `token` and `timeout_ms` are the caller's."""

    __slots__ = ("kind", "opaque", "phase", "timeout_ms", "token")

    def __init__(self, opaque: int, kind: str, *, is_stream: bool, token: Any) -> None:
        self.opaque = opaque
        self.kind = kind
        self.phase = Phase.STREAMING if is_stream else Phase.WAITING
        self.token = token
        self.timeout_ms = 0


class Answered:
    """The answer to `outgoing`."""

    __slots__ = ("body", "message", "outgoing", "size")

    def __init__(self, outgoing: Outgoing, message: Message, body: memoryview, size: int) -> None:
        self.outgoing = outgoing
        self.message = message
        self.body = body
        self.size = size


class Item(Answered):
    """One item of a stream. Its `size` is to be given back with `give_credit` once it is used."""

    __slots__ = ()


class Failed(NamedTuple):
    """The peer refused a request; of a stream `Ended` follows. Without `outgoing` it gave up the connection."""

    outgoing: Outgoing | None
    error: EventLogError


class Ended(NamedTuple):
    """Nothing more comes on this stream."""

    outgoing: Outgoing


class CreditGiven(NamedTuple):
    """A stream whose credit was used up may send again."""

    incoming: Incoming


class ReaderEnded(NamedTuple):
    """The reader of a stream wants no more; `end` or `fail` is due."""

    incoming: Incoming


Event = Incoming | Answered | Failed | Ended | CreditGiven | ReaderEnded
