"""Three replicas under everything that may happen to them, in any order: nothing committed is ever lost, and in the end all logs agree."""

import contextlib

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eventlog.errors import NotEnoughReplicas, NotPrimary
from eventlog.replication import Replica
from eventlog.replication import commands as do
from tests.examples import examples
from tests.replication.worlds import Node, World

NODES = st.sampled_from((1, 2, 3))
PICK = st.integers(0, 1 << 20)


class Replicas(RuleBasedStateMachine):
    """One segment, three nodes; messages are lost, doubled and reordered, processes crash, primaries change, disks are lost."""

    @initialize(needed=st.sampled_from((1, 2)))
    def begin(self, needed: int) -> None:
        self.world = World(3, segments=1)
        self.world.appoint(1, needed=needed)
        self.world.tell()
        self.world.settle()
        self.undecided: list[do.Propose] = []
        self.incarnations = 0

    def node(self, number: int) -> Node:
        return self.world[number]

    # ------------------------------------------------------------ what goes well

    @rule()
    def everything_happens(self) -> None:
        self.world.settle()

    @rule(count=st.integers(1, 6), place=PICK)
    def some_messages_arrive(self, count: int, place: int) -> None:
        for _ in range(min(count, len(self.world.letters))):
            self.world.deliver(place % len(self.world.letters))
            if not self.world.letters:
                return

    @rule(number=NODES, upto=st.sampled_from((1, 2, None)))
    def a_disk_turns(self, number: int, upto: int | None) -> None:
        node = self.node(number)
        if node.up:
            node.mark()
            node.sync(upto)

    @rule(number=NODES)
    def reads_come_back(self, number: int) -> None:
        node = self.node(number)
        if node.up:
            reads, node.reads = node.reads, []
            for read in reads:
                node.carry_out(read())

    @rule()
    def whoever_thinks_it_is_primary_appends(self) -> None:
        for node in self.world.nodes.values():
            if node.up and node.core.leads[0] and not node.core.waits_for(0):
                with contextlib.suppress(NotPrimary, NotEnoughReplicas):
                    node.put(0)

    @rule(after_ms=st.sampled_from((50, 400, 1100)))
    def time_passes(self, after_ms: int) -> None:
        self.world.tick(after_ms)

    # ------------------------------------------------------------ metadata

    @rule(number=NODES, is_told=st.booleans(), is_late=st.booleans())
    def proposals_are_decided(self, number: int, is_told: bool, is_late: bool) -> None:
        node = self.node(number)
        proposals, node.proposals = node.proposals, []
        for proposal in proposals:
            if is_late:
                self.undecided.append(proposal)
                continue
            record = self.world.metadata.commit(proposal)
            if is_told and node.up:
                node.learn([record])

    @rule()
    def a_late_proposal_arrives(self) -> None:
        if self.undecided:
            self.world.metadata.commit(self.undecided.pop())

    @rule(number=NODES)
    def a_node_sees_the_records(self, number: int) -> None:
        self.world.tell(number)

    @rule(pick=PICK, drops_old=st.booleans())
    def a_primary_is_appointed(self, pick: int, drops_old: bool) -> None:
        record = self.world.metadata.records[0]
        candidates = [member for member in record.in_sync if self.node(member.node).up and self.node(member.node).own == member]
        if not candidates:
            return
        chosen = candidates[pick % len(candidates)].node
        kept = tuple(m for m in record.in_sync if m.node == chosen or m.node != record.primary or not drops_old)
        if len(kept) < record.min_in_sync:
            kept = record.in_sync
        self.world.appoint(chosen, in_sync=tuple(member.node for member in kept))

    # ------------------------------------------------------------ what goes wrong

    @rule(place=PICK)
    @precondition(lambda self: self.world.letters)
    def a_message_is_lost(self, place: int) -> None:
        self.world.letters.pop(place % len(self.world.letters))

    @rule(place=PICK)
    @precondition(lambda self: self.world.letters)
    def a_message_is_doubled(self, place: int) -> None:
        self.world.deliver(place % len(self.world.letters), keep=True)

    @rule(number=NODES)
    def a_process_ends(self, number: int) -> None:
        if self.node(number).up:
            self.node(number).crash()

    @rule(number=NODES)
    def a_process_starts(self, number: int) -> None:
        if not self.node(number).up:
            self.node(number).start()

    @rule(number=NODES)
    def a_disk_is_lost(self, number: int) -> None:
        """Of who is not needed: the events that only one disk holds are lost with it, whatever a protocol does."""
        waiting = [*self.undecided, *(proposal for node in self.world.nodes.values() for proposal in node.proposals)]
        sets = [self.world.metadata.records[0].in_sync, *(proposal.in_sync for proposal in waiting)]  # what may be the set before long
        if self.node(number).up or not all(self._is_held_beside(number, in_sync) for in_sync in sets):
            return
        self.incarnations += 1
        self.node(number).lose_disk(f"b{self.incarnations}")

    def _is_held_beside(self, number: int, in_sync: tuple[Replica, ...]) -> bool:
        return any(member.node != number and self.node(member.node).own == member for member in in_sync)

    @rule(number=NODES)
    def a_log_is_trimmed(self, number: int) -> None:
        core = self.node(number).core
        core.trimmed(np.array([0]), core.watermark[[0]])

    # ------------------------------------------------------------ what must hold

    @invariant()
    def what_is_readable_is_committed_and_the_same_everywhere(self) -> None:
        committed = self.world.acknowledged[0]
        for node in self.world.nodes.values():
            if node.up:
                readable = [value for value in node.logs[0] if value[0] <= node.core.watermark.item(0)]
                assert readable == committed[: len(readable)]
                assert [value[0] for value in node.logs[0]] == sorted({value[0] for value in node.logs[0]})

    @invariant()
    def every_member_of_the_in_sync_set_has_every_committed_event_on_disk(self) -> None:
        committed = self.world.acknowledged[0]
        for member in self.world.metadata.records[0].in_sync:
            node = self.node(member.node)
            if node.own == member:
                assert 0 not in node.disk.partial
                assert node.disk.logs[0][: len(committed)] == committed

    @invariant()
    def one_process_leads_an_epoch(self) -> None:
        led = [node.core.epochs.item(0) for node in self.world.nodes.values() if node.up and node.core.leads[0]]
        assert len(led) == len(set(led))

    def teardown(self) -> None:
        """Heal, and demand progress."""
        if not hasattr(self, "world"):
            return
        world = self.world
        for proposal in self.undecided:
            world.metadata.commit(proposal)
        for node in world.nodes.values():
            if not node.up:
                node.start()
        for _ in range(3):
            record = world.metadata.records[0]
            leader = self.node(record.primary)
            if not leader.core.leads[0] or leader.core.epochs.item(0) != record.epoch:
                chosen = next(member.node for member in record.in_sync if self.node(member.node).own == member)
                world.appoint(chosen, in_sync=tuple(member.node for member in record.in_sync))
            world.tell()
            world.pass_time(1500, step_ms=300)
        world.pass_time(12_000, step_ms=1_000)
        record = world.metadata.records[0]
        leader = self.node(record.primary)
        [id_] = leader.put(0)
        world.settle()
        world.pass_time(100)
        assert set(record.in_sync) == {node.own for node in world.nodes.values()}
        for node in world.nodes.values():
            assert node.logs[0] == leader.logs[0]
            assert node.core.watermark.item(0) == id_
            assert node.core.history(0) == leader.core.history(0)


TestReplicas = Replicas.TestCase
TestReplicas.settings = settings(
    max_examples=examples(120),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
