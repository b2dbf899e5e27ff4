"""Loops of tests in which timers run: no machine that stands still moves what is tested.

A process that is stopped for a second finds all its timers due at once, be they a read's patience or what ends a test's wait for
nothing to happen. On a `PatientLoop` it finds a moment gone, as if it had not been stopped; on a `SkippingLoop` time limits are so long
that they pass only where the test says so.
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

    def __init__(self, step_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._step_s = step_s
        self._monotonic = monotonic
        self._counted = self._seen = monotonic()
        super().__init__(_Steps(step_s))

    def time(self) -> float:
        now = self._monotonic()
        self._counted += min(now - self._seen, self._step_s)
        self._seen = now
        return self._counted


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps when a test says so: what runs out of time does it then, and not before on a machine that is slow."""

    def __init__(self) -> None:
        super().__init__()
        self._skipped_s = 0.0

    def time(self) -> float:
        return super().time() + self._skipped_s

    def skip(self, seconds: float) -> None:
        self._skipped_s += seconds


class _Skips(selectors.DefaultSelector):
    """Does not wait for what comes by a time limit alone, and tells how long it would have."""

    def __init__(self, skip: Callable[[float], None]) -> None:
        super().__init__()
        self._skip = skip

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(timeout if timeout is None else 0)
        if not found and timeout is not None:
            self._skip(timeout)
        return found


class CoarseLoop(asyncio.SelectorEventLoop):
    """A loop whose clock counts whole milliseconds, as uvloop's does: what is due a little later is due now for its timers.

    Its time is its own: a look at the clock takes `LOOK_S`, and a wait for a timer what it says. It begins where every other time
    comes out above its sum when 20 ms are added to it. `timers` were set.
    """

    LOOK_S = 0.000_05

    def __init__(self) -> None:
        self._passed_s = 0.0
        self.timers = 0
        super().__init__(_Skips(self._skip))

    def time(self) -> float:
        self._passed_s += self.LOOK_S
        return (4_194_304 + int(self._passed_s * 1000)) / 1000

    def _skip(self, seconds: float) -> None:
        self._passed_s += max(seconds, 0.0)

    def call_at(self, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        self.timers += 1
        return super().call_at(*args, **kwargs)


def skip(seconds: float) -> None:
    """Set the clock of the running `SkippingLoop` forward."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SkippingLoop)
    loop.skip(seconds)


def run(main: Coroutine[Any, Any, Result], *, step_s: float = STEP_S, monotonic: Callable[[], float] = time.monotonic) -> Result:
    """As `asyncio.run`, on a patient loop."""
    with asyncio.Runner(loop_factory=partial(PatientLoop, step_s, monotonic)) as runner:
        return runner.run(main)


async def until(holds: Callable[[], object], *, within_s: float = WITHIN_S) -> None:
    """Wait for a state that has no event."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 -- see above
            await asyncio.sleep(STEP_S)
