"""Memory for what a peer says is coming: reserved at once, there only as far as it is written, used again when nobody looks at it."""

from collections import deque
from sys import getrefcount
from typing import Any, Final

from eventlog.limits import KIB, MIB

POOLED_BYTES_MAX: Final = 16 * MIB
SHARED_BYTES: Final = 192 * KIB
_ROUNDED_TO_BYTES = 64 * KIB
_UNUSED = 3  # references to an array that only the pool holds: the pool's, the loop's, getrefcount's


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
    """What the readers of one thread share: a buffer for small frames, and a pool of memory for large ones.

    Memory fresh from the kernel costs more than what is copied into it (a page fault per 4 KiB: 500 us a MiB against 150), and the
    allocator gives large blocks back at once. So the last few are kept here and handed out again once no view of them is left.
    """

    __slots__ = ("_pool", "_pooled_bytes", "shared")

    def __init__(self) -> None:
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self._pool: deque[Any] = deque()
        self._pooled_bytes = 0

    def reserve(self, size: int) -> memoryview:
        """As `reserve` of this module; the memory comes back by itself when the last view of it, or of a part of it, is gone."""
        for array in self._pool:
            if size <= array.nbytes <= 2 * size and getrefcount(array) == _UNUSED:
                return array.data[:size]  # type: ignore[no-any-return]  # as above
        array = _empty(-(-size // _ROUNDED_TO_BYTES) * _ROUNDED_TO_BYTES)
        if array.nbytes <= POOLED_BYTES_MAX:
            self._pool.append(array)
            self._pooled_bytes += array.nbytes
            while self._pooled_bytes > POOLED_BYTES_MAX:
                self._pooled_bytes -= self._pool.popleft().nbytes
        return array.data[:size]  # type: ignore[no-any-return]  # as above
