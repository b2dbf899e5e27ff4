"""What a near cache's server decides: which events concern it.

A reader is told of writes to keys whose digests are in its `Interest`: xxh3_64 of the key, so two keys in 10**19 are taken for each
other, which costs an invalidation and nothing else.
"""

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints

Digests = npt.NDArray[np.uint64]


class Interest:
    """A set of digests, in order."""

    __slots__ = ("_digests",)

    def __init__(self, digests: Digests) -> None:
        self._digests = _distinct(digests)

    def __len__(self) -> int:
        return len(self._digests)

    def change(self, *, added: Digests, removed: Digests) -> None:
        """Take out what is removed, then put in what is added."""
        if len(removed):
            places, is_there = self._find(_distinct(removed))
            self._digests = np.delete(self._digests, places[is_there])
        if len(added):
            new = _distinct(added)
            places, is_there = self._find(new)
            self._digests = np.insert(self._digests, places[~is_there], new[~is_there])

    def matches(self, digests: Digests, ids: Ints) -> dict[int, int]:
        """Return the digests in the set, each with the last of its `ids`; those of a digest rise."""
        rows = np.flatnonzero(self._find(digests)[1])
        return dict(zip(digests[rows].tolist(), ids[rows].tolist(), strict=True))

    def _find(self, digests: Digests) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return where digests are or would be, and which of them are."""
        own = self._digests
        if not len(own):
            return np.zeros(len(digests), np.int64), np.zeros(len(digests), bool)
        places = own.searchsorted(digests)
        return places, own.take(places, mode="clip") == digests


def _distinct(digests: Digests) -> Digests:
    """Return digests in order, each once; by sorting alone, as `np.unique` may also go through a hash table, which takes far longer."""
    found = np.sort(digests)
    is_first = np.ones(len(found), bool)
    is_first[1:] = found[1:] != found[:-1]
    return found[is_first]
