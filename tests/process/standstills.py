"""When the machine stood still: what it costs is not what is measured."""

import threading
import time
from types import TracebackType
from typing import Self

_TICK_S = 0.02
_LATE_S = 0.1


class Standstills:
    """Notes, inside `with`, the times in which this process did not get to run for more than a moment."""

    def __init__(self) -> None:
        self.found: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, name="standstills")

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._watch.join()

    def _look(self) -> None:
        last = time.monotonic()
        while not self._over.wait(_TICK_S):
            now = time.monotonic()
            if now - last > _TICK_S + _LATE_S:
                self.found.append((last + _TICK_S, now))
            last = now


def moving_s(began: float, ended: float, standstills: list[tuple[float, float]]) -> float:
    """Return how much of a time the machine did not stand still."""
    stood = sum(max(min(end, ended) - max(begin, began), 0.0) for begin, end in standstills)
    return ended - began - stood
