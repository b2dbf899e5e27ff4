"""What hosts send each other. Stored values travel beside the core's rows, as they do in the node's messages."""

from dataclasses import dataclass

import numpy as np

from eventlog.errors import EventLogError
from eventlog.read.watermark import Promise
from eventlog.replication import Message, Replica
from eventlog.replication.messages import ACK, APPEND, CUT, MISMATCH
from eventlog.wire.eventlog_pb2 import Message as Question
from tests.sim.cores.history import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """A connection is made; `is_answer` completes it. `connection` is new each time."""

    host: int
    replica: Replica
    connection: int
    is_answer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """A connection has ended: its process died, or never knew it."""

    host: int
    connection: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """APPEND rows and the values of all of them, in their order."""

    message: Message
    values: tuple[Value, ...]
    is_lie: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Acks:
    """ACK rows."""

    message: Message
    is_lie: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    """A low watermark that a primary promises."""

    sender: Replica
    promise: Promise


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseUp:
    """A reader waits: promise up to `id`, and tell `host`."""

    host: int
    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """Somebody lives, and it is so late there."""

    host: int
    connection: int
    wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """A client wants one event a token appended, in one stored value."""

    client: int
    request: int
    segment: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """What became of it: ids from `base`, or 0 and whether it is certain that nothing was appended."""

    request: int
    base: int = 0
    is_unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A reader wants what comes after an id in some segments."""

    client: int
    request: int
    segments: tuple[int, ...]
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Per asked segment that the node holds: the limit, and all values up to it after the asked id."""

    request: int
    limits: dict[int, int]
    values: dict[int, tuple[Value, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A host's stored value at `base` is damaged: who has it?"""

    host: int
    segment: int
    base: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """A stored value that was wanted."""

    segment: int
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A node asks another one, in the product's words."""

    host: int
    process: int
    request: int
    message: Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What it is answered: a message, or an error."""

    process: int
    request: int
    answer: Question | EventLogError


Packet = Asked | Told | Greeting | Reset | Rows | Acks | Promised | CloseUp | Beat | Submit | Submitted | Read | Found | Wanted | Mended


def turns_round(packet: Packet) -> bool:
    """Return whether a packet changes the direction of a stream: a cut, or the answer that two logs differ."""
    if isinstance(packet, Rows):
        return bool((np.frombuffer(packet.message.rows, APPEND)["flags"] == CUT).any())
    return isinstance(packet, Acks) and bool((np.frombuffer(packet.message.rows, ACK)["status"] == MISMATCH).any())
