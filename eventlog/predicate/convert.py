"""From one type to another, as CAST does it, and as a constant follows what it is compared with. What cannot be is None, never an error."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_DIGITS_MAX = 40  # of a whole number within a text
_TRUTHS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
INT64_MAX = (1 << 63) - 1


def time_ms(text: str) -> float | int | None:
    """Return the milliseconds since 1970 of a date or time in ISO 8601; without an offset it is UTC."""
    try:
        found = datetime.fromisoformat(text.strip())
        since = (found if found.tzinfo else found.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        return None
    whole, rest = divmod(since, _MS)
    return whole if not rest else whole + rest / _MS


def to_whole(value: Any) -> int | None:
    """Return a number cut off towards zero."""
    if type(value) is float:
        return math.trunc(value) if math.isfinite(value) else None
    if type(value) in {int, bool}:
        return int(value)
    if type(value) is str:
        text = value.strip()
        if text.lstrip("+-").isdecimal() and len(text) <= _DIGITS_MAX and text.isascii():
            try:
                return int(text)
            except ValueError:
                return None
        return to_whole(to_number(text))
    return None


def to_number(value: Any) -> float | int | None:
    """Return a number, of a text what it spells."""
    if type(value) in {int, float}:
        return value  # type: ignore[no-any-return]  # just checked
    if type(value) is bool:
        return int(value)
    if type(value) is not str:
        return None
    text = value.strip()
    if len(text) > _DIGITS_MAX or "_" in text or not text.isascii():
        return None
    try:
        number = int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def to_text(value: Any) -> str | None:
    """Return how a value is written; bytes that are not UTF-8 keep their places as lone surrogates."""
    if type(value) is str:
        return value
    if type(value) is bytes:
        return value.decode("utf-8", "surrogateescape")
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int:
        return str(value) if abs(value) < 10**_DIGITS_MAX else None
    return repr(value) if type(value) is float else None


def to_boolean(value: Any) -> bool | None:
    """Return a boolean, of a number whether it is not 0."""
    if type(value) is bool:
        return value
    if type(value) in {int, float}:
        return bool(value)
    return _TRUTHS.get(value.strip().lower()) if type(value) is str else None


def to_time(value: Any) -> float | int | None:
    """Return the milliseconds since 1970 of a text in ISO 8601, or of a number that is them already."""
    if type(value) in {int, float}:
        return value  # type: ignore[no-any-return]  # just checked
    return time_ms(value) if type(value) is str else None


CASTS: dict[str, Callable[[Any], Any]] = {"number": to_number, "text": to_text, "boolean": to_boolean, "time": to_time}
