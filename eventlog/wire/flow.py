"""How much may be under way: byte budgets of a process and of its connections, the credit of a stream, and memory for what is coming.

Memory that a peer's length asks for is reserved at once, there only as far as it is written, used again when nobody looks at it.
"""

from collections.abc import Callable
from sys import getrefcount
from typing import Any, Final

from eventlog.errors import Overloaded
from eventlog.limits import KIB, MIB

CREDIT_BYTES_CAP: Final = 1 << 31
REQUEST_WEIGHT_BYTES: Final = 1 << 10
"""What a request weighs beside its bytes: the objects that stand for it until it is answered."""
POOLED_BYTES_MAX: Final = 32 * MIB
SLAB_BYTES: Final = 16 * MIB
SHARED_BYTES: Final = 192 * KIB
_ALIGNMENT = 64
_UNUSED = 2  # references to a slab that only the pool holds: the pool's, getrefcount's


class ProcessBudget:
    """Bytes that all connections of a process hold for one purpose. `used` is their sum, always.

    A waiter is called once when there is room again; one that finds none then waits anew.
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
        """Count `size` bytes as gone, wake the waiters."""
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

    `used` may be changed by the holder of the budget; `settle`, once after a run of changes, tells the process of their sum.
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


def reserve(size: int) -> memoryview:
    """Return writable memory of `size` bytes with any content, at an address that is a multiple of 8.

    Not zeroed, unlike a bytearray: a length that somebody claims costs nothing until the bytes are there.

    Raises:
        MemoryError: there is not even that much to reserve.
    """
    return _empty(size).data  # type: ignore[no-any-return]  # numpy is not imported where types are read


def _empty(size: int) -> Any:
    from numpy import empty, uint8  # noqa: PLC0415  # a client that sees neither large nor compressed frames starts without numpy

    return empty(size, uint8)


class Arena:
    """What the readers of one thread share: a buffer for small frames, and slabs from which large ones are cut.

    Memory fresh from the kernel costs more than what is copied into it (a page fault per 4 KiB: 500 us a MiB against 150), and the
    allocator gives large blocks back at once. So a few slabs are kept, and used again once no view of them is left. Frames that come
    one after the other lie side by side in a slab, so that several together need not be copied. A view holds its whole slab;
    while all are held, memory is of the size that was asked for, so that a few frames kept for long cost no more than the pool.
    """

    __slots__ = ("_at", "_pool", "shared")

    def __init__(self) -> None:
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self._pool: list[Any] = []  # the last one is cut from, below `_at` it is given away
        self._at = 0

    @property
    def pooled_bytes(self) -> int:
        """Return how many bytes are kept to be used again."""
        return sum(slab.nbytes for slab in self._pool)

    def reserve(self, size: int) -> memoryview:
        """As `reserve` of this module; the memory comes back by itself when the last view of its slab is gone."""
        if not self._pool or not self._has_room(size):
            if not self._find_slab(size):
                return reserve(size)
            self._at = 0
        at = self._at
        self._at = -(-(at + size) // _ALIGNMENT) * _ALIGNMENT
        return self._pool[-1].data[at : at + size]  # type: ignore[no-any-return]  # as above

    def _has_room(self, size: int) -> bool:
        if getrefcount(self._pool[-1]) == _UNUSED:
            self._at = 0
        return bool(self._at + size <= self._pool[-1].nbytes)

    def _find_slab(self, size: int) -> bool:
        """Have a slab of at least `size` bytes that nobody looks at as the last of the pool; those too small make room for it."""
        pool = self._pool
        for place in reversed(range(len(pool))):
            if getrefcount(pool[place]) == _UNUSED:
                slab = pool.pop(place)
                if slab.nbytes >= size:
                    pool.append(slab)
                    return True
        wanted = max(SLAB_BYTES, size)
        if sum(slab.nbytes for slab in pool) + wanted > POOLED_BYTES_MAX:
            return False
        pool.append(_empty(wanted))
        return True
