"""Whether a failed request is sent again, and when. One decision, taken from the error and the operation's own deadline."""

from dataclasses import dataclass

from eventlog.errors import (
    ConnectionLost,
    EventLogError,
    MetadataUnavailable,
    NotEnoughReplicas,
    NotPrimary,
    OutcomeUnknown,
    Overloaded,
    PrimariesMissing,
    Stopping,
)

# What a retry within the same operation can cure: a failover takes a second or two. Other errors with `retry = True` are for the
# application to wait out: a full disk lasts longer than an operation.
CURABLE = (ConnectionLost, MetadataUnavailable, NotEnoughReplicas, NotPrimary, OutcomeUnknown, Overloaded, PrimariesMissing, Stopping)
NEEDS_CONNECTION = (ConnectionLost, Stopping)
MOVES = (ConnectionLost, NotPrimary, PrimariesMissing, Stopping)
SEGMENTS_OWN = (NotEnoughReplicas, NotPrimary)  # of one segment alone: the others of its node may be written
MOVE_BACKOFF_MS_MAX = 100  # after what a new primary cures: segments stand still no longer than that after it is there
APART_BACKOFF_MS_MAX = 250  # after what nobody tells the end of
APART_WAIT_SHARE = 8  # a segment stands still for one part in eight more than it would, or one second, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to wait before attempt n: `backoff_ms_min * 2**n`, at most `backoff_ms_max`, half of it by chance."""

    backoff_ms_min: int = 10
    backoff_ms_max: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do after an error: give up, or try again after `wait_ms`, on another connection if `reconnect`."""

    again: bool
    wait_ms: int = 0
    reconnect: bool = False


GIVE_UP = Decision(again=False)


def backoff_ms(policy: RetryPolicy, *, attempt: int, chance: float) -> int:
    """Return how long to wait after failed attempt number `attempt` (from 0); `chance` in [0, 1) spreads clients out."""
    full = min(policy.backoff_ms_max, policy.backoff_ms_min << min(attempt, 30))
    return int(full * (0.5 + 0.5 * chance))


def apart_ms(policy: RetryPolicy, error: EventLogError, *, attempt: int, away_ms: float, chance: float) -> int:
    """Return how long a segment waits that was refused by itself for `away_ms` now, `attempt` times before.

    The longer it has been away, the longer it waits: a client may ask about hundreds of segments, and what it and their primaries spend
    on that is taken from writes to the others.
    """
    soon = MOVE_BACKOFF_MS_MAX if isinstance(error, NotPrimary) else APART_BACKOFF_MS_MAX
    return min(backoff_ms(policy, attempt=attempt, chance=chance), max(soon, int(away_ms) // APART_WAIT_SHARE))


def decide(
    policy: RetryPolicy,
    error: EventLogError,
    *,
    attempt: int,
    left_ms: int,
    repeatable: bool,
    chance: float,
    curable: tuple[type[EventLogError], ...] = CURABLE,
) -> Decision:
    """Return what to do after failed attempt number `attempt` (from 0) of an operation with `left_ms` until its deadline.

    `repeatable`: doing the request twice is the same as once. What is not repeatable is tried again only when the error says
    that it never took effect. `curable` is what another try can help against.
    """
    if not isinstance(error, curable) or (error.outcome == "unknown" and not repeatable):
        return GIVE_UP
    wait = backoff_ms(policy, attempt=attempt, chance=chance)
    if isinstance(error, MOVES):
        wait = min(wait, MOVE_BACKOFF_MS_MAX)
    elif isinstance(error, SEGMENTS_OWN):
        wait = min(wait, APART_BACKOFF_MS_MAX)
    if wait >= left_ms:
        return GIVE_UP
    return Decision(again=True, wait_ms=wait, reconnect=isinstance(error, NEEDS_CONNECTION))
