"""Which keys of a cache exist, as a set of their 64-bit hashes: 16 to 32 bytes a key, looked up a thousand at a time.

A miss is certain; a hit is certain but for a collision of xxh3_64, which shows as MODIFIED instead of CREATED.
"""

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
_EMPTY, _GONE = np.uint64(0), np.uint64(1)
_ROOM_MIN = 1 << 10


class KeyTable:
    """An open-addressing set with linear probing, at most half full (removed places counted)."""

    __slots__ = ("_mask", "_slots", "_used", "size")

    def __init__(self, expected: int = 0) -> None:
        self.size = 0
        self._allocate(expected)

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self._slots.nbytes

    def contains(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Return which of `hashes` are in the set."""
        if len(hashes) == 1:
            return np.array([self._has(hashes.item(0))])
        found = np.zeros(len(hashes), bool)
        wanted = _storable(hashes)
        places = wanted & self._mask
        rows = np.arange(len(hashes))
        while len(rows):
            seen = self._slots[places]
            hit = seen == wanted
            found[rows[hit]] = True
            going = ~(hit | (seen == _EMPTY))
            rows, wanted = rows[going], wanted[going]
            places = (places[going] + np.uint64(1)) & self._mask
        return found

    def _has(self, hashed: int) -> bool:
        wanted = hashed + 2 if hashed <= 1 else hashed
        mask, slots = len(self._slots) - 1, self._slots
        place = wanted & mask
        while (seen := slots.item(place)) != wanted:
            if seen == 0:
                return False
            place = place + 1 & mask
        return True

    def add(self, hashes: Hashes) -> None:
        """Add hashes, each once, none of which is in the set."""
        if (self._used + len(hashes)) * 2 > len(self._slots):
            self._grow(len(hashes))
        self._place(_storable(hashes))
        self.size += len(hashes)

    def remove(self, hashes: Hashes) -> None:
        """Remove hashes, each once, all of which are in the set."""
        wanted = _storable(hashes)
        places = wanted & self._mask
        self.size -= len(hashes)
        while len(wanted):
            hit = self._slots[places] == wanted
            self._slots[places[hit]] = _GONE
            wanted = wanted[~hit]
            places = (places[~hit] + np.uint64(1)) & self._mask

    def _place(self, wanted: Hashes) -> None:
        places = wanted & self._mask
        while len(wanted):
            seen = self._slots[places]
            free = seen <= _GONE
            self._used += len(np.unique(places[seen == _EMPTY]))
            self._slots[places[free]] = wanted[free]
            lost = self._slots[places] != wanted  # taken before, or by another of these
            wanted = wanted[lost]
            places = (places[lost] + np.uint64(1)) & self._mask

    def _allocate(self, expected: int) -> None:
        room = max(_ROOM_MIN, 1 << (2 * expected).bit_length())
        self._slots = np.zeros(room, np.uint64)
        self._mask = np.uint64(room - 1)
        self._used = 0

    def _grow(self, more: int) -> None:
        kept = self._slots[self._slots > _GONE]
        self._allocate(len(kept) + more)
        self._place(kept)


def _storable(hashes: Hashes) -> Hashes:
    """Return hashes apart from the two that mark free places."""
    return np.where(hashes <= _GONE, hashes + np.uint64(2), hashes)
