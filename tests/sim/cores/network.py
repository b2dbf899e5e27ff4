"""Messages between hosts: each is delayed, and may be lost, repeated, overtaken or kept back by a partition."""

import random
from dataclasses import dataclass

from tests.sim.metadata import Place
from tests.sim.scheduler import Action, Scheduler

_ECHOES_US = (20_000, 200_000, 200_000, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How a network behaves. Chances are in [0, 1]; a message takes `[delay_us, 2 * delay_us]`, a slow one up to `slow_us` more.

    `echoes`: the chance that what turns a stream round (a cut, the answer that logs differ) arrives once more, a good while later.
    """

    delay_us: int = 300
    lost: float = 0.0
    repeated: float = 0.0
    slow: float = 0.0
    slow_us: int = 2_000_000
    is_ordered: bool = True  # as one connection is; otherwise messages overtake each other
    echoes: float = 0.0


class Network:
    """Carries messages. A way that is cut carries nothing, and says nothing about it."""

    def __init__(self, scheduler: Scheduler, chance: random.Random, weather: Weather) -> None:
        self._scheduler = scheduler
        self._random = chance
        self.weather = weather
        self._cut: dict[tuple[Place, Place], int] = {}  # by how many partitions
        self._last_us: dict[tuple[int, int], int] = {}
        self._broken: dict[int, int] = {}  # how often everything under way from a host was lost
        self.lost = 0

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

    def break_off(self, source: int) -> None:
        """Lose what is under way from a host: it lay in buffers of connections that ended."""
        self._broken[source] = self._broken.get(source, 0) + 1

    def is_cut(self, source: Place, target: Place) -> bool:
        return (source, target) in self._cut

    def send(self, source: int, target: int, deliver: Action, *, may_repeat: bool = True) -> None:
        """Call `deliver` when the message arrives: once, or never, or twice."""
        weather, chance = self.weather, self._random
        if self.is_cut(source, target) or (weather.lost and chance.random() < weather.lost):
            self.lost += 1
            return
        self._carry(source, target, deliver)
        if may_repeat and weather.repeated and chance.random() < weather.repeated:
            self._carry(source, target, deliver, is_again=True)

    def echo(self, source: int, target: int, deliver: Action) -> None:
        """Perhaps deliver a message some more times, when everybody has gone on: mostly soon, now and then much later."""
        chance = self._random
        for within_us in _ECHOES_US:
            if not self.is_cut(source, target) and chance.random() < self.weather.echoes:
                self._scheduler.after(int(within_us * chance.random()), deliver)

    def _carry(self, source: int, target: int, deliver: Action, *, is_again: bool = False) -> None:
        """Deliver after a while; what comes again may come when everybody has gone on."""
        weather, chance = self.weather, self._random
        delay_us = weather.delay_us + int(chance.random() * weather.delay_us)
        if chance.random() < (0.5 if is_again else weather.slow):
            delay_us += int(chance.random() * weather.slow_us)
        if source == target:
            delay_us = 0
        elif weather.is_ordered and not is_again:
            way = (source, target)
            arrives_us = max(self._scheduler.now_us + delay_us, self._last_us.get(way, 0) + 1)
            self._last_us[way] = arrives_us
            delay_us = arrives_us - self._scheduler.now_us
        broken = self._broken.get(source, 0)

        def arrive() -> None:
            if self._broken.get(source, 0) == broken:
                deliver()

        self._scheduler.after(delay_us, arrive)
