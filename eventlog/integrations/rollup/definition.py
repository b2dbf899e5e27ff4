"""What a rollup is of: how long a window is, by which expressions its events are told apart, and what is counted of them. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from eventlog.client.reading.frames import TIME
from eventlog.errors import InvalidArgument
from eventlog.ids import id_before, time_of

WINDOW: Final = "window"
WINDOW_MS_MAX: Final = 366 * 24 * 3_600_000
COLUMNS_MAX: Final = 100
KEYS_ABOUT: Final = "keys~"
_PLAIN: Final = {"count": pa.int64(), "bytes": pa.int64(), "keys": pa.int64(), KEYS_ABOUT: pa.int64(), "first": TIME, "last": TIME}
_ESTIMATE, _SKETCH = "_estimate", "_sketch"
_OF_NUMBERS: Final = ("sum", "min", "max")
_CALL: Final = re.compile(rf"({'|'.join(_OF_NUMBERS)})\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
_NAMED: Final = re.compile(r"(.*\S)\s+AS\s+([A-Za-z_][A-Za-z0-9_]*)", re.IGNORECASE | re.DOTALL)
_ROOT: Final = re.compile(r"(?:value|v)\s*\.\s*", re.IGNORECASE)
_OPENING: Final = {"(": ")", "[": "]"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """An expression by whose value events are told apart, and the column that it becomes."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A figure of the events of a group; `expression` is of what, empty for those that are of events as they are."""

    name: str
    function: str
    expression: str = ""

    @property
    def type(self) -> pa.DataType:
        """The type of its column."""
        return _PLAIN.get(self.function, pa.float64())

    @property
    def sketch(self) -> str:
        """The name of a second column, of sketches, from which the figure of several rows together can be told; empty: it has none."""
        return f"{self.name.removesuffix(_ESTIMATE)}{_SKETCH}" if self.function == KEYS_ABOUT else ""

    @property
    def columns(self) -> list[tuple[str, pa.DataType]]:
        """Its columns in the table."""
        return [(self.name, self.type), *([(self.sketch, pa.binary())] if self.sketch else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A rollup: windows of `window_ms` from 1970 on, one row for each group of a window that has events."""

    window_ms: int
    by: tuple[Grouping, ...]
    measures: tuple[Measure, ...]

    @property
    def numbers(self) -> tuple[str, ...]:
        """The expressions whose numbers are added up or compared."""
        return tuple(dict.fromkeys(measure.expression for measure in self.measures if measure.expression))

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        by = [(one.name, pa.string()) for one in self.by]
        return pa.schema([(WINDOW, TIME), *by, *(column for one in self.measures for column in one.columns)])

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it; two that are equal mean the same table."""
        return {
            "window_ms": self.window_ms,
            "by": [[one.name, one.expression] for one in self.by],
            "measures": [[one.name, one.function, one.expression] for one in self.measures],
        }


def definition_of(*, window_ms: int, by: str | Sequence[str], measures: str | Sequence[str]) -> Definition:
    """Return a rollup as it is told in words: `by` and `measures` are lists, or texts with commas between expressions.

    Raises:
        InvalidArgument: it is none.
    """
    if not 0 < window_ms <= WINDOW_MS_MAX:
        raise InvalidArgument(why=f"a window is {window_ms} ms: give 1 ms to 366 days")
    groupings = [_grouping(text) for text in _listed(by)]
    figures = [_measure(text) for text in _listed(measures)]
    if not figures:
        raise InvalidArgument(why="measures are empty: name at least one, as count")
    names = [WINDOW, *(one.name for one in groupings), *(name for one in figures for name, _ in one.columns)]
    if len(names) > COLUMNS_MAX:
        raise InvalidArgument(why=f"a rollup has at most {COLUMNS_MAX} columns, this one {len(names)}")
    twice = next((name for place, name in enumerate(names) if name.lower() in {one.lower() for one in names[:place]}), None)
    if twice is not None:
        raise InvalidArgument(why=f"two columns are called {twice!r}: give one another name with AS, as in 'count AS other'")
    return Definition(window_ms=window_ms, by=tuple(groupings), measures=tuple(figures))


def _listed(given: str | Sequence[str]) -> list[str]:
    return [one.strip() for text in ([given] if isinstance(given, str) else given) for one in parts_of(text) if one.strip()]


def parts_of(text: str) -> Iterator[str]:
    """Yield what stands between commas, but for those within brackets and quotes."""
    closing: list[str] = []
    quote = ""
    begin = 0
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in _OPENING:
            closing.append(_OPENING[character])
        elif closing and character == closing[-1]:
            closing.pop()
        elif character == "," and not closing:
            yield text[begin:place]
            begin = place + 1
    yield text[begin:]


def _grouping(text: str) -> Grouping:
    expression, name = _named(text)
    return Grouping(name=name or name_of(expression), expression=expression)


def _measure(text: str) -> Measure:
    words, name = _named(text)
    if words.lower() in _PLAIN:
        return Measure(name=name or words.lower().replace("~", _ESTIMATE), function=words.lower())
    call = _CALL.fullmatch(words)
    if call is None or not call[2].strip():
        known = ", ".join((*_PLAIN, *(f"{function}(EXPR)" for function in _OF_NUMBERS)))
        raise InvalidArgument(why=f"there is no measure {words[:60]!r}; there are {known}")
    function, expression = call[1].lower(), call[2].strip()
    return Measure(name=name or f"{function}_{name_of(expression)}", function=function, expression=expression)


def _named(text: str) -> tuple[str, str]:
    found = _NAMED.fullmatch(text)
    return (text, "") if found is None else (found[1], found[2])


def name_of(expression: str) -> str:
    """Return what the column of an expression is called: its letters and digits, without `value.`, the rest as `_`."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", _ROOT.sub("", expression)).strip("_")
    if not name or name[0].isdigit():
        raise InvalidArgument(why=f"{expression[:60]!r} makes no name of a column: give one, as in '{expression[:60]} AS name'")
    return name


def boundary_id(time_ms: int) -> int:
    """Return the id behind which a window begins that begins at a time: all ids of a moment lie above it."""
    return id_before(time_ms)


def boundary_ms(id_: int) -> int:
    """Return when a window begins of which this is the `boundary_id`."""
    return time_of(id_ + 1)
