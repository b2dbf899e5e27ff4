"""Which members hold which segments: a pure function of the members and of what each holds now.

Balanced: load follows weight, within one. Apart: copies of a segment stand in as many hosts and racks as can be, which goes before
balance. Still: no more copies move than balance and distance ask for; a balanced cluster stays as it is.

Racks hold hosts, hosts hold nodes; what has no label is a host or a rack of its own. As far apart as can be means: the least number of
copies that some host, or some rack, must take is also the most that any of them takes; 1 where there are as many as copies.

Copies that stand too close are moved, missing ones added, then copies go from members with much to members with little, one by one;
where none can go straight from one to the other, along the shortest chain of members in between. That ends where no chain makes the
load more even, which for loads of this kind is the most even there is.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from eventlog.control.records import NodeRecord

Owners = Mapping[int, tuple[int, ...]]
_LOOK_MAX = 64  # segments looked at for one whose primary need not move
Give = Callable[[int, int], int | None]  # (giver, taker) -> a segment that can go from one to the other


def place(
    members: Sequence[NodeRecord], owners: Owners, *, replicas: int, level: bool = True, barred: Collection[int] = ()
) -> dict[int, tuple[int, ...]]:
    """Return the owners of every segment in `owners`, `replicas` each (fewer only if there are fewer members), primaries first.

    `members` are those that may hold data; others lose what they have. Those in `barred` get nothing that they do not have, and lead
    nothing that others can lead, so that segments may stay incomplete. Without `level` segments are completed and nothing else moves.
    """
    replicas = min(replicas, len(members))
    if not replicas:
        return dict.fromkeys(owners, ())
    layout = _Layout(members, dict(sorted(owners.items())), replicas, frozenset(barred))
    layout.drop_surplus()
    if level:
        layout.spread()
    layout.fill()
    if level:
        layout.level()
    placed = {segment: _in_order(owners[segment], nodes) for segment, nodes in layout.nodes_of.items()}
    return level_primaries([node for node in members if node.number not in layout.barred], placed) if level else placed


def may_be_evened_out(members: Sequence[NodeRecord], owners: Owners, *, replicas: int) -> bool:
    """Return whether some copy can go straight from one member to another and makes load more even; less than planning finds."""
    layout = _Layout(members, owners, min(replicas, len(members)), frozenset())
    held, weights = layout.held, layout.weights
    return any(_evens(held, weights, giver, taker) and layout.give(giver, taker) is not None for giver, taker in permutations(held, 2))


def _in_order(before: Sequence[int], nodes: Iterable[int]) -> tuple[int, ...]:
    """Return the owners that were there in their order, then the new ones."""
    nodes = set(nodes)
    kept = [node for node in before if node in nodes]
    return (*kept, *sorted(nodes - set(kept)))


def level_primaries(members: Sequence[NodeRecord], owners: Owners) -> dict[int, tuple[int, ...]]:
    """Return the same owners with primaries, the first ones, balanced by weight as far as the owners allow; few of them change.

    Owners that are no members never become primary; a segment without any other keeps its first one.
    """
    numbers = sorted(node.number for node in members)
    holds: dict[int, set[int]] = {number: set() for number in numbers}
    led: dict[int, set[int]] = {number: set() for number in numbers}
    for segment, nodes in owners.items():
        for node in nodes:
            if node in holds:
                holds[node].add(segment)
    for segment, nodes in owners.items():
        if candidates := [node for node in nodes if node in led]:
            led[nodes[0] if nodes[0] in led else min(candidates, key=lambda node: (len(led[node]), node))].add(segment)

    def give(giver: int, taker: int) -> int | None:
        fewer, more = sorted((led[giver], holds[taker]), key=len)
        return next((segment for segment in fewer if segment in more), None)

    def move(segment: int, giver: int, taker: int) -> None:
        led[giver].remove(segment)
        led[taker].add(segment)

    _level(led, {node.number: node.weight for node in members}, give, move)
    primaries = {segment: number for number, segments in led.items() for segment in segments}
    return {segment: _led_by(nodes, primaries.get(segment)) for segment, nodes in owners.items()}


def _led_by(nodes: tuple[int, ...], primary: int | None) -> tuple[int, ...]:
    return nodes if primary is None else (primary, *(node for node in nodes if node != primary))


class _Layout:
    """An assignment that is being made; every change keeps `nodes_of` and `held` in step."""

    def __init__(self, members: Sequence[NodeRecord], owners: Owners, replicas: int, barred: frozenset[int]) -> None:
        self.barred = barred
        self.weights = {node.number: node.weight for node in members}
        self.owners = owners
        self.replicas = replicas
        self.nodes_of = {segment: {node for node in nodes if node in self.weights} for segment, nodes in owners.items()}
        self.held: dict[int, set[int]] = {number: set() for number in sorted(self.weights)}
        for segment, nodes in self.nodes_of.items():
            for node in nodes:
                self.held[node].add(segment)
        self.domains: Domains = domains_of(members, replicas)

    def drop_surplus(self) -> None:
        """Take copies away where there are more than wanted: those that stand too close first, then of members that hold most."""
        for segment, nodes in self.nodes_of.items():
            while len(nodes) > self.replicas:
                self._drop(segment, max(nodes, key=lambda node: (*self._unwanted(segment, node), self._load(node), node)))

    def spread(self) -> None:
        """Move copies that stand closer to each other than they have to."""
        for segment, nodes in self.nodes_of.items():
            for node in sorted(nodes, key=lambda node: (self._is_first(segment, node), -self._load(node), node)):
                others = nodes - {node}
                if not self.domains.may_hold(node, others) and (better := self._candidate(others, node)) is not None:
                    self._move(segment, node, better)

    def fill(self) -> None:
        """Add copies where some are missing, at members that hold least for their weight."""
        for segment, nodes in self.nodes_of.items():
            while len(nodes) < self.replicas:
                chosen = self._candidate(nodes, 0)
                if chosen is None:  # what is there stands too close together to be completed as it should be
                    free = [node for node in self.held if node not in nodes and node not in self.barred]
                    chosen = min(free, key=lambda node: (self._load(node), node), default=None)
                if chosen is None:
                    break
                self._add(segment, chosen)

    def level(self) -> None:
        """Move copies from members that hold much to members that hold little; those that are not there yet move for nothing."""
        _level(self.held, self.weights, self._give_new, self._move)
        _level(self.held, self.weights, self.give, self._move)

    def _give_new(self, giver: int, taker: int) -> int | None:
        for segment in self.held[giver]:
            if giver not in self.owners[segment] and self._can_go(segment, giver, taker):
                return segment
        return None

    def _can_go(self, segment: int, giver: int, taker: int) -> bool:
        """Return whether one may hold a segment instead of the other, and the later holder can be filled now."""
        nodes = self.nodes_of[segment]
        if taker in nodes or taker in self.barred:
            return False
        others = nodes - {giver}
        return self.barred.isdisjoint(others) and self.domains.may_hold(taker, others)

    def give(self, giver: int, taker: int) -> int | None:
        """Return a segment that can go from one to the other, best one that need not move for it, None if none can."""
        found, rank = None, 3
        for looked, segment in enumerate(self.held[giver]):
            if found is not None and looked > _LOOK_MAX:
                break
            if not self._can_go(segment, giver, taker):
                continue
            before = self.owners[segment]
            if giver not in before or taker in before:
                return segment  # nothing is there yet that would have to move
            if (worse := 1 + (before[0] == giver)) < rank:
                found, rank = segment, worse
        return found

    def _candidate(self, others: set[int], excluded: int) -> int | None:
        free = [node for node in self.held if node != excluded and node not in others and node not in self.barred]
        fitting = [node for node in free if self.domains.may_hold(node, others)]
        return min(fitting, key=lambda node: (self._load(node), node), default=None)

    def _unwanted(self, segment: int, node: int) -> tuple[bool, bool]:
        others = self.nodes_of[segment] - {node}
        return not self._is_first(segment, node), not self.domains.may_hold(node, others)

    def _is_first(self, segment: int, node: int) -> bool:
        return self.owners[segment][0] == node

    def _load(self, node: int) -> float:
        return len(self.held[node]) / self.weights[node]

    def _move(self, segment: int, giver: int, taker: int) -> None:
        self._drop(segment, giver)
        self._add(segment, taker)

    def _add(self, segment: int, node: int) -> None:
        self.nodes_of[segment].add(node)
        self.held[node].add(segment)

    def _drop(self, segment: int, node: int) -> None:
        self.nodes_of[segment].remove(node)
        self.held[node].remove(segment)


# ---------------------------------------------------------------- leveling


def _level(held: Mapping[int, set[int]], weights: Mapping[int, int], give: Give, move: Callable[[int, int, int], None]) -> None:
    """Move segments along chains that make the load more even until there is none."""
    # By steps, a segment goes to ever heavier members: at most to each of them.
    for _ in range(max(2, len(held)) * sum(len(segments) for segments in held.values())):
        links = _evening_chain(held, weights, give)
        if not links:
            return
        for giver, taker in links:
            segment = give(giver, taker)  # again: an earlier link may have changed what can go
            if segment is None:
                return
            move(segment, giver, taker)


def _evens(held: Mapping[int, set[int]], weights: Mapping[int, int], giver: int, taker: int) -> bool:
    """Return whether load is more even after one segment has gone from one to the other."""
    return (len(held[taker]) + 1) * weights[giver] < len(held[giver]) * weights[taker]


def _evening_chain(held: Mapping[int, set[int]], weights: Mapping[int, int], give: Give) -> list[tuple[int, int]]:
    """Return the links of a shortest chain from the fullest member that has one, the last link first; empty without any."""
    by_load = sorted(held, key=lambda node: (len(held[node]) / weights[node], node))
    for giver in reversed(by_load):
        if not any(_evens(held, weights, giver, taker) for taker in by_load):
            continue
        came: dict[int, int] = {giver: giver}
        front = [giver]
        while front:
            following = []
            for taker in by_load:
                source = next((node for node in front if taker not in came and give(node, taker) is not None), None)
                if source is None:
                    continue
                came[taker] = source
                if _evens(held, weights, giver, taker):
                    return _links(came, taker)
                following.append(taker)
            front = following
    return []


def _links(came: Mapping[int, int], last: int) -> list[tuple[int, int]]:
    links = []
    taker = last
    while came[taker] != taker:
        links.append((came[taker], taker))
        taker = came[taker]
    return links


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
