"""What a predicate says of events before any is looked at: which kinds, ids, segments and keys can match. For skipping the rest unread."""

from functools import reduce
from typing import TypeVar

import numpy as np

from eventlog.events import KIND_NAMES, Kind
from eventlog.ids import EPOCH_MS, ID_MAX, TIME_SHIFT
from eventlog.limits import SEGMENTS_MAX
from eventlog.predicate.frame import bare_frame
from eventlog.predicate.functions import like, to_text
from eventlog.predicate.spec import ANYTHING, EVERY_KIND, NOTHING, Bounds
from eventlog.predicate.tree import (
    MIRRORED,
    And,
    Arithmetic,
    Cast,
    Column,
    Compare,
    Comparison,
    Constant,
    FunctionCall,
    Like,
    Negative,
    Not,
    OneOf,
    Or,
    Path,
    Root,
    SyntaxNode,
    walk,
)  # fmt: skip
from eventlog.predicate.truths import truth_of, whole_range

Item = TypeVar("Item")
_LACKING: dict[Root, int] = {"value": 1 << Kind.REMOVED | 1 << Kind.EXPIRED, "before": 1 << Kind.CREATED | 1 << Kind.STATE}


def bounds_of(node: SyntaxNode) -> Bounds:
    """Return the bounds of the events for which a condition is TRUE."""
    if isinstance(node, And):
        return reduce(_both, map(bounds_of, node.items))
    if isinstance(node, Or):
        return reduce(_either, map(bounds_of, node.items))
    if isinstance(node, Constant):
        return ANYTHING if node.value is True else NOTHING
    return _both(_leaf(node), Bounds(kinds=_kinds(node)))


def _both(one: Bounds, other: Bounds) -> Bounds:
    longer, shorter = sorted((one.key_prefix, other.key_prefix), key=len, reverse=True)
    return Bounds(
        kinds=one.kinds & other.kinds if longer.startswith(shorter) else 0,
        id_low=max(one.id_low, other.id_low),
        id_high=min(one.id_high, other.id_high),
        segments=_meet(one.segments, other.segments),
        keys=_meet(one.keys, other.keys),
        key_prefix=longer,
    )


def _either(one: Bounds, other: Bounds) -> Bounds:
    if one.is_empty or other.is_empty:
        return other if one.is_empty else one
    common = 0
    for first, second in zip(one.key_prefix, other.key_prefix, strict=False):
        if first != second:
            break
        common += 1
    return Bounds(
        kinds=one.kinds | other.kinds,
        id_low=min(one.id_low, other.id_low),
        id_high=max(one.id_high, other.id_high),
        segments=None if one.segments is None or other.segments is None else one.segments | other.segments,
        keys=None if one.keys is None or other.keys is None else one.keys | other.keys,
        key_prefix=one.key_prefix[:common],
    )


def _meet(one: frozenset[Item] | None, other: frozenset[Item] | None) -> frozenset[Item] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _leaf(node: SyntaxNode) -> Bounds:
    match node:
        case Compare(left=Column(name=name), right=Constant(value=value), operator=operator):
            return _compared(name, operator, value)
        case Compare(left=Constant(value=value), right=Column(name=name), operator=operator):
            return _compared(name, MIRRORED[operator], value)
        case OneOf(item=Column(name=name), options=options) if options:
            return reduce(_either, (_compared(name, "=", option) for option in options))
        case Like(item=item) if _is_key(item):
            return Bounds(key_prefix=_octets(like(node.pattern, escape=node.escape, ignore_case=node.ignore_case).prefix))
        case FunctionCall(items=(item, Constant(value=prefix))) if (
            node.function.name == "STARTS_WITH" and _is_key(item) and prefix is not None
        ):
            return Bounds(key_prefix=_octets(prefix))
    return ANYTHING


def _compared(name: str, operator: Comparison, value: object) -> Bounds:
    if value is None or operator == "<>":
        return ANYTHING
    if name == "key":
        return Bounds(keys=frozenset((_octets(value),))) if operator == "=" else ANYTHING
    if name in {"id", "time", "segment"} and isinstance(value, (int, float)):
        return _numbers(name, *whole_range(operator, value))
    return ANYTHING


def _is_key(node: SyntaxNode) -> bool:
    key = node.item if isinstance(node, Cast) and node.item.type == "bytes" else node
    return isinstance(key, Column) and key.name == "key"


def _octets(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(to_text(value)).encode("utf-8", "surrogateescape")


def _numbers(name: str, low: int, high: int) -> Bounds:
    if name == "segment":
        return Bounds(segments=frozenset(range(max(low, 0), min(high, SEGMENTS_MAX) + 1)))
    if name == "time":
        low, high = (low - EPOCH_MS) << TIME_SHIFT, ((high - EPOCH_MS + 1) << TIME_SHIFT) - 1
    return Bounds(id_low=max(low, 0), id_high=min(high, ID_MAX))


def _kinds(node: SyntaxNode) -> int:
    """Return the bits of the kinds for which a condition can be TRUE."""
    leaves = [found for found in walk(node) if not found.children]
    if all(isinstance(leaf, Constant) or (isinstance(leaf, Column) and leaf.name == "kind") for leaf in leaves):
        true, _ = truth_of(node)(bare_frame(np.arange(len(KIND_NAMES), dtype=np.uint8)))
        return sum(1 << kind for kind in np.flatnonzero(true).tolist())
    kinds = EVERY_KIND
    for root in _needed(node):
        kinds &= ~_LACKING[root]
    return kinds


def _needed(node: SyntaxNode) -> frozenset[Root]:
    """Return the images without which a node is NULL."""
    match node:
        case Path(root=root):
            return frozenset((root,))
        case Compare() | Arithmetic() | Negative() | Cast() | Like() | OneOf() | Not():
            return frozenset[Root]().union(*map(_needed, node.children))
        case FunctionCall(function=function) if not function.takes_null:
            return frozenset[Root]().union(*map(_needed, node.children))
    return frozenset()
