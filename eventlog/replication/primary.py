"""The primary's side of the segments that a node leads: append, count acknowledgements, commit."""

from collections.abc import Iterable

import numpy as np

from eventlog.arrays import Ints, Mask
from eventlog.errors import NotEnoughReplicas, NotPrimary
from eventlog.replication.columns import FEW_ROWS_MAX, NEVER, SegmentColumns
from eventlog.replication.commands import Command, Commands, Committed, Lead
from eventlog.replication.roster import OWN, Roster
from eventlog.replication.terms import EpochStart, Term


class PrimaryCore:
    """Ends, acknowledgements and high watermarks of what this node leads.

    Invariants: the watermark is at or below what every awaited replica has acknowledged in this epoch; nothing is appended to a
    segment that is not adopted, except the marker that adopts it. `needed`: `min_in_sync`. `ready`: adopted, and enough in sync.
    """

    def __init__(self, columns: SegmentColumns, roster: Roster) -> None:
        self._columns = columns
        self._roster = roster
        self.needed = np.ones(columns.segments, np.int64)
        self.sizes = np.zeros(columns.segments, np.int64)  # of the in-sync set
        self.ready = np.zeros(columns.segments, bool)

    # ------------------------------------------------------------ terms

    def may_lead(self, term: Term) -> bool:
        """Return whether this process is the primary of a term that it did not know of when it began.

        Being primary ends with the process: a node that comes back needs a higher epoch. An incarnation that is not in sync never leads.
        """
        columns = self._columns
        is_own = term.primary == columns.own.node and term.session == columns.session and columns.own in term.in_sync
        return is_own and term.epoch > columns.epochs.item(term.segment)

    def appoint(self, term: Term, *, now_ms: int) -> None:
        """Become primary of a segment whose epoch is known; its marker is the next thing to append."""
        columns, segment = self._columns, term.segment
        columns.leads[segment] = True
        columns.adopted[segment] = False
        columns.starts[segment] = NEVER
        columns.appended_ms[segment] = now_ms
        self._roster.reset(segment)

    def resign(self, segment: int) -> None:
        """Stop leading: nothing is appended, counted or promised for it any more."""
        columns = self._columns
        columns.leads[segment] = columns.adopted[segment] = self.ready[segment] = False
        columns.starts[segment] = NEVER
        self._roster.reset(segment)

    def set_sizes(self, segment: int, *, size: int, needed: int) -> None:
        """Note how large the in-sync set is and must be."""
        self.sizes[segment], self.needed[segment] = size, needed
        self.ready[segment] = self._columns.adopted[segment] and size >= needed

    # ------------------------------------------------------------ appending

    def mark(self, segments: Ints, ids: Ints, *, now_ms: int) -> Ints:
        """Register the first entries of new epochs where they are still wanted; return the places of these."""
        columns = self._columns
        places: Ints = (columns.leads[segments] & (columns.starts[segments] == NEVER)).nonzero()[0]
        for segment, id_ in zip(segments[places].tolist(), ids[places].tolist(), strict=True):
            previous, epoch = columns.ends.item(segment), columns.epochs.item(segment)
            assert id_ > previous, f"segment {segment}: the marker {id_} is not above the end {previous}"
            columns.histories[segment].append(EpochStart(epoch, id_, previous))
            columns.ends[segment] = columns.starts[segment] = id_
            columns.end_epochs[segment] = epoch
            columns.appended_ms[segment] = now_ms
        return places

    def append(self, segments: Ints, last_ids: Ints, *, now_ms: int) -> Ints:
        """Register events up to `last_ids` as in flight; return the ends before."""
        columns = self._columns
        self.check_ready(segments)
        previous: Ints = columns.ends[segments]
        assert not np.count_nonzero(last_ids <= previous), "ids of a segment rise"
        columns.ends[segments] = last_ids
        if now_ms:
            is_first = previous <= columns.watermark[segments]
            columns.appended_ms[segments] = np.where(is_first, now_ms, columns.appended_ms[segments])
        return previous

    def append_one(self, segment: int, last_id: int, *, now_ms: int) -> int:
        """Do what `append` does, for one segment and without arrays."""
        columns = self._columns
        if not self.ready.item(segment):
            self.check_ready(np.array([segment]))
        previous = columns.ends.item(segment)
        assert last_id > previous, "ids of a segment rise"
        columns.ends[segment] = last_id
        if previous <= columns.watermark.item(segment):
            columns.appended_ms[segment] = now_ms
        return previous

    def check_ready(self, segments: Ints) -> None:
        """Raise NotPrimary or NotEnoughReplicas where a segment cannot be appended to now."""
        if np.count_nonzero(self.ready[segments]) == len(segments):
            return
        adopted = self._columns.adopted[segments]
        if np.count_nonzero(adopted) < len(adopted):
            raise NotPrimary(segment=int(segments[~adopted][0]))
        have, need = self.sizes[segments], self.needed[segments]
        if np.count_nonzero(have < need):
            worst = int(np.argmin(have - need))
            raise NotEnoughReplicas(segment=int(segments[worst]), have=int(have[worst]), need=int(need[worst]))

    # ------------------------------------------------------------ counting

    def count(self, slot: int, segments: Ints, ends: Ints) -> Commands:
        """Note that a replica's log holds everything up to `ends` on disk, in this epoch; return what that commits."""
        roster = self._roster
        of = roster.acknowledged_rows[slot]
        held = np.maximum(of[segments], ends)
        of[segments] = held
        awaited = roster.awaited_rows[slot][segments]
        if np.count_nonzero(awaited) == len(awaited):
            roster.counted_rows[slot][segments] = held
        else:
            segments = segments[awaited]
            roster.counted_rows[slot][segments] = held[awaited]
        return self.advance(segments)

    def count_few(self, slot: int, ends: Iterable[tuple[int, int]]) -> Commands:
        """Do what `count` does, for (segment, end) of a few segments and without arrays."""
        columns, roster = self._columns, self._roster
        acknowledged, awaited, counted = roster.acknowledged_rows[slot], roster.awaited_rows[slot], roster.counted_rows[slot]
        moved: dict[int, int] = {}
        begun: list[int] = []
        for segment, end in ends:
            if end > acknowledged.item(segment):
                acknowledged[segment] = end
                if not awaited.item(segment):
                    continue
                counted[segment] = end
            if not columns.adopted.item(segment):
                begun.append(segment)
                continue
            held: int = min([row.item(segment) for row in roster.counted_rows])
            if held > columns.watermark.item(segment) and self.sizes.item(segment) >= self.needed.item(segment):
                columns.watermark[segment] = moved[segment] = held
        commands: Commands = [Committed(segments=np.array([*moved]), watermarks=np.array([*moved.values()]))] if moved else []
        return commands + self.advance(np.array(begun)) if begun else commands

    def take_back(self, slot: int, segment: int, end: int) -> None:
        """Count a replica only up to `end`, an id of this log, again: it has said that no more of it is there. What is committed stays so.

        What it said may be old, of before it was brought up; then it is asked again and counts as before.
        """
        roster = self._roster
        if end < roster.acknowledged_rows[slot].item(segment):
            roster.acknowledged_rows[slot][segment] = end
            if roster.awaited_rows[slot].item(segment):
                roster.counted_rows[slot][segment] = end

    def advance(self, segments: Ints) -> Commands:
        """Move the watermarks of `segments` to what every awaited replica holds, where enough of them are in sync."""
        columns = self._columns
        held = self._held_by_all(segments)
        moves = (held > columns.watermark[segments]) & columns.leads[segments] & (self.sizes[segments] >= self.needed[segments])
        if np.count_nonzero(moves) < len(moves):
            segments, held = segments[moves], held[moves]
            if not len(segments):
                return []
        columns.watermark[segments] = held
        commands: list[Command] = [Committed(segments=segments, watermarks=held)]
        adopted = columns.adopted[segments]
        if np.count_nonzero(adopted) < len(adopted):
            begun = segments[~adopted & self._is_adopted(segments)]
            columns.adopted[begun] = True
            self.ready[begun] = self.sizes[begun] >= self.needed[begun]
            if len(begun):
                commands.append(Lead(segments=begun))
        return commands

    def _held_by_all(self, segments: Ints) -> Ints:
        """Return the ids that every awaited replica, this node among them, has on disk in this epoch."""
        held: Ints = self._roster.counted.take(segments, axis=1).min(axis=0)
        return held

    def _is_adopted(self, segments: Ints) -> Mask:
        """Return whether the marker of the epoch is committed: every awaited replica has cut what is not in this log. Even if empty."""
        starts = self._columns.starts[segments]
        adopted: Mask = (starts != NEVER) & (self._columns.watermark[segments] >= starts)
        return adopted

    def count_own(self, segments: Ints, last_ids: Ints) -> Commands:
        """Note that the own log holds own appends up to `last_ids` on disk."""
        columns = self._columns
        if len(segments) <= FEW_ROWS_MAX:
            held: list[tuple[int, int]] = []
            for segment, end in zip(segments.tolist(), last_ids.tolist(), strict=True):
                last = min(end, columns.ends.item(segment))
                if last > columns.durable.item(segment):
                    columns.durable[segment] = last
                if columns.leads.item(segment):
                    held.append((segment, last))
            return self.count_few(OWN, held)
        last_ids = np.minimum(last_ids, columns.ends[segments])
        columns.durable[segments] = np.maximum(columns.durable[segments], last_ids)
        leads = columns.leads[segments]
        if np.count_nonzero(leads) < len(leads):
            segments, last_ids = segments[leads], last_ids[leads]
        return self.count(OWN, segments, last_ids)
