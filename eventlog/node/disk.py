"""Watching the free space: below the reserve writes are refused, before the engine itself runs out of room."""

from eventlog.errors import DiskFull
from eventlog.segment.port import Store


class DiskWatch:
    """`check` raises while less than the reserve is free; `look` is called every quarter of a second and after large groups."""

    def __init__(self, store: Store, *, reserve_bytes: int) -> None:
        self._store = store
        self.reserve_bytes = reserve_bytes
        self.free_bytes = store.free_bytes()

    def look(self) -> None:
        """Read how much is free now."""
        self.free_bytes = self._store.free_bytes()

    @property
    def is_full(self) -> bool:
        """Whether the reserve is touched."""
        return self.free_bytes < self.reserve_bytes

    def has_room(self, nbytes: int) -> bool:
        """Return whether so much can be written that nobody has to have: twice the reserve stays free."""
        return self.free_bytes - nbytes > 2 * self.reserve_bytes

    def check(self) -> None:
        """Raise DiskFull while the reserve is touched."""
        if self.is_full:
            raise DiskFull(free_bytes=self.free_bytes, reserve_bytes=self.reserve_bytes)
