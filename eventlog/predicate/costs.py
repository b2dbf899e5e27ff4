"""What judging by a node costs, as far as it decides the order in which conditions are asked."""

from eventlog.predicate.tree import Column, Header, Like, Node, Path, walk

VALUE = 40  # a value is decoded


def cost_of(node: Node) -> int:
    """Return the cost of the dearest thing that a node looks at; more of them, or patterns, add to it."""
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
