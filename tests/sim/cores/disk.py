"""A data directory: logs of segments with their epochs, and what a crash takes from them."""

import random
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from eventlog.control.records import Remembered
from eventlog.replication import EpochStart
from tests.sim.cores.damage import decoded, flipped
from tests.sim.cores.history import Value

Content = TypeVar("Content")


class Disk:
    """Logs by segment. What is written is there at once; it survives a crash when it was synced, and otherwise perhaps.

    Writes survive in the order in which they were made: of those not synced, a crash keeps the first few, or none. What retention
    trims from the front is out of reach for whoever reads the log, and stays known as the state that it made.

    `damaged` has the bytes of values in which a bit was flipped, by segment and base; what reads a value goes through `read`.
    """

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.remembered: Remembered | None = None
        self.applied: dict[int, int] = {}
        self.trimmed: dict[int, int] = {}
        self.damaged: dict[tuple[int, int], bytes] = {}
        self._logs: dict[int, list[Value]] = {}
        self._histories: dict[int, list[EpochStart]] = {}
        self._installing: dict[int, None] = {}
        self._undo: deque[Callable[[], None]] = deque()  # one for each write that may not survive
        self._synced = 0
        self._stalled_until_us = 0

    # ------------------------------------------------------------ being slow

    def stall(self, until_us: int) -> None:
        """Let no sync that begins from now on end before `until_us`."""
        self._stalled_until_us = until_us

    def stalled_us(self, now_us: int) -> int:
        """Return for how long a sync that begins now is held up."""
        return max(self._stalled_until_us - now_us, 0)

    # ------------------------------------------------------------ reading

    def log(self, segment: int) -> Sequence[Value]:
        """Return all values, the trimmed ones included: what log and state hold together."""
        return self._logs.get(segment, ())

    def after(self, segment: int, id_: int) -> Sequence[Value]:
        """Return the values that end above `id_`."""
        log = self._logs.get(segment, [])
        return log[bisect_right(log, id_, key=_last) :]

    def history(self, segment: int) -> tuple[EpochStart, ...]:
        return tuple(self._histories.get(segment, ()))

    def end(self, segment: int) -> int:
        """Return the id that the log ends with, 0 where there is none."""
        log = self._logs.get(segment)
        return log[-1].last if log else 0

    def read(self, segment: int, value: Value) -> Value | None:
        """Return what a value of the log is read as; None where it is seen to be damaged."""
        data = self.damaged.get((segment, value.base))
        return value if data is None else decoded(segment, value, data)

    # ------------------------------------------------------------ writing

    def append(self, segment: int, values: Sequence[Value], history: Sequence[EpochStart] = ()) -> None:
        """Add values to a log and epochs to its history, in one write."""
        self.append_all([(segment, values, history)])

    def append_all(self, batch: Sequence[tuple[int, Sequence[Value], Sequence[EpochStart]]]) -> None:
        """Add to several logs and histories in one write, which survives whole or not at all."""
        added = []
        for segment, values, history in batch:
            log, epochs = self._logs.setdefault(segment, []), self._histories.setdefault(segment, [])
            log.extend(values)
            for value in values:
                self.damaged.pop((segment, value.base), None)
            epochs.extend(history)
            added.append((log, len(values), epochs, len(history)))

        def undo() -> None:
            for log, more_values, epochs, more_epochs in reversed(added):
                del log[len(log) - more_values :]
                del epochs[len(epochs) - more_epochs :]

        self._undo.append(undo)

    def flip(self, segment: int, value: Value, *, chance: random.Random) -> None:
        """Turn a bit of a stored value over."""
        self.damaged[segment, value.base] = flipped(segment, value, chance=chance)

    def mend(self, segment: int, value: Value) -> bool:
        """Write a value once more in its place; return whether it was damaged."""
        key = (segment, value.base)
        data = self.damaged.pop(key, None)
        if data is None:
            return False

        def undo() -> None:
            self.damaged[key] = data

        self._undo.append(undo)
        return True

    def cut(self, segment: int, upto: int) -> int:
        """Remove the values that end above `upto`, and the epochs that begin there; return how many values."""
        log, epochs = self._logs.setdefault(segment, []), self._histories.setdefault(segment, [])
        keep = bisect_right(log, upto, key=_last)
        taken, ended = log[keep:], [start for start in epochs if start.first > upto]
        del log[keep:]
        epochs[:] = [start for start in epochs if start.first <= upto]

        def undo() -> None:
            log.extend(taken)
            epochs.extend(ended)

        self._undo.append(undo)
        return len(taken)

    def drop(self, segment: int, *, installing: bool = False) -> None:
        """Remove log, state and the mark of an install; `installing` sets that mark anew: what comes next is not whole."""
        log, epochs = self._logs.pop(segment, None), self._histories.pop(segment, None)
        applied, trimmed = self.applied.pop(segment, None), self.trimmed.pop(segment, None)
        was_installing = segment in self._installing
        self._installing.pop(segment, None)
        if installing:
            self._installing[segment] = None

        def undo() -> None:
            _put_back(self._logs, segment, log)
            _put_back(self._histories, segment, epochs)
            _put_back(self.applied, segment, applied)
            _put_back(self.trimmed, segment, trimmed)
            self._installing.pop(segment, None)
            if was_installing:
                self._installing[segment] = None

        self._undo.append(undo)

    def end_install(self, segment: int, *, pin: int, history: Sequence[EpochStart]) -> None:
        """Make what was installed the log and state of a segment, applied up to `pin`."""
        was_installing = segment in self._installing
        self._installing.pop(segment, None)
        self._histories[segment] = list(history)
        self.applied[segment] = self.trimmed[segment] = pin

        def undo() -> None:
            del self._histories[segment], self.applied[segment], self.trimmed[segment]
            if was_installing:
                self._installing[segment] = None

        self._undo.append(undo)

    def flush(self, segment: int, applied: int) -> None:
        """Note up to which id the state is on disk; never above what was synced of the log."""
        self.applied[segment] = applied

    def trim(self, segment: int, upto: int) -> None:
        """Remove from the log what ends at or below `upto`, an id that the state is applied to on disk."""
        self.trimmed[segment] = upto

    # ------------------------------------------------------------ what survives

    @property
    def writes(self) -> int:
        """Return how many writes there were since the start: what `sync` takes."""
        return self._synced + len(self._undo)

    def sync(self, writes: int) -> None:
        """Make the first `writes` writes survive whatever comes."""
        while self._synced < writes:
            self._undo.popleft()
            self._synced += 1

    def crash(self, chance: random.Random) -> int:
        """Lose what was not synced, or all but the first few writes of it; return how many writes were lost."""
        kept = chance.randint(0, len(self._undo)) if chance.random() < 0.5 else 0
        lost = len(self._undo) - kept
        for _ in range(lost):
            self._undo.pop()()
        self._undo.clear()
        self._synced = 0
        return lost

    def open(self) -> None:
        """Begin a process: drop what an install left half done."""
        for segment in list(self._installing):
            self.drop(segment)


def _put_back(book: dict[int, Content], segment: int, content: Content | None) -> None:
    book.pop(segment, None)
    if content is not None:
        book[segment] = content


def _last(value: Value) -> int:
    return value.last
