"""Pages that are printed again and again: drawn over each other on a terminal, one after the other elsewhere."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from eventlog.errors import EventLogError
from eventlog_cli.conventions import settings
from eventlog_cli.output import print_row, print_text

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


def show(row: dict[str, Any], lines: Sequence[str]) -> None:
    """Print one page, as a JSON object if that is asked for; whoever reads has it when this returns."""
    if settings().is_json:
        print_row(row)
    else:
        print_text((_HOME_AND_CLEAR if sys.stdout.isatty() else "") + "\n".join(lines))
    sys.stdout.flush()


def show_error(error: EventLogError) -> None:
    """Print why there is no page this time."""
    show({"error": error.code, "why": str(error)}, [f"{error.code}: {error}"])
