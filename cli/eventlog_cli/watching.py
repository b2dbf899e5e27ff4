"""Pages that are printed again and again: drawn over each other on a terminal, one after the other elsewhere."""

import sys
import time
from collections.abc import Iterator, Sequence

from eventlog_cli.output import print_text

_HOME_AND_CLEAR = "\x1b[H\x1b[2J"


def rounds(interval_ms: int, count: int | None) -> Iterator[int]:
    """Yield the numbers of rounds, one an interval, `count` at the most."""
    number = 0
    began = time.monotonic()
    while count is None or number < count:
        yield number
        number += 1
        if count is None or number < count:
            time.sleep(max(began + number * interval_ms / 1_000 - time.monotonic(), 0))


def draw(lines: Sequence[str]) -> None:
    """Print one page."""
    start = _HOME_AND_CLEAR if sys.stdout.isatty() else ""
    print_text(start + "\n".join(lines))
    sys.stdout.flush()
