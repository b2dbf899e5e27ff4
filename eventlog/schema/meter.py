"""What the check of a value may take. Schemas are anybody's, and so are values: together they may ask for any amount of work.

A step is one or two tenths of a microsecond: one schema that looks at one value, one field of a record, one item. What is worth more
than that, as the match of a pattern, takes several.
"""

from eventlog.limits import CHECK_STEPS_A_BYTE_MAX, CHECK_STEPS_MIN


class OutOfSteps(Exception):
    """A check was not ended: it takes more steps than it was given."""


class Meter:
    """Counts down; a negative `left` ends a check. Hot loops count by themselves, without `take`."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, steps: int) -> None:
        """Take some steps.

        Raises:
            OutOfSteps: so many are not left.
        """
        self.left -= steps
        if self.left < 0:
            raise OutOfSteps


def steps_of(value: bytes) -> int:
    """Return how many steps the check of a value may take."""
    return CHECK_STEPS_MIN + CHECK_STEPS_A_BYTE_MAX * len(value)
