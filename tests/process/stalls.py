"""When this machine stood still, or had no time for this process: what takes long then says nothing about the nodes."""

import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

LOOK_S = 0.02
LATE_S_MIN = 0.1  # less is the noise of a machine at work


class Stalls:
    """Watches inside `with`."""

    def __init__(self) -> None:
        self.found: list[tuple[float, float]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._is_over.wait(LOOK_S):
            now = time.monotonic()
            if now - before > LOOK_S + LATE_S_MIN:
                self.found.append((before, now))
            before = now

    def within(self, began: float, ended: float) -> float:
        """Return for how many seconds between two moments of the monotonic clock this process did not run."""
        return stalled_s(began, ended, list(self.found))


def stalled_s(began: float, ended: float, stalls: Iterable[tuple[float, float]]) -> float:
    """Return how much of a time lies within stalls."""
    return sum(max(0.0, min(ended, until) - max(began, since)) for since, until in stalls)
