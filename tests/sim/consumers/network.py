"""Messages between hosts: each is delayed, in order, and may be lost or kept back by a partition."""

import random
from dataclasses import dataclass

from tests.sim.metadata import Place
from tests.sim.scheduler import Action, Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How a network behaves. Chances are in [0, 1]; a message takes `[delay_us, 2 * delay_us]`, a slow one up to `slow_us` more."""

    delay_us: int = 300
    lost: float = 0.0
    slow: float = 0.0
    slow_us: int = 2_000_000


class Network:
    """Carries messages. A way that is cut carries nothing, and says nothing about it."""

    def __init__(self, scheduler: Scheduler, chance: random.Random, weather: Weather) -> None:
        self._scheduler = scheduler
        self._random = chance
        self.weather = weather
        self._cut: dict[tuple[Place, Place], int] = {}  # by how many partitions
        self._last_us: dict[tuple[int, int], int] = {}

    def cut(self, source: Place, target: Place) -> None:
        """Carry nothing from `source` to `target` until it is mended as often as it was cut."""
        self._cut[source, target] = self._cut.get((source, target), 0) + 1

    def mend(self, source: Place, target: Place) -> None:
        left = self._cut.pop((source, target), 0) - 1
        if left > 0:
            self._cut[source, target] = left

    def heal(self) -> None:
        """Mend everything, and be in good weather from now on."""
        self._cut.clear()
        self.weather = Weather()

    def is_cut(self, source: Place, target: Place) -> bool:
        return (source, target) in self._cut

    def send(self, source: int, target: int, deliver: Action) -> None:
        """Call `deliver` when the message arrives: once, or never."""
        weather, chance = self.weather, self._random
        if self.is_cut(source, target) or (weather.lost and chance.random() < weather.lost):
            return
        delay_us = weather.delay_us + int(chance.random() * weather.delay_us)
        if chance.random() < weather.slow:
            delay_us += int(chance.random() * weather.slow_us)
        if source != target:
            way, now_us = (source, target), self._scheduler.now_us
            arrives_us = self._last_us[way] = max(now_us + delay_us, self._last_us.get(way, 0) + 1)
            delay_us = arrives_us - now_us
        self._scheduler.after(0 if source == target else delay_us, deliver)
