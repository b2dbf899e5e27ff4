"""A host's clocks: the wall clock jumps, the monotonic one does not."""

from tests.sim.scheduler import Scheduler

_WALL_START_MS = 1_700_000_000_000


class HostClock:
    """A `Clock` on virtual time. `offset_ms` is how far the wall clock is off."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.offset_ms = 0

    def wall_ms(self) -> int:
        return _WALL_START_MS + self.offset_ms + self._scheduler.now_us // 1000

    def monotonic_ms(self) -> int:
        return self._scheduler.now_us // 1000
