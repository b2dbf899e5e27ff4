"""Key -> segment -> address."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from eventlog.hashing import hash_key, route_bytes, segment_of
from eventlog.routing.addresses import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Where requests go, as far as this client knows. A segment without a known primary goes to `gateway`: any node forwards."""

    segments: int
    gateway: Address
    primaries: Mapping[int, Address] = field(default_factory=dict)

    def segment(self, key: bytes, *, by_prefix: bool = False) -> int:
        """Return the segment of `key`, `[0, segments)`; `by_prefix` for a cache that is routed by the part before the first 0x00."""
        return segment_of(hash_key(route_bytes(key, by_prefix=by_prefix)), self.segments)

    def address(self, segment: int) -> Address:
        """Return the address that takes the requests of `segment`."""
        return self.primaries.get(segment, self.gateway)
