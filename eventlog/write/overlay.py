"""Committed entries that the store does not hold yet, group by group, newest first to look in."""

from collections import deque
from collections.abc import Sequence

from eventlog.segment.port import Put, Store

_MISSING = object()
_MERGED_ENTRIES_MAX = 16_384


_HELD_MAX = 24  # keys for which the store's memory is asked: the loop waits for it


class _Layer:
    """The entries of `groups` groups that followed each other; `size` counts a key as often as it was written."""

    __slots__ = ("_entries", "groups", "size", "unread")

    def __init__(self) -> None:
        self._entries: dict[bytes, bytes | None] = {}
        self.unread: list[Sequence[Put]] = []
        self.groups = 0
        self.size = 0

    def entries(self) -> dict[bytes, bytes | None]:
        """Return the last word on each key. Put together for the first caller: on a backup there is hardly any."""
        for entries in self.unread:
            self._entries.update(entries)
        self.unread.clear()
        return self._entries


class Overlay:
    """`(state key, stored entry, or None when removed)`, by group. `nbytes` is what they hold, roughly.

    Small groups share a layer, because a read looks into each: they go together, when the last of them does.
    """

    __slots__ = ("_layers", "_sizes", "nbytes", "peak")

    def __init__(self) -> None:
        self._layers: deque[_Layer] = deque()
        self._sizes: deque[int] = deque()  # of groups, the oldest first
        self.nbytes = 0
        self.peak = 0

    def push(self, entries: Sequence[Put], nbytes: int) -> None:
        """Show the entries of a group, in the order of its events, to readers, above all others. They are not changed any more."""
        if not self._layers or self._layers[0].size + len(entries) > _MERGED_ENTRIES_MAX:
            self._layers.appendleft(_Layer())
        layer = self._layers[0]
        layer.unread.append(entries)
        layer.groups += 1
        layer.size += len(entries)
        self._sizes.append(nbytes)
        self.nbytes += nbytes
        self.peak = max(self.peak, self.nbytes)

    def pop_oldest(self) -> None:
        """Drop the oldest group: the store holds it now."""
        self.nbytes -= self._sizes.popleft()
        oldest = self._layers[-1]
        oldest.groups -= 1
        if not oldest.groups:
            self._layers.pop()

    def find(self, keys: Sequence[bytes]) -> tuple[dict[bytes, bytes | None], list[bytes]]:
        """Return what the layers say of `keys`, and the keys that only the store can tell."""
        found: dict[bytes, bytes | None] = {}
        missing = list(keys)
        for layer in self._layers:
            rest = []
            get = layer.entries().get
            for key in missing:
                entry = get(key, _MISSING)
                if entry is _MISSING:
                    rest.append(key)
                else:
                    found[key] = entry  # type: ignore[assignment]  # not the sentinel
            missing = rest
            if not missing:
                break
        return found, missing

    def within(self, lower: bytes, upper: bytes) -> dict[bytes, bytes | None]:
        """Return what the layers say of keys in `[lower, upper)`, the newest word of each."""
        found: dict[bytes, bytes | None] = {}
        for layer in reversed(self._layers):
            found.update({key: entry for key, entry in layer.entries().items() if lower <= key < upper})
        return found


def find_held(overlay: Overlay, store: Store, keys: Sequence[bytes]) -> tuple[dict[bytes, bytes | None], list[bytes]]:
    """Return what memory says of the state of `keys`, and the keys for which the disk may have to be read.

    A hop to a thread that reads, and back, takes longer than all the rest of a single get.
    """
    found, missing = overlay.find(keys)
    if missing and len(missing) <= _HELD_MAX and (held := store.get_in_memory(missing)) is not None:
        found.update(zip(missing, held, strict=True))
        missing = []
    return found, missing
