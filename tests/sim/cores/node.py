"""A host, and the process of a node that runs on it: the product's cores, wired as a node's shell wires them."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from eventlog.arrays import Ints
from eventlog.control.cluster import OwnMember
from eventlog.control.proposals import Outcome
from eventlog.control.records import SegmentRecord, Versioned
from eventlog.control.view import ClusterView
from eventlog.errors import BadMessage, MetadataUnavailable
from eventlog.ids import ID_STEP, id_before, time_of
from eventlog.limits import CLOCK_AHEAD_MS_MAX
from eventlog.node.copying.replicate import change_of, term_of
from eventlog.read.watermark import LowWatermark, Promises
from eventlog.replication import Options, Replica
from eventlog.replication.commands import LookUp, Mark, Propose, Recheck, Release
from eventlog.testing.clocks import SeededEntropy
from tests.sim.cores.clocks import HostClock
from tests.sim.cores.controlling import Controlling
from tests.sim.cores.disk import Disk
from tests.sim.cores.effects import Effects, Hooks
from tests.sim.cores.history import Value
from tests.sim.cores.mending import Mending
from tests.sim.cores.packets import (
    Acks,
    Asked,
    Beat,
    CloseUp,
    Found,
    Greeting,
    Mended,
    Packet,
    Promised,
    Read,
    Reset,
    Rows,
    Submit,
    Submitted,
    Told,
    Wanted,
)
from tests.sim.cores.peers import Peers
from tests.sim.cores.questions import Questions
from tests.sim.cores.records import Records
from tests.sim.cores.state import VALUE_BYTES, State, ints, open_core
from tests.sim.cores.storage import Storage
from tests.sim.cores.world import FIRST_CLIENT, JOINING, World
from tests.sim.cores.writes import Writes
from tests.sim.loop import virtual_loop
from tests.sim.metadata import HostStore, as_port
from tests.sim.scheduler import Process

_TICK_US: Final = 50_000
_FLUSH_US: Final = 700_000
_RETRY_US: Final = 50_000
_RESTART_US: Final = 1_000_000


class Host:
    """A machine with a disk and a clock. Its process comes and goes; `node` is None while there is none."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        offset_ms = world.swarm.offsets_ms[number % world.swarm.nodes]
        self.wall = HostClock(world.scheduler, offset_ms=offset_ms, drift_ppm=world.random.randint(-300, 300))
        self.disk = self._new_disk()
        self.node: Node | None = None
        world.hosts[number] = self

    def _new_disk(self) -> Disk:
        return Disk(f"disk-{self.number}-{self.world.number()}")

    def start(self) -> None:
        if self.node is None:
            self.node = Node(self.world, self)
            self.world.note(f"start {self.number}")

    def crash(self) -> None:
        """End the process at once; whoever was connected is told, as far as the network lets it."""
        if self.node is None:
            return
        self.world.note(f"crash {self.number}")
        self.node.end()
        self.node = None
        self.disk.crash(self.world.random)
        if self.world.random.random() < 0.5:
            self.world.network.break_off(self.number)
        for other in self.world.hosts:
            if other != self.number and other < FIRST_CLIENT:
                self.world.send(self.number, other, Reset(host=self.number, connection=0))

    def lose_disk(self) -> None:
        """Be an empty directory, and so another incarnation, from the next start on."""
        self.crash()
        self.world.store.lose_late(self.number)  # else the set might shrink to a replica that is gone
        self.disk = self._new_disk()
        self.world.reached["lost disk"] += 1

    def fail(self, error: Exception) -> None:
        """End a process that met an error it did not expect; its supervisor starts it again."""
        self.world.fail(error, where=f"node {self.number}")
        self.crash()
        self.world.scheduler.after(_RESTART_US, self.start)

    def receive(self, packet: Packet) -> None:
        node = self.node
        if node is not None:
            node.process.run(lambda: node.receive(packet))
        elif isinstance(packet, Greeting | Beat):
            self.world.send(self.number, packet.host, Reset(host=self.number, connection=packet.connection))
        elif isinstance(packet, Submit):
            self.world.send(self.number, packet.client, Submitted(request=packet.request))


class Node:
    """One process: joins, opens what its host's disk holds, and then does what its cores say."""

    def __init__(self, world: World, host: Host) -> None:
        self._world = world
        self._host = host
        self.process = Process(world.scheduler, on_error=host.fail)
        self._loop = virtual_loop(self.process, on_error=host.fail)
        store = HostStore(world.store, world.network, self._loop, host=host.number, chance=world.random)
        self.records = Records(as_port(store), host=host.number, disk=host.disk, entropy=SeededEntropy(world.random.getrandbits(32)))
        self.state: State | None = None
        self._is_deciding = False
        self._loop.start(self._run())

    def end(self) -> None:
        self.process.kill()
        self._loop.end()

    async def _run(self) -> None:
        swarm = self._world.swarm
        member = await self.records.join(self._host.wall, segments=swarm.segments, replicas=swarm.replicas)
        self._open(member)
        await self.records.appoint()
        self._loop.start(self.records.keep_lease(on_lost=lambda lost: self._resign(ints(*lost)), acknowledged=self._acknowledged))
        self._loop.start(self.records.watch(self._see))
        now_ms = self._host.wall.monotonic_ms
        self._loop.start(Controlling(self.records, dead=self._peers.dead, now_ms=now_ms).run())

    def _open(self, member: OwnMember) -> None:
        world, host = self._world, self._host
        segments = world.swarm.segments
        own = Replica(member.number, member.incarnation)
        options = Options(chunk_bytes=world.swarm.chunk_values * VALUE_BYTES, window_bytes=16 * VALUE_BYTES)
        self.state = State(
            world=world,
            number=world.number(),
            host=host.number,
            process=self.process,
            loop=self._loop,
            wall=host.wall,
            disk=host.disk,
            storage=Storage(self.process, host.disk, sync_us=world.swarm.sync_us, chance=world.random),
            core=open_core(host.disk, segments=segments, own=own, session=member.session, options=options),
            clock=member.clock,
            promises=Promises(segments),
            low=LowWatermark(segments),
        )
        member.clock.raise_above(int(self.state.core.ends.max()))
        self._peers = Peers(self.state, gained=self._connected, lost=self._lost)
        self.mending = Mending(self.state, ask=self._peers.tell_all)
        self.questions = Questions(self.state, self.records, members=lambda: self._peers.members)
        hooks = Hooks(
            send=self._peers.send, mark=self._mark, lead=self._lead, propose=self._propose, recheck=self._recheck,
            look_up=self._look_up, take=self._take_rows, committed=self._committed, resigned=self._resigned,
            read=self.mending.read,
        )  # fmt: skip
        self._effects = Effects(self.state, hooks)
        self._writes = Writes(self.state, self._effects, ask_lease=self.records.ask_lease)
        self.state.show(np.arange(segments))
        self._see(self.records.view)
        self._peers.start()
        for interval_us, act in ((_TICK_US, self._tick), (_FLUSH_US, self._flush), (world.swarm.promise_ms * 1000, self._close_up)):
            self._every(interval_us, act)

    def _every(self, interval_us: int, act: Callable[[], None]) -> None:
        def turn() -> None:
            act()
            self.process.after(interval_us, turn)

        self.process.after(interval_us, turn)

    @property
    def _opened(self) -> State:
        assert self.state is not None, "only what was opened receives"
        return self.state

    # ------------------------------------------------------------ records

    def _see(self, view: ClusterView) -> None:
        state = self._opened
        self._peers.members = {
            int(record.name[1:]): record.number for record in view.members.values() if record.number != state.core.own.node
        }
        known = [found for segment in sorted(view.segments) if (found := self.records.record(segment)) is not None]
        self._effects.run(state.core.learn([term_of(found, view) for found in known], now_ms=state.now_ms()))

    def _learn(self, found: Versioned[SegmentRecord]) -> None:
        self.records.learn(found)
        state = self._opened
        self._effects.run(state.core.learn([term_of(found, self.records.view)], now_ms=state.now_ms()))

    def _propose(self, command: Propose) -> None:
        if command.gone and len(command.in_sync) - len(command.gone) <= (len(command.in_sync) + 1) // 2:
            self._world.reached["in-sync set at its least"] += 1
        if command.joined is not None:
            hosts = {number: host for host, number in self._peers.members.items()}
            self._world.tell(JOINING, segment=command.segment, host=hosts[command.joined.node])
        self.records.proposals.add(change_of(command))
        if not self._is_deciding:
            self._is_deciding = True
            self._loop.start(self._decide())

    async def _decide(self) -> None:
        await self.records.decide(self._decided)
        self._is_deciding = False

    def _decided(self, outcomes: Sequence[Outcome]) -> None:
        state = self._opened
        for outcome in outcomes:
            if outcome.found is not None:
                self._learn(outcome.found)
            else:
                change = outcome.change
                self._effects.run(state.core.withdrawn(change.segment, revision=change.revision, now_ms=state.now_ms()))

    def _recheck(self, command: Recheck) -> None:
        self._loop.start(self._read_anew(command))

    async def _read_anew(self, command: Recheck) -> None:
        for found in (await self.records.read(command.segments)).values():
            self._learn(found)
        commands = self._opened.core.rechecked(command.segments)
        if not any(isinstance(made, Release) for made in commands):
            self._world.reached["kept after all"] += 1
        self._effects.run(commands)

    def _look_up(self, command: LookUp) -> None:
        self._loop.start(self._read_claimed(command))

    async def _read_claimed(self, command: LookUp) -> None:
        for found in (await self.records.read(command.segments)).values():
            self._learn(found)
        self._effects.run(self._opened.core.looked_up(now_ms=self._opened.now_ms()))

    def _mark(self, command: Mark) -> None:
        """Stamp and register markers in one step, above all floors and the own log; without a lease for them, later."""
        state = self._opened
        current = [
            (segment, epoch) for segment, epoch in zip(command.segments, command.epochs, strict=True) if state.core.epochs[segment] == epoch
        ]
        lost = self.records.driver.lead(dict(current))
        current = [(segment, epoch) for segment, epoch in current if segment not in lost]
        if lost:
            self._world.reached["appointed when it was over"] += 1
        if not current:
            return
        segments = ints(*(segment for segment, _ in current))
        found = [self.records.record(segment) for segment, _ in current]
        state.clock.raise_above(
            max([*(record.record.floor for record in found if record is not None), *state.core.ends[segments].tolist()])
        )
        try:
            base = state.clock.next(len(current))
        except MetadataUnavailable:
            self.records.ask_lease()
            self.process.after(_RETRY_US, lambda: self._mark(command))
            return
        ids = base + np.arange(len(current)) * ID_STEP
        commands = state.core.mark(segments, ids, now_ms=state.now_ms())
        marked = state.core.marked
        values = [[Value(id_, id_, epoch, ())] for (_, epoch), id_ in zip(current, ids.tolist(), strict=True)]
        chosen = np.flatnonzero(np.isin(segments, marked)).tolist()
        for segment in marked.tolist():
            self._world.history.lead(state.number, segment, int(state.core.epochs[segment]))
        if chosen:
            self._effects.append(marked, [values[place] for place in chosen], last_ids=ids[chosen])
        self._effects.run(commands, group=values)

    def _lead(self, segments: Ints) -> None:
        state = self._opened
        lost = self.records.driver.lead({segment: int(state.core.epochs[segment]) for segment in segments.tolist()})
        state.lead(ints(*(segment for segment in segments.tolist() if segment not in lost)))

    def _resign(self, segments: Ints) -> None:
        """Stop at once what the metadata store says is somebody else's."""
        self._opened.resign(segments)
        self._resigned(segments)

    def _resigned(self, segments: Ints) -> None:
        self.records.driver.resign(segments.tolist())
        self._writes.resigned(segments)

    def _committed(self, segments: Ints, watermarks: Ints) -> None:
        self._writes.committed(segments, watermarks)

    def _acknowledged(self) -> int:
        return int(self._opened.core.durable.max())

    # ------------------------------------------------------------ by the clock

    def _tick(self) -> None:
        state = self._opened
        latest = max(time_of(self.records.view.highest_ceiling), state.clock.physical_ms())
        state.core.allow_ids(id_before(latest + CLOCK_AHEAD_MS_MAX))
        self._effects.run(state.core.tick(now_ms=state.now_ms()))

    def _flush(self) -> None:
        """Bring the state to disk as far as it is applied; now and then, let retention take what that made superfluous."""
        state = self._opened
        applied = np.minimum(state.core.watermark, state.core.durable).tolist()
        for segment in range(state.segments):
            if applied[segment] > state.disk.applied.get(segment, 0):
                state.disk.flush(segment, applied[segment])
        if self._world.swarm.trims and self._world.random.random() < 0.3:
            segment = self._world.random.randrange(state.segments)
            if upto := state.disk.applied.get(segment, 0):
                state.disk.trim(segment, upto)
                state.core.trimmed(ints(segment), ints(upto))

    def _close_up(self, upto: int | None = None) -> None:
        state = self._opened
        promised = state.clock.close_up(upto, vouched=lambda: self.records.view.highest_ceiling)
        state.promise(promised, lambda promise: self._peers.tell_all(Promised(sender=state.core.own, promise=promise)))

    # ------------------------------------------------------------ messages

    def _connected(self, peer: Replica) -> None:
        self._effects.run(self._opened.core.connected(peer, now_ms=self._opened.now_ms()))

    def _lost(self, peer: Replica) -> None:
        self._effects.run(self._opened.core.lost(peer, now_ms=self._opened.now_ms()))

    def receive(self, packet: Packet) -> None:  # noqa: C901 - one line a packet
        """Take a packet; before the disk is open, nothing is answered."""
        state = self.state
        if state is None:
            return
        match packet:
            case Rows():
                self._take_rows(packet)
            case Acks():
                self._take_acks(packet)
            case Greeting() | Reset() | Beat():
                self._peers.hear(packet)
            case Promised():
                self._hear(packet)
            case CloseUp():
                self._close_up(packet.id)
            case Submit():
                self._writes.submit(packet)
            case Read():
                self._read(packet)
            case Wanted():
                self.mending.answer(packet)
            case Mended():
                self.mending.hear(packet)
            case Asked() | Told():
                self.questions.receive(packet)

    def _take_rows(self, packet: Rows) -> None:
        state = self._opened
        try:
            self._effects.run(state.core.receive(packet.message, now_ms=state.now_ms()), arrived=packet)
        except BadMessage as error:
            self._refuse(packet, error)

    def _take_acks(self, packet: Acks) -> None:
        state = self._opened
        try:
            self._effects.run(state.core.acknowledged(packet.message, now_ms=state.now_ms()))
        except BadMessage as error:
            self._refuse(packet, error)

    def _refuse(self, packet: Rows | Acks, error: BadMessage) -> None:
        if packet.is_lie:
            self._world.reached["lie refused"] += 1
        elif packet.message.sender not in self._world.liars:
            self._world.fail(error, where=f"node {self._host.number}")

    def _hear(self, told: Promised) -> None:
        state, promise = self._opened, told.promise
        if promise.id > state.core.ids_max:
            return
        promise = promise.of(state.core.believes(told.sender, promise.segments, epochs=promise.epochs))
        commands = state.core.promised(told.sender, promise.segments, epochs=promise.epochs, last_ids=promise.last_ids)
        self._effects.run(commands)
        state.low.hear(promise)

    def _read(self, packet: Read) -> None:
        state = self._opened
        limits: dict[int, int] = {}
        values: dict[int, tuple[Value, ...]] = {}
        for segment in packet.segments:
            if not state.core.holds[segment]:
                continue
            limits[segment] = int(state.low.limits[segment])
            shown = min(limits[segment], int(state.core.watermark[segment]))
            found = self.mending.read(segment, [value for value in state.disk.after(segment, packet.after) if value.last <= shown])
            if found is None:
                return  # the reader asks again
            values[segment] = tuple(found)
        self._world.send(state.host, packet.client, Found(request=packet.request, limits=limits, values=values))
        if self._world.closes_up and self._world.random.random() < 0.2:
            self._close_up()
            self._peers.tell_all(CloseUp(host=state.host, id=state.clock.last))
