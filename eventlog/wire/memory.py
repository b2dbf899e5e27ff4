"""Memory for what a peer says is coming: reserved at once, there only as far as it is written, used again when nobody looks at it."""

from sys import getrefcount
from typing import Any, Final

from eventlog.limits import KIB, MIB

POOLED_BYTES_MAX: Final = 32 * MIB
SLAB_BYTES: Final = 16 * MIB
SHARED_BYTES: Final = 192 * KIB
_ALIGNMENT = 64
_UNUSED = 2  # references to a slab that only the pool holds: the pool's, getrefcount's


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
    one after the other lie side by side in a slab, so that who takes several together need not copy them. A view holds its whole slab;
    while all are held, memory is of the size that was asked for, so that a few frames kept for long cost no more than the pool.
    """

    __slots__ = ("_at", "_pool", "shared")

    def __init__(self) -> None:
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self._pool: list[Any] = []  # the last one is cut from, below `_at` it is given away
        self._at = 0

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
