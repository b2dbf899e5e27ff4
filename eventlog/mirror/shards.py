"""The shards of a mirror: what each writes and where it runs, what it shows of itself, and what it does after a failure.

Segments go to partitions, partitions to shards, and each shard to a home segment, whose primary runs it. A partition has one shard for
ever, and a shard one transactional id, so that whoever takes a shard over fences its predecessor by opening a producer. Homes are spread
over the range of segments: after nodes have joined, the lowest segments are all with those.

After a failure a shard comes again, gives way, begins anew from the progress, or waits for a person, by what failed. Kafka's errors are
told by their numbers (Kafka protocol, "Error Codes"); a connection that cannot be had has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import numpy as np

from eventlog.arrays import Ints
from eventlog.errors import (
    BadConfig,
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
from eventlog.ids import time_of
from eventlog.kafka.letters import PARTITIONS
from eventlog.mirror.book import Mirror
from eventlog.mirror.broker import Trouble

_RATE_S: Final = 10.0
ShardState: TypeAlias = Literal["starting", "snapshot", "running", "paused", "waiting", "halted", "diverged", "trimmed", "ended"]
STANDING: Final[tuple[ShardState, ...]] = ("halted", "diverged", "trimmed", "ended", "paused")
"""What nothing but somebody's doing ends."""
Next: TypeAlias = Literal["retry", "yield", "anew", "stop"]
UNKNOWN_TOPIC: Final = 3
NO_LEADER: Final = 5
NO_COORDINATOR: Final = 15
FEW_REPLICAS: Final = 19
NOT_ALLOWED: Final = 29  # for a topic
BAD_SETTING: Final = 40  # of a topic
HANGING: Final = -1  # a transaction that nobody ends; no broker says so
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
_NOT_TAKEN: Final = "Kafka takes no transaction: {text}"
_WAITED_FOR: Final = {UNKNOWN_TOPIC: "topic {topic} is not there", HANGING: "{text}"} | dict.fromkeys(
    (NO_LEADER, NO_COORDINATOR, FEW_REPLICAS, 20), _NOT_TAKEN
)


def home_of(shard: int, *, shards: int, segments: int) -> int:
    """Return the segment at about shard / shards of the range, one of the shard's own."""
    return shard + shards * (shard * (segments // shards) // shards)


def segments_of(shard: int, mirror: Mirror, *, segments: int) -> Ints:
    """Return the segments whose events a shard writes, rising."""
    found: Ints = np.flatnonzero(np.arange(segments) % mirror.partitions % mirror.shards == shard)
    return found


def partitions_of(mirror: Mirror, of: Ints) -> dict[str, list[int]]:
    """Return into which partitions of its topics a shard with the segments `of` writes."""
    data = {mirror.topic: sorted({segment % mirror.partitions for segment in of.tolist()}), mirror.progress_topic: [0]}
    return data | ({mirror.letters_topic: list(range(PARTITIONS))} if mirror.has_letters else {})


def transactional_id(cluster: str, mirror: Mirror, shard: int) -> str:
    """Return by what Kafka knows a shard, whichever node runs it."""
    return f"{cluster}.{mirror.name}.{shard}"


def homes(mirror: Mirror, *, segments: int) -> list[int]:
    """Return the home of each shard."""
    return [home_of(shard, shards=mirror.shards, segments=segments) for shard in range(mirror.shards)]


@dataclass(slots=True, kw_only=True)
class Report:
    """What a shard shows. `upto` is the id up to which everything is in Kafka, `since_ms` when the state began, since 1970."""

    shard: int
    term: int
    revision: int = 0  # of the mirror that it runs
    state: ShardState = "starting"
    why: str = ""
    since_ms: int = 0
    upto: int = 0
    position: bytes = b""
    events: int = 0
    nbytes: int = 0
    transactions: int = 0
    aborts: int = 0
    dead_letters: int = 0
    oldest_id: int = 0  # of the events that the shard has read and Kafka has not, 0 for none
    still: frozenset[int] = frozenset()  # segments that nobody leads at the moment
    recent: list[tuple[float, int]] = field(default_factory=list)

    def wrote(self, events: int, nbytes: int, *, now: float) -> None:
        """Count a transaction; `now` is in seconds of any clock that goes on evenly."""
        self.transactions += 1
        self.events += events
        self.nbytes += nbytes
        self.recent = [*((at, count) for at, count in self.recent if at > now - _RATE_S), (now, events)]

    def rate(self, now: float) -> float:
        """Return events a second over the last seconds."""
        return sum(events for at, events in self.recent if at > now - _RATE_S) / _RATE_S

    def age_ms(self, now_ms: int) -> int:
        """Return the age of the oldest event that the shard has read and Kafka has not; `now_ms` since 1970."""
        return max(now_ms - time_of(self.oldest_id), 0) if self.oldest_id else 0

    def lag_ms(self, now_ms: int) -> int:
        """Return for how long what is not in Kafka yet may have been there, at most; `now_ms` since 1970."""
        return max(now_ms - time_of(self.upto), 0) if self.upto else 0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReplicas:
    """What brokers know of the replicas of a topic. `least` is its min.insync.replicas, None where they do not say."""

    topic: str
    least: int | None
    partitions: Sequence[tuple[int, int, int, int]]  # number, leader or below 0, replicas, those in sync


def hindrance(topic: TopicReplicas) -> Trouble | None:
    """Return why a topic does not take records that are to be acknowledged by all replicas in sync, None where nothing is known."""
    for number, leader, replicas, in_sync in sorted(topic.partitions):
        if leader < 0:
            return Trouble(
                NO_LEADER, f"no broker that runs can lead partition {number} of topic {topic.topic}, which has {replicas} replicas"
            )
        if topic.least is not None and in_sync < topic.least:
            text = f"partition {number} of topic {topic.topic} has {in_sync} in-sync replicas of {replicas}"
            return Trouble(FEW_REPLICAS, f"{text}, fewer than its min.insync.replicas of {topic.least}")
    return None


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
        return Reaction(next="stop", state="ended", why=f"cache {error.cache!r} was dropped: eventlog mirror remove {mirror} --yes")
    if isinstance(error, NoConnection | OutboundRefused | BadConfig | Unavailable):  # a secret's file is read again with each connection
        return Reaction(next="anew", state="waiting", why=str(error))
    return Reaction(next="stop", state="halted", why=str(error))
