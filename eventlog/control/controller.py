"""What the controller decides: from the view and from the nodes that answer to the next commit, until there is none.

    1 appoint     a primary, where the present one is dead, removed, restarted, drained, unreadable, or came back with another disk
    2 sweep       the newly dead out of every other in-sync set; the least size of sets follows the members
    3 repair      removed owners leave, missing ones are added, surplus ones leave, those of a draining member get a target
    4 move        segments with a target: owners are added, a few segments at a time; once all are in sync and found equal to
                  the primary's copy, the primary moves and the others leave
    5 rebalance   while one runs: targets, until there is nothing to move
    6 primaries   are spread evenly, when all has been well for a while

Safety does not hang on any of this: another node that does the same at the same time makes one of the two commits conflict. All of it is
found out anew from the records, so the next controller goes on where this one stopped.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from eventlog.control.appointment import RECORDS_PER_COMMIT_MAX, commit_of, primary_of
from eventlog.control.placement import level_primaries, place
from eventlog.control.records import REBALANCE_KEY, CommitPlan, NodeRecord, RebalanceRecord, ReplicaRecord, SegmentRecord, Versioned, encode
from eventlog.control.rules import SegmentRules, appoint, disown, own, settle, without
from eventlog.control.view import ClusterView
from eventlog.limits import BALANCE_PRIMARIES_CALM_MS, MOVES_IN_FLIGHT_MAX, REBALANCE_DELAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """How many segments are copied at once, and for how long nothing may have changed before load is evened out (0: never)."""

    moves_in_flight_max: int = MOVES_IN_FLIGHT_MAX
    balance_primaries_calm_ms: int = BALANCE_PRIMARIES_CALM_MS
    rebalance_delay_ms: int = REBALANCE_DELAY_MS
    verifies: bool = True


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What is decided from. `dead` are numbers of members that do not answer; `verified` are copies found equal to the primary's."""

    view: ClusterView
    dead: frozenset[int] = frozenset()
    verified: frozenset[tuple[int, ReplicaRecord]] = frozenset()
    now_ms: int = 0

    def is_here(self, replica: ReplicaRecord) -> bool:
        """Return whether a replica's node is a member, answers, and still has that disk."""
        node = self.view.members.get(replica.node)
        return node is not None and node.incarnation == replica.incarnation and replica.node not in self.dead

    def is_led(self, segment: SegmentRecord) -> bool:
        """Return whether the segment's primary is there, and the process that was appointed."""
        node = self.view.members.get(segment.primary)
        return (
            node is not None
            and segment.primary not in self.dead
            and SegmentRules.may_lead(segment, node)
            and SegmentRules.is_served(segment, node)
        )

    def is_whole(self, segment: SegmentRecord) -> bool:
        """Return whether the segment is led, and all its owners are in sync and there."""
        here = {replica.node for replica in segment.in_sync if self.is_here(replica)}
        return self.is_led(segment) and here.issuperset(segment.owners)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Seen:
    """All that a decision follows from. Leases, which are renewed all the time, are not among it."""

    segments: Mapping[int, Versioned[SegmentRecord]]
    calm: tuple[object, int]
    rebalance: Versioned[RebalanceRecord] | None
    verified: frozenset[tuple[int, ReplicaRecord]]
    is_calm: tuple[bool, bool]

    def is_as(self, other: "_Seen") -> bool:
        """Return whether the same was seen; segments are compared as objects, which a view shares with the one before it."""
        same = (self.calm, self.verified, self.is_calm) == (other.calm, other.verified, other.is_calm)
        return same and self.segments is other.segments and self.rebalance == other.rebalance


@dataclass
class Controller:
    """Decides; remembers only for how long all has been calm, and what it need not look at again."""

    options: ControllerOptions = field(default_factory=ControllerOptions)
    _calm: tuple[object, int] = (None, 0)
    _swept: dict[int, frozenset[int]] = field(default_factory=dict)  # the dead -> segments whose sets cannot do without them
    _planned: object = None
    _planned_changes: list[tuple[Versioned[SegmentRecord], SegmentRecord]] = field(default_factory=list)
    _planned_under: Versioned[RebalanceRecord] | None = None
    _idle: _Seen | None = None
    _even: tuple[object, object] | None = None  # segments and members whose load was found to be even

    def next_commit(self, situation: Situation, *, nonce: str, records_max: int = RECORDS_PER_COMMIT_MAX) -> CommitPlan | None:
        """Return what to commit now, None when nothing is to be done; after a commit ask again with the view after it.

        `nonce` is new with every call; after a conflict read the view again and let `records_max` be smaller.
        """
        view = situation.view
        self._watch_calm(situation)
        state = _Seen(
            segments=view.segments,
            calm=self._calm,
            rebalance=view.rebalance,
            verified=situation.verified,
            is_calm=(self._is_calm(situation, 0), self._is_calm(situation, 1)),
        )
        if self._idle is not None and state.is_as(self._idle):
            return None
        appointed = commit_of(view, self._new(situation, self.appointments(situation, nonce)), records_max=records_max)
        if plan := appointed or self._next_planned(view, records_max):
            return plan
        steps: tuple[Callable[[Situation, str], Iterable[SegmentRecord]], ...] = (
            self._sweep,
            self._repair,
            self._move,
            self._rebalance,
            self._level,
        )
        for step in steps:
            if changed := list(self._new(situation, step(situation, nonce))):
                self._planned_changes = [
                    (view.segments[record.segment], record) for record in changed[records_max:] if _keeps_term(view, record)
                ]
                self._planned_under = view.rebalance
                return commit_of(view, changed, records_max=records_max)
        plan = self._rebalance_record(situation, nonce)
        self._idle = None if plan else state
        return plan

    def _new(self, situation: Situation, records: Iterable[SegmentRecord]) -> Iterator[SegmentRecord]:
        return (record for record in records if record != situation.view.segments[record.segment].record)

    def _next_planned(self, view: ClusterView, records_max: int) -> CommitPlan | None:
        """Return the next commit of what was planned with an earlier one; what has changed since is left to the next plan.

        Planning takes longer than committing where segments are many. Terms are not kept: their floors follow a ceiling that rises.
        """
        if self._planned_under != view.rebalance:
            self._planned_changes = []  # an operator called it off, or began one
        while self._planned_changes:
            some, self._planned_changes = self._planned_changes[:records_max], self._planned_changes[records_max:]
            if still := [record for before, record in some if view.segments.get(record.segment) == before]:
                return commit_of(view, still, records_max=records_max)
        return None

    # ------------------------------------------------------------ 1 and 2

    def appointments(self, situation: Situation, nonce: str) -> Iterator[SegmentRecord]:
        """Give the records of segments that get another term, as they are asked for: a commit takes some, and the rest is planned anew."""
        view = situation.view
        load = dict.fromkeys(view.members, 0)
        for found in view.segments.values():
            if found.record.primary in load:
                load[found.record.primary] += 1
        for found in view.segments.values():
            segment = found.record
            if situation.is_led(segment) and not view.members[segment.primary].is_leaving:
                continue
            chosen = self.successor(situation, segment, load)
            if chosen is None or (situation.is_led(segment) and chosen.number == segment.primary):
                continue  # it waits for another of its in-sync set, or for an operator
            load[chosen.number] += 1
            gone = [replica for replica in segment.in_sync if not situation.is_here(replica)]
            yield appoint(segment, chosen, old_primary=primary_of(view, segment).record, nonce=nonce, gone=gone)

    def successor(self, situation: Situation, segment: SegmentRecord, load: dict[int, int]) -> NodeRecord | None:
        """Return the next leader: the one that led, if it is there; else, of the in-sync set, the one that leads least for its weight."""
        members = situation.view.members
        here = [members[replica.node] for replica in segment.in_sync if situation.is_here(replica)]
        electable = [node for node in here if SegmentRules.may_lead(segment, node)]
        return min(
            electable,
            key=lambda node: (node.is_leaving, node.number != segment.primary, load[node.number] / node.weight, node.number),
            default=None,
        )

    def _sweep(self, situation: Situation, nonce: str) -> Iterable[SegmentRecord]:
        """Take the dead out of in-sync sets, once for each death: a primary that reaches one of them may put it back."""
        led = [found.record for found in situation.view.segments.values() if situation.is_led(found.record)]
        self._swept = {number: kept for number, kept in self._swept.items() if number in situation.dead}
        staying = {number for number, node in situation.view.members.items() if node.holds_data}
        changed = []
        for segment in led:
            gone = [replica for replica in segment.in_sync if not situation.is_here(replica) and self._is_unswept(segment, replica)]
            after = settle(without(segment, gone, nonce=nonce), situation.view.replicas, staying=staying, nonce=nonce)
            if after != segment:
                changed.append(after)
        if not changed:
            for number in situation.dead - self._swept.keys():
                kept = [segment.segment for segment in led if any(replica.node == number for replica in segment.in_sync)]
                self._swept[number] = frozenset(kept)
        return changed

    def _is_unswept(self, segment: SegmentRecord, replica: ReplicaRecord) -> bool:
        return replica.node not in self._swept or segment.segment in self._swept[replica.node]

    # ------------------------------------------------------------ 3 to 6

    def _repair(self, situation: Situation, nonce: str) -> Iterable[SegmentRecord]:
        view = situation.view
        led = {number: found.record for number, found in view.segments.items() if situation.is_led(found.record)}
        return repaired(view, led, dead=situation.dead, nonce=nonce)

    def _move(self, situation: Situation, nonce: str) -> Iterable[SegmentRecord]:
        moving = [found.record for found in situation.view.segments.values() if found.record.target]
        under_way = sum(set(segment.owners) > set(segment.target) for segment in moving)
        for segment in moving:
            if not situation.is_led(segment):
                continue
            verified = {replica for number, replica in situation.verified if number == segment.segment}
            if not self.options.verifies:
                verified = set(segment.in_sync)
            here = frozenset(replica for replica in segment.in_sync if situation.is_here(replica))
            may_begin = under_way < self.options.moves_in_flight_max
            after = next_move(situation.view, segment, here=here, verified=verified, may_begin=may_begin, nonce=nonce)
            under_way += len(after.owners) > len(segment.owners)
            yield after

    def _rebalance(self, situation: Situation, nonce: str) -> Iterable[SegmentRecord]:
        """Give targets, once for each rebalancing and each set of members."""
        running = situation.view.rebalance
        if running is None or running.record.state != "running":
            return []
        planned = (running.record.nonce, self._calm[0])
        if self._planned == planned and any(found.record.target for found in situation.view.segments.values()):
            return []
        changed = [
            msgspec.structs.replace(situation.view.segments[number].record, target=target, nonce=nonce)
            for number, target in plan_rebalance(situation).items()
            if not situation.view.segments[number].record.target
        ]
        if not changed:
            self._planned = planned
        return changed

    def _rebalance_record(self, situation: Situation, nonce: str) -> CommitPlan | None:
        """Return the commit that ends a rebalancing with nothing left to move."""
        running = situation.view.rebalance
        if running is None or running.record.state != "running" or any(found.record.target for found in situation.view.segments.values()):
            return None
        done = msgspec.structs.replace(running.record, state="done", nonce=nonce)
        return CommitPlan(expect={REBALANCE_KEY: running.revision}, puts={REBALANCE_KEY: encode(done)})

    def _level(self, situation: Situation, nonce: str) -> Iterable[SegmentRecord]:
        view = situation.view
        records = {number: found.record for number, found in view.segments.items()}
        if not self._is_calm(situation, 0) or any(segment.target or not situation.is_whole(segment) for segment in records.values()):
            return []
        members = [node for node in view.members.values() if node.holds_data]
        leveled = level_primaries(members, {number: segment.owners for number, segment in records.items()})
        return [
            appoint(records[number], view.members[owners[0]], old_primary=primary_of(view, records[number]).record, nonce=nonce)
            for number, owners in leveled.items()
            if owners[0] != records[number].primary
        ]

    # ------------------------------------------------------------ calm

    def _watch_calm(self, situation: Situation) -> None:
        """Begin anew whenever members come, go, restart, or answer otherwise than before."""
        seen = (
            tuple(
                (node.number, node.session, node.incarnation, node.is_leaving, node.weight, node.gateway, node.host_label, node.rack)
                for node in situation.view.members.values()
            ),
            situation.dead,
            situation.view.replicas,
        )
        if seen != self._calm[0]:
            self._calm = (seen, situation.now_ms)
            self._planned_changes = []

    def _is_calm(self, situation: Situation, which: int) -> bool:
        needed = (self.options.balance_primaries_calm_ms, self.options.rebalance_delay_ms)[which]
        is_well = not situation.dead and not any(node.unreadable for node in situation.view.members.values())
        return bool(needed) and is_well and situation.now_ms - self._calm[1] >= needed

    def wants_rebalancing(self, situation: Situation) -> bool:
        """Return whether segments should be moved without being told to: all is well for long, nobody called it off, load is uneven."""
        last = situation.view.rebalance
        if not self._is_calm(situation, 1) or (last is not None and last.record.state != "done"):
            return False
        looked_at = (situation.view.segments, self._calm[0])
        if self._even is not None and looked_at[0] is self._even[0] and looked_at[1] == self._even[1]:
            return False  # found out before: planning costs too much to be done all the time
        if any(found.record.target or not situation.is_whole(found.record) for found in situation.view.segments.values()):
            return False
        is_even = not plan_rebalance(situation)
        self._even = looked_at if is_even else None
        return not is_even


def _keeps_term(view: ClusterView, record: SegmentRecord) -> bool:
    return record.epoch == view.segments[record.segment].record.epoch


def plan_rebalance(situation: Situation) -> dict[int, tuple[int, ...]]:
    """Return the owners of segments that would have others, or another primary, if load were even, the primary first.

    Segments without a primary do not move: nobody could be copied from. Nor do those of which a dead member would keep a copy: that
    cannot be whole before it is back.
    """
    view = situation.view
    now = {number: found.record.target or found.record.owners for number, found in sorted(view.segments.items())}
    members = [node for node in view.members.values() if node.holds_data]
    placed = place(members, now, replicas=view.replicas, barred=situation.dead)
    return {
        number: owners
        for number, owners in placed.items()
        if len(owners) == view.replicas
        and situation.dead.isdisjoint(owners)
        and (set(owners) != set(now[number]) or owners[0] != now[number][0])
        and situation.is_led(view.segments[number].record)
    }


def next_move(
    view: ClusterView,
    segment: SegmentRecord,
    *,
    here: Collection[ReplicaRecord],
    verified: Collection[ReplicaRecord],
    may_begin: bool,
    nonce: str,
) -> SegmentRecord:
    """Return the record after the next step towards its target, or as it is while it has to wait.

    Where a move stands is in the record alone: the current controller takes the next step.

    `here` are the in-sync replicas that answer, `verified` those whose copy was found equal to the primary's. Owners are added first
    and leave last, in the commit that ends the move: there are never fewer whole copies than before.
    """
    holders = {number for number, node in view.members.items() if node.holds_data}
    if not holders.issuperset(segment.target) or len(segment.target) != view.replicas:
        # Planned before a member left, or before the number of replicas was changed.
        return msgspec.structs.replace(segment, target=(), nonce=nonce)
    if missing := [owner for owner in segment.target if owner not in segment.owners]:
        is_short = len(segment.owners) < view.replicas  # a lost copy is made again at once, whatever else moves
        return own(segment, (*segment.owners, *missing), nonce=nonce) if may_begin or is_short else segment
    replica_of = {replica.node: replica for replica in here}
    if not all(owner in replica_of for owner in segment.target):
        return segment
    leaving = [owner for owner in segment.owners if owner not in segment.target]
    copies = [replica_of[owner] for owner in segment.target if owner != segment.primary]
    if leaving and not all(replica in verified for replica in copies):
        return segment
    return _arrived(view, segment, leaving, nonce=nonce)


def _arrived(view: ClusterView, segment: SegmentRecord, leaving: Collection[int], *, nonce: str) -> SegmentRecord:
    first = segment.target[0]
    if first != segment.primary:
        gone = [replica for replica in segment.in_sync if replica.node in leaving]
        target, before = segment.target, primary_of(view, segment).record
        segment = appoint(segment, view.members[first], old_primary=before, nonce=nonce, gone=gone)
        segment = own(segment, target, nonce=nonce)
    else:
        segment = own(segment, segment.target, nonce=nonce)
    return msgspec.structs.replace(segment, target=())


def repaired(view: ClusterView, segments: Mapping[int, SegmentRecord], *, dead: frozenset[int], nonce: str) -> list[SegmentRecord]:
    """Return the records of led segments whose owners change. Repair is never put off; balance is.

    Removed members leave; missing owners are added, which then catch up; of too many the ones without a whole copy leave first, and
    an in-sync one only while all that stay are in sync. A segment on a member that is being emptied gets a target instead.
    """
    removed = {number for number, found in view.nodes.items() if not found.record.is_member}
    holders = {number for number, node in view.members.items() if node.holds_data}
    after = {
        number: settle(disown(segment, removed, replicas=view.replicas, nonce=nonce), view.replicas, staying=holders, nonce=nonce)
        for number, segment in segments.items()
    }
    if all(_is_complete(segment, holders, view.replicas) for segment in after.values()):
        return [segment for number, segment in after.items() if segment != segments[number]]
    now = {number: found.record.target or found.record.owners for number, found in view.segments.items()}
    now |= {number: segment.target or segment.owners for number, segment in after.items()}
    members = [node for node in view.members.values() if node.holds_data]
    wanted = place(members, now, replicas=view.replicas, level=False, barred=dead)
    changed = []
    for number, segment in after.items():
        if not _is_complete(segment, holders, view.replicas):
            segment = _with_owners(segment, wanted[number], holders=holders, replicas=view.replicas, nonce=nonce)  # noqa: PLW2901 - the next state of the same
        if segment != segments[number]:
            changed.append(segment)
    return changed


def _is_complete(segment: SegmentRecord, holders: set[int], replicas: int) -> bool:
    return bool(segment.target) or (len(segment.owners) == replicas and holders.issuperset(segment.owners))


def _with_owners(segment: SegmentRecord, wanted: tuple[int, ...], *, holders: set[int], replicas: int, nonce: str) -> SegmentRecord:
    if not holders.issuperset(segment.owners):
        may_leave = len(wanted) == replicas  # else there would be fewer copies than now; it waits for another member
        return msgspec.structs.replace(segment, target=wanted, nonce=nonce) if may_leave else segment
    if added := [owner for owner in wanted if owner not in segment.owners]:
        return own(segment, (*segment.owners, *added), nonce=nonce)
    in_sync = {replica.node for replica in segment.in_sync}
    too_many = len(segment.owners) - len(wanted)
    if too_many <= 0:
        return segment  # some are missing, and nobody can take them
    if surplus := [owner for owner in segment.owners if owner not in in_sync][-too_many:]:
        return own(segment, tuple(owner for owner in segment.owners if owner not in surplus), nonce=nonce)
    keeps = (segment.primary, *(owner for owner in wanted if owner != segment.primary))[: len(wanted)]
    left = [replica for replica in segment.in_sync if replica.node in keeps]
    if in_sync.issuperset(keeps) and SegmentRules.keeps_minimum(segment, left):
        return own(segment, keeps, nonce=nonce)
    return segment
