"""Which keys of a cache exist, as a set of their 64-bit hashes: 16 to 32 bytes a key, looked up a thousand at a time.

A miss is certain; a hit is certain but for a collision of xxh3_64, which shows as MODIFIED instead of CREATED.
"""

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.events import Kind

Hashes = npt.NDArray[np.uint64]
_EMPTY, _GONE = np.uint64(0), np.uint64(1)
_ROOM_MIN = 1 << 10
_TURN_BITS = 12  # more than segments take
_TURN = np.uint64(_TURN_BITS)
_MASK = (1 << 64) - 1


class KeyTable:
    """An open-addressing set with linear probing, at most half full (removed places counted).

    A hash is kept turned, so that its home, the top bits of what is kept, says nothing of its segment: a node that leads few segments
    uses the whole table. Homes rise with what is kept, so a larger table is filled by one sort instead of rounds of probing: 60 ms
    instead of 5.7 s at two million keys.
    """

    __slots__ = ("_shift", "_slots", "_used", "size")

    def __init__(self, expected: int = 0) -> None:
        self.size = 0
        self._allocate(expected)

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self._slots.nbytes

    def contains(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        if len(hashes) == 1:
            return np.array([self.has(hashes.item(0))])
        found = np.zeros(len(hashes), bool)
        wanted = _kept(hashes)
        places = self._homes(wanted)
        rows = np.arange(len(hashes))
        while len(rows):
            seen = self._slots[places]
            hit = seen == wanted
            found[rows[hit]] = True
            going = ~(hit | (seen == _EMPTY))
            rows, wanted = rows[going], wanted[going]
            places = self._after(places[going])
        return found

    def has(self, hashed: int) -> bool:
        """Return whether one hash is in the set, without arrays."""
        return self._find(hashed) >= 0

    def _find(self, hashed: int) -> int:
        """Return where a hash is; where it is not, `~place` of the first place on its way that is free for it."""
        wanted = _kept_one(hashed)
        slots, mask = self._slots, len(self._slots) - 1
        place, free = wanted >> int(self._shift), -1
        while (seen := slots.item(place)) != wanted:
            if seen <= 1 and free < 0:
                free = place
            if seen == 0:
                return ~free
            place = place + 1 & mask
        return place

    def put_one(self, hashed: int, *, is_there: bool) -> None:
        """Have one hash in the set, or not, without arrays."""
        place = self._find(hashed)
        if is_there and place < 0:
            if (self._used + 1) * 2 > len(self._slots):
                self._grow(1)
                place = self._find(hashed)
            self._used += self._slots.item(~place) == 0
            self._slots[~place] = _kept_one(hashed)
            self.size += 1
        elif place >= 0 and not is_there:
            self._slots[place] = _GONE
            self.size -= 1

    def add(self, hashes: Hashes) -> None:
        """Add hashes, each once, none of which is in the set."""
        if (self._used + len(hashes)) * 2 > len(self._slots):
            self._grow(len(hashes))
        self._place(_kept(hashes))
        self.size += len(hashes)

    def remove(self, hashes: Hashes) -> None:
        """Remove hashes, each once, all of which are in the set."""
        wanted = _kept(hashes)
        places = self._homes(wanted)
        self.size -= len(hashes)
        while len(wanted):
            hit = self._slots[places] == wanted
            self._slots[places[hit]] = _GONE
            wanted = wanted[~hit]
            places = self._after(places[~hit])

    def _homes(self, kept: Hashes) -> npt.NDArray[np.int64]:
        return (kept >> self._shift).astype(np.int64)

    def _after(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return places + 1 & len(self._slots) - 1

    def _place(self, wanted: Hashes) -> None:
        places = self._homes(wanted)
        while len(wanted):
            seen = self._slots[places]
            free = seen <= _GONE
            self._slots[places[free]] = wanted[free]
            lost = self._slots[places] != wanted  # taken before, or by another of these
            self._used += int(np.count_nonzero(~lost & (seen == _EMPTY)))
            wanted = wanted[lost]
            places = self._after(places[lost])

    def _allocate(self, expected: int) -> None:
        room = max(_ROOM_MIN, 1 << (2 * expected).bit_length())
        self._slots = np.zeros(room, np.uint64)
        self._shift = np.uint64(65 - room.bit_length())
        self._used = 0

    def _grow(self, more: int) -> None:
        kept = np.sort(self._slots[self._slots > _GONE])
        self._allocate(len(kept) + more)
        order = np.arange(len(kept))
        places = np.maximum.accumulate(self._homes(kept) - order) + order  # each at its home, or right behind the one before it
        fits = int(places.searchsorted(len(self._slots)))
        self._slots[places[:fits]] = kept[:fits]
        self._used = fits
        self._place(kept[fits:])


def _kept_one(hashed: int) -> int:
    turned = (hashed << _TURN_BITS | hashed >> 64 - _TURN_BITS) & _MASK
    return turned + 2 if turned <= 1 else turned


def _kept(hashes: Hashes) -> Hashes:
    """Return hashes as they are kept: turned, and apart from the two numbers that mark free places."""
    turned = hashes << _TURN | hashes >> np.uint64(64) - _TURN
    return np.where(turned <= _GONE, turned + np.uint64(2), turned)


def update_table(table: KeyTable, *, hashes: Hashes, kinds: npt.NDArray[np.uint8], rows: Ints) -> None:
    """Bring `table` up to date with the writes in `rows` that had an effect: only the last one to each key counts."""
    if not len(rows):
        return
    last = rows if len(rows) == 1 else _last_of_each(hashes, rows)
    known = table.contains(hashes[last])
    present = kinds[last] <= Kind.MODIFIED
    if np.count_nonzero(present != known):
        table.add(hashes[last[present & ~known]])
        table.remove(hashes[last[~present & known]])


def _last_of_each(hashes: Hashes, rows: Ints) -> Ints:
    order = hashes[rows].argsort(kind="stable")
    ordered = rows[order]
    is_last = np.ones(len(rows), bool)
    np.not_equal(hashes[ordered[1:]], hashes[ordered[:-1]], out=is_last[:-1])
    return ordered[is_last]
