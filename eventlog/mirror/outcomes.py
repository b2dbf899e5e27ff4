"""What a shard does after a failure, by what failed: come again, give way, begin anew from the progress, or wait for a person.

Kafka's errors are told by their numbers (Kafka protocol, "Error Codes"); a connection that cannot be had has none.
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from eventlog.errors import (
    CacheDropped,
    CacheNotFound,
    EventLogError,
    EventsTrimmed,
    NoConnection,
    OutboundRefused,
    PositionDiverged,
    SchemaRefused,
    Unavailable,
)
from eventlog.mirror.broker import Trouble

ShardState: TypeAlias = Literal["starting", "snapshot", "running", "paused", "waiting", "halted", "diverged", "trimmed", "ended"]
STANDING: Final[tuple[ShardState, ...]] = ("halted", "diverged", "trimmed", "ended", "paused")
"""What nothing but somebody's doing ends."""
Next: TypeAlias = Literal["retry", "yield", "anew", "stop"]

UNKNOWN_TOPIC: Final = 3
NOT_ALLOWED: Final = 29  # for a topic
OTHER_TOPIC: Final = 103  # one of the same name that was made since
_FENCED: Final = (22, 47, 90)
_BROKEN_SEQUENCE: Final = (45, 46, 48, 49, 59)
_NO_RIGHT: Final = "Kafka does not allow it ({text}): give the user the right, then eventlog mirror resume"
_TOO_LARGE: Final = "a record is too large for topic {topic}: raise its max.message.bytes, then eventlog mirror resume"
MADE_ANEW: Final = (
    "topic {topic} was deleted and made anew, so what was written into it is gone: to write everything again pause the mirror, "
    "reset it --to snapshot or earliest, and resume it"
)
_REFUSED: Final = "Kafka refuses what is written into topic {topic}: {text}"
_HALTED: Final = (
    {OTHER_TOPIC: MADE_ANEW}
    | dict.fromkeys((10, 18), _TOO_LARGE)
    | dict.fromkeys((NOT_ALLOWED, 31, 53, 58, 65), _NO_RIGHT)
    | dict.fromkeys((32, 35, 42, 44, 87), _REFUSED)
)
_FEW_REPLICAS: Final = "topic {topic} has fewer in-sync replicas than its min.insync.replicas"
_WAITED_FOR: Final = {UNKNOWN_TOPIC: "topic {topic} is not there", 19: _FEW_REPLICAS, 20: _FEW_REPLICAS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """What comes next: `retry` after a pause, `yield` (another node has the shard), `anew` from what is committed, or `stop`.

    `state` is what the shard shows meanwhile, `why` one sentence, with what to do where somebody has to.
    """

    next: Next
    state: ShardState
    why: str


def outcome_of(trouble: Trouble, *, topic: str) -> Reaction:
    """Return what comes after trouble with Kafka."""
    code, text = trouble.code, str(trouble)
    if code in _FENCED:
        return give_way("another node writes this shard, or wrote it last")
    if code in _BROKEN_SEQUENCE:
        return Reaction(next="anew", state="starting", why=f"what became of a transaction is not known: {text}")
    why = _HALTED.get(code or 0, "").format(topic=topic, text=text)
    if why:
        return Reaction(next="stop", state="halted", why=why)
    return Reaction(next="anew", state="waiting", why=_WAITED_FOR.get(code or 0, "Kafka is away: {text}").format(topic=topic, text=text))


def give_way(why: str) -> Reaction:
    """Return what a shard does that another node has."""
    return Reaction(next="yield", state="starting", why=why)


def outcome_of_error(error: EventLogError, *, mirror: str) -> Reaction:
    """Return what comes after an error of ours."""
    if isinstance(error, EventsTrimmed):
        why = f"{error}; eventlog mirror pause {mirror}, reset it --to snapshot or earliest, and resume it"
        return Reaction(next="stop", state="trimmed", why=why)
    if isinstance(error, PositionDiverged):
        why = f"{error}; eventlog mirror resume {mirror} --accept-diverged goes on, and what the topic has of them stays there"
        return Reaction(next="stop", state="diverged", why=why)
    if isinstance(error, SchemaRefused):
        why = f"{error}; once it takes what it refused: eventlog mirror resume {mirror}"
        return Reaction(next="stop", state="halted", why=why)
    if isinstance(error, CacheNotFound | CacheDropped):
        return Reaction(next="stop", state="ended", why=str(error))
    if isinstance(error, NoConnection | OutboundRefused | Unavailable):
        return Reaction(next="anew", state="waiting", why=str(error))
    return Reaction(next="stop", state="halted", why=str(error))
