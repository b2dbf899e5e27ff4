"""Conditions on byte strings as they lie in the log, without making an object of any."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from eventlog.batch.texts import Texts
from eventlog.predicate.convert import to_text
from eventlog.predicate.like import like
from eventlog.predicate.tree import MIRRORED, Call, Cast, Column, Compare, Comparison, Constant, Like, Node, OneOf, Path

Mask = npt.NDArray[np.bool_]
OnTexts = Callable[[Texts], Mask]


def condition_on_texts(node: Node) -> tuple[Node, OnTexts] | None:
    """Return the key or the value of bytes that a condition is about, and what it asks of its bytes; None where it is about more."""
    if isinstance(node, Compare):
        left, right, operator = node.left, node.right, node.operator
        if isinstance(left, Constant):
            left, right, operator = right, left, MIRRORED[operator]
        if _is_texts(left) and isinstance(right, Constant) and right.value is not None:
            return left, _compared(operator, _octets(right.value))
    elif isinstance(node, OneOf) and _is_texts(node.item) and not node.has_null:
        wanted = [_octets(option) for option in node.options]
        return node.item, lambda texts: texts.is_in(wanted)
    elif isinstance(node, Like):
        source = _source(node.item)
        return None if source is None else (source, _like(node))
    elif isinstance(node, Call) and node.function.name == "STARTS_WITH":
        source, prefix = _source(node.items[0]), node.items[1]
        if source is not None and isinstance(prefix, Constant) and type(prefix.value) is str:
            octets = _octets(prefix.value)
            return source, lambda texts: texts.starts_with(octets)
    return None


def _is_texts(node: Node) -> bool:
    return (isinstance(node, Column) and node.name == "key") or (isinstance(node, Path) and node.type == "bytes" and not node.steps)


def _source(node: Node) -> Node | None:
    """Return what a text is made from, where it is the text of bytes."""
    if isinstance(node, Cast) and node.type == "text" and node.item.type == "bytes":
        node = node.item
    return node if _is_texts(node) else None


def _octets(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def _like(node: Like) -> OnTexts:
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


def _compared(operator: Comparison, octets: bytes) -> OnTexts:
    asked: dict[Comparison, OnTexts] = {
        "=": lambda texts: texts.equals(octets),
        "<>": lambda texts: ~texts.equals(octets),
        "<": lambda texts: texts.order(octets) < 0,
        "<=": lambda texts: texts.order(octets) <= 0,
        ">": lambda texts: texts.order(octets) > 0,
        ">=": lambda texts: texts.order(octets) >= 0,
    }
    return asked[operator]
