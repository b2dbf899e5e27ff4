"""Values that replication is told: which replica one is, what the metadata store says of a segment, and the bounds of the protocol.

Also the arithmetic of epochs: which one an id belongs to, and up to where two logs can agree.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eventlog.limits import CHUNK_BYTES_DEFAULT, MIB


class Replica(NamedTuple):
    """A member together with its data directory: one that lost its disk comes back as another incarnation, hence another replica."""

    node: int
    incarnation: str


class GivenUpRange(NamedTuple):
    """Ids in `(after, upto]` that an operator gave up by forcing a replica to take over."""

    after: int
    upto: int


class EpochStart(NamedTuple):
    """An epoch of a segment: its first id, and the end of the log before it (0 for an empty log)."""

    epoch: int
    first: int
    previous: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """What a segment's record said at `revision` of its key, and the ranges given up so far.

    `primary` is alone allowed to append under `epoch`, as the process that calls itself `session`. `owners` are the nodes that are
    to hold the segment (primary included); `in_sync` are the replicas that hold every committed event.
    """

    segment: int
    revision: int
    epoch: int
    primary: int
    owners: tuple[int, ...]
    in_sync: tuple[Replica, ...]
    min_in_sync: int
    session: str = ""
    lost: tuple[GivenUpRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Bounds. Times are ms.

    `ack_ms_max`: an in-sync replica that lacks something for so long is proposed out. `lost_ms_max`: the same for one without a
    connection. `probe_ms`: what was sent and is not answered for so long is asked for again. `window_bytes` bounds what is read for
    or sent to one peer in catching up and not answered, `chunk_bytes` one read (a stored value larger than it goes alone).
    `claims_max`: so many messages of one sender may wait for records to be read. `doubt_ms`: a node with a term that the store does not
    know is refused for so long where it names one that no record seen names.
    """

    ack_ms_max: int = 1_000
    lost_ms_max: int = 100
    probe_ms: int = 300
    retry_ms: int = 200
    window_bytes: int = 16 * MIB
    chunk_bytes: int = CHUNK_BYTES_DEFAULT
    claims_max: int = 64
    doubt_ms: int = 1_000


History = Sequence[EpochStart]
"""The epochs of one log, rising."""


def epoch_at(history: History, end: int) -> int:
    """Return the epoch that a log ending with `end` ends in; 0 for an empty log."""
    return next((start.epoch for start in reversed(history) if start.first <= end), 0)


def last_of(history: History, epoch: int, *, end: int) -> tuple[int, int]:
    """Return the latest own epoch at or below `epoch` (0: none), and the last id up to there in the own log, which ends at `end`."""
    found, point = 0, end
    for start in reversed(history):
        if start.epoch <= epoch:
            found = start.epoch
            break
        point = start.previous
    return found, point


def starts_in(history: History, *, after: int, upto: int) -> tuple[EpochStart, ...]:
    """Return the epochs that begin in `(after, upto]`."""
    return tuple(start for start in history if after < start.first <= upto)


def is_rising(starts: Iterable[EpochStart]) -> bool:
    """Return whether epochs and ids rise as those of one log do."""
    epoch = end = 0
    for start in starts:
        if start.epoch <= epoch or not end <= start.previous < start.first:
            return False
        epoch, end = start.epoch, start.first
    return True
