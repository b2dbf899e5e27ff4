"""Virtual time: one queue of timed actions, and the processes that the actions belong to."""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[], None]


class Timer:
    """An action that waits for its time; cancelling it twice, or after it ran, is harmless."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def cancel(self) -> None:
        self.action = None


class Scheduler:
    """Runs actions in order of their time, those of one time in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now_us = 0
        self._queue: list[tuple[int, int, Timer]] = []
        self._made = 0

    def after(self, delay_us: int, action: Action) -> Timer:
        """Run `action` when `delay_us` >= 0 have passed."""
        timer = Timer(action)
        self._made += 1
        heappush(self._queue, (self.now_us + delay_us, self._made, timer))
        return timer

    def run(self, until_us: int, *, stop: Callable[[], bool] = lambda: False) -> None:
        """Run what is due up to and including `until_us`; end earlier as soon as `stop` says so."""
        while self._queue and self._queue[0][0] <= until_us:
            time_us, _, timer = heappop(self._queue)
            self.now_us = time_us
            if timer.action is not None:
                timer.action()
                if stop():
                    return
        self.now_us = max(self.now_us, until_us)


class Process:
    """What runs on a host between a start and a crash. Paused, its actions wait; dead, they are gone.

    `on_error` hears of errors of its actions, which are raised without one.
    """

    def __init__(self, scheduler: Scheduler, *, on_error: Callable[[Exception], None] | None = None) -> None:
        self.scheduler = scheduler
        self._on_error = on_error
        self.is_alive = True
        self.is_paused = False
        self._waiting: deque[Action] = deque()

    def after(self, delay_us: int, action: Action) -> Timer:
        """Run `action` in this process when `delay_us` have passed and it is not paused."""
        return self.scheduler.after(delay_us, lambda: self.run(action))

    def run(self, action: Action) -> None:
        """Run `action` now, or when the pause is over, or never."""
        if not self.is_alive:
            return
        if self.is_paused or self._waiting:
            self._waiting.append(action)
        else:
            self._call(action)

    def _call(self, action: Action) -> None:
        try:
            action()
        except Exception as error:
            if self._on_error is None:
                raise
            self._on_error(error)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """Go on: what waited runs first, in order."""
        self.is_paused = False
        while self._waiting and self.is_alive and not self.is_paused:
            self._call(self._waiting[0])
            if self._waiting:
                self._waiting.popleft()

    def kill(self) -> None:
        self.is_alive = False
        self._waiting.clear()
