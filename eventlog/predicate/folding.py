"""What is made of constants alone is worked out once, while a predicate is read."""

from eventlog.predicate.checking import constant
from eventlog.predicate.frame import Frame
from eventlog.predicate.tree import Constant, Node
from eventlog.predicate.truths import truth_of
from eventlog.predicate.values import values_of


class _One(Frame):
    """One event of which nothing is known."""

    __slots__ = ()

    def __init__(self) -> None:
        pass

    def __len__(self) -> int:
        return 1


def folded(node: Node) -> Node:
    """Return the constant that a node is, or the node."""
    if not all(isinstance(child, Constant) for child in node.children):
        return node
    (value,) = values_of(node, truth_of)(_One())
    return (
        Constant(at=node.at, type="null" if value is None else node.type, value=value) if node.type == "time" else constant(value, node.at)
    )
