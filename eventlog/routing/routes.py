"""Key -> segment -> node."""

from collections.abc import Sequence
from dataclasses import dataclass

from eventlog.hashing import hash_key, route_bytes, segment_of

NOBODY = 0
"""Stands for a node where none is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Where requests go, as far as this client knows: node numbers by segment. Without any, every node is as good as another."""

    segments: int
    primaries: Sequence[int] = ()

    def segment(self, key: bytes, *, by_prefix: bool = False) -> int:
        """Return the segment of `key`, `[0, segments)`; `by_prefix` for a cache that is routed by the part before the first 0x00."""
        return segment_of(hash_key(route_bytes(key, by_prefix=True) if by_prefix else key), self.segments)

    def primary(self, segment: int) -> int:
        """Return the node that takes the requests of `segment`, `NOBODY` if none is known: any node forwards."""
        return self.primaries[segment] if self.primaries else NOBODY

    def by_primary(self, segments: Sequence[int]) -> dict[int, list[int]]:
        """Return segments by primary, in their order."""
        found: dict[int, list[int]] = {}
        for segment in segments:
            found.setdefault(self.primary(segment), []).append(segment)
        return found
