"""One group as its coordinator runs it: requests of members and the clock -> the state to keep, and what members are told.

No step changes what the coordinator goes by: it returns the state that is to be kept, and `adopt` takes it when it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eventlog.consume.membership.changes import join, join_again, leave, let_go, take_over
from eventlog.consume.membership.sessions import Sessions, Via
from eventlog.consume.membership.values import NOBODY, AssignorName, GroupState, Member
from eventlog.errors import Fenced, Overloaded, StaleMember
from eventlog.limits import GROUP_MEMBERS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What a member says again and again. `epoch` 0: it joins; `owned` is what it is reading at this moment."""

    member: Member
    epoch: int = 0
    owned: frozenset[int] = frozenset()
    via: Via | None = None
    assignor: AssignorName | None = None  # counts for who joins first


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a member is told: its epoch from now on, and every segment that it may read; it lets go of the others at once."""

    epoch: int
    assigned: frozenset[int]


class Coordinator:
    """The coordinator of group `name` over one cache."""

    def __init__(self, name: str, state: GroupState, now_ms: int) -> None:
        self.name = name
        self.state = state
        self.sessions = Sessions(state.members, now_ms)
        self._joining: set[str] = set()  # members that have joined and have not said yet that they were told so
        self._withdrawn = _withdrawn(state, {})

    def beat(self, beat: Beat, now_ms: int, *, leaders: Sequence[int] = ()) -> GroupState:
        """Return the state to keep after a member has spoken; its session goes on from now.

        Raises:
            StaleMember: its session has ended, or it speaks of a later epoch than there was: it is to let go of all and join again.
            Fenced: another process has its instance id.
            Overloaded: the group has as many members as it may.
        """
        known = self.state.member(beat.member.id)
        self.sessions.heard(beat.member.id, beat.via, now_ms)
        if beat.epoch == 0:
            is_repeated = known == beat.member and known.id in self._joining
            self._joining.add(beat.member.id)
            return self.state if is_repeated else self._join(beat, known, leaders)
        self._joining.discard(beat.member.id)
        if known is None:
            raise self._stranger(beat.member)
        if beat.epoch > self.state.generation:
            raise self._stale(known.id, f"its epoch {beat.epoch} is above the group's {self.state.generation}")
        return let_go(self.state, known.id, beat.owned | self._unheard(beat), epoch=beat.epoch)

    def _join(self, beat: Beat, known: Member | None, leaders: Sequence[int]) -> GroupState:
        state, member = self.state, beat.member
        if known is not None:
            return join_again(state if known == member else join(state, member, leaders=leaders), member.id)
        former = state.instance(member.instance)
        if former is not None:
            return take_over(state, former, member)
        if len(state.members) >= GROUP_MEMBERS_MAX:
            raise Overloaded(what=f"the number of members of group {self.name}", limit=GROUP_MEMBERS_MAX)
        if not state.members and beat.assignor is not None:
            state = replace(state, assignor=beat.assignor)
        return join(state, member, leaders=leaders)

    def leave(self, member: str, *, leaders: Sequence[int] = ()) -> GroupState:
        """Return the state to keep without a member that says good-bye."""
        return leave(self.state, {member}, leaders=leaders)

    def tick(self, now_ms: int, *, leaders: Sequence[int] = ()) -> GroupState:
        """Return the state to keep without those whose sessions are over."""
        return leave(self.state, set(self.sessions.ended(now_ms)), leaders=leaders)

    def closed(self, member: str, via: Via, now_ms: int) -> None:
        """Note that a live node reports a member's own connection closed."""
        self.sessions.closed(member, via, now_ms)

    def adopt(self, state: GroupState, now_ms: int) -> None:
        """Go by `state` from now on: it is kept."""
        same = {segment: since for segment, since in self._withdrawn.items() if self.state.holders[segment] == state.holders[segment]}
        self._withdrawn = _withdrawn(state, same)
        self.state = state
        self.sessions.follow(state.members, now_ms)
        self._joining.intersection_update(member.id for member in state.members)

    def told(self, member: str) -> Told:
        """Return what a member is to be told now."""
        assigned = self.state.assigned(member) if self.state.mode == "read" else frozenset[int]()
        return Told(epoch=self.state.generation, assigned=assigned)

    def is_news(self, beat: Beat) -> bool:
        """Whether a member that has said `beat` is to be told something at once."""
        told = self.told(beat.member.id)
        return beat.epoch == 0 or told.assigned != beat.owned or bool(self._unheard(beat))

    def _unheard(self, beat: Beat) -> frozenset[int]:
        """Return what a member is to give up and may not have been told to when it spoke: what it said may have come late."""
        holders = self.state.holders
        return frozenset(segment for segment, since in self._withdrawn.items() if since > beat.epoch and holders[segment] == beat.member.id)

    def check_live(self, member: Member) -> None:
        """Raise StaleMember or Fenced unless a member's session goes on."""
        if self.state.member(member.id) is None:
            raise self._stranger(member)

    def _stranger(self, member: Member) -> StaleMember | Fenced:
        if self.state.instance(member.instance) is not None:
            return Fenced(group=self.name, instance=member.instance)
        return self._stale(member.id, "its session has ended")

    def _stale(self, member: str, why: str) -> StaleMember:
        return StaleMember(group=self.name, member=member, why=why)


def _withdrawn(state: GroupState, known: Mapping[int, int]) -> dict[int, int]:
    """Return the segments that their holders are to give up, each with the generation since when; the present one where it is not known."""
    pairs = enumerate(zip(state.holders, state.targets, strict=True))
    return {segment: known.get(segment, state.generation) for segment, (holder, target) in pairs if holder not in (NOBODY, target)}
