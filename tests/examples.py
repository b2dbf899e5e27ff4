"""How many examples a property gets that asks for a number of its own."""

from hypothesis import settings

QUICK = 15
"""What the inner loop tries, of any property."""


def examples(count: int) -> int:
    """Return `count`, in the inner loop no more than its profile says."""
    return min(count, QUICK) if settings.default is not None and settings.default.max_examples == QUICK else count
