"""The functions that a predicate may call, one row each. To add one, add a row to `FUNCTIONS`.

Arguments that are NULL, or not of the type that a row names, make the result NULL: an event is never an error. Every row is cheap
and its result bounded; what could run long on a short argument (regular expressions, repetition) is left out on purpose.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from eventlog.limits import TEXT_RESULT_CHARACTERS_MAX

Argument = Literal["text", "octets", "number", "whole", "list", "any"]  # octets: bytes as they are, text in UTF-8
Result = Literal["text", "number", "boolean", "any"]
_NESTED = frozenset({list, dict})


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


def _is_scalar(value: Any) -> bool:
    return type(value) in {str, int, float, bool, bytes}


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
    return any(equal(item, wanted) for item in items) if _is_scalar(wanted) else None


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
