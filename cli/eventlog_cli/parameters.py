r"""Words of the command line as values, and values as words: quantities, escapes, and the types of options that click is given.

Durations are int milliseconds, sizes int bytes, moments int milliseconds since 1970-01-01T00:00:00Z. An escape, `\n` and its like, is the
same in `--output-format` and in `--key-separator`.
"""

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from eventlog.ids import id_before

_DURATION_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIZE_UNITS: dict[str, int] = {"": 1, "b": 1} | {
    unit + suffix: base**power for power, unit in enumerate("kmgt", start=1) for suffix, base in (("", 1_000), ("b", 1_000), ("ib", 1_024))
}
_DURATION_PART = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*(ms|[smhdw])\s*", re.ASCII)
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([a-z]*)", re.ASCII)
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
NUMBER_MAX = (1 << 63) - 1


def parse_duration(text: str) -> int:
    """Return milliseconds of `90s`, `1h30m`, `1.5d`, `500ms`; `0` needs no unit.

    Raises:
        ValueError: `text` is not a duration; the message says what one looks like.
    """
    rest = text.strip().lower()
    if rest == "0":
        return 0
    total, at = 0, 0
    while part := _DURATION_PART.match(rest, at):
        total += _billionths(part[1]) * _DURATION_UNITS[part[2]]
        at = part.end()
    if at != len(rest) or not rest:
        raise ValueError(f"{text!r} is not a duration: write a number and one of ms s m h d w, as in 90s, 24h or 7d")
    whole, rest_of_one = divmod(total, _BILLION)
    if rest_of_one or whole > NUMBER_MAX:
        raise ValueError(f"{text!r} is not a whole number of milliseconds that fits 63 bits")
    return whole


def parse_size(text: str) -> int:
    """Return bytes of `10MiB`, `1.5GB`, `4096`.

    Raises:
        ValueError: `text` is not a size; the message says what one looks like.
    """
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None or found[2] not in _SIZE_UNITS:
        raise ValueError(f"{text!r} is not a size: write a number and one of B KB MB GB TB KiB MiB GiB TiB, as in 10MiB")
    size, rest_of_one = divmod(_billionths(found[1]) * _SIZE_UNITS[found[2]], _BILLION)
    if rest_of_one or size > NUMBER_MAX:
        raise ValueError(f"{text!r} is not a whole number of bytes that fits 63 bits")
    return size


def _billionths(number: str) -> int:
    """Return a number with up to nine decimals, exactly."""
    whole, _, part = number.partition(".")
    return int(whole + part.ljust(9, "0"))


_BILLION = 10**9


def parse_moment(text: str, *, now_ms: int) -> int:
    """Return the moment of an ISO 8601 time (UTC unless it says otherwise) or of a duration, which means that long ago.

    Raises:
        ValueError: `text` is neither.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        if re.fullmatch(r"[\d.]+\s*[a-z].*|0", text.strip().lower()):
            return now_ms - parse_duration(text)
        raise ValueError(
            f"{text!r} is not a time: write ISO 8601 as 2026-11-20T10:00:00Z, or a duration as 24h for that long ago"
        ) from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    try:
        since = aware - _EPOCH
    except OverflowError:
        raise ValueError(f"{text!r} lies outside the years that can be counted") from None
    return (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_segments(text: str) -> list[int]:
    """Return the segments of `0,3-7`, rising, each once.

    Raises:
        ValueError: `text` is not such a list.
    """
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if low > high or high > 0xFFFF:
            raise ValueError(f"{text!r} is not a list of segments: write numbers and ranges, as in 0,3-7")
        found.update(range(low, high + 1))
    return sorted(found)


def format_duration(milliseconds: int) -> str:
    """Return the shortest exact text that `parse_duration` reads as the same, in its largest whole unit."""
    if milliseconds == 0:
        return "0"
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if milliseconds % _DURATION_UNITS[unit] == 0)
    return f"{milliseconds // _DURATION_UNITS[unit]}{unit}"


def format_size(size: int) -> str:
    """Return a size for people: exact below 1 KiB, then three digits."""
    if size < 1_024:
        return f"{size} B"
    amount, units = size / 1_024, iter(("KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    while amount >= 999.5 and unit != "TiB":
        amount, unit = amount / 1_024, next(units)
    return f"{amount:.{2 if amount < 9.995 else 1 if amount < 99.95 else 0}f} {unit}"


def format_seconds(seconds: float) -> str:
    """Return an elapsed or remaining time for people."""
    if seconds < 0.95:
        return f"{seconds * 1_000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


_NAMED = {"\\n": b"\n", "\\t": b"\t", "\\r": b"\r", "\\0": b"\0", "\\\\": b"\\"}
ESCAPE = r"\\x[0-9A-Fa-f]{2}|\\.?"
KNOWN = (*_NAMED, r"\xHH")
_PIECE = re.compile(rf"{ESCAPE}|[^\\]+", re.DOTALL)


def escaped(piece: str) -> bytes | None:
    """Return what a piece that begins with a backslash stands for, None for nothing."""
    return bytes.fromhex(piece[2:]) if len(piece) == len(r"\xHH") else _NAMED.get(piece)


def unescape(text: str) -> bytes:
    """Return text as bytes, with what its escapes stand for.

    Raises:
        ValueError: one stands for nothing.
    """
    parts = []
    for piece in _PIECE.findall(text):
        part = escaped(piece) if piece[0] == "\\" else piece.encode(errors="surrogateescape")
        if part is None:
            raise ValueError(f"{piece!r} means nothing: write one of {' '.join(KNOWN)}")
        parts.append(part)
    return b"".join(parts)


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


def distinct(_: click.Context, __: click.Parameter, pairs: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """Return pairs of names and values as they were given. Raises BadParameter: one name is there twice."""
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise click.BadParameter(f"{name} is given twice")
    return pairs


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
        raise ValueError(f"{text!r} is no number of events to move by: write one as in 10, or -10 to go back")
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


class Whole(click.IntRange):
    """A whole number within bounds, which click calls an integer range where the text is no number at all."""

    name = "integer"


COUNT = Whole(min=0, max=NUMBER_MAX)
POSITIVE = Whole(min=1, max=NUMBER_MAX)
