"""Being asked to end, by whoever runs the process, where there is something to put away first."""

import signal
from contextlib import ContextDecorator
from types import FrameType
from typing import Any, Self

_ASKING = (signal.SIGTERM, signal.SIGHUP)


class Ended(KeyboardInterrupt):
    """A signal other than Ctrl-C's asked to end; `number` is its."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class EndingInOrder(ContextDecorator):
    """Has SIGTERM and SIGHUP do what Ctrl-C does inside, and ends with `Ended` then. What is ignored (`nohup`) stays so."""

    def __enter__(self) -> Self:
        self._number = 0
        self._previous: dict[signal.Signals, Any] = {}
        for number in _ASKING:
            if signal.getsignal(number) is signal.SIG_DFL:
                try:
                    self._previous[number] = signal.signal(number, self._ask)
                except ValueError:  # not the main thread
                    break
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, _: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._number and kind is KeyboardInterrupt:
            raise Ended(self._number) from None

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        interrupt = signal.getsignal(signal.SIGINT)
        if not callable(interrupt):  # background jobs of scripts ignore it
            raise KeyboardInterrupt
        interrupt(signal.SIGINT, frame)
