"""The groups that this node coordinates: those whose route in the internal cache of groups it leads.

A group is loaded by the first request about it, and forgotten when a write of it fails, its route is led elsewhere or nobody is in
it any more: the next request loads it at the new coordinator. One lock a group: a step is decided, written on condition that
nothing was written since, and then gone by.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from eventlog.errors import EventLogError, Fenced, GroupNotFound, NotPrimary, Overloaded, StaleMember, Stopping, VersionMismatch
from eventlog.groups.coordinator import Beat, Coordinator, Via
from eventlog.groups.record import (
    GROUPS_CACHE,
    Commit,
    CommittedPlace,
    GroupState,
    Place,
    RecordKey,
    Tag,
    advance,
    check_commit,
    checked_name,
    decode_committed,
    decode_group,
    decode_key,
    encode_committed,
    encode_group,
    encode_key,
    encode_places,
    encode_set,
    route_of,
)
from eventlog.ids import FlakeClock
from eventlog.limits import GROUPS_PER_NODE_MAX
from eventlog.node.cluster.forward import Forwarding
from eventlog.node.cluster.leaders import Leaders
from eventlog.node.consumers.dead_letters import DeadLetters
from eventlog.node.consumers.inner import Inner
from eventlog.node.consumers.work import Work
from eventlog.node.consumers.work_reading import WorkReading
from eventlog.node.state.freshness import Freshness
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

log = logging.getLogger("eventlog.node")

BEAT_WAIT_MS_MAX = 3_000
WRITE_MS_MAX = 5_000
_CLOCK_LOOKS = 40
_CLOCK_LOOK_S = 0.05
GroupId = tuple[str, int]  # name, cache
Entries = dict[bytes, bytes]


class CoordinatorGround(Protocol):
    """What this module needs of the node."""

    clock: FlakeClock
    leaders: Leaders
    freshness: Freshness
    inner: Inner
    forwarding: Forwarding
    dead_letters: DeadLetters
    work_reading: WorkReading

    def own(self, task: "asyncio.Task[Any]") -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class HeldMember:
    """A member that waits to be told something new."""

    exchange: Exchange
    beat: Beat
    timer: asyncio.TimerHandle


class Running:
    """One group over one cache, as its coordinator runs it. `version` is that of its record, None before there is one.

    What it knows holds for the epoch `term` alone: between two of this node another may have coordinated the group.
    """

    def __init__(
        self, node: CoordinatorGround, id_: GroupId, state: GroupState, version: int | None, *, on_over: "Callable[[Running], None]"
    ) -> None:
        self.node = node
        self.id = id_
        self.core = Coordinator(id_[0], state, self.now_ms)
        self.version = version
        self._on_over = on_over
        self.term = node.inner.term(route_of(id_[0]))
        self.positions: dict[int, CommittedPlace] = {}
        self.lock = asyncio.Lock()
        self.is_over = False
        self.work: Work | None = None
        self._held: dict[str, HeldMember] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def state(self) -> GroupState:
        """The group as it is kept."""
        return self.core.state

    @property
    def now_ms(self) -> int:
        """The loop's time, which is monotonic: sessions and their timers are counted by it."""
        return int(asyncio.get_running_loop().time() * 1000)

    @property
    def route(self) -> bytes:
        """By what its entries are routed."""
        return route_of(self.id[0])

    @property
    def leaders(self) -> list[int]:
        """Return the node that leads each segment."""
        found: list[int] = self.node.leaders.numbers.tolist()
        return found

    def not_primary(self) -> NotPrimary:
        """Return what is said where another node coordinates the group."""
        return NotPrimary(segment=self.node.inner.segment(self.route))

    def key(self, tag: Tag, segment: int = 0) -> bytes:
        """Return the key of one of the group's entries."""
        return encode_key(RecordKey(group=self.id[0], cache_id=self.id[1], tag=tag, segment=segment))

    def place(self, segment: int) -> Place:
        """Return where the group goes on in a segment."""
        committed = self.positions.get(segment)
        return Place(id=self.state.start_id) if committed is None else committed.place

    # ------------------------------------------------------------ keeping

    async def keep(self, state: GroupState) -> None:
        """Write a state and go by it; nothing is done where it is the one already kept. Call with the lock held."""
        if state is not self.state or self.version is None:
            await self.write({}, state=state)
        self.adopt(state)

    async def write(self, puts: Entries, *, state: GroupState | None = None, removes: tuple[bytes, ...] = ()) -> None:
        """Write entries of the group, on condition that its record is as known here; with `state`, the record too.

        Raises:
            NotPrimary: somebody else has changed the group, or nobody knows; it is forgotten here.
        """
        record = self.key("g")
        entries = puts if state is None else {**puts, record: encode_group(state)}
        try:
            versions = await self.node.inner.write(
                GROUPS_CACHE,
                self.route,
                puts=entries,
                removes=removes,
                expect={record: self.version},
                term=self.term,
                deadline_ms=WRITE_MS_MAX,
            )
        except EventLogError as error:
            self.forget(self.not_primary())
            if isinstance(error, VersionMismatch):
                raise NotPrimary(outcome=error.outcome, **self.not_primary().facts()) from error
            raise
        if state is not None:
            self.version = versions[record]

    def adopt(self, state: GroupState) -> None:
        """Go by a state that is kept, and tell all that have to know."""
        self.core.adopt(state, self.now_ms)
        for member, held in list(self._held.items()):
            if state.member(member) is None or self.core.is_news(held.beat):
                self._tell(member)
        if self.work is not None:
            alive = {member.id for member in state.members}
            self.work.release(lambda member: member not in alive)
        self._set_timer()

    # ------------------------------------------------------------ members

    async def beat(self, exchange: Exchange, beat: Beat, *, wait_ms: int) -> None:
        """Take what a member says, and answer when there is something to tell, at the latest after `wait_ms`."""
        async with self.lock:
            self.check()
            await self.keep(self.core.beat(beat, self.now_ms, leaders=self.leaders))
            self._tell(beat.member.id)  # an earlier request of it: it has a later one now
            loop = asyncio.get_running_loop()
            wait_ms = 0 if self.core.is_news(beat) else min(wait_ms, BEAT_WAIT_MS_MAX)
            timer = loop.call_later(wait_ms / 1000, self._tell, beat.member.id)
            self._held[beat.member.id] = HeldMember(exchange=exchange, beat=beat, timer=timer)
            if not wait_ms:
                self._tell(beat.member.id)

    def _tell(self, member: str) -> None:
        held = self._held.pop(member, None)
        if held is None:
            return
        held.timer.cancel()
        if held.exchange.is_over:
            return
        try:
            self.core.check_live(held.beat.member)
        except (StaleMember, Fenced) as error:
            held.exchange.fail(error)
            return
        told = self.core.told(member)
        places = {segment: self.place(segment) for segment in told.assigned - held.beat.owned}
        assigned = encode_set(told.assigned, self.state.segments)
        answer = pb.GroupBeatAnswer(epoch=told.epoch, assigned=assigned, places=len(places))
        held.exchange.answer(Message(group_beat_answer=answer), encode_places(places))

    async def leave(self, member: str) -> None:
        """Let a member go; what it held is given on."""
        async with self.lock:
            self.check()
            await self.keep(self.core.leave(member, leaders=self.leaders))

    async def commit(self, commit: Commit) -> None:
        """Write places that a member has done. Raises StaleMember."""
        async with self.lock:
            self.check()
            check_commit(self.id[0], self.state, commit)
            self.core.committed(commit.member, self.now_ms)
            self._set_timer()
            await self.put_places(advance(self.positions, commit, generation=self.state.generation, time_ms=self.node.clock.physical_ms()))

    async def put_places(self, changed: Mapping[int, CommittedPlace]) -> None:
        """Write positions under the generation known here."""
        if changed:
            await self.write({self.key("p", segment): encode_committed(one) for segment, one in changed.items()})
            self.positions.update(changed)

    # ------------------------------------------------------------ time and end

    async def tick(self) -> None:
        """End the sessions that are over."""
        async with self.lock:
            self.check()
            await self.keep(self.core.tick(self.now_ms, leaders=self.leaders))

    def closed(self, request: "pb.MemberClosed") -> None:
        """Note that a member's connection has closed."""
        self.core.closed(request.member, via_of(request), self.now_ms)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_ms = self.core.sessions.next_ms
        if next_ms is not None and not self.is_over:
            wait_s = max(1, next_ms - self.now_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._begin_tick)

    def _begin_tick(self) -> None:
        self.node.own(asyncio.get_running_loop().create_task(self._tick_or_forget(), name="group sessions"))

    async def _tick_or_forget(self) -> None:
        try:
            await self.tick()
        except EventLogError as error:
            self.forget(error)

    @property
    def is_current(self) -> bool:
        """Whether this node has led the group's route ever since it was loaded."""
        return self.term > 0 and self.node.inner.term(self.route) == self.term

    @property
    def is_idle(self) -> bool:
        """Whether nobody is in it, and nothing is being done about it: all there is of it is kept."""
        return not self.state.members and self.version is not None and not self.lock.locked()

    def check(self) -> None:
        """Raise NotPrimary where the group is another node's to coordinate."""
        if self.is_over or not self.is_current:
            error = self.not_primary()
            self.forget(error)
            raise error

    def forget(self, error: EventLogError) -> None:
        """Coordinate it no more: members that wait ask again, and the next coordinator answers."""
        self.is_over = True
        self._set_timer()
        held, self._held = self._held, {}
        for one in held.values():
            one.timer.cancel()
            if not one.exchange.is_over:
                one.exchange.fail(error if isinstance(error, NotPrimary | Stopping) else NotPrimary(segment=0))
        if self.work is not None:
            self.work.close()
        self._on_over(self)


class Coordinators:
    """The groups that a node coordinates, by name and cache."""

    def __init__(self, node: CoordinatorGround, *, groups_max: int = GROUPS_PER_NODE_MAX) -> None:
        self._node = node
        self.groups_max = groups_max
        self._running: dict[GroupId, Running] = {}
        self._peak = 0
        self._loading: dict[str, asyncio.Lock] = {}

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {"groups": (len(self._running), self.groups_max, self._peak)}

    def is_elsewhere(self, exchange: Exchange, group: str) -> bool:
        """Have a group's coordinator answer a request if that is another node, and return whether it is."""
        route = route_of(checked_name(group))
        if self._node.inner.leads(route):
            return False
        self._node.forwarding.pass_on(exchange, self._node.inner.segment(route))
        return True

    async def find(self, group: str, cache_id: int, *, create: Callable[[], GroupState] | None = None) -> Running:
        """Return a group, loaded if need be; `create` makes what there is from now on where there is none. It is led here, and freshly so.

        Raises:
            NotPrimary: it is not.
            GroupNotFound: there is none.
            Overloaded: as many as allowed have members here, and it would be one more.
        """
        await self._check_fresh(group)
        self._drop_old(group)
        running = self._running.get((group, cache_id))
        if running is None and create is not None and len(self._running) >= self.groups_max:
            raise Overloaded(what="the number of groups with members at one node", limit=self.groups_max)
        if running is None:
            await self._load(group)
            running = self._running.get((group, cache_id))
        if running is None and create is not None:
            running = self._begin((group, cache_id), create(), version=None)
            running.work = Work(self._node, running, {}) if running.state.mode == "work" else None
        if running is None:
            raise GroupNotFound(group=group)
        return running

    async def find_all(self, group: str) -> list[Running]:
        """Return a group over each of its caches. Raises as `find`."""
        await self._check_fresh(group)
        self._drop_old(group)
        await self._load(group)
        found = [running for running in self.running(group) if running.version is not None]
        if not found:
            raise GroupNotFound(group=group)
        return found

    def running(self, group: str) -> list[Running]:
        """Return a group as it runs here, over each of its caches; nothing is loaded, nor is it known whose it is by now."""
        return [running for (name, _), running in sorted(self._running.items()) if name == group]

    async def tidy(self) -> None:
        """Forget the groups that another node coordinates by now, and those without members: nobody may ask for them again here."""
        for running in list(self._running.values()):
            if not running.is_current or running.is_idle:
                running.forget(NotPrimary(segment=self._node.inner.segment(running.route)))

    def _drop_old(self, group: str) -> None:
        """Forget what is known of a group from an earlier term."""
        for running in [one for one in self.running(group) if not one.is_current]:
            running.forget(NotPrimary(segment=self._node.inner.segment(running.route)))

    async def _check_fresh(self, group: str) -> None:
        segment = self._node.inner.segment(route_of(group))
        if not self._node.inner.leads(route_of(group)):
            raise NotPrimary(segment=segment)
        if not self._node.freshness.is_fresh(segment):
            await self._node.freshness.refresh(segment)

    async def _load(self, group: str) -> None:
        lock = self._loading.setdefault(group, asyncio.Lock())
        async with lock:
            term = self._node.inner.term(route_of(group))
            known = [(decode_key(key), entry) for key, entry in await self._node.inner.scan(GROUPS_CACHE, route_of(group))]
            if any(key.tag == "w" for key, _ in known):
                await agreed_time(self._node.clock)
            if not term or self._node.inner.term(route_of(group)) != term:
                raise NotPrimary(segment=self._node.inner.segment(route_of(group)))
            begun = []
            for key, entry in known:
                if key.tag == "g" and (group, key.cache_id) not in self._running:
                    begun.append(self._begin((group, key.cache_id), decode_group(entry.value), version=entry.version))
            for running in begun:
                own = [(key, entry.value) for key, entry in known if key.cache_id == running.id[1]]
                running.positions.update((key.segment, decode_committed(value)) for key, value in own if key.tag == "p")
                if running.state.mode == "work":
                    running.work = Work(self._node, running, {key.segment: value for key, value in own if key.tag == "w"})
                running.adopt(running.state)
        if not lock.locked():
            self._loading.pop(group, None)

    def _begin(self, id_: GroupId, state: GroupState, *, version: int | None) -> Running:
        running = self._running[id_] = Running(self._node, id_, state, version, on_over=self._forgotten)
        self._peak = max(self._peak, len(self._running))
        return running

    def _forgotten(self, running: Running) -> None:
        """Take note that a group is coordinated here no more."""
        if self._running.get(running.id) is running:
            del self._running[running.id]

    def closed(self, request: "pb.MemberClosed") -> None:
        """Note that a member's connection has closed, if the group is known here: else its timers begin anew when it is loaded."""
        running = self._running.get((request.group, request.cache_id))
        if running is not None:
            running.closed(request)


def via_of(request: "pb.GroupBeat | pb.MemberClosed") -> Via:
    """Return over which connection a member speaks, or spoke."""
    return Via(node=request.via_node, connection=request.via_connection)


async def agreed_time(clock: FlakeClock, *, looks: int = _CLOCK_LOOKS) -> None:
    """Wait a little for a time that members agree on: without it each delay goes on as it was kept, as if none of it had passed."""
    for _ in range(looks):
        if clock.agreed_ms() is not None:
            return
        await asyncio.sleep(_CLOCK_LOOK_S)
