"""Which types go together, and how a constant follows what it is compared with: a text becomes a time, an id, bytes or a kind."""

import math
from typing import Any

from eventlog.events import KIND_NAMES
from eventlog.predicate.dialect import closest, refusal
from eventlog.predicate.functions import Argument, time_ms, to_text, to_whole
from eventlog.predicate.tree import Cast, Column, Constant, Header, Path, SyntaxNode, Type

_SHOWN: dict[Type, str] = {
    "any": "a field", "number": "a number", "text": "a text", "bytes": "bytes", "boolean": "a condition", "time": "a time", "null": "NULL",
}  # fmt: skip
_TAKEN: dict[str, frozenset[Type]] = {
    "text": frozenset({"text", "bytes", "any", "null"}),
    "octets": frozenset({"text", "bytes", "any", "null"}),
    "number": frozenset({"number", "any", "null"}),
    "whole": frozenset({"number", "any", "null"}),
    "list": frozenset({"any", "null"}),
    "any": frozenset({"any", "number", "text", "bytes", "boolean", "time", "null"}),
}
_SYNONYMS = {
    "DELETED": "REMOVED",
    "DELETE": "REMOVED",
    "UPDATED": "MODIFIED",
    "CHANGED": "MODIFIED",
    "INSERTED": "CREATED",
    "ADDED": "CREATED",
}
_WANTED = {"text": "a text", "octets": "a text", "number": "a number", "whole": "a whole number", "list": "an array of the value"}


def constant(value: Any, at: int) -> Constant:
    """Return a constant with the type of its value."""
    kind: Type = "null"
    if type(value) is bool:
        kind = "boolean"
    elif type(value) in {int, float}:
        if type(value) is float and not math.isfinite(value):
            raise refusal(at, f"{value} is no number")
        kind = "number"
    elif type(value) is str:
        kind = "text"
    elif type(value) is bytes:
        kind = "bytes"
    return Constant(at=at, type=kind, value=value)


def as_condition(node: SyntaxNode) -> SyntaxNode:
    """Return a node that can be TRUE, FALSE or NULL.

    Raises:
        BadPredicate: it is a text, a number or a time.
    """
    if node.type in {"boolean", "any", "null"}:
        return node
    raise refusal(node.at, f"a condition is needed here, this is {_named(node)}", f"{shown(node)} IS NOT NULL" if shown(node) else "")


def needs(argument: Argument, node: SyntaxNode, where: str) -> SyntaxNode:
    """Return what a function or operator takes as an argument, bytes made text where it takes text.

    Raises:
        BadPredicate: it is of another type.
    """
    if node.type not in _TAKEN[argument]:
        raise refusal(node.at, f"{where} takes {_WANTED[argument]}, this is {_named(node)}")
    return as_bytes_or_text(node) if argument in {"text", "any"} else node


def as_bytes_or_text(node: SyntaxNode) -> SyntaxNode:
    """Return bytes as text, and all else as it is."""
    if node.type != "bytes":
        return node
    if isinstance(node, Constant):
        return constant(to_text(node.value), node.at)
    return Cast(at=node.at, type="text", item=node)


def matched(left: SyntaxNode, right: SyntaxNode) -> tuple[SyntaxNode, SyntaxNode]:
    """Return two nodes that can be compared.

    Raises:
        BadPredicate: they never can.
    """
    if isinstance(left, Constant) and not isinstance(right, Constant):
        right, left = matched(right, left)
        return left, right
    if "null" in {left.type, right.type}:
        return left, right
    if isinstance(right, Constant) and not isinstance(left, Constant):
        return left, _followed(left, right)
    if left.type == right.type and left.type != "any":
        return left, right
    left, right = as_bytes_or_text(left), as_bytes_or_text(right)
    types = {left.type, right.type}
    if types == {"any", "time"}:
        field = left if left.type == "any" else right
        raise refusal(field.at, "a field is no time", f"CAST({shown(field) or '...'} AS TIMESTAMP)")
    if "any" not in types and len(types) > 1:
        raise refusal(right.at, f"{_named(right)} is never compared with {_named(left)}")
    return left, right


def _followed(left: SyntaxNode, right: Constant) -> Constant:
    """Return a constant in the type of what it is compared with."""
    value = right.value
    if left.type == "time":
        found = time_ms(value) if type(value) is str else value
        if type(found) not in {int, float}:
            raise refusal(right.at, f"{value!r} is no time; write it as '2026-11-20T10:00:00Z' or in milliseconds since 1970")
        return Constant(at=right.at, type="time", value=found)
    if isinstance(left, Column) and left.type == "number" and type(value) is str:
        found = to_whole(value)
        if found is None:
            raise refusal(right.at, f"{value!r} is no {left.name}, which is a whole number")
        return constant(found, right.at)
    if isinstance(left, Column) and left.name == "kind" and value not in KIND_NAMES:
        meant = _SYNONYMS.get(str(value).upper()) or closest(str(value).upper(), KIND_NAMES)
        raise refusal(right.at, f"there is no kind {value!r}; there are {', '.join(KIND_NAMES)}", f"'{meant}'" if meant else "")
    if left.type == "bytes":
        if type(value) is str:
            return constant(value.encode("utf-8", "surrogatepass"), right.at)
    elif type(value) is bytes:
        right = constant(to_text(value), right.at)
    if left.type not in {"any", right.type}:
        raise refusal(right.at, f"{_named(right)} is never compared with {_named(left)}")
    return right


def of_one_type(nodes: tuple[SyntaxNode, ...]) -> Type:
    """Return the type that all have, NULLs aside; `any` where they differ."""
    types = {node.type for node in nodes} - {"null"}
    return next(iter(types)) if len(types) == 1 else "any" if types else "null"


def shown(node: SyntaxNode) -> str:
    """Return how a column or field is written, nothing for other nodes."""
    if isinstance(node, Column):
        return node.name
    if isinstance(node, Header):
        return f"headers['{node.name}']"
    if isinstance(node, Path):
        return node.root + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in node.steps)
    return ""


def _named(node: SyntaxNode) -> str:
    name = shown(node)
    if isinstance(node, Constant) and node.type != "null":
        return f"{_SHOWN[node.type]} ({str(node.value)[:40]!r})"
    return f"{name}, {_SHOWN[node.type]}" if name and node.type != "any" else name or _SHOWN[node.type]
