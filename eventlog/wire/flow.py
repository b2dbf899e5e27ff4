"""How much may be under way: byte budgets of a process and of its connections, and the credit of a stream."""

from collections.abc import Callable
from typing import Final

from eventlog.errors import Overloaded

CREDIT_BYTES_CAP: Final = 1 << 31
REQUEST_WEIGHT_BYTES: Final = 1 << 10
"""What a request weighs beside its bytes: the objects that stand for it until it is answered."""


class ProcessBudget:
    """Bytes that all connections of a process hold for one purpose. `used` is their sum, always.

    Whoever waits is called once when there is room again; who finds none then waits anew.
    """

    __slots__ = ("_waiting", "holders", "limit", "peak", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.peak = 0
        self.holders = 0
        self._waiting: dict[Callable[[], None], None] = {}  # in the order of their coming

    @property
    def share(self) -> int:
        """What each connection may hold even while others fill the process: so a few that hog it never stop the rest.

        All of them together stay below twice the limit, but for the last thing that each began.
        """
        return self.limit // max(1, self.holders)

    def check(self, size: int) -> None:
        """Refuse `size` bytes, which are there already, where shares alone do not explain what is held.

        Raises:
            Overloaded: many connections hold one large thing each.
        """
        if self.used > 2 * self.limit and size > self.share:
            raise Overloaded(what="the number of bytes in flight", limit=self.limit)

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes more stay within the limit; one that alone is above it gets its turn when nothing else is there."""
        return self.used == 0 or self.used + size <= self.limit

    def take(self, size: int) -> None:
        """Count `size` bytes."""
        self.used += size
        self.peak = max(self.peak, self.used)

    def give(self, size: int) -> None:
        """Count `size` bytes as gone, wake who waits."""
        assert size <= self.used, "more given back than taken"
        self.used -= size
        if self._waiting and self.used <= self.limit:
            waiting, self._waiting = self._waiting, {}
            for wake in waiting:
                wake()

    def wait(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, once, when something was given back and the whole is within its limit."""
        self._waiting[wake] = None


class ByteBudget:
    """Bytes in flight of one connection, counted in the process too.

    `used` may be changed by whoever holds the budget; `settle`, once after a run of changes, tells the process of their sum.
    """

    __slots__ = ("_settled", "limit", "process", "used")

    def __init__(self, limit: int, process: ProcessBudget) -> None:
        self.limit = limit
        self.process = process
        self.used = 0
        self._settled = 0  # the part of the process's `used` that is ours

    def open(self) -> None:
        """Join the process's count of holders. Once, before anything is taken."""
        self.process.holders += 1

    @property
    def is_full(self) -> bool:
        """Whether the connection must not start anything more."""
        process = self.process
        return self.used > self.limit or (process.used > process.limit and self.used > process.share)

    def settle(self) -> None:
        """Count in the process what was taken and given since the last time."""
        change, self._settled = self.used - self._settled, self.used
        if change > 0:
            self.process.take(change)
        elif change < 0:
            self.process.give(-change)

    def close(self) -> None:
        """Give everything back and leave the process's count of holders. Once."""
        self.process.holders -= 1
        self.used = 0
        self.settle()


class Credit:
    """What one side of a stream may still send. One item may overdraw it, so that an item above the credit is not stuck."""

    __slots__ = ("balance",)

    def __init__(self, balance: int) -> None:
        self.balance = balance

    def take(self, size: int) -> None:
        """Count an item of `size` bytes as sent."""
        self.balance -= size

    def give(self, size: int) -> bool:
        """Add credit, up to the cap; True if it was used up before and is not any more."""
        was_empty = self.balance <= 0
        self.balance = min(self.balance + size, CREDIT_BYTES_CAP)
        return was_empty and self.balance > 0
