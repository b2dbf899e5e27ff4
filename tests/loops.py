"""The loop of tests in which timers run: its clock does not count what a machine takes away from the process.

A process that is stopped for a second finds all its timers due at once, be they a read's patience or what ends a test's wait for
nothing to happen. On this loop it finds a moment gone, as if it had not been stopped.
"""

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

Result = TypeVar("Result")
STEP_S = 0.001
WITHIN_S = 60.0  # how long a test waits for a state that comes at once where nothing else runs


class _Steps(selectors.DefaultSelector):
    """Waits no longer at a time than the clock counts."""

    def __init__(self, step_s: float) -> None:
        super().__init__()
        self._step_s = step_s

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(timeout if timeout is None else min(timeout, self._step_s))


class PatientLoop(asyncio.SelectorEventLoop):
    """A loop whose clock counts from one look at it to the next what has passed, but no more than a step."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._counted = self._seen = time.monotonic()
        super().__init__(_Steps(step_s))

    def time(self) -> float:
        now = time.monotonic()
        self._counted += min(now - self._seen, self._step_s)
        self._seen = now
        return self._counted


def run(main: Coroutine[Any, Any, Result], *, step_s: float = STEP_S) -> Result:
    """As `asyncio.run`, on a patient loop."""
    with asyncio.Runner(loop_factory=partial(PatientLoop, step_s)) as runner:
        return runner.run(main)


async def until(holds: Callable[[], object]) -> None:
    """Wait for a state that has no event."""
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110 -- see above
            await asyncio.sleep(STEP_S)
