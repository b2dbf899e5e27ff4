"""What commands print: rows of JSON and text on stdout, everything else on stderr. And stdin, for those that read it."""

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO, TextIO, cast

import click
import orjson


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
    """Print a line on stderr. Where nobody reads that any more the command goes on: its exit code says how it ended."""
    try:
        click.echo(line, err=True)
    except BrokenPipeError:
        drop(sys.stderr)


def drop(stream: TextIO) -> None:
    """Let go of what is, and will be, written to a stream: the interpreter flushes it once more at exit, and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def note_interrupt(text: str) -> None:
    """Print where to resume; a terminal has just shown `^C` and no newline."""
    note(f"\n{text}" if sys.stderr.isatty() else text)


def id_fields(**ids: int | None) -> dict[str, Any]:
    """Return each number under its name and, as a string, under `<name>_str`: readers with 53-bit numbers would round it."""
    fields: dict[str, Any] = {}
    for name, number in ids.items():
        fields[name] = number
        if number is not None:
            fields[f"{name}_str"] = str(number)
    return fields


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
