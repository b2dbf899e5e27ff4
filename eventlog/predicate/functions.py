"""What may be done to one value: the functions that a predicate may call, one row each, casts, and patterns of LIKE.

To add a function, add a row to `FUNCTIONS`. Arguments that are NULL, or not of the type that a row names, make the result NULL: an event
is never an error, and a cast that cannot be is None. Every row is cheap and its result bounded; what could run long on a short argument
(regular expressions, repetition) is left out on purpose.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Literal

from eventlog.limits import TEXT_RESULT_CHARACTERS_MAX

Argument = Literal["text", "octets", "number", "whole", "list", "any"]  # octets: bytes as they are, text in UTF-8
Result = Literal["text", "number", "boolean", "any"]
_NESTED = frozenset({list, dict})
_SCALARS = frozenset({str, int, float, bool, bytes})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_DIGITS_MAX = 40  # of a whole number within a text
_TRUTHS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
INT64_MAX = (1 << 63) - 1
PIECE_CHARACTERS_MAX = 64
# I with a dot, of which `str.lower` makes two characters; and sigma, of which it makes another letter at the end of a word
_FOLDED_ALONE = str.maketrans({"\u0130": "i", "\u03a3": "\u03c3", "\u03c2": "\u03c3"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """`arguments` are the types of the first ones; `optional` of the last may be left out, `repeated` repeats the last any often.

    `apply` gets values of these types only and may return None. With `takes_null` it gets whatever there is.
    """

    name: str
    arguments: tuple[Argument, ...]
    result: Result
    apply: Callable[..., Any]
    optional: int = 0
    repeated: bool = False
    takes_null: bool = False
    shown: str

    @property
    def arguments_min(self) -> int:
        """Return how many arguments it needs."""
        return len(self.arguments) - self.optional

    @property
    def arguments_max(self) -> int | None:
        """Return how many arguments it takes, None for any number."""
        return None if self.repeated else len(self.arguments)

    def argument(self, index: int) -> Argument:
        """Return the type of an argument."""
        return self.arguments[min(index, len(self.arguments) - 1)]


def _substring(text: str, start: int, count: int | None = None) -> str | None:
    """Cut as SQL does: places count from 1, those before the text are there but empty."""
    if count is None:
        return text[max(start - 1, 0) :]
    if count < 0:
        return None
    return text[max(start - 1, 0) : max(start - 1 + count, 0)]


def _joined(*texts: str) -> str | None:
    return "".join(texts) if sum(map(len, texts)) <= TEXT_RESULT_CHARACTERS_MAX else None


def _round(number: float, digits: int = 0) -> float | int | None:
    """Round halves away from zero, as SQL does."""
    if isinstance(number, int) and digits >= 0:
        return number
    if not -15 <= digits <= 15 or not math.isfinite(number):
        return None
    scaled = abs(number) * 10.0**digits
    whole = math.floor(scaled + 0.5) if math.isfinite(scaled) else None
    return None if whole is None else math.copysign(whole / 10.0**digits, number)


def _floor(number: float) -> int | None:
    return math.floor(number) if math.isfinite(number) else None


def _ceil(number: float) -> int | None:
    return math.ceil(number) if math.isfinite(number) else None


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)


def _coalesce(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _null_if(value: Any, other: Any) -> Any:
    return None if equal(value, other) else value


def equal(left: Any, right: Any) -> bool:
    """Return whether two values are equal: of different types they are not, and a boolean is no number, inside of others neither."""
    if left != right or (type(left) is bool) != (type(right) is bool):
        return False
    return type(left) not in _NESTED or _has_same_booleans(left, right)


def _has_same_booleans(left: Any, right: Any) -> bool:
    """Return whether two values that are equal to Python have booleans in the same places. They may be nested deeper than calls may."""
    waiting = [(left, right)]
    while waiting:
        one, other = waiting.pop()
        if (type(one) is bool) != (type(other) is bool):
            return False
        if type(one) is list:
            waiting += zip(one, other, strict=True)
        elif type(one) is dict:
            waiting += [(inner, other[name]) for name, inner in one.items()]
    return True


def _contains_item(items: list[Any], wanted: Any) -> bool | None:
    return any(equal(item, wanted) for item in items) if type(wanted) in _SCALARS else None


def _largest(*numbers: float) -> float:
    return max(numbers)


def _smallest(*numbers: float) -> float:
    return min(numbers)


def _remainder(number: float, divisor: float) -> float | int | None:
    """Return what is left, with the sign of `number`, as SQL does."""
    if not divisor:
        return None
    if isinstance(number, int) and isinstance(divisor, int):
        left = abs(number) % abs(divisor)
        return -left if number < 0 else left
    try:
        return math.fmod(number, divisor)
    except (OverflowError, ValueError):
        return None


_ROWS = (
    Function(name="LOWER", arguments=("text",), result="text", apply=str.lower, shown="LOWER(text)"),
    Function(name="UPPER", arguments=("text",), result="text", apply=str.upper, shown="UPPER(text)"),
    Function(name="LENGTH", arguments=("text",), result="number", apply=len, shown="LENGTH(text): characters"),
    Function(name="OCTET_LENGTH", arguments=("octets",), result="number", apply=len, shown="OCTET_LENGTH(text): bytes in UTF-8"),
    Function(
        name="SUBSTRING",
        arguments=("text", "whole", "whole"),
        optional=1,
        result="text",
        apply=_substring,
        shown="SUBSTRING(text, start [, count]): places count from 1",
    ),
    Function(name="STARTS_WITH", arguments=("text", "text"), result="boolean", apply=str.startswith, shown="STARTS_WITH(text, prefix)"),
    Function(name="ENDS_WITH", arguments=("text", "text"), result="boolean", apply=str.endswith, shown="ENDS_WITH(text, suffix)"),
    Function(name="CONTAINS", arguments=("text", "text"), result="boolean", apply=str.__contains__, shown="CONTAINS(text, part)"),
    Function(
        name="INSTR",
        arguments=("text", "text"),
        result="number",
        apply=lambda text, part: text.find(part) + 1,
        shown="INSTR(text, part): its first place from 1, 0: nowhere",
    ),
    Function(name="TRIM", arguments=("text",), result="text", apply=lambda text: text.strip(" "), shown="TRIM(text): of spaces"),
    Function(name="LTRIM", arguments=("text",), result="text", apply=lambda text: text.lstrip(" "), shown="LTRIM(text)"),
    Function(name="RTRIM", arguments=("text",), result="text", apply=lambda text: text.rstrip(" "), shown="RTRIM(text)"),
    Function(
        name="CONCAT",
        arguments=("text",),
        repeated=True,
        result="text",
        apply=_joined,
        shown="CONCAT(text, ...) or text || text: NULL if one is",
    ),
    Function(name="ABS", arguments=("number",), result="number", apply=abs, shown="ABS(number)"),
    Function(name="SIGN", arguments=("number",), result="number", apply=_sign, shown="SIGN(number): -1, 0 or 1"),
    Function(name="FLOOR", arguments=("number",), result="number", apply=_floor, shown="FLOOR(number)"),
    Function(name="CEIL", arguments=("number",), result="number", apply=_ceil, shown="CEIL(number)"),
    Function(
        name="ROUND",
        arguments=("number", "whole"),
        optional=1,
        result="number",
        apply=_round,
        shown="ROUND(number [, digits]): halves away from zero",
    ),
    Function(
        name="MOD", arguments=("number", "number"), result="number", apply=_remainder, shown="MOD(number, divisor) or number % divisor"
    ),
    Function(name="GREATEST", arguments=("number",), repeated=True, result="number", apply=_largest, shown="GREATEST(number, ...)"),
    Function(name="LEAST", arguments=("number",), repeated=True, result="number", apply=_smallest, shown="LEAST(number, ...)"),
    Function(
        name="COALESCE",
        arguments=("any",),
        repeated=True,
        takes_null=True,
        result="any",
        apply=_coalesce,
        shown="COALESCE(a, ...): the first that is not NULL",
    ),
    Function(
        name="NULLIF",
        arguments=("any", "any"),
        takes_null=True,
        result="any",
        apply=_null_if,
        shown="NULLIF(a, b): NULL where a = b, else a",
    ),
    Function(name="CARDINALITY", arguments=("list",), result="number", apply=len, shown="CARDINALITY(array): its length"),
    Function(name="ARRAY_CONTAINS", arguments=("list", "any"), result="boolean", apply=_contains_item, shown="ARRAY_CONTAINS(array, item)"),
)
_ALIASES = {
    "SUBSTR": "SUBSTRING",
    "LEN": "LENGTH",
    "CHAR_LENGTH": "LENGTH",
    "CHARACTER_LENGTH": "LENGTH",
    "STRPOS": "INSTR",
    "STARTSWITH": "STARTS_WITH",
    "ENDSWITH": "ENDS_WITH",
    "CEILING": "CEIL",
    "IFNULL": "COALESCE",
    "ARRAY_LENGTH": "CARDINALITY",
}
ROWS = {row.name: row for row in _ROWS}
FUNCTIONS = ROWS | {alias: ROWS[name] for alias, name in _ALIASES.items()}


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


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """One pattern. `pieces` stand between the `%`; in a piece None is any one character."""

    pieces: tuple[tuple[str | None, ...], ...]
    ignore_case: bool

    @cached_property
    def prefix(self) -> str:
        """Return the text that everything matching begins with; empty where case is ignored."""
        found: list[str] = []
        for character in self.pieces[0]:
            if character is None:
                break
            found.append(character)
        return "" if self.ignore_case else "".join(found)

    @property
    def is_exact(self) -> bool:
        """Return whether only `prefix` itself matches."""
        return len(self.pieces) == 1 and self.is_prefix_whole

    @property
    def is_prefix(self) -> bool:
        """Return whether everything that begins with `prefix` matches."""
        return len(self.pieces) == 2 and not self.pieces[1] and self.is_prefix_whole

    @property
    def is_prefix_whole(self) -> bool:
        """Return whether `prefix` is all of the first piece."""
        return not self.ignore_case and None not in self.pieces[0]

    @property
    def is_costly(self) -> bool:
        """Return whether a piece that is looked for everywhere has `_` in it and is longer than `PIECE_CHARACTERS_MAX`."""
        return any(None in piece and len(piece) > PIECE_CHARACTERS_MAX for piece in self.pieces[1:-1])

    @cached_property
    def longest(self) -> str:
        """Return the longest text that everything matching has in it; empty where case is ignored."""
        found, run = "", ""
        for piece in self.pieces:
            for character in (*piece, None):
                if character is not None:
                    run += character
                    continue
                found, run = max(found, run, key=len), ""
        return "" if self.ignore_case else found

    def matches(self, text: str) -> bool:
        if self.ignore_case:
            text = _fold(text)
        first, last = self._searches[0], self._searches[-1]
        if len(self.pieces) == 1:
            return len(text) == len(self.pieces[0]) and first.match(text) is not None
        end = len(text) - len(self.pieces[-1])
        at = len(self.pieces[0])
        if end < at or first.match(text) is None or last.match(text, end) is None:
            return False
        for search in self._searches[1:-1]:
            found = search.search(text, at, end)
            if found is None:
                return False
            at = found.end()
        return True

    @cached_property
    def _searches(self) -> list[re.Pattern[str]]:
        """Return each piece as an expression of fixed length."""
        return [re.compile("".join("." if one is None else re.escape(one) for one in piece), re.DOTALL) for piece in self.pieces]


def _fold(text: str) -> str:
    """Return a text without regard to case, character by character."""
    return text.lower() if text.isascii() else text.translate(_FOLDED_ALONE).lower()


def like(pattern: str, *, escape: str, ignore_case: bool) -> Pattern:
    """Return a pattern; a character behind `escape` stands for itself."""
    if ignore_case:
        pattern, escape = _fold(pattern), _fold(escape)
    pieces: list[tuple[str | None, ...]] = []
    piece: list[str | None] = []
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            piece.append(next(characters, escape))
        elif character == "%":
            pieces.append(tuple(piece))
            piece = []
        else:
            piece.append(None if character == "_" else character)
    pieces.append(tuple(piece))
    middle = [one for one in pieces[1:-1] if one]
    return Pattern(pieces=(pieces[0], *middle, pieces[-1]) if len(pieces) > 1 else (pieces[0],), ignore_case=ignore_case)
