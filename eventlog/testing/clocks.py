"""Time and chance that a test controls."""

import random


class ManualClock:
    """A `Clock` that stands still until it is moved. Also the leases' clock of metadata stores: `monotonic_ms`."""

    def __init__(self, *, wall_ms: int = 1_700_000_000_000, monotonic_ms: int = 1_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        """Let `ms` >= 0 pass on both clocks."""
        assert ms >= 0, "time passes forward; set_wall goes back"
        self._wall_ms += ms
        self._monotonic_ms += ms

    def stall_wall(self, ms: int) -> None:
        """Let `ms` >= 0 pass while the wall clock stands still."""
        assert ms >= 0, "the monotonic clock never goes back"
        self._monotonic_ms += ms

    def set_wall(self, wall_ms: int) -> None:
        """Set the wall clock, to whichever time; nothing passes."""
        self._wall_ms = wall_ms


class SeededEntropy:
    """An `Entropy` that gives the same bytes for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - it must repeat, not surprise

    def token(self, size: int) -> bytes:
        return self._random.randbytes(size)
