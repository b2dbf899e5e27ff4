"""The controller's shell: the node that holds key `controller` lets the pure part decide, and commits what it decided.

The key is taken over by compare-and-set when its holder is dead, or was another process of this node. Two holders at once, a holder
that is wrong about which nodes are dead, one that dies halfway: harmless, since every change expects the records it was made from.

Which members are dead is told by the connections (`dead_members`). Nobody listens where a member did: its process is gone, at once. A
member that only says nothing for `SILENCE_MS_MAX` may be cut off as well as dead, and so may this node be: silence counts only for
the node that still reaches more than half of those whose processes are not known to be gone; of two equal halves, for the one with the
member of the lowest number.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from eventlog.control.appointment import RECORDS_PER_COMMIT_MAX
from eventlog.control.cluster import CONFLICTS_MAX, ClusterRecords
from eventlog.control.controller import Controller, ControllerOptions, Situation
from eventlog.control.operators import RebalanceStart, bytes_to_copy, hand_over, start_rebalance
from eventlog.control.records import CONTROLLER_KEY, NODE_PREFIX, CommitPlan, ControllerRecord, ReplicaRecord, encode
from eventlog.control.view import ClusterView
from eventlog.errors import MetadataConflict, MetadataLost, MetadataUnavailable
from eventlog.limits import SILENCE_MS_MAX
from eventlog.node.background import due
from eventlog.node.cluster.metadata import ViewChange

log = logging.getLogger("eventlog.node")
_TICK_MS = 200
_AFTER_FAILURE_MS = 1_000
_SPLIT = 4  # a commit after a conflict is smaller by this
_SPLIT_NODES = 2  # ... after one of a node's record
_LARGE = 1_024  # planning for so many segments does not hold the loop


class Contact(Protocol):
    """What is asked of the connections to the other members."""

    def is_refused(self, number: int) -> bool:
        """Return whether nobody listens at a member's address."""
        ...

    def silent_ms(self, number: int) -> int:
        """Return for how long nothing was heard of a member."""
        ...


class Verifier(Protocol):
    """Compares copies of segments that are about to change owners."""

    def verified(self, view: ClusterView) -> frozenset[tuple[int, ReplicaRecord]]:
        """Return the copies of moving segments that were found equal to their primary's."""
        ...

    @property
    def differences(self) -> Mapping[int, str]:
        """Return segments whose copies are not equal, and in what."""
        ...


class NothingVerified:
    """For a move without comparing."""

    differences: Mapping[int, str] = MappingProxyType({})

    def verified(self, _: ClusterView) -> frozenset[tuple[int, ReplicaRecord]]:
        return frozenset()


@dataclass(frozen=True, kw_only=True)
class ControllerParts:
    """What the controller of a node works with.

    `seen` returns the view that the node's watch has reached, `sizes` the bytes of each segment, or None while they are being asked for.
    """

    records: ClusterRecords
    reach: Contact
    seen: Callable[[], ClusterView]
    now_ms: Callable[[], int]
    wall_ms: Callable[[], int]
    verifier: Verifier = field(default_factory=NothingVerified)
    sizes: Callable[[], Mapping[int, int] | None] = dict
    options: ControllerOptions = field(default_factory=ControllerOptions)


class ControllerLoop:
    """Runs on every node that may be controller, and acts on the one that is."""

    def __init__(self, parts: ControllerParts) -> None:
        self._parts = parts
        self._controller = Controller(options=parts.options)
        self._view = parts.seen()
        self._records_max = RECORDS_PER_COMMIT_MAX
        self._woken = asyncio.Event()
        self.commits = 0

    def wake(self, *_: object) -> None:
        """Look at once: somebody came or went, or something is to be done."""
        self._woken.set()

    def changed(self, change: ViewChange) -> None:
        """Look at once, unless nothing but leases changed: they are renewed every second, by every node."""
        if change.segments or change.members or change.steering:
            self._woken.set()

    async def run(self) -> None:
        """Decide until cancelled."""
        while True:
            self._woken.clear()
            try:
                await self.turn()
            except (MetadataUnavailable, MetadataLost) as error:
                log.warning("controller_without_metadata error=%s", error)
                self._woken.clear()  # a conflict that nobody could look into is no reason to try again at once
            except Exception:
                # A decision that goes wrong goes wrong on every node: it must not end one after the other.
                log.exception("controller_failed")
                await asyncio.sleep(_AFTER_FAILURE_MS / 1000)
            try:
                async with asyncio.timeout_at(due(asyncio.get_running_loop().time(), _TICK_MS)):
                    await self._woken.wait()
            except TimeoutError:
                pass  # nobody tells when a silence has lasted too long

    @property
    def is_controller(self) -> bool:
        """Return whether this process holds the key, as far as it knows."""
        held, member = self._view.controller, self._parts.records.member
        return held is not None and held.record.node == member.number and held.record.session == member.session

    @property
    def differences(self) -> Mapping[int, str]:
        """Return segments that do not move, because their copies are not equal, and in what."""
        return self._parts.verifier.differences

    def dead(self) -> frozenset[int]:
        """Return the nodes taken for dead now."""
        return dead_members(self._view.members, self._parts.reach, me=self._parts.records.member.number)

    def situation(self) -> Situation:
        """Return what an operator's question is answered from: the view that the watch has reached, and the dead nodes."""
        view = self._parts.seen()
        dead = dead_members(view.members, self._parts.reach, me=self._parts.records.member.number)
        return Situation(view=view, dead=dead, now_ms=self._parts.now_ms())

    async def turn(self) -> None:
        """Take the key if nobody alive holds it; with it, commit until nothing is to be done.

        Raises:
            MetadataUnavailable: try again later.
        """
        self._look()
        if not self.is_controller and not await self._take_over():
            return
        while (plan := await self._next_commit()) is not None:
            if not await self._commit(plan):
                return
            await asyncio.sleep(0)
            self._look()
            if not self.is_controller:
                return

    def _look(self) -> None:
        seen = self._parts.seen()
        if seen.revision >= self._view.revision:
            self._view = seen

    async def _take_over(self) -> bool:
        held, member = self._view.controller, self._parts.records.member
        own = self._view.members.get(member.number)
        if own is None:
            return False
        if held is not None and held.record.node in self._view.members and held.record.node not in self.dead():
            is_an_old_self = held.record.node == member.number and own.session == member.session
            if not is_an_old_self:
                return False
        record = ControllerRecord(node=member.number, session=member.session, nonce=self._parts.records.token())
        expect = {CONTROLLER_KEY: held.revision if held else 0}
        if not await self._commit(CommitPlan(expect=expect, puts={CONTROLLER_KEY: encode(record)})):
            return False
        log.info("controller_taken node=%d before=%s", member.number, held.record.node if held else "nobody")
        return True

    async def _next_commit(self) -> CommitPlan | None:
        situation = Situation(
            view=self._view, dead=self.dead(), verified=self._parts.verifier.verified(self._view), now_ms=self._parts.now_ms()
        )
        if len(self._view.segments) < _LARGE:
            return self._decide(situation)
        return await asyncio.to_thread(self._decide, situation)

    def _decide(self, situation: Situation) -> CommitPlan | None:
        token = self._parts.records.token
        plan = self._controller.next_commit(situation, nonce=token(), records_max=self._records_max)
        if plan is None and self._controller.wants_rebalancing(situation) and (sizes := self._parts.sizes()) is not None:
            start = RebalanceStart(bytes_total=bytes_to_copy(situation, sizes), throttle_bytes=0, now_ms=self._parts.wall_ms())
            return start_rebalance(situation, start, nonce=token())
        return plan

    async def operate(self, next_plan: Callable[[Situation, str], CommitPlan | None]) -> int:
        """Commit what an operator asked for, commit by commit, until `next_plan` has no more; return how many it took.

        Any node may do so: it need not be the controller. `next_plan` gets the situation as this node sees it, and a nonce.

        Raises:
            EventLogError: whatever `next_plan` raises.
            MetadataUnavailable, MetadataConflict: what was committed before holds; call again.
        """
        view = await self._parts.records.view()
        done = conflicts = 0
        while True:
            dead = dead_members(view.members, self._parts.reach, me=self._parts.records.member.number)
            plan = next_plan(Situation(view=view, dead=dead, now_ms=self._parts.now_ms()), self._parts.records.token())
            if plan is None:
                self.wake()
                return done
            try:
                view = view.after(plan, await self._parts.records.carry_out(plan))
                done += 1
            except MetadataConflict:
                conflicts += 1
                if conflicts > CONFLICTS_MAX:
                    raise
                view = await self._parts.records.view()

    async def hand_over(self) -> int:
        """Give what this node leads to backups that are in sync, because it is about to stop; return how many segments it still leads.

        Raises:
            MetadataUnavailable, MetadataConflict: it leads on.
        """
        number = self._parts.records.member.number

        def next_plan(situation: Situation, nonce: str) -> CommitPlan | None:
            own = situation.view.members.get(number)
            return hand_over(situation, own, nonce=nonce) if own else None

        await self.operate(next_plan)
        return sum(found.record.primary == number for found in (await self._parts.records.view()).segments.values())

    async def _commit(self, plan: CommitPlan) -> bool:
        """Commit; on a conflict read again, and say so: the next attempt is planned anew, and smaller.

        A node's record conflicts where its lease was renewed meanwhile: that says nothing of the segments, be they ever so many. But where
        the store is slow and the nodes are many, fewer of them have to be expected at once.
        """
        try:
            revision = await self._parts.records.carry_out(plan)
        except MetadataConflict as error:
            log.debug("controller_conflict key=%s records_max=%d", error.key, self._records_max)
            self._woken.set()
            if error.key.startswith(NODE_PREFIX):
                self._records_max = max(self._records_max // _SPLIT_NODES, 1)
                self._view = await self._parts.records.with_nodes(self._view)
                return False
            self._records_max = max(self._records_max // _SPLIT, 1)
            self._view = await self._parts.records.view()
            return False
        self.commits += 1
        self._records_max = min(self._records_max * 2, RECORDS_PER_COMMIT_MAX)
        self._view = self._view.after(plan, revision)
        return True


def dead_members(members: Collection[int], reach: Contact, *, me: int) -> frozenset[int]:
    """Return the numbers of members that are taken for dead; never the own one."""
    others = [number for number in members if number != me]
    gone = {number for number in others if reach.is_refused(number)}
    silent = {number for number in others if number not in gone and reach.silent_ms(number) >= SILENCE_MS_MAX}
    if not silent:
        return frozenset(gone)
    heard = {me, *others} - gone - silent
    is_larger = len(heard) > len(silent) or (len(heard) == len(silent) and min(heard) < min(silent))
    return frozenset(gone | silent if is_larger else gone)
