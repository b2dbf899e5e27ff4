"""One change of a group's membership: state in, state out. A change that changes nothing returns the state it was given."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from eventlog.consume.membership.assignors import assign
from eventlog.consume.membership.values import NOBODY, GroupState, Member


def join(state: GroupState, member: Member, *, leaders: Sequence[int] = ()) -> GroupState:
    """Return the group with one member more. One with the same id is replaced, and keeps what it has."""
    others = tuple(one for one in state.members if one.id != member.id)
    joined = replace(state, members=tuple(sorted((*others, member), key=lambda one: one.id)))
    return _reassigned(joined, leaders)


def join_again(state: GroupState, member: str) -> GroupState:
    """Return the group after a member that lost its session has joined anew, before anybody else noticed: it keeps what it has.

    Old commits are fenced: it begins again where the group is, and one that came later would be of events that it is about to get.
    """
    if member not in state.holders:
        return state
    generation = state.generation + 1
    given = tuple(generation if holder == member else before for before, holder in zip(state.given, state.holders, strict=True))
    return replace(state, generation=generation, given=given)


def take_over(state: GroupState, former: Member, member: Member) -> GroupState:
    """Return the group with a static member's new process in the place of the former one. Nothing moves; old commits are fenced."""
    generation = state.generation + 1
    members = tuple(member if one.id == former.id else one for one in state.members)
    return replace(
        state,
        generation=generation,
        members=tuple(sorted(members, key=lambda one: one.id)),
        targets=tuple(member.id if target == former.id else target for target in state.targets),
        holders=tuple(member.id if holder == former.id else holder for holder in state.holders),
        given=tuple(generation if holder == former.id else given for given, holder in zip(state.given, state.holders, strict=True)),
    )


def leave(state: GroupState, gone: Collection[str], *, leaders: Sequence[int] = ()) -> GroupState:
    """Return the group without some members: what they held is given on at once."""
    members = tuple(member for member in state.members if member.id not in gone)
    if len(members) == len(state.members):
        return state
    holders = tuple(NOBODY if holder in gone else holder for holder in state.holders)
    return _reassigned(replace(state, members=members, holders=holders), leaders)


def let_go(state: GroupState, member: str, owned: Collection[int], *, epoch: int) -> GroupState:
    """Return the group after a member has said what it is still reading: whatever it was to give up, and has, is given on.

    Or given to it again, where it is to have it after all: then its commits from before are fenced, for it begins where the group is.
    What was given to it after `epoch` is not meant: it may be about to begin with it, having been told after it spoke.
    """
    holders = tuple(
        NOBODY if holder == member and given <= epoch and segment not in owned else holder
        for segment, (holder, given) in enumerate(zip(state.holders, state.given, strict=True))
    )
    found = give(replace(state, holders=holders))
    return state if found == state else found


def give(state: GroupState) -> GroupState:
    """Return the group with every segment that nobody holds given to who is to have it."""
    pairs = list(zip(state.holders, state.targets, state.given, strict=True))
    return replace(
        state,
        holders=tuple(target if holder == NOBODY else holder for holder, target, _ in pairs),
        given=tuple(state.generation if holder == NOBODY != target else given for holder, target, given in pairs),
    )


def _reassigned(state: GroupState, leaders: Sequence[int]) -> GroupState:
    state = replace(state, generation=state.generation + 1)
    if state.mode != "read":
        return state
    alive = {member.id for member in state.members}
    current = tuple(
        holder if holder in alive else target if target in alive else NOBODY
        for holder, target in zip(state.holders, state.targets, strict=True)
    )
    return give(replace(state, targets=assign(state.assignor, state.members, current, leaders)))
