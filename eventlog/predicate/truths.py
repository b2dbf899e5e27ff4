"""Nodes as conditions: two masks over the events, where TRUE and where FALSE; elsewhere NULL.

What is cheap is asked first, and the rest only of the events that it left undecided. A condition on a key, on a value of bytes, or on a
field that stands beside the values compares bytes as they lie in the log; only the others decode values.
"""

import math
from collections.abc import Callable, Iterable
from operator import ge, gt, le, lt
from typing import Any

import msgspec
import numpy as np

from eventlog.arrays import Mask
from eventlog.batch.texts import Texts
from eventlog.events import KIND_NAMES
from eventlog.predicate.frame import Frame
from eventlog.predicate.functions import INT64_MAX, equal, like, to_text
from eventlog.predicate.tree import (
    MIRRORED,
    And,
    Cast,
    Column,
    Compare,
    Comparison,
    Constant,
    FunctionCall,
    Header,
    IsNull,
    IsTruth,
    Like,
    Not,
    OneOf,
    Or,
    Path,
    Root,
    Same,
    SyntaxNode,
    walk,
)  # fmt: skip
from eventlog.predicate.values import Truth, Truths, numbers, values_of

_ORDERS: dict[Comparison, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_NEITHER = 2  # in a list of codes, beside True and False
_ORDERED = frozenset({str, bytes})
_NUMBERS = frozenset({int, float})
VALUE = 40  # a value is decoded
OnTexts = Callable[[Texts], Mask]
_WHOLE_MAX = 1 << 53
_NOTHING = (b"", b"null")


def truth_of(node: SyntaxNode) -> Truths:  # noqa: PLR0911 # one for each kind of node
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


def _on_texts(source: SyntaxNode, asked: OnTexts) -> Truths:
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


def _is_null(item: SyntaxNode) -> Truths:
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
    """Return what a comparison says: of different types values are unequal, and which is greater is NULL.

    JSON decides types event by event. One odd event must neither stop a reader nor match by a cast: of a text `> 5` would be TRUE.
    """
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


def cost_of(node: SyntaxNode) -> int:
    """Return the cost of the most expensive thing that a node looks at; more of them, or patterns, add to it."""
    dearest = extra = 0
    for found in walk(node):
        match found:
            case Column(name="key"):
                cost = 10
            case Column():
                cost = 1
            case Header():
                cost = 20
            case Path(root=root):
                cost = VALUE + 10 * (root == "before")
            case Like():
                cost, extra = 0, extra + 2
            case _:
                continue
        dearest = max(dearest, cost)
    return dearest + min(extra, 8)


def condition_on_texts(node: SyntaxNode) -> tuple[SyntaxNode, OnTexts] | None:
    """Return the key or the value of bytes that a condition is about, and what it asks of its bytes; None where it is about more."""
    if isinstance(node, Compare):
        left, right, operator = node.left, node.right, node.operator
        if isinstance(left, Constant):
            left, right, operator = right, left, MIRRORED[operator]
        if _is_texts(left) and isinstance(right, Constant) and right.value is not None:
            return left, _octets_compared(operator, _octets(right.value))
    elif isinstance(node, OneOf) and _is_texts(node.item) and not node.has_null:
        wanted = [_octets(option) for option in node.options]
        return node.item, lambda texts: texts.is_in(wanted)
    elif isinstance(node, Like):
        source = _source(node.item)
        return None if source is None else (source, _octets_like(node))
    elif isinstance(node, FunctionCall) and node.function.name == "STARTS_WITH":
        source, prefix = _source(node.items[0]), node.items[1]
        if source is not None and isinstance(prefix, Constant) and type(prefix.value) is str:
            octets = _octets(prefix.value)
            return source, lambda texts: texts.starts_with(octets)
    return None


def _is_texts(node: SyntaxNode) -> bool:
    return (isinstance(node, Column) and node.name == "key") or (isinstance(node, Path) and node.type == "bytes" and not node.steps)


def _source(node: SyntaxNode) -> SyntaxNode | None:
    """Return what a text is made from, where it is the text of bytes."""
    if isinstance(node, Cast) and node.type == "text" and node.item.type == "bytes":
        node = node.item
    return node if _is_texts(node) else None


def _octets(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def _octets_like(node: Like) -> OnTexts:
    pattern = like(node.pattern, escape=node.escape, ignore_case=node.ignore_case)
    prefix = _octets(pattern.prefix)
    if pattern.is_exact:
        return lambda texts: texts.equals(prefix)
    if pattern.is_prefix:
        return lambda texts: texts.starts_with(prefix)

    def matching(texts: Texts) -> Mask:
        found = texts.starts_with(prefix)
        rows = np.flatnonzero(found)
        found[rows] = [pattern.matches(str(to_text(item))) for item in texts.take(rows).to_list()]
        return found

    return matching


def _octets_compared(operator: Comparison, octets: bytes) -> OnTexts:
    asked: dict[Comparison, OnTexts] = {
        "=": lambda texts: texts.equals(octets),
        "<>": lambda texts: ~texts.equals(octets),
        "<": lambda texts: texts.order(octets) < 0,
        "<=": lambda texts: texts.order(octets) <= 0,
        ">": lambda texts: texts.order(octets) > 0,
        ">=": lambda texts: texts.order(octets) >= 0,
    }
    return asked[operator]


def beside_or(item: SyntaxNode, options: Iterable[Any], otherwise: Truths, *, has_null: bool = False) -> Truths:
    """Return what tells which fields are one of `options`, by their bytes where they stand beside the values, else by `otherwise`."""
    if not isinstance(item, Path) or item.root != "value":
        return otherwise
    wanted: list[bytes] = []
    for option in options:
        forms = _forms(option)
        if not forms:
            return otherwise
        wanted += forms
    steps = item.steps

    def judged(frame: Frame) -> Truth:
        texts = frame.promoted(steps)
        if texts is None:
            return otherwise(frame)
        true = texts.is_in(wanted)
        other = np.zeros(len(true), bool) if has_null else ~(true | texts.is_in(_NOTHING))
        return true, other

    return judged


def _forms(value: Any) -> list[bytes]:
    """Return every text that a field equal to `value` can have; none where that is not known."""
    if type(value) is str:
        try:
            return [msgspec.json.encode(value)]
        except UnicodeEncodeError:
            return []
    if type(value) is bool:
        return [msgspec.json.encode(value)]
    if type(value) in {int, float} and abs(value) <= _WHOLE_MAX:
        forms = {msgspec.json.encode(kind(value)) for kind in (int, float) if kind(value) == value}
        return [*forms] if value else [b"0", b"0.0", b"-0.0"]
    return []
