"""What operators do while everything else happens: segments are moved, members come, are emptied and removed, replicas are forced.

Decided by the product's `eventlog.control.operators`, and committed past it: an operator's node is one that is not simulated. What is
refused, or meets a conflict, is tried again while it makes sense.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from eventlog.control import operators
from eventlog.control.appointment import commit_of
from eventlog.control.controller import Situation
from eventlog.control.operators import Forced, RebalanceStart
from eventlog.control.records import CommitPlan, NodeRecord, SegmentRecord
from eventlog.control.rules import appoint
from eventlog.control.view import ClusterView
from eventlog.errors import MetadataConflict, OperationRefused
from tests.sim.cluster.world import ClusterHost, ClusterWorld

_AGAIN_US: Final = 300_000
_TRIES: Final = 20
_MEMBERS_MAX: Final = 7
_LOOK_US: Final = 1_000
_LOOKS: Final = 1_500
_Plan = Callable[[Situation], CommitPlan | None]


class Operators:
    """Hosts whose members were removed stay down, and are `is_gone`. Once the world `is_over`, nothing is begun; what began goes on."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._look = world.view
        self._is_forcing = False
        self._unled_us: dict[int, int] = {}  # since when a segment can be led by nobody

    # ------------------------------------------------------------ moving

    def move(self) -> None:
        """Give a segment to another member of its in-sync set, nobody having failed; now and then twice in a row."""
        segment = self._world.chance.randrange(self._world.swarm.segments)
        self.move_segment(segment)
        if self._world.chance.random() < 0.4:
            self._world.scheduler.after(int(self._world.chance.random() * 30_000), lambda: self.move_segment(segment))

    def move_segment(self, segment: int, but: tuple[int, ...] = ()) -> None:
        """Give a segment to a member of its in-sync set that runs, none of those in `but`."""
        if self._world.is_over:
            return
        view = self._look()
        found = view.segments.get(segment)
        if found is None:
            return
        able = [node for node in self._running(view) if node.replica in found.record.in_sync and node.number in found.record.owners]
        able = [node for node in able if node.number not in but]
        if able:
            node = self._world.chance.choice(able)
            old = view.nodes[found.record.primary].record
            self._commit_records(view, appoint(found.record, node, old_primary=old, nonce=self._nonce()))

    def change_owners(self) -> None:
        """Want other owners for a segment; the controller takes it there."""
        view, chance = self._look(), self._world.chance
        found = view.segments.get(chance.randrange(self._world.swarm.segments))
        if found is None:
            return
        members = [number for number, node in view.members.items() if node.holds_data]
        target = tuple(chance.sample(members, min(len(members), view.replicas)))
        self._commit_records(view, msgspec.structs.replace(found.record, target=target, nonce=self._nonce()))
        if chance.random() < 0.5:
            self._disown(found.record.segment)

    def _disown(self, segment: int) -> None:
        """Take a segment from an owner and give it back in the same epoch, while somebody hears nothing of records."""
        view, world = self._look(), self._world
        record = view.segments[segment].record
        able = [number for number in record.owners if number != record.primary]
        if not able:
            return
        number = world.chance.choice(able)
        in_sync = tuple(replica for replica in record.in_sync if replica.node != number)
        whole = [node for node in view.members.values() if node.replica in in_sync and self._answers(node)]
        if len(whole) < record.min_in_sync:
            return  # who is left may lose its disk
        owners = tuple(owner for owner in record.owners if owner != number)
        deaf = world.host_of(world.chance.choice((number, *record.owners))).name
        world.metadata.faults.deaf.add(deaf)
        self._commit_records(view, msgspec.structs.replace(record, owners=owners, in_sync=in_sync, nonce=self._nonce()))
        world.reached["disowned"] += 1
        world.scheduler.after(world.chance.randrange(60_000), lambda: self._own_again(segment, number))
        world.scheduler.after(world.chance.randrange(1_000_000), lambda: world.metadata.faults.deaf.discard(deaf))

    def _own_again(self, segment: int, number: int) -> None:
        view = self._look()
        record = view.segments[segment].record
        if not self._world.is_over and number in view.members and number not in record.owners:
            owners = (*record.owners, number)
            self._commit_records(view, msgspec.structs.replace(record, owners=owners, nonce=self._nonce()))
            self.lead_when_in_sync(segment, number)

    def rewrite(self, segment: int) -> None:
        """Write the record of a segment anew, as it was: what was made from the one before is void."""
        view = self._look()
        self._commit_records(view, msgspec.structs.replace(view.segments[segment].record, nonce=self._nonce()))

    def lead_when_in_sync(self, segment: int, number: int, *, looks: int = _LOOKS) -> None:
        """Give a segment to a member as soon as its set says that it holds all that was committed."""
        record = self._look().segments[segment].record
        if any(replica.node == number for replica in record.in_sync):
            self.move_segment(segment, but=tuple(owner for owner in record.owners if owner != number))
        elif looks:
            self._world.scheduler.after(_LOOK_US, lambda: self.lead_when_in_sync(segment, number, looks=looks - 1))

    # ------------------------------------------------------------ members

    def add_member(self) -> None:
        """Start a host that nobody knew, and even out load a little later."""
        hosts = self._world.hosts
        if len(hosts) >= _MEMBERS_MAX:
            return
        hosts.append(ClusterHost(self._world, len(hosts) + 1))
        hosts[-1].start()
        self._world.reached["joined under load"] += 1
        self._world.scheduler.after(1_000_000, self._rebalance)

    def _rebalance(self) -> None:
        start = RebalanceStart(bytes_total=0, throttle_bytes=0, now_ms=self._world.scheduler.now_us // 1000)
        self._try(lambda now: operators.start_rebalance(now, start, nonce=self._nonce()), tries=1)

    def drain(self) -> None:
        """Begin to empty a member while all others answer; later on take it back, or remove it once it is empty.

        With fewer members fewer copies are wanted, and one that is lost, but not missed yet, may be the last to be kept.
        """
        node = self._choose()
        if node is None or self._situation().dead or not self._try(lambda now: operators.drain(now, node), tries=1):
            return
        self._world.reached["drained"] += 1
        if self._world.chance.random() < 0.5:
            self._later(2_000_000, lambda now: operators.undrain(now.view, node, nonce=self._nonce()), tries=3)
        else:
            self._world.scheduler.after(3_000_000, lambda: self._remove(node, tries=_TRIES))

    def remove(self) -> None:
        """Take a member down for good, and remove it; where it alone has what was committed it has to come back."""
        node = self._choose()
        if node is not None:
            self._remove(node, tries=_TRIES)

    def _choose(self) -> NodeRecord | None:
        view = self._look()
        members = [node for node in view.members.values() if not self._world.host_of(node.number).is_gone]
        return self._world.chance.choice(members) if len(members) > 1 and not self._world.is_over else None

    def _remove(self, node: NodeRecord, *, tries: int) -> None:
        host = self._world.host_of(node.number)
        if not tries or self._world.is_over:
            host.is_gone = False
            host.start()
            return
        host.is_gone = True
        host.crash()
        view = self._look()
        removed_id = max(member.ceiling for member in view.members.values()) + 1
        if not self._try(lambda now: operators.remove(now, node, removed_id=removed_id, nonce=self._nonce()), tries=1):
            self._world.scheduler.after(_AGAIN_US, lambda: self._remove(node, tries=tries - 1))
            return
        if node.number in self._look().members:
            self._world.scheduler.after(0, lambda: self._remove(node, tries=tries))  # one commit of several
            return
        self._world.reached["removed"] += 1
        self._world.scheduler.after(_AGAIN_US, lambda: self._come_back(host))

    def _come_back(self, host: ClusterHost) -> None:
        """Be a new member on the machine of one that was removed, on an empty directory: the old one is refused."""
        host.lose_disk()
        host.is_gone = False
        host.start()

    # ------------------------------------------------------------ forcing

    def begin_forcing(self) -> None:
        """Have an operator who gives up what nobody in sync can bring back, from now on."""
        if not self._is_forcing:
            self._is_forcing = True
            self._force()

    def _force(self) -> None:
        self._world.scheduler.after(_AGAIN_US, self._force)
        situation, now_us = self._situation(), self._world.scheduler.now_us
        for number, found in situation.view.segments.items():
            if operators.why_not_needed(situation, found.record):
                self._unled_us.pop(number, None)
            elif now_us - self._unled_us.setdefault(number, now_us) > 3 * _AGAIN_US:
                self._force_one(situation, found.record)

    def _force_one(self, situation: Situation, record: SegmentRecord) -> None:
        logs: dict[int, tuple[int, int]] = {}  # the end of each, and what it knows as committed
        for owner in record.owners:
            node = self._world.host_of(owner).node
            member = situation.view.members.get(owner)
            if node is None or operators.why_not_forced(situation, record, member):
                continue
            core = node.core
            logs[owner] = int(core.durable[record.segment]), int(core.watermark[record.segment])
        if logs:
            chosen = max(logs, key=lambda owner: logs[owner][0])
            end, committed = logs[chosen]
            forced = Forced(segment=record.segment, node=chosen, end=end, committed=committed)
            if self._try(lambda now: operators.force(now, [forced], nonce=self._nonce())[0], tries=1):
                self._world.reached["forced"] += 1

    # ------------------------------------------------------------ committing

    def _situation(self) -> Situation:
        view = self._look()
        dead = frozenset(number for number, member in view.members.items() if not self._answers(member))
        return Situation(view=view, dead=dead, now_ms=self._world.scheduler.now_us // 1000)

    def _answers(self, member: NodeRecord) -> bool:
        """Return whether a member's process has joined, with the disk that its record names; before, it listens to nobody."""
        node = self._world.host_of(member.number).node
        return node is not None and node.core.own == (member.number, member.incarnation)

    def _try(self, plan: _Plan, *, tries: int) -> bool:
        """Commit what `plan` says; return whether that was done. Refused or in conflict, it is tried again a little later."""
        try:
            found = plan(self._situation())
            if found is not None:
                self._world.metadata.commit(found.expect, puts=found.puts, deletes=found.deletes)
                return True
        except (OperationRefused, MetadataConflict) as error:
            self._world.reached[f"operator: {error.code.lower()}"] += 1
            if tries > 1:
                self._later(_AGAIN_US, plan, tries=tries - 1)
        return False

    def _later(self, delay_us: int, plan: _Plan, *, tries: int) -> None:
        def act() -> None:
            self._try(plan, tries=tries)

        self._world.scheduler.after(delay_us, act)

    def _running(self, view: ClusterView) -> list[NodeRecord]:
        return [node for node in view.members.values() if self._world.host_of(node.number).node is not None]

    def _commit_records(self, view: ClusterView, record: SegmentRecord) -> None:
        plan: CommitPlan | None = commit_of(view, [record])
        if plan is not None:
            self._try(lambda _: plan, tries=1)

    def _nonce(self) -> str:
        return f"operator-{self._world.number()}"
