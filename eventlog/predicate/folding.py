"""What is made of constants alone is worked out once, while a predicate is read."""

import numpy as np

from eventlog.predicate.checking import constant
from eventlog.predicate.frame import bare_frame
from eventlog.predicate.tree import Constant, Node
from eventlog.predicate.truths import truth_of
from eventlog.predicate.values import values_of

_ONE = bare_frame(np.zeros(1, np.uint8))


def folded(node: Node) -> Node:
    """Return the constant that a node is, or the node."""
    if not all(isinstance(child, Constant) for child in node.children):
        return node
    (value,) = values_of(node, truth_of)(_ONE)
    return (
        Constant(at=node.at, type="null" if value is None else node.type, value=value) if node.type == "time" else constant(value, node.at)
    )
