"""Members -> which of them is to have each segment. All assignors give every member as many segments as any other, or one more.

uniform  moves as little as possible
owner    moves as little as possible, and what has to move goes where its segment is led
range    each member has segments that follow each other: what is stored together is read together, at the price of more moves
"""

from collections.abc import Callable, Sequence
from itertools import chain, repeat

from eventlog.consume.membership.values import NOBODY, AssignorName, Member

Targets = tuple[str, ...]
Assignor = Callable[[Sequence[Member], Targets, Sequence[int]], Targets]


def uniform(members: Sequence[Member], current: Targets, leaders: Sequence[int]) -> Targets:
    """Return who is to have each segment: who has it in `current`, unless that is more than its share."""
    del leaders
    return _balance(members, current, near=lambda _member, _segment: False)


def owner(members: Sequence[Member], current: Targets, leaders: Sequence[int]) -> Targets:
    """As `uniform`; what moves goes to members connected to the node that leads the segment, as far as their shares go.

    `leaders` is the number of that node, by segment; 0 where it is not known.
    """
    nodes = {member.id: member.node for member in members}
    return _balance(members, current, near=lambda member, segment: 0 < leaders[segment] == nodes[member])


def range_(members: Sequence[Member], current: Targets, leaders: Sequence[int]) -> Targets:
    """Return segments that follow each other for each member, in the order of ids."""
    del leaders
    shares = _shares([member.id for member in members], len(current), extra_first=[member.id for member in members])
    return tuple(chain.from_iterable(repeat(member.id, shares[member.id]) for member in members))


ASSIGNORS: dict[AssignorName, Assignor] = {"uniform": uniform, "owner": owner, "range": range_}


def assign(name: AssignorName, members: Sequence[Member], current: Targets, leaders: Sequence[int]) -> Targets:
    """Return the targets by one of the assignors. `current` has NOBODY where a segment's holder is no member any more."""
    if not members:
        return (NOBODY,) * len(current)
    return ASSIGNORS[name](members, current, leaders or (0,) * len(current))


def _shares(members: Sequence[str], segments: int, *, extra_first: Sequence[str]) -> dict[str, int]:
    """Return how many segments each member gets; the remainder goes to the first of `extra_first`."""
    share, extra = divmod(segments, len(members))
    return {member: share + (place < extra) for place, member in enumerate(extra_first)}


def _balance(members: Sequence[Member], current: Targets, *, near: Callable[[str, int], bool]) -> Targets:
    kept: dict[str, list[int]] = {member.id: [] for member in members}
    for segment, holder in enumerate(current):
        if holder in kept:
            kept[holder].append(segment)
    ids = [member.id for member in members]
    shares = _shares(ids, len(current), extra_first=sorted(ids, key=lambda id_: -len(kept[id_])))  # who has more keeps more
    for member, own in kept.items():
        own.sort(key=lambda segment, member=member: not near(member, segment))  # type: ignore[misc]  # bound at once
        del own[shares[member] :]
    targets = [NOBODY] * len(current)
    for member, own in kept.items():
        for segment in own:
            targets[segment] = member
    open_ = {member: shares[member] - len(own) for member, own in kept.items()}
    _hand_out(targets, open_, near)
    _hand_out(targets, open_, lambda _member, _segment: True)
    return tuple(targets)


def _hand_out(targets: list[str], open_: dict[str, int], fits: Callable[[str, int], bool]) -> None:
    """Give segments without a target to members with an open share that they fit, most of it first."""
    for segment, target in enumerate(targets):
        if target != NOBODY:
            continue
        fitting = [member for member, left in open_.items() if left > 0 and fits(member, segment)]
        if fitting:
            chosen = max(fitting, key=lambda member: open_[member])
            targets[segment] = chosen
            open_[chosen] -= 1
