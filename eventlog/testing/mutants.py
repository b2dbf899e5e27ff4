"""Planted protocol bugs: each replaces a method of a core. The simulator's history checkers must find every one of them.

The product has no hook for this: `eventlog.testing.mutation` puts a replacement in place of a method for as long as a seed runs. A
mutant is told by a name, the method it replaces, what makes the replacement out of the original, and a seed that finds it. Where two
rules guard against the same damage, one mutant takes both away: with either of them left, nothing goes wrong.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from eventlog.batch.layout import read_head
from eventlog.errors import ClockSkew
from eventlog.events import Change
from eventlog.replication.commands import Cut, Lead, Write
from eventlog.replication.messages import APPEND
from eventlog.replication.roster import OWN

Make = Callable[[Any], Any]
World = Literal["cluster", "group", "reading", "near", "work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """`target` is `module:Class.method` or `module:function`; `make` gets the original and returns what stands in its place.

    `also` are further targets that are replaced along with it. `world` is the simulator that is to find it.
    """

    name: str
    target: str
    make: Make
    seed: int
    also: tuple[tuple[str, Make], ...] = ()
    world: World = "cluster"


def _instead(replacement: Callable[..., Any]) -> Make:
    return lambda _original: replacement


# ---------------------------------------------------------------- epochs and terms


def _obey_any_epoch(original: Any) -> Any:
    def receive(self: Any, message: Any, *, now_ms: int) -> Any:
        columns = self.columns
        for row in np.frombuffer(message.rows, APPEND).tolist():
            segment, epoch = row[0], row[2]
            if epoch < columns.epochs[segment]:
                columns.epochs[segment], columns.sources[segment] = epoch, message.sender.node
                columns.leads[segment] = columns.adopted[segment] = columns.matched[segment] = False
        return original(self, message, now_ms=now_ms)

    return receive


def _go_on_after_restart(original: Any) -> Any:
    def learn(self: Any, terms: Any, *, now_ms: int) -> Any:
        patched = []
        for term in terms:
            is_first = self.columns.terms[term.segment] is None
            if is_first and term.primary == self.own.node and self.own in term.in_sync and term.epoch >= self.columns.epochs[term.segment]:
                self.columns.epochs[term.segment] = term.epoch - 1
                term = replace(term, session=self.columns.session)  # noqa: PLW2901 - as if it were this process's
            patched.append(term)
        return original(self, patched, now_ms=now_ms)

    return learn


def _lead_at_once(original: Any) -> Any:
    def mark(self: Any, segments: Any, ids: Any, *, now_ms: int) -> Any:
        commands = original(self, segments, ids, now_ms=now_ms)
        return [*commands, Lead(segments=self.marked)] if len(self.marked) else commands

    return mark


def _lead_with_an_empty_tail(original: Any) -> Any:
    def mark(self: Any, segments: Any, ids: Any, *, now_ms: int) -> Any:
        empty = segments[self.columns.ends[segments] <= self.columns.watermark[segments]]
        commands = original(self, segments, ids, now_ms=now_ms)
        begun = np.intersect1d(empty, self.marked)
        self.columns.adopted[begun] = True
        self.primary.ready[begun] = self.primary.sizes[begun] >= self.primary.needed[begun]
        return [*commands, Lead(segments=begun)] if len(begun) else commands

    return mark


# ---------------------------------------------------------------- in-sync sets


def _take_a_proposal_for_granted(original: Any) -> Any:
    def shrink(self: Any, *, now_ms: int) -> Any:
        commands = original(self, now_ms=now_ms)
        for proposal in list(commands):
            slots = {self._roster.find(replica) for replica in proposal.in_sync}
            self._roster.await_(proposal.segment, in_sync=slots, awaited=slots | {OWN})
            commands += self._primary.advance(np.array([proposal.segment]))
        return commands

    return shrink


def _await_the_recorded(_self: Any, current: Any, _proposed: Any) -> Any:
    return current


def _join_before_catching_up(original: Any) -> Any:
    """Propose whoever is an owner. Who follows live was sent everything: without the start of the epoch alone, little could go wrong."""

    def tick(self: Any, *, now_ms: int) -> Any:
        commands = original(self, now_ms=now_ms)
        for link in self.streams.links.values():
            for segment in np.flatnonzero(self.leads & ~self.roster.awaited[link.slot]).tolist():
                proposal = self.sets._propose_joined(segment, link.slot, now_ms)  # noqa: SLF001 - past its guard
                commands += [] if proposal is None else [proposal]
        return commands

    return tick


def _propose_and_forget(original: Any) -> Any:
    """Propose again while a proposal is in flight, whose outcome is awaited no more."""

    def propose(self: Any, segment: int, in_sync: Any, *, now_ms: int, **how: Any) -> Any:
        proposal = original(self, segment, in_sync, now_ms=now_ms, **how)
        del self._proposals[segment]
        self._await(segment, self._columns.terms[segment].in_sync, now_ms=now_ms)
        return proposal

    return propose


# ---------------------------------------------------------------- logs


def _hear_without_match(self: Any, segments: Any, watermarks: Any) -> Any:
    columns = self._columns
    columns.heard[segments] = np.maximum(columns.heard[segments], watermarks)
    return self.learn(segments)


def _any_cut_is_meant(_self: Any, _segment: int, _previous: int) -> bool:
    """Take a cut that comes late or again.

    Alone it does no harm: the log that it would cut has a watermark above that point as soon as anything was committed after it.
    """
    return True


def _nothing_is_committed(_self: Any, _segment: int, _upto: int) -> bool:
    """Cut below the own watermark; only a cut that was not meant asks for that."""
    return False


def _cut_to_the_own_watermark(original: Any) -> Any:
    """Cut what is not known to be committed when a term begins, without asking its primary: what happened before KIP-101."""

    def learn(self: Any, terms: Any, *, now_ms: int) -> Any:
        columns = self.columns
        begun = [term.segment for term in terms if (known := columns.terms[term.segment]) is None or term.epoch > known.epoch]
        commands = original(self, terms, now_ms=now_ms)
        for segment in begun:
            watermark = columns.watermark.item(segment)
            is_open = columns.holds[segment] and not (columns.leads[segment] or columns.busy[segment] or columns.matched[segment])
            if is_open and columns.ends[segment] > watermark:
                columns.busy[segment] = True
                commands.append(Cut(segment=segment, epoch=columns.epochs.item(segment), upto=watermark, discard=False))
        return commands

    return learn


def _append_over_a_gap(self: Any, segment: int, previous: int) -> bool:
    return bool(previous >= self._columns.ends.item(segment))


def _answer_before_sync(original: Any) -> Any:
    def receive(self: Any, message: Any, *, now_ms: int) -> Any:
        commands = original(self, message, now_ms=now_ms)
        early = [answer for command in commands if isinstance(command, Write) for answer in self.stored(command)]
        return [*commands, *early]

    return receive


def _count_oneself_before_sync(original: Any) -> Any:
    def append(self: Any, segments: Any, last_ids: Any, *, counts: Any = None, now_ms: int = 0) -> Any:
        commands = original(self, segments, last_ids, counts=counts, now_ms=now_ms)
        return [*commands, *self.written(segments, last_ids)]

    return append


# ---------------------------------------------------------------- ids, leases, promises


def _stay_below(_self: Any, _floor: int) -> None:
    return None


def _floor_of_the_last(_segment: Any, old_primary: Any) -> int:
    return int(old_primary.ceiling)


def _no_floor(_segment: Any, _old_primary: Any) -> int:
    return 0


def _promise_above_the_lease(self: Any, upto: int | None = None, *, vouched: Any = None) -> int:  # noqa: ARG001 - the names of the original
    if upto is not None:
        try:
            self.observe(upto)
        except ClockSkew:
            return int(self.last)
    self.last = max(self.last, (self._physical() << 22) - 1)
    return int(self.last)


def _begin_nothing(_self: Any, _segments: Any, *, first_id: int, last_id: int) -> None:  # noqa: ARG001 - the names of the original
    return None


def _serve_without_the_named(self: Any, of: Any) -> None:
    self.limits[of] = np.maximum(self.limits[of], np.maximum(self._closed[of], self._held[of]))


# ---------------------------------------------------------------- whose copies go


def _keep_nothing(_self: Any, _segments: Any) -> list[int]:
    return []


# ---------------------------------------------------------------- who may lead


def _lead_with_an_empty_disk(segment: Any, node: Any) -> bool:
    return any(replica.node == node.number for replica in segment.in_sync)


def _same_epoch(segment: Any) -> int:
    return int(segment.epoch)


def _lead_any_term(self: Any, terms: Any) -> frozenset[int]:
    self._led |= terms
    return frozenset()


# ---------------------------------------------------------------- what is stored


def _believe_every_byte(data: Any, *, segment: int, cache: int) -> Any:
    return read_head(data, where=f"segment {segment}, cache {cache}")


# ---------------------------------------------------------------- consumers


def _any_commit_counts(_name: str, _state: Any, _commit: Any) -> None:
    return None


def _give_at_once(state: Any) -> Any:
    given = tuple(
        state.generation if holder != target else given
        for holder, target, given in zip(state.holders, state.targets, state.given, strict=True)
    )
    return replace(state, holders=state.targets, given=given)


def _goes_on_in_a_later_term(_original: Any) -> Any:
    def is_current(running: Any) -> bool:
        running.term = running.node.inner.term(running.route) or running.term
        return True

    return property(is_current)


def _write_wherever_it_is_led(original: Any) -> Any:
    """Have a write go on when the term is over, at whoever leads the route then."""
    return lambda self, *args, **options: original(self, *args, **{**options, "term": None})


def _end_where_it_was_cut_short(original: Any) -> Any:
    return lambda matched, limits: replace(original(matched, limits), upto=matched.upto)


def _skip_what_no_event_of_matches(original: Any) -> Any:
    """Take the first kind that a stored value holds for the only one."""

    def kinds_of(values: Any, rows: Any) -> Any:
        kinds = original(values, rows)
        return kinds & -kinds.astype(np.int16)

    return kinds_of


def _begin_the_segment_again(_original: Any) -> Any:
    return property(lambda self: ((*self.open, *(segment for segment in self.left if segment not in self.open)), None))


def _take_any_place(self: Any, cursors: Any) -> None:
    for cursor in cursors:
        self.open[cursor.segment] = cursor
        if cursor.finished:
            self.left.pop(cursor.segment, None)
            del self.open[cursor.segment]


def _changes_without_joined(original: Any) -> Any:
    def changes(self: Any, events: Any) -> Any:
        found = original(self, events)
        return np.where(found == Change.JOINED, 0, found).astype(np.uint8)

    return changes


def _keep_as_done_what_was_handed_out(original: Any) -> Any:
    return lambda self: [replace(one, is_done=one.is_done or bool(one.member)) for one in original(self)]


def _hand_out_whatever_is_there(self: Any, now_ms: int, limit: int) -> Any:
    return [task for task in self.tasks.values() if task.ready_ms <= now_ms][:limit]


def _forget_the_place(original: Any) -> Any:
    def close(self: Any) -> None:
        original(self)
        self.upto = 0

    return close


def _look_at_what_is_there_now(self: Any, store: Any, state: Any) -> None:
    self._store, self._rows = store, state


_CORE: Final = "eventlog.replication.replica:Replication"
_BACKUP: Final = "eventlog.replication.backup:BackupCore"
_SETS: Final = "eventlog.replication.in_sync:InSync"
_RULES: Final = "eventlog.control.rules:SegmentRules"
_CLOCK: Final = "eventlog.ids:FlakeClock"
_RECORDS: Final = "eventlog.control.cluster:ClusterRecords"
_MARKS: Final = "eventlog.consume.watermark"

MUTANTS: Final = (
    Mutant(name="no epoch check", target=f"{_CORE}.receive", make=_obey_any_epoch, seed=27),
    Mutant(name="two terms under one epoch", target=f"{_RULES}.next_epoch", make=_instead(_same_epoch), seed=0),
    Mutant(
        name="primary goes on after a restart",
        target=f"{_CORE}.learn",
        make=_go_on_after_restart,
        also=((f"{_RECORDS}.lead", _instead(_lead_any_term)),),
        seed=0,
    ),
    Mutant(name="promise for a segment not adopted", target=f"{_CORE}.mark", make=_lead_at_once, seed=4),
    Mutant(name="empty tail taken as adopted", target=f"{_CORE}.mark", make=_lead_with_an_empty_tail, seed=200096),
    Mutant(name="watermark waits for the proposed set alone", target=f"{_SETS}.shrink", make=_take_a_proposal_for_granted, seed=100056),
    Mutant(name="watermark waits for the recorded set alone", target=f"{_SETS}._awaited", make=_instead(_await_the_recorded), seed=200131),
    Mutant(name="join below the epoch's start", target=f"{_CORE}.tick", make=_join_before_catching_up, seed=100018),
    Mutant(name="two proposals in flight", target=f"{_SETS}._propose", make=_propose_and_forget, seed=200131),
    Mutant(name="watermark taken without a match", target=f"{_BACKUP}.hear", make=_instead(_hear_without_match), seed=7),
    Mutant(
        name="stale truncation answer accepted",
        target=f"{_BACKUP}.is_cut_meant",
        make=_instead(_any_cut_is_meant),
        also=((f"{_BACKUP}.is_committed", _instead(_nothing_is_committed)),),
        seed=100100,
    ),
    Mutant(name="truncation to the own watermark", target=f"{_CORE}.learn", make=_cut_to_the_own_watermark, seed=0),
    Mutant(name="append over a gap", target=f"{_BACKUP}.continues", make=_instead(_append_over_a_gap), seed=0),
    Mutant(name="backup answers before its sync", target=f"{_CORE}.receive", make=_answer_before_sync, seed=7),
    Mutant(name="primary counts itself before its sync", target=f"{_CORE}.append", make=_count_oneself_before_sync, seed=3),
    Mutant(name="id clock not raised on takeover", target=f"{_CLOCK}.raise_above", make=_instead(_stay_below), seed=200001),
    Mutant(name="floor not chained", target=f"{_RULES}.next_floor", make=_instead(_floor_of_the_last), seed=200010),
    Mutant(name="no floor", target=f"{_RULES}.next_floor", make=_instead(_no_floor), seed=200001),
    Mutant(name="promise above the lease", target=f"{_CLOCK}.close_up", make=_instead(_promise_above_the_lease), seed=100057),
    Mutant(name="promise ignores what is in flight", target=f"{_MARKS}:Promises.begin", make=_instead(_begin_nothing), seed=2),
    Mutant(
        name="promise served without its last event",
        target=f"{_MARKS}:LowWatermark._raise",
        make=_instead(_serve_without_the_named),
        seed=200000,
    ),
    Mutant(
        name="copy deleted by an old record",
        target="eventlog.replication.releases:Releases.kept",
        make=_instead(_keep_nothing),
        seed=291,
    ),
    Mutant(name="lost disk electable", target=f"{_RULES}.may_lead", make=_instead(_lead_with_an_empty_disk), seed=200197),
    Mutant(name="checksum not checked", target="eventlog.batch.views:checked_head", make=_instead(_believe_every_byte), seed=6),
    Mutant(
        name="commit not fenced",
        target="eventlog.node.consumers.coordinator:check_commit",
        make=_instead(_any_commit_counts),
        seed=2,
        world="group",
    ),
    Mutant(
        name="segment given to two members",
        target="eventlog.consume.membership.changes:give",
        make=_instead(_give_at_once),
        seed=0,
        world="group",
    ),
    Mutant(
        name="coordinator goes by what it knew in an earlier term",
        target="eventlog.node.consumers.coordinator:Running.is_current",
        make=_goes_on_in_a_later_term,
        seed=13,
        world="group",
    ),
    Mutant(
        name="group written behind its next coordinator's back",
        target="eventlog.node.consumers.inner:Inner.write",
        make=_write_wherever_it_is_led,
        seed=6,
        world="group",
    ),
    Mutant(
        name="position advanced past an unread match",
        target="eventlog.consume.filtered:within",
        make=_end_where_it_was_cut_short,
        seed=0,
        world="reading",
    ),
    Mutant(
        name="stored value skipped that holds a match",
        target="eventlog.consume.filtered:kinds_of",
        make=_skip_what_no_event_of_matches,
        seed=0,
        world="reading",
    ),
    Mutant(
        name="snapshot not pinned",
        target="eventlog.segment.memory:MemorySnapshot.__init__",
        make=_instead(_look_at_what_is_there_now),
        seed=0,
        world="reading",
    ),
    Mutant(
        name="entry repeated after another node took over",
        target="eventlog.query.iterate.progress:IterationProgress.next",
        make=_begin_the_segment_again,
        also=(("eventlog.query.iterate.progress:IterationProgress.took", _instead(_take_any_place)),),
        seed=0,
        world="reading",
    ),
    Mutant(
        name="joining a query missed",
        target="eventlog.predicate.compile:Compiled.changes",
        make=_changes_without_joined,
        seed=0,
        world="reading",
    ),
    Mutant(
        name="event done before it was worked on",
        target="eventlog.consume.work.queue:SegmentQueue.kept",
        make=_keep_as_done_what_was_handed_out,
        seed=0,
        world="work",
    ),
    Mutant(
        name="event handed out twice at once",
        target="eventlog.consume.work.queue:SegmentQueue.ready",
        make=_instead(_hand_out_whatever_is_there),
        seed=0,
        world="work",
    ),
    Mutant(
        name="invalidation lost at resume",
        target="eventlog.client.near.table:NearTable.close",
        make=_forget_the_place,
        seed=100001,
        world="near",
    ),
)
