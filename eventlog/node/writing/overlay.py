"""Committed entries that the store does not hold yet: one layer a group, newest first to look in."""

from collections import deque
from collections.abc import Mapping, Sequence

_MISSING = object()


class Overlay:
    """Layers of `state key -> stored entry, or None when removed`. `nbytes` is what they hold, roughly."""

    __slots__ = ("_layers", "nbytes", "peak")

    def __init__(self) -> None:
        self._layers: deque[tuple[Mapping[bytes, bytes | None], int]] = deque()
        self.nbytes = 0
        self.peak = 0

    def push(self, layer: Mapping[bytes, bytes | None], nbytes: int) -> None:
        """Show `layer` to readers, above all others."""
        self._layers.appendleft((layer, nbytes))
        self.nbytes += nbytes
        self.peak = max(self.peak, self.nbytes)

    def pop_oldest(self) -> None:
        """Drop the oldest layer: the store holds it now."""
        _, nbytes = self._layers.pop()
        self.nbytes -= nbytes

    def find(self, keys: Sequence[bytes]) -> tuple[dict[bytes, bytes | None], list[bytes]]:
        """Return what the layers say of `keys`, and the keys that only the store can tell."""
        found: dict[bytes, bytes | None] = {}
        missing = list(keys)
        for layer, _ in self._layers:
            rest = []
            for key in missing:
                entry = layer.get(key, _MISSING)
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
        for layer, _ in reversed(self._layers):
            found.update({key: entry for key, entry in layer.items() if lower <= key < upper})
        return found
