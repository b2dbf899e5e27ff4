"""A line on the terminal that says how far long work is. Nothing is shown where stderr is no terminal."""

import sys
import time
from types import TracebackType
from typing import Self

from eventlog_cli.quantities import format_seconds

_SHOW_EVERY_SECONDS = 0.1
_BAR_WIDTH = 24


class Progress:
    """How far a piece of work is, and its rate. `update` costs a clock reading; the line is drawn ten times a second."""

    def __init__(self, what: str, *, noun: str = "rows") -> None:
        self._what = what
        self._noun = noun
        self._began = time.monotonic()
        self._shown = 0.0
        self._width = 0
        self._is_terminal = sys.stderr.isatty()

    def update(self, done: int, *, part: float | None = None) -> None:
        """Show `done` items; `part` in [0, 1] of the whole where it is known."""
        now = time.monotonic()
        if not self._is_terminal or now - self._shown < _SHOW_EVERY_SECONDS:
            return
        self._shown = now
        elapsed = now - self._began
        text = f"{done:,} {self._noun}  {done / max(elapsed, 1e-3):,.0f}/s"
        if part is not None:
            filled = round(_BAR_WIDTH * min(part, 1.0))
            bar = "#" * filled + "." * (_BAR_WIDTH - filled)
            left = f"  {format_seconds(elapsed / part - elapsed)} left" if part > 0.01 else ""
            text = f"[{bar}] {part:4.0%}  {text}{left}"
        self._draw(f"{self._what}  {text}")

    def _draw(self, line: str) -> None:
        sys.stderr.write("\r" + line + " " * (self._width - len(line)))
        sys.stderr.flush()
        self._width = len(line)

    def clear(self) -> None:
        """Take the line away, so that something else can be said."""
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.clear()
