"""Hosts and racks: what fails together, and how many copies of one segment may meet there.

Racks hold hosts, hosts hold nodes; what has no label is a host or a rack of its own. As far apart as can be means: the least number of
copies that some host, or some rack, must take is also the most that any of them takes; 1 where there are as many as copies.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eventlog.control.records import NodeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Domains:
    """Where members stand, by number; labels are made unique. At most `per_host` and `per_rack` copies of a segment meet."""

    host_of: Mapping[int, str]
    rack_of: Mapping[int, str]
    per_host: int
    per_rack: int

    def may_hold(self, node: int, others: Iterable[int]) -> bool:
        """Return whether a copy at `node` is far enough from those at `others`."""
        hosts = racks = 0
        for other in others:
            hosts += self.host_of.get(other) == self.host_of[node]
            racks += self.rack_of.get(other) == self.rack_of[node]
        return hosts < self.per_host and racks < self.per_rack


def domains_of(members: Sequence[NodeRecord], replicas: int) -> Domains:
    """Return hosts and racks of the members, and how far apart `replicas` copies can be kept."""
    host_of = {node.number: f"host {node.host_label}" if node.host_label else f"node {node.number}" for node in members}
    rack_of_host: dict[str, str] = {}
    for node in members:  # a host stands in one rack, whatever its nodes say
        host = host_of[node.number]
        if node.rack and rack_of_host.get(host, host) == host:
            rack_of_host[host] = f"rack {node.rack}"
        rack_of_host.setdefault(host, host)
    rack_of = {number: rack_of_host[host] for number, host in host_of.items()}
    nodes_of: dict[str, list[int]] = {}
    for number, host in host_of.items():
        nodes_of.setdefault(host, []).append(number)
    per_host = _least([len(numbers) for numbers in nodes_of.values()], replicas)
    room: dict[str, int] = {}
    for numbers in nodes_of.values():
        rack = rack_of[numbers[0]]
        room[rack] = room.get(rack, 0) + min(per_host, len(numbers))
    return Domains(host_of=host_of, rack_of=rack_of, per_host=per_host, per_rack=_least(list(room.values()), replicas))


def _least(rooms: Sequence[int], replicas: int) -> int:
    """Return the smallest k with which `min(k, room)` summed over all reaches `replicas`, the largest room where none does."""
    largest = max(rooms, default=1)
    return next((most for most in range(1, largest) if sum(min(most, room) for room in rooms) >= replicas), largest)
