"""Watching the free space: below the reserve writes are refused, before the engine itself runs out of room.

Where it ran out all the same, in a merge or because others took the room, it notices only seconds later that there is space again, and
refuses until then. A write that it refuses would end the node, so the next one is asked for when it has taken one of nothing.
"""

from eventlog.errors import DiskFull
from eventlog.segment.port import Store


class DiskWatch:
    """`check` raises while less than the reserve is free; `look` is called every quarter of a second and after large groups.

    Once it was full it stays so until `resume` is called.
    """

    def __init__(self, store: Store, *, reserve_bytes: int) -> None:
        self._store = store
        self.reserve_bytes = reserve_bytes
        self.free_bytes = 0
        self.is_full = False
        self.look()

    def look(self) -> None:
        """Read how much is free now."""
        self.free_bytes = self._store.free_bytes()
        self.is_full = self.is_full or self.is_short

    @property
    def is_short(self) -> bool:
        """Whether the reserve is touched now."""
        return self.free_bytes < self.reserve_bytes

    @property
    def is_scarce(self) -> bool:
        """Whether not even half of the reserve is left now: what can wait is not written."""
        return 2 * self.free_bytes < self.reserve_bytes

    def resume(self) -> None:
        """Let writes be taken again: the store has taken one. Must not be called while the disk is short."""
        assert not self.is_short
        self.is_full = False

    def has_room(self, nbytes: int) -> bool:
        """Return whether so much can be written that nobody has to have: twice the reserve stays free."""
        return self.free_bytes - nbytes > 2 * self.reserve_bytes

    def check(self) -> None:
        """Raise DiskFull while the disk is full."""
        if self.is_full:
            raise DiskFull(free_bytes=self.free_bytes, reserve_bytes=self.reserve_bytes)
