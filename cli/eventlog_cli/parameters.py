"""Types of options: what click turns words of the command line into."""

import json
import time
from collections.abc import Callable
from typing import Any

import click

from eventlog.ids import id_before
from eventlog_cli.escapes import unescape
from eventlog_cli.quantities import NUMBER_MAX, parse_duration, parse_moment, parse_segments, parse_size


class Parsed(click.ParamType[Any]):
    """A type made from a function of text that raises ValueError with a sentence."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value parsed; a value that is no text was parsed before."""
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def parse_id(text: str) -> int:
    """Return the id written as decimal digits.

    Raises:
        ValueError: it is none, or does not fit 63 bits.
    """
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > NUMBER_MAX:
        raise ValueError(f"{text!r} is not an id: write its decimal digits, at most {NUMBER_MAX}")
    return int(text)


def parse_version(text: str) -> int:
    """Return the version of an entry, which is the id of its last event.

    Raises:
        ValueError: it is none.
    """
    version = parse_id(text)
    if version == 0:
        raise ValueError("no entry has version 0; to write only where there is none: put --if-absent")
    return version


def parse_span(text: str) -> int:
    """Return a duration above 0.

    Raises:
        ValueError: it is none.
    """
    duration = parse_duration(text)
    if duration == 0:
        raise ValueError(f"{text!r} is no time at all: write a duration above 0")
    return duration


def parse_start(text: str) -> int | str:
    """Return an id, one of the words, or a position token as it is.

    Raises:
        ValueError: digits that are no id.
    """
    if text in ("earliest", "latest"):
        return text
    return parse_id(text) if text.isdigit() else text


def parse_at(text: str) -> int:
    """Return an id, or the last id of a time.

    Raises:
        ValueError: neither.
    """
    return parse_id(text) if text.isdigit() else id_before(parse_moment(text, now_ms=time.time_ns() // 1_000_000) + 1)


def parse_header(text: str) -> tuple[str, bytes]:
    """Return name and value of `name=text`.

    Raises:
        ValueError: there is no name.
    """
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise ValueError(f"{text!r}: write NAME=TEXT")
    return name, value.encode(errors="surrogateescape")


def parse_param(text: str) -> tuple[str, Any]:
    """Return name and value of `name=value`: JSON where the value is that, else text.

    Raises:
        ValueError: there is no name.
    """
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise ValueError(f"{text!r}: write NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def parse_separator(text: str) -> bytes:
    """Return a separator as bytes.

    Raises:
        ValueError: it is empty, or would end a line.
    """
    separator = unescape(text)
    if not separator or b"\n" in separator:
        raise ValueError(f"{text!r} separates nothing within a line: write one or more characters, as in : or \\t")
    return separator


def parse_shift(text: str) -> int:
    """Return a number of events, below 0 to go back.

    Raises:
        ValueError: it is none, or 0.
    """
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 0 < abs(number) <= NUMBER_MAX:
        raise ValueError(f"{text!r} moves nothing: write a number of events, as in 10, or -10 to go back")
    return number


DURATION = Parsed("duration", parse_duration)
SPAN = Parsed("duration", parse_span)
SIZE = Parsed("size", parse_size)
MOMENT = Parsed("time", lambda text: parse_moment(text, now_ms=time.time_ns() // 1_000_000))
AT = Parsed("id|time", parse_at)
SEGMENTS = Parsed("segments", parse_segments)
ID = Parsed("id", parse_id)
VERSION = Parsed("id", parse_version)
START = Parsed("id|earliest|latest|token", parse_start)
PARAM = Parsed("name=value", parse_param)
SHIFT = Parsed("number", parse_shift)
SEPARATOR = Parsed("separator", parse_separator)
HEADER = Parsed("name=text", parse_header)
COUNT = click.IntRange(min=0, max=NUMBER_MAX)
POSITIVE = click.IntRange(min=1, max=NUMBER_MAX)
