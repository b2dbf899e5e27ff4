"""What a shard shows of itself."""

from dataclasses import dataclass, field
from typing import Final

from eventlog.ids import time_of
from eventlog.mirror.outcomes import ShardState

_RATE_S: Final = 10.0


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
