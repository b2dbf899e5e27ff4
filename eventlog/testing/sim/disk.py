"""A data directory: the logs of segments, and what a crash takes from them."""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from eventlog.control.records import Remembered
from eventlog.testing.sim.history import Value


@dataclass(frozen=True, slots=True)
class _Written:
    """A write that may not survive yet: how many values it added to a log, or which it took from its end."""

    segment: int
    added: int
    taken: tuple[Value, ...]


class Disk:
    """Logs by segment. What is written is there at once; it survives a crash when it was synced, and otherwise perhaps.

    Writes survive in the order in which they were made: of those not synced, a crash keeps the first few, or none.
    """

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.remembered: Remembered | None = None
        self._logs: dict[int, list[Value]] = {}
        self._written: deque[_Written] = deque()
        self._synced = 0
        self._writes = 0

    def log(self, segment: int) -> Sequence[Value]:
        return self._logs.get(segment, ())

    def segments(self) -> list[int]:
        """Return the segments that have a log, an empty one perhaps."""
        return sorted(self._logs)

    def end(self, segment: int) -> int:
        """Return the id that the log ends with, 0 where there is none."""
        log = self._logs.get(segment)
        return log[-1].last if log else 0

    def append(self, segment: int, values: Sequence[Value]) -> None:
        self._logs.setdefault(segment, []).extend(values)
        self._note(_Written(segment, len(values), ()))

    def cut(self, segment: int, upto: int) -> int:
        """Remove the values that end above `upto`; return how many."""
        log = self._logs.setdefault(segment, [])
        keep = len(log)
        while keep and log[keep - 1].last > upto:
            keep -= 1
        taken = tuple(log[keep:])
        del log[keep:]
        self._note(_Written(segment, 0, taken))
        return len(taken)

    def _note(self, written: _Written) -> None:
        self._writes += 1
        self._written.append(written)

    @property
    def writes(self) -> int:
        """Return how many writes there were: what `sync` takes."""
        return self._writes

    def sync(self, writes: int) -> None:
        """Make the first `writes` writes survive whatever comes."""
        while self._synced < writes:
            self._written.popleft()
            self._synced += 1

    def crash(self, chance: random.Random) -> int:
        """Lose what was not synced, or all but the first few writes of it; return how many writes were lost."""
        kept = chance.randint(0, len(self._written)) if chance.random() < 0.5 else 0
        lost = len(self._written) - kept
        for _ in range(lost):
            written = self._written.pop()
            log = self._logs[written.segment]
            del log[len(log) - written.added :]
            log.extend(written.taken)
        self._written.clear()
        self._synced = self._writes = 0
        return lost
