"""The internal cache of groups as coordinators see it: the rows of one segment, and whoever leads it now.

That a segment of a cache behaves like this while nodes fail is what the other simulator is for. Of what is being written when another
node takes over, the first may be in the log that is taken over; whoever wrote it hears that nobody knows.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from eventlog.errors import EventLogError, NotPrimary, OutcomeUnknown, VersionMismatch
from tests.sim.scheduler import Scheduler

_STALE_US_MAX: Final = (30_000, 900_000)  # for so long who led may believe that it still does
_UNKNOWN = OutcomeUnknown(outcome="unknown", why="nobody answered")
Rows = dict[bytes, tuple[int, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShelfWrite:
    """Rows to be put if some have the versions expected, 0 for there being none. `told` gets their versions, or what went wrong."""

    puts: Mapping[bytes, bytes]
    expect: Mapping[bytes, int]
    told: Callable[[list[int] | EventLogError], None]


class Shelf:
    """Rows by key, (version, value); `kept` hears of each write, `on_write` of each that begins.

    `unknown` is the chance that a write is done or lost, and nobody knows.
    """

    def __init__(self, scheduler: Scheduler, chance: random.Random, *, delay_us: int, unknown: float) -> None:
        self.scheduler = scheduler
        self.chance = chance
        self.delay_us = delay_us
        self.unknown = unknown
        self.leader = 1
        self.epoch = 1
        self.rows: Rows = {}
        self.kept: list[Callable[[Mapping[bytes, bytes]], None]] = []
        self.reached: Counter[str] = Counter()
        self.on_write: Callable[[ShelfWrite], None] = _nothing
        self._version = 0
        self._writing: list[ShelfWrite] = []  # by the leader, in order; the first of them is on its way to other nodes
        self._last_us = 0
        self._frozen: dict[int, Rows] = {}  # what those who led have had since
        self._until_us: dict[int, int] = {}
        self._epochs: dict[int, int] = {}

    def some_us(self) -> int:
        """Return how long something takes now."""
        return int(self.delay_us * (0.5 + self.chance.random()))

    # ------------------------------------------------------------ who leads

    def move(self, to: int) -> None:
        """Have another node lead; the one before may not have heard of it for a while."""
        if to == self.leader:
            return
        self._frozen[self.leader] = dict(self.rows)
        self._epochs[self.leader] = self.epoch
        self.epoch += 1
        hears_us = self.chance.randrange(self.chance.choice(_STALE_US_MAX))
        self._until_us[self.leader] = self.scheduler.now_us + hears_us
        self.leader = to
        writing, self._writing = self._writing, []
        for place, write in enumerate(writing):
            if place == 0 and self.chance.random() < 0.5 and isinstance(self._put(write), list):
                self.reached["write taken over"] += 1
            self._tell(write, NotPrimary(segment=0) if place else _UNKNOWN, after_us=hears_us)

    def believes(self, host: int) -> bool:
        """Return whether a node takes itself for the leader."""
        return host == self.leader or self.scheduler.now_us < self._until_us.get(host, 0)

    def term(self, host: int) -> int:
        """Return the epoch that a node knows of."""
        return self.epoch if host == self.leader else self._epochs.get(host, 0)

    # ------------------------------------------------------------ rows

    def row(self, host: int, key: bytes) -> tuple[int, bytes] | None:
        """Return the version and the value of a row as a node has it."""
        return self._rows_of(host).get(key)

    def scan(self, host: int, prefix: bytes) -> Rows:
        return {key: row for key, row in sorted(self._rows_of(host).items()) if key.startswith(prefix)}

    def _rows_of(self, host: int) -> Rows:
        return self.rows if host == self.leader else self._frozen.get(host, {})

    def write(self, host: int, write: ShelfWrite) -> None:
        """Write at a node: committed a while later, behind what is written already, or never if it does not lead."""
        now_us = self.scheduler.now_us
        if host != self.leader:
            is_sent = self.believes(host)
            self.reached["write of one deposed"] += is_sent
            self._tell(write, _UNKNOWN if is_sent else NotPrimary(segment=0), after_us=max(0, self._until_us.get(host, 0) - now_us))
            return
        fate = self.chance.random()
        if fate < self.unknown:
            self.reached["outcome unknown"] += 1
            self._tell(write, _UNKNOWN, after_us=self.some_us())
        if fate >= self.unknown / 2:
            self._writing.append(write)
            self._last_us = max(now_us + self.some_us(), self._last_us + 1)
            self.scheduler.after(self._last_us - now_us, lambda: self._commit(write))
            self.on_write(write)

    def _commit(self, write: ShelfWrite) -> None:
        if write in self._writing:  # else another node leads by now
            self._writing.remove(write)
            self._tell(write, self._put(write), after_us=0)

    def _tell(self, write: ShelfWrite, what: list[int] | EventLogError, *, after_us: int) -> None:
        self.scheduler.after(after_us, lambda: write.told(what))

    def _put(self, write: ShelfWrite) -> list[int] | EventLogError:
        for key, version in write.expect.items():
            found = self.rows.get(key, (0, b""))[0]
            if found != version:
                return VersionMismatch(key=key.decode(errors="replace"), expected=version, found=found)
        for key, value in write.puts.items():
            self._version += 1
            self.rows[key] = self._version, value
        for hear in self.kept:
            hear(write.puts)
        return [self.rows[key][0] for key in write.puts]


def _nothing(_write: ShelfWrite) -> None:
    """Nobody waits for a write."""
