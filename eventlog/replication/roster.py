"""The replicas that a primary counts on, one row each: what they acknowledged, and whether the watermark waits for them.

A replica is a node's incarnation, so what another incarnation of the same node says never counts for this one.
"""

from collections.abc import Collection, Iterable

import numpy as np

from eventlog.arrays import Ints
from eventlog.replication.terms import Replica

OWN = 0
MAX = np.iinfo(np.int64).max
_SLOTS_FIRST = 4


class Roster:
    """Rows by slot, columns by segment; slot 0 is this node.

    `acknowledged`: end of the replica's log in this epoch, -1 unknown; `in_sync`: member of the recorded set; `awaited`: member of it
    or of a proposed one. `counted` is `acknowledged` where awaited and MAX elsewhere: its minimum is what all awaited ones hold.
    """

    def __init__(self, segments: int, own: Replica) -> None:
        self._segments = segments
        self._slots = {own: OWN}
        self.replicas = [own]
        self.away_ms = [0]  # since when there is no connection, for those without
        self.was_here = [True]
        self.is_here = [True]
        self._fates: Ints | None = None
        self._are_fates_known = False
        self._allocate(_SLOTS_FIRST)
        self._view()

    def _allocate(self, slots: int) -> None:
        shape = (slots, self._segments)
        self._acknowledged = np.full(shape, -1, np.int64)
        self._counted = np.full(shape, MAX, np.int64)
        self._in_sync = np.zeros(shape, bool)
        self._awaited = np.zeros(shape, bool)

    def _view(self) -> None:
        used = len(self.replicas)
        self.acknowledged, self.counted = self._acknowledged[:used], self._counted[:used]
        self.in_sync, self.awaited = self._in_sync[:used], self._awaited[:used]
        self.counted_rows = list(self.counted)
        self.acknowledged_rows = list(self.acknowledged)
        self.awaited_rows = list(self.awaited)

    def find(self, replica: Replica) -> int | None:
        """Return the slot of a replica that has one."""
        return self._slots.get(replica)

    def slots(self, replicas: Iterable[Replica], *, now_ms: int) -> dict[Replica, int]:
        """Return the slots of replicas that belong together: none of them gives way to another of them."""
        found: dict[Replica, int] = {}
        for replica in replicas:
            found[replica] = self.slot(replica, now_ms=now_ms, keep=found.values())
        return found

    def slot(self, replica: Replica, *, now_ms: int, keep: Collection[int] = ()) -> int:
        """Return the slot of a replica; one that nothing depends on, and that is not to be kept, may give up its own for it."""
        known = self._slots.get(replica)
        if known is not None:
            return known
        for slot in range(1, len(self.replicas)):
            if slot not in keep and not self.is_here[slot] and not np.count_nonzero(self._awaited[slot]):
                return self._reuse(slot, replica, now_ms)
        slot = len(self.replicas)
        if slot == len(self._acknowledged):
            self._grow()
        self.replicas.append(replica)
        self.away_ms.append(now_ms)
        self.was_here.append(False)
        self.is_here.append(False)
        self._slots[replica] = slot
        self._view()
        return slot

    def _reuse(self, slot: int, replica: Replica, now_ms: int) -> int:
        del self._slots[self.replicas[slot]]
        self._slots[replica] = slot
        self._are_fates_known = False
        self.replicas[slot] = replica
        self.away_ms[slot], self.was_here[slot], self.is_here[slot] = now_ms, False, False
        self._acknowledged[slot] = -1
        self._counted[slot] = MAX
        self._in_sync[slot] = False
        return slot

    def _grow(self) -> None:
        old = self._acknowledged, self._counted, self._in_sync, self._awaited
        self._allocate(2 * len(self._acknowledged))
        for new, rows in zip((self._acknowledged, self._counted, self._in_sync, self._awaited), old, strict=True):
            new[: len(rows)] = rows

    def fates(self) -> Ints | None:
        """Return a number for each segment, equal where the same replicas are awaited; None where those are the same for all.

        What waits for the same replicas is held up by the same ones. Segments that nobody is awaited for do not count.
        """
        if not self._are_fates_known:
            self._are_fates_known = True
            awaited = self.awaited[OWN]
            fates = np.packbits(self.awaited, axis=0, bitorder="little").astype(np.int64)
            numbers = np.zeros(self._segments, np.int64)
            for row in fates[::-1]:
                numbers = numbers << 8 | row
            self._fates = numbers if len(np.unique(numbers[awaited])) > 1 else None
        return self._fates

    def reset(self, segment: int) -> None:
        """Forget all acknowledgements of a segment: a new epoch begins, or this node leads it no more."""
        self._are_fates_known = False
        self._acknowledged[:, segment] = -1
        self._counted[:, segment] = MAX
        self._in_sync[:, segment] = False
        self._awaited[:, segment] = False

    def await_(self, segment: int, *, in_sync: set[int], awaited: set[int]) -> None:
        """Set members by slot, and what of them is counted."""
        self._are_fates_known = False
        self.in_sync[:, segment] = False
        self.in_sync[list(in_sync), segment] = True
        members = list(awaited)
        self.awaited[:, segment] = False
        self.awaited[members, segment] = True
        self.counted[:, segment] = MAX
        self.counted[members, segment] = self.acknowledged[members, segment]
