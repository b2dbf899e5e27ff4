"""What the watermark waits for: the recorded in-sync set together with the proposed one, and when another is proposed.

A change is safe only because of what is waited for meanwhile. So a proposal counts from the moment it is made until a newer record
shows what became of it, whatever the shell believes.
"""

from collections.abc import Iterable

import numpy as np

from eventlog.arrays import Ints, Mask
from eventlog.replication.columns import NEVER, SegmentColumns
from eventlog.replication.commands import Commands, Propose
from eventlog.replication.primary import PrimaryCore
from eventlog.replication.roster import OWN, Roster
from eventlog.replication.terms import Replica


class InSync:
    """In-sync sets of the segments that this node leads; at most one proposal in flight for each."""

    def __init__(self, columns: SegmentColumns, roster: Roster, primary: PrimaryCore) -> None:
        self._columns = columns
        self._roster = roster
        self._primary = primary
        self._proposals: dict[int, Propose] = {}

    # ------------------------------------------------------------ records

    def settle(self, segment: int, *, now_ms: int) -> Commands:
        """Take the set of the latest record.

        A proposal made on an earlier revision is decided by that: a commit that expects it can never succeed again.
        """
        term = self._columns.terms[segment]
        assert term is not None, "a record was learned"
        proposal = self._proposals.get(segment)
        if proposal is not None and term.revision > proposal.revision:
            del self._proposals[segment]
        self._primary.set_sizes(segment, size=len(term.in_sync), needed=term.min_in_sync)
        self._await(segment, term.in_sync, now_ms=now_ms)
        return self._primary.advance(np.array([segment]))

    def withdraw(self, segment: int, *, revision: int, now_ms: int) -> Commands:
        """Wait no longer for a proposal that can never be committed."""
        proposal = self._proposals.get(segment)
        if proposal is None or proposal.revision != revision:
            return []
        del self._proposals[segment]
        return self.settle(segment, now_ms=now_ms)

    def drop(self, segment: int) -> None:
        """Forget proposals of a term that is over."""
        self._proposals.pop(segment, None)

    def _await(self, segment: int, in_sync: Iterable[Replica], *, now_ms: int) -> None:
        proposal = self._proposals.get(segment)
        members = list(in_sync)
        wanted = members if proposal is None else list(proposal.in_sync)
        slots = self._roster.slots([*members, *wanted], now_ms=now_ms)
        current, proposed = {slots[replica] for replica in members}, {slots[replica] for replica in wanted}
        self._roster.await_(segment, in_sync=current, awaited=self._awaited(current, proposed) | {OWN})

    def _awaited(self, current: set[int], proposed: set[int]) -> set[int]:
        """Return what the watermark waits for while a proposal is in flight: which of the two sets is the true one is not known."""
        return current | proposed

    def awaited(self, segment: int) -> frozenset[Replica]:
        """Return the replicas that the watermark waits for."""
        slots = np.flatnonzero(self._roster.awaited[:, segment]).tolist()
        return frozenset(self._roster.replicas[slot] for slot in slots)

    # ------------------------------------------------------------ growth

    def grow(self, slot: int, segments: Ints, *, now_ms: int) -> Commands:
        """Propose a replica that follows live where it has caught up and the record wants it."""
        if not len(segments):
            return []
        ready = segments[self._has_caught_up(slot, segments) & ~self._roster.awaited[slot, segments]]
        return [made for segment in ready.tolist() if (made := self._propose_joined(segment, slot, now_ms)) is not None]

    def _has_caught_up(self, slot: int, segments: Ints) -> Mask:
        """Return where a replica holds all that is committed and, with the marker, proof of the present epoch."""
        columns = self._columns
        wanted = np.maximum(columns.watermark[segments], columns.starts[segments])
        caught_up: Mask = (columns.starts[segments] != NEVER) & (self._roster.acknowledged[slot, segments] >= wanted)
        return caught_up

    def _propose_joined(self, segment: int, slot: int, now_ms: int) -> Propose | None:
        term, replica = self._columns.terms[segment], self._roster.replicas[slot]
        if term is None or not self._may_propose(segment) or replica.node not in term.owners:
            return None
        gone = tuple(member for member in term.in_sync if member.node == replica.node)  # an earlier incarnation, whose disk is lost
        in_sync = tuple(sorted((*(member for member in term.in_sync if member not in gone), replica)))
        return self._propose(segment, in_sync, gone=gone, joined=replica, now_ms=now_ms)

    # ------------------------------------------------------------ shrinking

    @property
    def is_quiet(self) -> bool:
        """Return whether no member of a set is away; then a replica that holds up nothing is not late."""
        roster, leads = self._roster, self._columns.leads
        return not any((roster.in_sync[slot] & leads).any() for slot in range(1, len(roster.replicas)) if not roster.is_here[slot])

    def shrink(self, *, now_ms: int) -> Commands:
        """Propose out a replica that keeps an append waiting for too long, or is gone."""
        late: dict[int, list[int]] = {}
        for slot in range(1, len(self._roster.replicas)):
            for segment in np.flatnonzero(self._is_late(slot, now_ms=now_ms)).tolist():
                late.setdefault(segment, []).append(slot)
        made = [self._propose_without(segment, slots, now_ms) for segment, slots in late.items()]
        return [proposal for proposal in made if proposal is not None]

    def _is_late(self, slot: int, *, now_ms: int) -> Mask:
        columns, roster, options = self._columns, self._roster, self._columns.options
        members: Mask = roster.in_sync[slot] & columns.leads
        if not members.any():
            return members
        waits: Mask = (columns.ends > columns.watermark) & (roster.acknowledged[slot] < columns.ends)
        if roster.is_here[slot]:
            return members & waits & (now_ms - columns.appended_ms >= options.ack_ms_max)
        away_ms = now_ms - roster.away_ms[slot]
        if away_ms >= options.ack_ms_max:
            return members
        is_late = roster.was_here[slot] and away_ms >= options.lost_ms_max
        return members & waits if is_late else np.zeros_like(members)

    def _propose_without(self, segment: int, slots: list[int], now_ms: int) -> Propose | None:
        term = self._columns.terms[segment]
        if term is None or not self._may_propose(segment):
            return None
        roster = self._roster
        spare = self._spare(len(term.in_sync), term.min_in_sync)
        worst_first = sorted(slots, key=lambda slot: (roster.is_here[slot], roster.acknowledged_rows[slot].item(segment), slot))
        gone = tuple(roster.replicas[slot] for slot in worst_first[:spare])
        if not gone:
            return None
        in_sync = tuple(replica for replica in term.in_sync if replica not in gone)
        return self._propose(segment, in_sync, gone=gone, now_ms=now_ms)

    def _spare(self, size: int, needed: int) -> int:
        """Return how many may leave: the set never gets smaller than `min_in_sync`; what would need that stays unanswered."""
        return max(0, size - needed)

    # ------------------------------------------------------------ what is missing

    def short(self, *, now_ms: int) -> Mask:
        """Return which segments led here have fewer members that answer than `min_in_sync`: an append would wait for the others."""
        found: Mask = self._columns.leads & (self.answering(now_ms=now_ms) < self._primary.needed)
        return found

    def answering(self, *, now_ms: int) -> Ints:
        """Return how many members of each set answer, this node among them."""
        found = np.zeros(self._columns.segments, np.int64)
        for slot in range(len(self._roster.replicas)):
            found += self._is_answering(slot, now_ms=now_ms)
        return found

    def missing(self, segment: int, *, now_ms: int) -> tuple[Replica, ...]:
        """Return the members of the recorded set that do not answer."""
        roster = self._roster
        slots = np.flatnonzero(roster.in_sync[:, segment]).tolist()
        return tuple(roster.replicas[slot] for slot in slots if not self._is_answering(slot, now_ms=now_ms).item(segment))

    def _is_answering(self, slot: int, *, now_ms: int) -> Mask:
        """Return of which segments a replica is a member that is connected and lets no append wait for too long."""
        columns, roster = self._columns, self._roster
        members: Mask = roster.in_sync[slot]
        if slot == OWN:
            return members
        if not roster.is_here[slot]:
            return np.zeros_like(members)
        waits: Mask = (columns.ends > columns.watermark) & (roster.acknowledged[slot] < columns.ends)
        return members & ~(waits & (now_ms - columns.appended_ms >= columns.options.ack_ms_max))

    # ------------------------------------------------------------ proposals

    def _may_propose(self, segment: int) -> bool:
        """Return whether no proposal is in flight: two could each be safe alone and lose data together."""
        return bool(self._columns.leads[segment]) and segment not in self._proposals

    def _propose(
        self, segment: int, in_sync: tuple[Replica, ...], *, now_ms: int, gone: tuple[Replica, ...] = (), joined: Replica | None = None
    ) -> Propose:
        term = self._columns.terms[segment]
        assert term is not None, "checked by the caller"
        proposal = Propose(segment=segment, epoch=term.epoch, revision=term.revision, in_sync=in_sync, gone=gone, joined=joined)
        self._proposals[segment] = proposal
        if joined is not None:
            self._columns.appended_ms[segment] = now_ms  # what is in flight is awaited from the new member from now on
        self._await(segment, term.in_sync, now_ms=now_ms)
        return proposal
