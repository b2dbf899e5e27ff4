"""Nodes as conditions: two masks over the events, where TRUE and where FALSE; elsewhere NULL.

What is cheap is asked first, and the rest only of the events that it left undecided.
"""

import math
from collections.abc import Callable, Iterable
from operator import ge, gt, le, lt
from typing import Any

import numpy as np

from eventlog.events import KIND_NAMES
from eventlog.predicate.beside import beside_or
from eventlog.predicate.convert import INT64_MAX
from eventlog.predicate.costs import cost_of
from eventlog.predicate.frame import Frame
from eventlog.predicate.functions import equal
from eventlog.predicate.keys import OnTexts, condition_on_texts
from eventlog.predicate.like import like
from eventlog.predicate.tree import (
    MIRRORED,
    And,
    Column,
    Compare,
    Comparison,
    Constant,
    IsNull,
    IsTruth,
    Like,
    Node,
    Not,
    OneOf,
    Or,
    Path,
    Root,
    Same,
)  # fmt: skip
from eventlog.predicate.values import Truth, Truths, numbers, values_of

_ORDERS: dict[Comparison, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_NEITHER = 2  # in a list of codes, beside True and False
_ORDERED = frozenset({str, bytes})
_NUMBERS = frozenset({int, float})


def truth_of(node: Node) -> Truths:  # noqa: PLR0911 # one for each kind of node
    """Return what judges a node that is a condition."""
    if (found := condition_on_texts(node)) is not None:
        return _on_texts(*found)
    match node:
        case And(items=items) | Or(items=items):
            return _several([truth_of(item) for item in sorted(items, key=cost_of)], is_and=isinstance(node, And))
        case Not(item=item):
            return _inverted(truth_of(item))
        case IsNull(item=item):
            return _is_null(item)
        case IsTruth(item=item, truth=truth):
            return _is_truth(truth_of(item), truth=truth)
        case Compare():
            return _compare(node)
        case OneOf():
            return _one_of(node)
        case Like(item=item):
            pattern = like(node.pattern, escape=node.escape, ignore_case=node.ignore_case)
            values = values_of(item, truth_of)
            return lambda frame: _truth([pattern.matches(one) if type(one) is str else None for one in values(frame)])
        case Same(left=left, right=right):
            first, second = values_of(left, truth_of), values_of(right, truth_of)
            return lambda frame: _truth([equal(one, other) for one, other in zip(first(frame), second(frame), strict=True)])
    values = values_of(node, truth_of)
    return lambda frame: _truth(values(frame))


def _truth(values: list[Any]) -> Truth:
    """Return where values are TRUE and where FALSE; all else is NULL."""
    return np.array([one is True for one in values], bool), np.array([one is False for one in values], bool)


def _told(codes: Iterable[int]) -> Truth:
    """Return where codes are 1 and where 0; a third is NULL. A third of the time of two lists of booleans."""
    found = np.frombuffer(bytes(codes), np.uint8)
    return found == 1, found == 0


def _inverted(inner: Truths) -> Truths:
    return lambda frame: inner(frame)[::-1]


def _several(items: list[Truths], *, is_and: bool) -> Truths:
    """Judge by each in turn, and only those events that none has decided: FALSE decides AND, TRUE decides OR."""

    def judged(frame: Frame) -> Truth:
        count = len(frame)
        deciding, undecided = np.zeros(count, bool), np.arange(count)
        unknown = np.zeros(count, bool)
        rest = frame
        for item in items:
            if not len(undecided):
                break
            true, false = item(rest)
            decided = false if is_and else true
            unknown[undecided] |= ~(true | false)
            if bool(decided.any()):
                deciding[undecided[decided]] = True
                left = np.flatnonzero(~decided)
                rest, undecided = rest.take(left), undecided[left]
        other = ~deciding & ~unknown
        return (other, deciding) if is_and else (deciding, other)

    return judged


def _on_texts(source: Node, asked: OnTexts) -> Truths:
    if isinstance(source, Column):

        def of_keys(frame: Frame) -> Truth:
            true = asked(frame.events.keys)
            return true, ~true

        return of_keys
    assert isinstance(source, Path), "conditions on texts are about the key or the value"
    root: Root = source.root

    def of_images(frame: Frame) -> Truth:
        texts, has = frame.texts(root), frame.has(root)
        if texts is None:
            return np.zeros(len(frame), bool), np.zeros(len(frame), bool)
        true = asked(texts)
        return true & has, ~true & has

    return of_images


def _is_null(item: Node) -> Truths:
    if item.type == "boolean":
        truths = truth_of(item)

        def of_truth(frame: Frame) -> Truth:
            true, false = truths(frame)
            return ~(true | false), true | false

        return of_truth
    if isinstance(item, Column):
        return lambda frame: (np.zeros(len(frame), bool), np.ones(len(frame), bool))
    values = values_of(item, truth_of)
    return lambda frame: _truth([one is None for one in values(frame)])


def _is_truth(inner: Truths, *, truth: bool) -> Truths:
    def judged(frame: Frame) -> Truth:
        found = inner(frame)[0 if truth else 1]
        return found, ~found

    return judged


def _compare(node: Compare) -> Truths:
    left, right, operator = node.left, node.right, node.operator
    if isinstance(left, Constant) and not isinstance(right, Constant):
        left, right, operator = right, left, MIRRORED[operator]
    if not isinstance(right, Constant):
        first, second = values_of(left, truth_of), values_of(right, truth_of)
        return lambda frame: _truth([compared(operator, one, other) for one, other in zip(first(frame), second(frame), strict=True)])
    wanted = right.value
    if wanted is None:
        return lambda frame: (np.zeros(len(frame), bool), np.zeros(len(frame), bool))
    if isinstance(left, Column) and left.name == "kind":
        return _by_kind([compared(operator, name, wanted) is True for name in KIND_NAMES])
    if isinstance(left, Column) and left.type in {"number", "time"}:
        return _by_range(left.name, operator, wanted)
    judged = _compare_with(values_of(left, truth_of), operator, wanted)
    if operator == "=":
        return beside_or(left, (wanted,), judged)
    return _inverted(beside_or(left, (wanted,), _inverted(judged))) if operator == "<>" else judged


def _by_kind(matching: list[bool]) -> Truths:
    table = np.zeros(256, bool)
    table[: len(matching)] = matching

    def judged(frame: Frame) -> Truth:
        true = table[frame.events.kinds]
        return true, ~true

    return judged


def whole_range(operator: Comparison, wanted: float) -> tuple[int, int]:
    """Return the whole numbers of 64 bits, inclusive, for which a comparison (not `<>`) is TRUE; none if the second is less."""
    floor, ceil = math.floor(wanted), math.ceil(wanted)
    low = {"=": ceil, ">": floor + 1, ">=": ceil}.get(operator, -INT64_MAX - 1)
    high = {"=": floor, "<": ceil - 1, "<=": floor}.get(operator, INT64_MAX)
    if low > INT64_MAX or high < -INT64_MAX - 1:
        return 1, 0
    return max(low, -INT64_MAX - 1), min(high, INT64_MAX)


def _by_range(name: str, operator: Comparison, wanted: float) -> Truths:
    is_inverted = operator == "<>"
    low, high = whole_range("=" if is_inverted else operator, wanted)

    def judged(frame: Frame) -> Truth:
        found = numbers(name, frame)
        within = (found >= low) & (found <= high)
        return (~within, within) if is_inverted else (within, ~within)

    return judged


def _compare_with(values: Callable[[Frame], list[Any]], operator: Comparison, wanted: Any) -> Truths:
    """Compare with a constant: the loop that most filters spend their time in, so one for each kind of constant."""
    if operator in {"=", "<>"}:
        is_boolean = type(wanted) is bool

        def is_equal(frame: Frame) -> Truth:
            found = values(frame)
            if is_boolean:
                same, other = _told([_NEITHER if one is None else one is wanted for one in found])
            else:
                same, other = _told([_NEITHER if one is None else one == wanted and one is not True and one is not False for one in found])
            return (same, other) if operator == "=" else (other, same)

        return is_equal
    order = _ORDERS[operator]
    if type(wanted) in _NUMBERS:
        return lambda frame: _told([order(one, wanted) if type(one) in _NUMBERS else _NEITHER for one in values(frame)])
    kind = type(wanted)
    return lambda frame: _told([order(one, wanted) if type(one) is kind else _NEITHER for one in values(frame)])


def compared(operator: Comparison, one: Any, other: Any) -> bool | None:
    """Return what a comparison says: of different types values are unequal, and which is greater is NULL."""
    if one is None or other is None:
        return None
    if operator == "=":
        return equal(one, other)
    if operator == "<>":
        return not equal(one, other)
    kind = type(one)
    if kind in _NUMBERS:
        return _ORDERS[operator](one, other) if type(other) in _NUMBERS else None
    return _ORDERS[operator](one, other) if kind is type(other) and (kind in _ORDERED or kind is bool) else None


def _one_of(node: OneOf) -> Truths:
    item, options, has_null = node.item, node.options, node.has_null
    if isinstance(item, Column) and item.name == "kind" and not has_null:
        return _by_kind([name in options for name in KIND_NAMES])
    if isinstance(item, Column) and item.type in {"number", "time"} and not has_null and all(type(one) is int for one in options):
        wanted = np.array([one for one in options if abs(one) <= INT64_MAX], np.int64)

        def of_numbers(frame: Frame) -> Truth:
            true = np.isin(numbers(item.name, frame), wanted)
            return true, ~true

        return of_numbers
    values = values_of(item, truth_of)
    booleans = frozenset(one for one in options if type(one) is bool)
    others = frozenset(one for one in options if type(one) is not bool)
    missed = None if has_null else False

    def judge(one: Any) -> bool | None:
        if one is None:
            return None
        if type(one) is bool:
            return True if one in booleans else missed
        return True if type(one) not in {list, dict} and one in others else missed

    return beside_or(item, options, lambda frame: _truth([judge(one) for one in values(frame)]), has_null=has_null)
