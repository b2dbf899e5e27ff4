"""What commands print: rows of JSON and text on stdout, everything else on stderr. And stdin, for those that read it.

What changes while somebody looks is here too: a line that says how far long work is, and pages that are printed again and again.
"""

import errno
import os
import sys
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, BinaryIO, Self, TextIO, cast

import click
import orjson

from eventlog.errors import EventLogError
from eventlog_cli.conventions import settings
from eventlog_cli.parameters import format_seconds


def stdout() -> BinaryIO:
    """Return stdout for bytes."""
    return cast("BinaryIO", sys.stdout.buffer)


def stdin() -> BinaryIO:
    """Return stdin for bytes.

    Raises:
        OSError: the caller has closed it, which is not the same as empty.
    """
    if sys.stdin.name == os.devnull:  # opened in its place; redirected, it has another name
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), "stdin")
    return cast("BinaryIO", sys.stdin.buffer)


def print_row(row: dict[str, Any]) -> None:
    """Print one JSON object as one line."""
    stdout().write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))


def print_text(text: str) -> None:
    """Print a line for people."""
    stdout().write(text.encode("utf-8", "backslashreplace") + b"\n")


def note(text: str) -> None:
    """Print a line beside the output: progress, hints, warnings."""
    sys.stdout.flush()
    print_aside(text)


def print_aside(line: str) -> None:
    """Print a line on stderr. Where nobody reads that, or its disk is full, the command goes on: its exit code says how it ended."""
    try:
        click.echo(line, err=True)
    except BrokenPipeError:
        drop(sys.stderr)
    except OSError:  # what a node says later may find room again
        return


def drop(stream: TextIO) -> None:
    """Let go of what is, and will be, written to a stream: the interpreter flushes it once more at exit, and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def note_interrupt(text: str) -> None:
    """Print where to resume; a terminal has just shown `^C` and no newline."""
    note(f"\n{text}" if sys.stderr.isatty() else text)


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return aligned columns under `heads`; numbers stand to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    right = [bool(rows) and all(_is_number(row[column]) for row in rows) for column in range(len(heads))]
    widths = [max(len(head), *(len(row[column]) for row in cells)) if cells else len(head) for column, head in enumerate(heads)]
    lines = [list(heads), *cells]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width) for cell, width, is_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def _is_number(value: object) -> bool:
    if isinstance(value, str):
        return value.replace(",", "").isdigit()
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return str(value)


_SHOW_EVERY_SECONDS = 0.1
_BAR_WIDTH = 24


class ProgressLine:
    """How far a piece of work is, and its rate, on a line of stderr; nothing is shown where that is no terminal.

    `update` costs a clock reading; the line is drawn ten times a second.
    """

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
    """Print one page, as a JSON object if that is asked for; its reader has it when this returns.

    Pages are drawn over each other on a terminal, one after the other elsewhere.
    """
    if settings().is_json:
        print_row(row)
    else:
        print_text((_HOME_AND_CLEAR if sys.stdout.isatty() else "") + "\n".join(lines))
    sys.stdout.flush()


def show_error(error: EventLogError) -> None:
    """Print why there is no page this time."""
    show({"error": error.code, "why": str(error)}, [f"{error.code}: {error}"])
