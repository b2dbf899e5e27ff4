"""What members of a work group ask of its coordinator, and what a turn of their requests changes."""

from dataclasses import dataclass, field

from eventlog.node.consumers.dead_letters import DeadLetter

DONE, AGAIN, REJECTED, GIVEN_BACK = VERDICTS = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of an event that a member had. `after_ms` -1: as long as the back-off says."""

    segment: int
    id: int
    verdict: int
    after_ms: int = -1
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a member asks for. `holding` is what it has: anything else that was handed to it has got lost on the way.

    Of two requests of a member the one with the higher `sequence` was sent later; the other one gets nothing any more.
    """

    sequence: int
    limit: int
    holding: frozenset[int] = frozenset()
    earliest: bool = False


@dataclass(slots=True, kw_only=True)
class Changes:
    """What the requests of one turn change: segments to be kept, and events to be buried before, by id. These are not done before that."""

    touched: set[int] = field(default_factory=set)
    dead: dict[int, DeadLetter] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Buries:
    """What a request comes to that is done once some events are among the dead letters."""

    ids: tuple[int, ...]
