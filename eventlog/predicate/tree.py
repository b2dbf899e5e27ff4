"""A checked predicate: our own small tree, with the type of every node. Nothing of the parser is left in it.

Types: `any` is a field of JSON, whose type each event decides; `time` is milliseconds since 1970; `null` is the literal NULL.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from eventlog.predicate.functions import Function

Type = Literal["any", "number", "text", "bytes", "boolean", "time", "null"]
Root = Literal["value", "before"]
Step = str | int
Comparison = Literal["=", "<>", "<", "<=", ">", ">="]
MIRRORED: dict[Comparison, Comparison] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntaxNode:
    """Something with a value. `at` is where its text begins, in characters from 1."""

    at: int
    type: Type

    @property
    def children(self) -> tuple["SyntaxNode", ...]:
        """Return the nodes that this one is made from."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(SyntaxNode):
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(SyntaxNode):
    """`kind`, `key`, `id`, `time`, `segment` or `offset`."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Header(SyntaxNode):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Path(SyntaxNode):
    """A field of the value or of the before-image; without steps all of it."""

    root: Root
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary(SyntaxNode):
    """A node made from one other."""

    item: SyntaxNode

    @property
    def children(self) -> tuple[SyntaxNode, ...]:
        return (self.item,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Not(Unary):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class IsNull(Unary):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class IsTruth(Unary):
    """Whether the item is exactly TRUE, or FALSE; never NULL."""

    truth: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Negative(Unary):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast(Unary):
    """To the node's type; `whole` numbers are cut off towards zero."""

    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Like(Unary):
    pattern: str
    escape: str
    ignore_case: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OneOf(Unary):
    """IN with constants only, none of them NULL; `has_null` if one was."""

    options: tuple[Any, ...]
    has_null: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Several(SyntaxNode):
    """A node made from any number of others."""

    items: tuple[SyntaxNode, ...]

    @property
    def children(self) -> tuple[SyntaxNode, ...]:
        return self.items


@dataclass(frozen=True, slots=True, kw_only=True)
class And(Several):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Or(Several):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall(Several):
    function: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Several):
    """`items` are conditions and results in turn, then the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary(SyntaxNode):
    left: SyntaxNode
    right: SyntaxNode

    @property
    def children(self) -> tuple[SyntaxNode, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare(Binary):
    operator: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Same(Binary):
    """IS NOT DISTINCT FROM: NULL is the same as NULL; never NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic(Binary):
    operator: Literal["+", "-", "*", "/", "%"]


def walk(node: SyntaxNode) -> Iterator[SyntaxNode]:
    """Yield `node` and everything below it, each before what it is made from."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += reversed(found.children)
