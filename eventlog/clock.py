"""Ports for time and chance. Cores take them as arguments; only shells make real ones."""

import os
import time
from functools import partial
from typing import Final, Protocol

# Seconds since some fixed moment for code that promises something until a time: what passes while the machine sleeps counts, where the
# system can tell, and what passed since an event loop last looked at its clock does, too.
now_s = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic

# How much early a timer of an event loop may come: some count whole milliseconds. Code that sets another one for the rest of the time goes
# round and round, some hundred times, until that has passed.
LOOP_STEP_S: Final = 0.001


class Clock(Protocol):
    """Where time comes from."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01T00:00:00Z; may jump either way."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds since some fixed moment; never goes back."""
        ...


class Entropy(Protocol):
    """Where chance comes from."""

    def token(self, size: int) -> bytes:
        """Return `size` random bytes."""
        ...


class SystemClock:
    """The clocks of this machine."""

    __slots__ = ()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class SystemEntropy:
    """The operating system's random source."""

    __slots__ = ()

    def token(self, size: int) -> bytes:
        return os.urandom(size)
