"""Nodes as lists of values, one item an event: None is NULL. An item of an unexpected type makes NULL, never an error."""

from collections.abc import Callable
from operator import add, mul, sub
from typing import Any

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Mask
from eventlog.events import KIND_NAMES, decode_headers
from eventlog.ids import EPOCH_MS, TIME_SHIFT
from eventlog.predicate.frame import Frame
from eventlog.predicate.functions import CASTS, INT64_MAX, ROWS, Argument, to_whole
from eventlog.predicate.tree import Arithmetic, Case, Cast, Column, Constant, FunctionCall, Header, Negative, Path, SyntaxNode

Truth = tuple[Mask, Mask]  # where it is TRUE, where it is FALSE; elsewhere NULL
Truths = Callable[[Frame], Truth]
Values = Callable[[Frame], list[Any]]
_NUMBERS = frozenset({int, float})
_TYPES: dict[Argument, frozenset[type]] = {
    "text": frozenset({str}),
    "number": _NUMBERS,
    "whole": frozenset({int}),
    "list": frozenset({list}),
}


def values_of(node: SyntaxNode, conditions: Callable[[SyntaxNode], Truths]) -> Values:  # noqa: PLR0911 # one for each kind of node
    """Return what makes the list of a node; `conditions` makes truths of those that are conditions."""
    match node:
        case Constant(value=value):
            return lambda frame: [value] * len(frame)
        case Column(name=name):
            return _COLUMNS[name] if node.type != "bytes" else Frame.key_list
        case Header(name=name):
            return lambda frame: [_header(data, name) for data in frame.headers()]
        case Path(root=root, steps=steps):
            return lambda frame: frame.path(root, steps)
        case Arithmetic():
            return _arithmetic(node, conditions)
        case Negative(item=item):
            inner = values_of(item, conditions)
            return lambda frame: [-one if type(one) in _NUMBERS else None for one in inner(frame)]
        case Cast(item=item):
            inner, cast = values_of(item, conditions), to_whole if node.whole else CASTS[node.type]
            return lambda frame: [None if one is None else cast(one) for one in inner(frame)]
        case FunctionCall():
            return _call(node, conditions)
        case Case():
            return _case(node, conditions)
    truths = conditions(node)
    return lambda frame: _listed(truths(frame))


def numbers(name: str, frame: Frame) -> npt.NDArray[np.int64]:
    """Return one of the columns of whole numbers; `time` in milliseconds since 1970."""
    events = frame.events
    if name == "time":
        return (events.ids >> TIME_SHIFT) + EPOCH_MS
    found: npt.NDArray[np.int64] = {"id": lambda: events.ids, "segment": lambda: events.segments, "offset": lambda: events.offsets}[name]()
    return found


_COLUMNS: dict[str, Values] = {
    "kind": lambda frame: [KIND_NAMES[kind] for kind in frame.events.kinds.tolist()],
    "key": lambda frame: [key.decode("utf-8", "surrogateescape") for key in frame.key_list()],
    **{name: (lambda frame, name=name: numbers(name, frame).tolist()) for name in ("id", "time", "segment", "offset")},  # type: ignore[misc]  # name is bound here
}


def _header(data: bytes, name: str) -> bytes | None:
    if not data:
        return None
    try:
        return decode_headers(data).get(name)
    except ValueError:
        return None


def _listed(truth: Truth) -> list[Any]:
    true, false = truth
    return [True if yes else False if no else None for yes, no in zip(true.tolist(), false.tolist(), strict=True)]


def _arithmetic(node: Arithmetic, conditions: Callable[[SyntaxNode], Truths]) -> Values:
    left, right = values_of(node.left, conditions), values_of(node.right, conditions)
    work: Callable[[Any, Any], Any] = {"+": add, "-": sub, "*": mul, "/": _divide, "%": ROWS["MOD"].apply}[node.operator]

    def result(one: Any, other: Any) -> Any:
        if type(one) not in _NUMBERS or type(other) not in _NUMBERS:
            return None
        try:
            return bounded(work(bounded(one), bounded(other)))
        except OverflowError:
            return None

    return lambda frame: list(map(result, left(frame), right(frame)))


def _divide(one: float, other: float) -> float | None:
    return one / other if other else None


def bounded(number: Any) -> Any:
    """Return a number, as a float where it is no whole number of 64 bits: so that products of products stay small."""
    if type(number) is int and not -INT64_MAX - 1 <= number <= INT64_MAX:
        return float(number)
    return None if number != number else number  # noqa: PLR0124 # NaN


def _call(node: FunctionCall, conditions: Callable[[SyntaxNode], Truths]) -> Values:
    row = node.function
    arguments = [values_of(item, conditions) for item in node.items]
    if row.takes_null:
        return lambda frame: list(map(row.apply, *(argument(frame) for argument in arguments)))
    wanted = [row.argument(index) for index in range(len(arguments))]
    types = [_TYPES.get(argument) for argument in wanted]

    def result(*given: Any) -> Any:
        for one, allowed in zip(given, types, strict=True):
            if one is None or (allowed is not None and type(one) not in allowed):
                return None
        try:
            return row.apply(*given)
        except (OverflowError, ValueError):
            return None

    if "octets" in wanted:
        return lambda frame: [result(_octets(one)) for one in arguments[0](frame)]
    if len(arguments) == 1 and (only := types[0]) is not None and row.result == "text":
        (argument,) = arguments
        return lambda frame: [row.apply(one) if type(one) in only else None for one in argument(frame)]
    return lambda frame: list(map(result, *(argument(frame) for argument in arguments)))


def _octets(value: Any) -> bytes | None:
    if type(value) is str:
        return value.encode("utf-8", "surrogateescape")
    return value if type(value) is bytes else None


def _case(node: Case, conditions: Callable[[SyntaxNode], Truths]) -> Values:
    branches = [(conditions(node.items[i]), values_of(node.items[i + 1], conditions)) for i in range(0, len(node.items) - 1, 2)]
    default = values_of(node.items[-1], conditions)

    def chosen(frame: Frame) -> list[Any]:
        found: list[Any] = [None] * len(frame)
        rest, rows = frame, np.arange(len(frame))
        for condition, values in (*branches, (_always, default)):
            true, _ = condition(rest)
            if bool(true.any()):
                own = np.flatnonzero(true)
                for row, value in zip(rows[own].tolist(), values(rest.take(own)), strict=True):
                    found[row] = value
            left = np.flatnonzero(~true)
            rest, rows = rest.take(left), rows[left]
        return found

    return chosen


def _always(frame: Frame) -> Truth:
    return np.ones(len(frame), bool), np.zeros(len(frame), bool)
