"""A host's clocks: the wall clock drifts and jumps, the monotonic one does not."""

from tests.sim.scheduler import Scheduler

WALL_START_MS = 1_700_000_000_000


class HostClock:
    """A `Clock` on virtual time. `offset_ms` is how far the wall clock is off; `drift_ppm` how much too fast it runs."""

    def __init__(self, scheduler: Scheduler, *, offset_ms: int = 0, drift_ppm: int = 0) -> None:
        self._scheduler = scheduler
        self._drift_ppm = drift_ppm
        self.offset_ms = offset_ms

    def wall_ms(self) -> int:
        now_us = self._scheduler.now_us
        return WALL_START_MS + self.offset_ms + (now_us + now_us * self._drift_ppm // 1_000_000) // 1000

    def monotonic_ms(self) -> int:
        return self._scheduler.now_us // 1000
