"""One group as its coordinator runs it: requests of members and the clock -> the state to keep, and what members are told.

No step changes what the coordinator goes by: it returns the state that is to be kept, and `adopt` takes it when it is. A change that
changes nothing returns the state it was given.

Members' lives are kept in memory by the coordinator alone (`Sessions`): a new one starts every timer anew. A session ends when its member
has said nothing for its timeout, or a second after its own connection closed. Nothing else ends one.

All assignors give every member as many segments as any other, or one more.

uniform  moves as little as possible
owner    moves as little as possible, and what has to move goes where its segment is led
range    each member has segments that follow each other: what is stored together is read together, at the price of more moves
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

from eventlog.errors import Fenced, Overloaded, StaleMember
from eventlog.groups.record import NOBODY, AssignorName, GroupState, Member
from eventlog.limits import GROUP_MEMBERS_MAX

Targets = tuple[str, ...]
Assignor = Callable[[Sequence[Member], Targets, Sequence[int]], Targets]
CLOSED_MS = 1_000
"""How long a member whose connection closed has to come back."""
_CLOSED_KEPT = 100  # connections: what was said over one last may have waited its turn, and be heard after it closed


@dataclass(frozen=True, slots=True, kw_only=True)
class Via:
    """Over which connection of which node a member speaks. Numbers of connections are never used again by their node's process."""

    node: int = 0
    connection: int = 0


NO_CONNECTION = Via()
"""Of members over HTTP: each of their requests may come over another connection, to another node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What a member says again and again. `epoch` 0: it joins; `owned` is what it is reading at this moment."""

    member: Member
    epoch: int = 0
    owned: frozenset[int] = frozenset()
    via: Via | None = None
    assignor: AssignorName | None = None  # counts for the first member that joins


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

    def committed(self, member: str, now_ms: int) -> None:
        """Note that a member has committed."""
        self.sessions.committed(member, now_ms)

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


def uniform(members: Sequence[Member], current: Targets, leaders: Sequence[int]) -> Targets:
    """Return the member to have each segment: the one that has it in `current`, unless that is more than its share."""
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
    shares = _shares(ids, len(current), extra_first=sorted(ids, key=lambda id_: -len(kept[id_])))  # a member that has more keeps more
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
    """Return the group with every segment that no member holds given to the one to have it."""
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


@dataclass(slots=True, kw_only=True)
class _Session:
    is_static: bool
    timeout_ms: int
    ends_ms: int
    via: Via | None = None


class Sessions:
    """The timers of one group's members."""

    def __init__(self, members: Iterable[Member], now_ms: int) -> None:
        self._sessions: dict[str, _Session] = {}
        self._closed: dict[Via | None, None] = {}
        self._coming: tuple[str, Via | None] = "", None
        for member in members:
            self._begin(member, now_ms)

    def _begin(self, member: Member, now_ms: int) -> None:
        session = self._sessions[member.id] = _Session(
            is_static=bool(member.instance), timeout_ms=member.timeout_ms, ends_ms=now_ms + member.timeout_ms
        )
        coming, via = self._coming
        if coming == member.id:
            session.via = via
            if via in self._closed:
                _closes(session, now_ms)

    def follow(self, members: Iterable[Member], now_ms: int) -> None:
        """Keep a session for each of these members and for nobody else."""
        wanted = {member.id: member for member in members}
        for id_ in [id_ for id_ in self._sessions if id_ not in wanted]:
            del self._sessions[id_]
        for id_, member in wanted.items():
            session = self._sessions.get(id_)
            if session is None:
                self._begin(member, now_ms)
            elif session.timeout_ms != member.timeout_ms:  # it joined anew under its name, and said another one
                session.timeout_ms, session.ends_ms = member.timeout_ms, now_ms + member.timeout_ms

    def heard(self, member: str, via: Via | None, now_ms: int) -> None:
        """Note that a member has spoken; the session of one that joins begins with the next `follow`.

        What was said over a connection that has closed since says nothing about its member.
        """
        session = self._sessions.get(member)
        if session is None:
            self._coming = member, via
        elif via not in self._closed:
            session.via = via
            session.ends_ms = now_ms + session.timeout_ms

    def committed(self, member: str, now_ms: int) -> None:
        """Note that a member has committed: one that speaks over no connection of its own says nothing else while it works."""
        session = self._sessions.get(member)
        if session is not None and session.via == NO_CONNECTION:
            session.ends_ms = now_ms + session.timeout_ms

    def closed(self, member: str, via: Via, now_ms: int) -> None:
        """Note that a member's own connection closed. One that it no longer speaks over says nothing about it.

        A static member keeps its time-out: that it may restart in peace is what it is static for.
        """
        self._closed[via] = None
        if len(self._closed) > _CLOSED_KEPT:
            del self._closed[next(iter(self._closed))]
        session = self._sessions.get(member)
        if session is not None and session.via == via:
            _closes(session, now_ms)

    def ended(self, now_ms: int) -> list[str]:
        """Return whose session is over by now."""
        return [id_ for id_, session in self._sessions.items() if session.ends_ms <= now_ms]

    @property
    def next_ms(self) -> int | None:
        """When the next session ends unless its member speaks; None without members."""
        return min((session.ends_ms for session in self._sessions.values()), default=None)

    def left_ms(self, member: str, now_ms: int) -> int:
        """Return how long a member's session still lasts if it says nothing more."""
        session = self._sessions.get(member)
        return 0 if session is None else max(0, session.ends_ms - now_ms)


def _closes(session: _Session, now_ms: int) -> None:
    if not session.is_static:
        session.ends_ms = min(session.ends_ms, now_ms + CLOSED_MS)
