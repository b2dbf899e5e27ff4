"""Epochs of a log: which one an id belongs to, and up to where two logs can agree. All functions take a history, epochs rising."""

from collections.abc import Iterable, Sequence

from eventlog.replication.terms import EpochStart

History = Sequence[EpochStart]


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
