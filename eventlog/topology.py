"""The cluster as a client sees it: which node is primary of which segment, and where nodes listen."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """One state of the cluster's routing. Of two, the one with the higher `epoch` is newer.

    `primaries[segment]` is a node number, 0 where nobody is primary; `addresses` has every member's `host:port`.
    """

    epoch: int
    primaries: tuple[int, ...]
    addresses: Mapping[int, str]

    @property
    def segments(self) -> int:
        """Return the number of segments, a power of two."""
        return len(self.primaries)
