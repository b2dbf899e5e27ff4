"""Planted bugs of the protocol, each in place of a method; runs of a cluster must find every one of them.

Where whole nodes have another rule against the same damage, that one is taken away as well.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from eventlog.batch.layout import read_head
from eventlog.control.records import NODE_PREFIX
from eventlog.errors import ClockSkew
from eventlog.limits import LEASE_MS
from eventlog.node.cluster.primaries import Led
from eventlog.replication.commands import Cut, Lead, Write
from eventlog.replication.messages import ACK, APPEND, HELD
from eventlog.replication.roster import OWN
from tests.sim.cluster import credulous
from tests.sim.cluster.swarm import Fault, choose
from tests.sim.planting import Mutant, instead

# ---------------------------------------------------------------- epochs and terms


def _obey_any_epoch(original: Any) -> Any:
    def receive(self: Any, message: Any, *, now_ms: int) -> Any:
        columns = self.columns
        for row in np.frombuffer(message.rows, APPEND).tolist():
            segment, epoch = row[0], row[2]
            if epoch < columns.epochs[segment]:
                columns.epochs[segment], columns.sources[segment] = epoch, columns.number_of(message.sender)
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


def _promise_what_is_not_adopted(original: Any) -> Any:
    """Promise for what begins, though its log is not adopted yet: what is served is looked at once more."""

    def serve(self: Any, segments: Any) -> None:
        core = self._core
        early = self._still_led(segments[~core.adopted[segments]])
        self._node.promises.lead(early, epochs=core.epochs[early].astype(np.int64), last_ids=core.watermark[early])
        original(self, segments)

    return serve


def _go_on_with_what_was_led(original: Any) -> Any:
    """Begin what was led before without a term of its own: a node appoints itself anew before it opens its log."""

    async def appoint(self: Any, *, accepts_loss: bool = False) -> Any:
        own = [found.record for found in (await self.view()).segments.values() if found.record.primary == self.member.number]
        return own or await original(self, accepts_loss=accepts_loss)

    return appoint


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

    def look(self: Any, *, now_ms: int) -> Any:
        commands = original(self, now_ms=now_ms)
        for link in self.streams.links.values():
            for segment in np.flatnonzero(self.leads & ~self.roster.awaited[link.slot]).tolist():
                proposal = self.sets._propose_joined(segment, link.slot, now_ms)
                commands += [] if proposal is None else [proposal]
        return commands

    return look


def _propose_and_forget(original: Any) -> Any:
    """Propose again while a proposal is in flight, whose outcome is awaited no more."""

    def propose(self: Any, segment: int, in_sync: Any, *, now_ms: int, **how: Any) -> Any:
        proposal = original(self, segment, in_sync, now_ms=now_ms, **how)
        del self._proposals[segment]
        self._await(segment, self._columns.terms[segment].in_sync, now_ms=now_ms)
        return proposal

    return propose


def _propose_on_any_record(original: Any) -> Any:
    """Carry a change out on the record of now, whatever it was made from."""

    def plan_batch(found: Any, changes: Any, *, nonce: str) -> Any:
        moved = [replace(change, revision=found[change.segment].revision) if change.segment in found else change for change in changes]
        return original(found, moved, nonce=nonce)

    return plan_batch


def _every_outcome_is_certain(_self: Any, _outcome: Any) -> bool:
    return False


def _expect_no_nodes(original: Any) -> Any:
    """Put the records of nodes back as they were seen, whatever they are by now."""

    def commit_of(*args: Any, **options: Any) -> Any:
        plan = original(*args, **options)
        if plan is None:
            return None
        return replace(plan, expect={key: revision for key, revision in plan.expect.items() if not key.startswith(NODE_PREFIX)})

    return commit_of


def _any_size_will_do(_segment: Any, _left: Any) -> bool:
    return True


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


def _answer_idle_rows_before_sync(original: Any) -> Any:
    def take_plain(self: Any, message: Any, table: Any) -> Any:
        commands = original(self, message, table)
        columns, idle = self._columns, table["segment"][table["last"] == table["previous"]].astype(np.int64)
        early = idle[columns.durable[idle] < columns.ends[idle]]
        return [*commands, self._held(message, early, columns.ends[early], columns.epochs[early])] if len(early) else commands

    return take_plain


def _answer_repeated_rows_before_sync(original: Any) -> Any:
    def plain(self: Any, place: int, row: Any, starts: Any) -> None:
        segment, last = row[0], row[4]
        is_repeated = last <= self._columns.ends[segment]
        original(self, place, row, starts)
        if is_repeated and self._columns.matched[segment]:
            self._acks.append(self._core.ack(segment, HELD, last))

    return plain


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


def _promise_above_the_lease(self: Any, upto: int | None = None, *, vouched: Any = None) -> int:
    if upto is not None:
        try:
            self.observe(upto)
        except ClockSkew:
            return int(self.last)
    self.last = max(self.last, (self._physical() << 22) - 1)
    return int(self.last)


def _begin_nothing(_self: Any, _segments: Any, *, first_id: int, last_id: int) -> None:
    return None


def _serve_without_the_named(self: Any, of: Any) -> None:
    self.limits[of] = np.maximum(self.limits[of], np.maximum(self._closed[of], self._held[of]))


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


# ---------------------------------------------------------------- which runs have what a bug needs


def _about(theme: str) -> Callable[[int], bool]:
    return lambda seed: choose(random.Random(seed)).about == theme


def _with(*faults: Fault) -> Callable[[int], bool]:
    return lambda seed: choose(random.Random(seed)).intervals_ms.keys() >= set(faults)


def _with_late_leases(seed: int) -> bool:
    """Whether leases are renewed late, clocks are further apart than one lasts, and primaries go."""
    swarm = choose(random.Random(seed))
    faults = swarm.intervals_ms
    is_late = Fault.STORE_OUT in faults or swarm.store_unknown >= 0.2
    return is_late and Fault.CRASH_PRIMARY in faults and swarm.readers > 0 and max(swarm.offsets_ms) - min(swarm.offsets_ms) > LEASE_MS


_CORE: Final = "eventlog.replication.replica:Replication"
_BACKUP: Final = "eventlog.replication.backup:BackupCore"
_SETS: Final = "eventlog.replication.in_sync:InSync"
_RULES: Final = "eventlog.control.rules:SegmentRules"
_CLOCK: Final = "eventlog.ids:FlakeClock"
_RECORDS: Final = "eventlog.control.cluster:ClusterRecords"
_MARKS: Final = "eventlog.read.watermark"
_COMMITTING: Final = ("eventlog.control.controller", "eventlog.control.operators", "tests.sim.cluster.operating")

# ---------------------------------------------------------------- questions to all primaries


def _take_any_answer_for_all_that_was_asked(self: Any, asked: Any, _told: Any) -> bool:
    self._is_covered[list(asked)] = True
    return True


async def _answer_for_whatever_is_asked(_node: Any, cover: Any) -> Led:
    return Led(segments=list(cover.segments), epochs=list(cover.epochs))


def _lead_whatever_is_asked(_node: Any, _segment: int, _epoch: int) -> bool:
    return True


async def _prove_nothing(_self: Any, segments: Any) -> list[int]:
    return sorted(segments)


async def _say_how_far_this_node_is(self: Any) -> int:
    return int(self._node.core.watermark.max())


async def _ask_in_one_round(self: Any, message: Any, answer: Any, *, changes: Any, timeout_ms: int) -> Any:
    del changes
    return await self.ask(message, answer, timeout_ms=timeout_ms)


MUTANTS: Final = (
    Mutant(name="no epoch check", target=f"{_CORE}.receive", make=_obey_any_epoch, seed=4),
    Mutant(
        name="sender not compared with the record",
        target=f"{_BACKUP}.is_source",
        make=instead(credulous.name_any_source),
        seed=7,
        among=_with(Fault.LIAR),
    ),
    Mutant(
        name="higher epoch believed",
        target=f"{_CORE}.receive",
        make=credulous.believe_any_epoch(APPEND),
        seed=7,
        among=_with(Fault.LIAR),
    ),
    Mutant(
        name="refusal of a higher epoch believed",
        target=f"{_CORE}.acknowledged",
        make=credulous.believe_any_epoch(ACK),
        seed=13,
        among=_with(Fault.LIAR),
    ),
    Mutant(
        name="snapshot begun by a non-primary",
        target=f"{_BACKUP}.check",
        make=credulous.let_anybody_begin,
        seed=18,
        among=_with(Fault.LIAR),
    ),
    Mutant(
        name="acknowledgement of another incarnation",
        target=f"{_CORE}.acknowledged",
        make=credulous.count_by_node,
        also=(("eventlog.node.cluster.peers:Peers._check_member", instead(credulous.take_anybody_for_a_member)),),
        seed=45,
        among=_with(Fault.LIAR),
    ),
    Mutant(
        name="promise of a non-primary",
        target=f"{_CORE}.believes",
        make=instead(credulous.hear_any_promise),
        seed=7,
        among=_with(Fault.LIAR),
    ),
    Mutant(name="two terms under one epoch", target=f"{_RULES}.next_epoch", make=instead(_same_epoch), seed=0),
    Mutant(
        name="primary goes on after a restart",
        target=f"{_CORE}.learn",
        make=_go_on_after_restart,
        also=((f"{_RECORDS}.lead", instead(_lead_any_term)), (f"{_RECORDS}.appoint", _go_on_with_what_was_led)),
        seed=3,
    ),
    Mutant(
        name="promise for a segment not adopted",
        target=f"{_CORE}.mark",
        make=_lead_at_once,
        also=(("eventlog.node.copying.takeover:TakeOver._serve", _promise_what_is_not_adopted),),
        seed=0,
    ),
    Mutant(
        name="empty tail taken as adopted",
        target=f"{_CORE}.mark",
        make=_lead_with_an_empty_tail,
        seed=29,
        among=_about("appended"),
    ),
    Mutant(name="watermark waits for the proposed set alone", target=f"{_SETS}.shrink", make=_take_a_proposal_for_granted, seed=88),
    Mutant(
        name="watermark waits for the recorded set alone",
        target=f"{_SETS}._awaited",
        make=instead(_await_the_recorded),
        seed=44,
        among=_about("unheard"),
    ),
    Mutant(name="join below the epoch's start", target=f"{_CORE}.look", make=_join_before_catching_up, seed=5),
    Mutant(
        name="two proposals in flight",
        target=f"{_SETS}._propose",
        make=_propose_and_forget,
        seed=98,
        among=_about("unheard"),
    ),
    Mutant(
        name="proposal carried out on a later record",
        target="eventlog.control.cluster:plan_batch",
        make=_propose_on_any_record,
        seed=172,
        among=_about("unheard"),
    ),
    Mutant(
        name="unknown outcome taken for none",
        target="eventlog.control.proposals:Proposals._is_open",
        make=instead(_every_outcome_is_certain),
        seed=242,
        among=_about("unheard"),
    ),
    Mutant(
        name="node records overwritten",
        target="eventlog.control.appointment:commit_of",
        make=_expect_no_nodes,
        also=tuple((f"{module}:commit_of", _expect_no_nodes) for module in _COMMITTING),
        seed=75,
    ),
    Mutant(
        name="set smaller than its least size",
        target=f"{_RULES}.keeps_minimum",
        make=instead(_any_size_will_do),
        also=(("eventlog.replication.in_sync:InSync._spare", instead(lambda _self, size, _needed: size - 1)),),
        seed=49,
    ),
    Mutant(name="watermark taken without a match", target=f"{_BACKUP}.hear", make=instead(_hear_without_match), seed=8),
    Mutant(
        name="stale truncation answer accepted",
        target=f"{_BACKUP}.is_cut_meant",
        make=instead(_any_cut_is_meant),
        also=((f"{_BACKUP}.is_committed", instead(_nothing_is_committed)),),
        seed=573,
        among=_about("slow disks"),
    ),
    Mutant(name="truncation to the own watermark", target=f"{_CORE}.learn", make=_cut_to_the_own_watermark, seed=0),
    Mutant(name="append over a gap", target=f"{_BACKUP}.continues", make=instead(_append_over_a_gap), seed=0),
    Mutant(name="backup answers before its sync", target=f"{_CORE}.receive", make=_answer_before_sync, seed=4),
    Mutant(
        name="idle or repeated row answered before its sync",
        target=f"{_BACKUP}.take_plain",
        make=_answer_idle_rows_before_sync,
        also=(("eventlog.replication.backup:_Taking._plain", _answer_repeated_rows_before_sync),),
        seed=268,
        among=_about("slow disks"),
    ),
    Mutant(name="primary counts itself before its sync", target=f"{_CORE}.append", make=_count_oneself_before_sync, seed=1),
    Mutant(name="id clock not raised on takeover", target=f"{_CLOCK}.raise_above", make=instead(_stay_below), seed=1),
    Mutant(
        name="floor not chained",
        target=f"{_RULES}.next_floor",
        make=instead(_floor_of_the_last),
        seed=9,
        among=_about("leases apart"),
    ),
    Mutant(name="no floor", target=f"{_RULES}.next_floor", make=instead(_no_floor), seed=3),
    Mutant(
        name="promise above the lease",
        target=f"{_CLOCK}.close_up",
        make=instead(_promise_above_the_lease),
        seed=378,
        among=_with_late_leases,
    ),
    Mutant(name="promise ignores what is in flight", target=f"{_MARKS}:Promises.begin", make=instead(_begin_nothing), seed=0),
    Mutant(
        name="promise served without its last event",
        target=f"{_MARKS}:LowWatermark._raise",
        make=instead(_serve_without_the_named),
        seed=3,
    ),
    Mutant(
        name="lost disk electable",
        target=f"{_RULES}.may_lead",
        make=instead(_lead_with_an_empty_disk),
        seed=454,
        among=_with(Fault.DISK),
    ),
    Mutant(
        name="checksum not checked",
        target="eventlog.batch.views:checked_head",
        make=instead(_believe_every_byte),
        seed=32,
        among=_with(Fault.BIT),
    ),
    Mutant(
        name="cover not compared",
        target="eventlog.node.cluster.primaries:Cover.take",
        make=instead(_take_any_answer_for_all_that_was_asked),
        seed=240,
        among=_about("zombies"),
    ),
    Mutant(
        name="hold of a home in takeover ignored",
        target="eventlog.node.cluster.primaries:Primaries._led",
        make=instead(_answer_for_whatever_is_asked),
        also=(("eventlog.node.cluster.primaries:Primaries._leads", instead(_lead_whatever_is_asked)),),
        seed=0,
        among=_about("zombies"),
    ),
    Mutant(
        name="deposed primary answers for its segments",
        target="eventlog.node.state.freshness:Freshness.proven",
        make=instead(_prove_nothing),
        seed=185,
        among=_about("zombies"),
    ),
    Mutant(
        name="near cache's probe answered by one node alone",
        target="eventlog.node.cluster.primaries:HowFar.ask",
        make=instead(_say_how_far_this_node_is),
        seed=0,
    ),
    Mutant(
        name="list made in one round",
        target="eventlog.node.cluster.primaries:Primaries.ask_as_of_one_moment",
        make=instead(_ask_in_one_round),
        seed=22,
        among=_about("lists"),
    ),
)
