"""The shell of replication: carries out what `Replication` asks, and tells it what happens. Everything here is on the loop.

What arrives goes through `replicate_in.py`, what primaries take over and give up through `takeover.py`, the state through
`following.py`. The duties that `eventlog/replication/__init__.py` lists are kept here and there.

Copies of moving segments are read as fast as an operator allowed (`CopyThrottle`), shared among the nodes that are read from. Only moves
are slowed down: a replica that fell behind, or one that takes the place of a lost copy, gets what it lacks at full speed.
"""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.control.cluster import ClusterRecords
from eventlog.control.proposals import InSyncChange, Outcome, Proposals
from eventlog.control.records import RebalanceRecord, ReplicaRecord, SegmentRecord, Versioned
from eventlog.control.view import ClusterView
from eventlog.errors import BadMessage, ConnectionLost, CorruptData, EventLogError, Overloaded, TooLarge
from eventlog.ids import ID_MAX, FlakeClock, id_before, time_of
from eventlog.limits import CLOCK_AHEAD_MS_MAX, MIB
from eventlog.node.background import due
from eventlog.node.cluster.metadata import Metadata, ViewChange
from eventlog.node.cluster.peers import Peers
from eventlog.node.copying.mending import Mending
from eventlog.node.copying.shortage import Shortage, Waiting
from eventlog.node.state.following import Followed
from eventlog.read.watermark import Promises
from eventlog.replication import Commands, GivenUpRange, Message, Replica, Replication, Term
from eventlog.replication import commands as asked
from eventlog.replication.bodies import NOTHING, Arrived, Carried, GroupValues, values_from
from eventlog.replication.columns import NEVER
from eventlog.replication.messages import APPEND
from eventlog.segment.port import Store
from eventlog.segment.walking import LogPart, read_sound
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.session import Reply

log = logging.getLogger("eventlog.node")
_TICK_MS = 50
_TICK_RESTING_MS = 100  # while time alone changes nothing
_AGAIN_MS = 200
_RECENT_BYTES = 8 * MIB
_FLIGHT_BYTES = 800  # what one costs beside its values; a read of the log looks at all that are kept
_OF_A_MESSAGE = frozenset(  # get its receipt
    {asked.Write, asked.Learned, asked.Keep, asked.BeginInstall, asked.InstallPart, asked.EndInstall}
)
_STEP_S = 0.5  # then the limit is looked at again: it may be another by then


class CommandPart(Protocol):
    """What carries out some kinds of commands."""

    def commands(self) -> dict[type, Callable[..., None]]:
        """Return what carries out each kind."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Receipt:
    """A message that came: what it brought, and how much is still being done for it. It travels with everything that is.

    Nothing due and no answer of the core's: there is nothing to say.
    """

    exchange: Exchange
    name: tuple[Replica, int]
    given: Any
    brings_values: bool = False
    due: int = 1

    def begin(self) -> "Receipt":
        """Note that something goes on for it by itself; its end is told to `IncomingAppends.done`."""
        self.due += 1
        return self


class Backup(CommandPart, Protocol):
    """The backup's side."""

    def follow(self, segments: Ints, watermarks: Ints) -> None:
        """Bring the state of `segments` up to their watermarks."""
        ...

    def cut(self, cuts: Sequence[asked.Cut], receipt: Receipt | None) -> None:
        """Cut logs."""
        ...


class Keys(CommandPart, Protocol):
    """The primary's side: terms that begin and end."""

    def rebuild_keys(self, segments: Ints) -> None:
        """Build key tables anew."""
        ...


class ReplicateGround(Protocol):
    """What this module needs of the node."""

    store: Store
    clock: FlakeClock
    promises: Promises
    peers: Peers
    metadata: Metadata
    records: ClusterRecords
    followed: Followed
    mending: Mending

    def own(self, task: "asyncio.Task[Any]") -> None: ...

    @property
    def writer(self) -> Waiting: ...


@dataclass(slots=True, kw_only=True, eq=False)
class Flight:
    """A group between its stamp and its commit. `previous` is where the logs of its segments ended before it.

    `settled` is called when it is on disk here and each of its segments is committed, or not led by this node any more (`lost`).
    """

    segments: Ints
    last_ids: Ints
    previous: Ints
    carried: Carried
    settled: "Callable[[Flight], None] | None" = None  # set in the step in which the group is appended
    is_written: bool = False
    lost: frozenset[int] = frozenset()

    @property
    def nbytes(self) -> int:
        """Return what it costs in memory, roughly."""
        return _FLIGHT_BYTES + sum(map(len, self.carried.data))

    def values(self, where: npt.NDArray[np.bool_]) -> Arrived:
        """Return the values at some places of the group."""
        places = where.nonzero()[0]
        own = self.carried.chosen(places)
        counts = [self.carried.bounds[place + 1] - self.carried.bounds[place] for place in places.tolist()]
        return values_from(self.segments[places].repeat(counts), own.caches, own.data)


def with_flights(part: LogPart, flights: Iterable[Flight], *, segment: int, since: int) -> LogPart:
    """Add what is in flight, or was a moment ago, where it follows what was read.

    `since` is the id of the term's marker, NEVER before there is one: of what this node appended in an earlier term others may have known
    nothing, and then it was cut from the log, and something else follows there now.
    """
    caches, data, upto = list(part.caches), list(part.data), part.upto
    for flight in flights if since != NEVER else ():
        place = int(flight.segments.searchsorted(segment))
        if place == len(flight.segments) or flight.segments[place] != segment:
            continue
        if flight.previous[place] != upto or flight.last_ids[place] < since:
            continue
        own = flight.carried.chosen(np.array([place]))
        caches += own.caches
        data += own.data
        upto = int(flight.last_ids[place])
    return LogPart(after=part.after, upto=upto, caches=caches, data=data)


class Replicas:
    """The replicas of this node. `core` may be read by anyone; only what stands here calls it."""

    def __init__(self, node: ReplicateGround, core: Replication) -> None:
        self.core = core
        self._node = node
        self.throttle = CopyThrottle(lambda: node.metadata.view)
        self.serving = np.zeros(core.segments, bool)  # led, adopted, and the state is up to the log: writes and promises may begin
        self.shortage = Shortage(node, self)
        self._incoming: Backup
        self._takeover: Keys
        self.flights: list[Flight] = []  # groups on their way: not committed yet, nor given up
        self._recent: deque[Flight] = deque()
        self._recent_bytes = 0
        self.recent_bytes_max = _RECENT_BYTES
        self._known: dict[int, Replica] = {}
        self._proposals = Proposals()
        self._records: dict[int, Versioned[SegmentRecord]] = {}  # the latest seen, be it ahead of the view
        self._proposer: asyncio.Task[None] | None = None
        self.unsent = 0  # messages that found no way; asked for again by the protocol
        self._do: dict[type, Callable[..., None]] = {
            asked.Committed: self._committed,
            asked.Propose: self._propose,
            asked.ReadLog: self._read_log,
            asked.Diverged: _diverged,
        }

    def open(self, incoming: Backup, takeover: Keys, copies: CommandPart) -> None:
        """Join what carries out commands."""
        self._incoming, self._takeover = incoming, takeover
        for part in (incoming, takeover, copies):
            self._do.update(part.commands())

    def start(self) -> None:
        """Begin to listen to peers, records and time."""
        node = self._node
        node.peers.hooks.connected.append(self._connected)
        node.peers.hooks.lost.append(self._lost)
        node.metadata.hooks.append(self._changed)
        node.own(asyncio.create_task(self._tick_forever(), name="replication"))
        self.learn(node.metadata.view, range(self.core.segments))
        self.core.allow_ids(self._highest_id())

    @property
    def now_ms(self) -> int:
        """Return monotonic time."""
        return int(asyncio.get_running_loop().time() * 1000)

    # ------------------------------------------------------------ commands

    def carry_out(self, commands: Commands, carried: Carried = NOTHING, *, receipt: Receipt | None = None) -> None:
        """Do what the core asks, in its order. `carried` goes with the `Send`s; `receipt` is of the message that was received."""
        bodies: dict[int, Sequence[bytes]] = {}
        cuts: list[asked.Cut] = []
        for command in commands:
            kind = type(command)
            if isinstance(command, asked.Send):
                self._send(command, carried, bodies)
            elif isinstance(command, asked.Cut):
                cuts.append(command)  # to be carried out as one
            elif kind in _OF_A_MESSAGE:
                self._do[kind](command, receipt)
            else:
                self._do[kind](command)
        if cuts:
            self._incoming.cut(cuts, receipt)

    def _send(self, send: asked.Send, carried: Carried, bodies: dict[int, Sequence[bytes]]) -> None:
        body = bodies.get(id(send.rows))
        if body is None:
            body = bodies[id(send.rows)] = carried.chosen(send.chosen).buffers(send.rows)
        if self._known.get(send.to.node) != send.to:
            self.unsent += 1
            return
        count = len(send.rows) // APPEND.itemsize
        request = pb.Message(replicate=pb.Replicate(correlation=send.correlation, rows=count, recipient=send.to.incarnation))
        try:
            self._node.peers.post(send.to.node, partial(self._answered, send.to), request, *body)
        except (ConnectionLost, Overloaded) as error:
            self.unsent += 1
            log.debug("replicate_unsent node=%d error=%s", send.to.node, error)
        except TooLarge as error:
            self.unsent += 1
            log.warning("replicate_too_large node=%d error=%s", send.to.node, error)

    def _answered(self, sender: Replica, outcome: Reply | EventLogError) -> None:
        """Take what a message to a backup came to, while that is being received: no turn of the loop in between."""
        if isinstance(outcome, Reply):
            if len(outcome.body):
                self.acknowledged(sender, outcome.message.replicate_answer.correlation, outcome.body)
        elif not isinstance(outcome, ConnectionLost):
            log.warning("replicate_refused node=%d error=%s", sender.node, outcome)

    def acknowledged(self, sender: Replica, correlation: int, rows: memoryview) -> None:
        """Take a backup's answer."""
        message = Message(sender=sender, recipient=self.core.own, correlation=correlation, rows=rows)
        try:
            self.carry_out(self.core.acknowledged(message, now_ms=self.now_ms))
        except BadMessage as error:
            log.warning("acknowledgement_refused node=%d error=%s", sender.node, error)

    # ------------------------------------------------------------ own groups

    def append(self, group: GroupValues) -> Flight:
        """Register a group as in flight, in the step in which it was stamped, and send it.

        In this very step, before the stamp, its segments were writable and ready: nobody else looks again.
        """
        previous = self.core.ends[group.segments]
        commands = self.core.append(group.segments, group.last_ids, counts=group.counts, now_ms=self.now_ms)
        flight = Flight(segments=group.segments, last_ids=group.last_ids, previous=previous, carried=group.carried)
        self.flights.append(flight)
        if commands:
            self.carry_out(commands, group.carried)
        return flight

    def written(self, flight: Flight) -> None:
        """Note that a group is on disk here."""
        flight.is_written = True
        if self._known:
            self._recent.append(flight)
            self._recent_bytes += flight.nbytes
            while self._recent_bytes > self.recent_bytes_max:
                self._recent_bytes -= self._recent.popleft().nbytes
        self.carry_out(self.core.written(flight.segments, flight.last_ids))
        if flight.lost:
            self.settle()  # nothing of it may be left for the core to say

    def _committed(self, command: asked.Committed) -> None:
        del command  # the watermarks say the same
        self.settle()
        if self.shortage.stuck:
            self.shortage.committed()

    def settle(self, lost: frozenset[int] = frozenset()) -> None:
        """Settle the groups in flight that are committed, or that touch segments which are led no more."""
        waiting, done = [], []
        for flight in self.flights:
            if lost and (hit := lost.intersection(flight.segments.tolist())):
                self._lose(flight, hit)
            passed = self.core.watermark[flight.segments] >= flight.last_ids
            if flight.lost:
                passed |= np.isin(flight.segments, list(flight.lost))
            if flight.is_written and np.count_nonzero(passed) == len(passed):
                done.append(flight)
            else:
                waiting.append(flight)
        self.flights = waiting
        for flight in done:
            assert flight.settled is not None, "what appended it waits for it"
            flight.settled(flight)

    def abandon(self, flight: Flight) -> None:
        """Bring what is committed of a group that was lost in part into the state, as a backup does."""
        rest = ~np.isin(flight.segments, list(flight.lost))
        if np.count_nonzero(rest):
            segments, ids = flight.segments[rest], flight.last_ids[rest]
            self._node.followed.take_up(segments)
            self._node.followed.keep(flight.values(rest))
            self.take_in(segments, ids)

    def take_in(self, segments: Ints, ids: Ints) -> None:
        """Bring what is committed up to `ids`, and kept by the backups, into the state of segments led here."""
        self._incoming.follow(segments, ids)
        self._node.promises.commit(segments, ids, upto=int(ids.max()))
        self._takeover.rebuild_keys(segments)

    def _lose(self, flight: Flight, segments: frozenset[int]) -> None:
        """What is given up in flight is in the own log like values of others: it counts if it is committed.

        Once: a segment is lost when the lease tells that others moved it, and again when its record does, and may have been stuck.
        """
        lost = segments - flight.lost
        if lost:
            flight.lost |= lost
            self._node.followed.keep(flight.values(np.isin(flight.segments, list(lost))))

    # ------------------------------------------------------------ records

    def _changed(self, change: ViewChange) -> None:
        if change.segments:
            self.learn(change.view, change.segments)

    def learn(self, view: ClusterView, segments: Sequence[int]) -> None:
        """Tell the core what the records of `segments` say."""
        terms = [self._term(view.segments[segment]) for segment in segments if segment in view.segments]
        if terms:
            self.carry_out(self.core.learn(terms, now_ms=self.now_ms))
            self.shortage.look()

    def learn_now(self, found: Iterable[Versioned[SegmentRecord]]) -> None:
        """Tell the core what records say that were read from the store, and may be ahead of the view."""
        self.carry_out(self.core.learn([self._term(record) for record in found], now_ms=self.now_ms))
        self.shortage.look()

    def floor(self, segment: int) -> int:
        """Return the id above which its latest record has the ids of its term begin."""
        found = self._records.get(segment)
        return found.record.floor if found else 0

    def _term(self, found: Versioned[SegmentRecord]) -> Term:
        known = self._records.get(found.record.segment)
        if known is None or known.revision < found.revision:
            self._records[found.record.segment] = found
        return term_of(found, self._node.metadata.view)

    def _propose(self, proposal: asked.Propose) -> None:
        """Have a change committed, together with what else is proposed in this step."""
        self._proposals.add(change_of(proposal))
        if self._proposer is None or self._proposer.done():
            again = partial(asyncio.sleep, _AGAIN_MS / 1000)
            deciding = self._node.records.decide(self._proposals, seen=self._records, decided=self._decided, pause=again)
            self._proposer = asyncio.create_task(deciding, name="propose")
            self._node.own(self._proposer)

    def _decided(self, outcomes: Sequence[Outcome]) -> None:
        kinds = Counter(outcome.kind for outcome in outcomes)
        log.info("in_sync_proposed %s", " ".join(f"{kind}={count}" for kind, count in sorted(kinds.items())))
        self.learn_now([outcome.found for outcome in outcomes if outcome.found is not None])
        for change in [outcome.change for outcome in outcomes if outcome.found is None]:
            self.carry_out(self.core.withdrawn(change.segment, revision=change.revision, now_ms=self.now_ms))

    # ------------------------------------------------------------ catching up others

    def _read_log(self, read: asked.ReadLog) -> None:
        self._node.own(asyncio.create_task(self._read(read), name="read_log"))

    async def _read(self, read: asked.ReadLog) -> None:
        upto = min(int(self.core.durable[read.segment]), ID_MAX - 1)
        part = LogPart(after=read.after, upto=read.after, caches=[], data=[])
        if upto > read.after:
            job = partial(read_sound, self._node.store, read.segment, after=read.after, upto=upto, bytes_max=read.bytes_max)
            try:
                part = await self._node.mending.read(job)
            except CorruptData as error:
                log.warning("log_damaged segment=%d error=%s", read.segment, error)
                await asyncio.sleep(self._node.mending.again_ms / 1000)  # what is in memory is sent then, or it is asked for again
        await self.throttle.take(read.segment, part.nbytes, to=read.to.node)
        flights = [*self._recent, *(flight for flight in self.flights if not flight.is_written)]
        part = with_flights(part, flights, segment=read.segment, since=self.core.columns.starts.item(read.segment))
        carried = Carried(caches=part.caches, data=part.data)
        done = self.core.log_read(read, upto=part.upto, count=len(part.data), nbytes=part.nbytes, now_ms=self.now_ms)
        self.carry_out(done, carried)

    # ------------------------------------------------------------ peers and time

    def _connected(self, number: int, incarnation: str) -> None:
        peer = self._known[number] = Replica(number, incarnation)
        self.carry_out(self.core.connected(peer, now_ms=self.now_ms))
        self.shortage.look()

    def _lost(self, number: int, refused: bool) -> None:  # noqa: FBT001 -- as the hook is called
        del refused
        peer = self._known.pop(number, None)
        if peer is not None:
            self.carry_out(self.core.lost(peer, now_ms=self.now_ms))
            self.shortage.look()

    async def _tick_forever(self) -> None:
        is_resting, loop = False, asyncio.get_running_loop()
        while True:
            now = loop.time()
            await asyncio.sleep(due(now, _TICK_RESTING_MS if is_resting else _TICK_MS) - now)
            self.core.allow_ids(self._highest_id())
            is_resting = self.core.is_quiet
            if not is_resting:
                if commands := self.core.look(now_ms=self.now_ms):
                    self.carry_out(commands)
                self.shortage.look()

    def _highest_id(self) -> int:
        """Return an id above all that can have been issued: a lease and physical time bound them, and this node may be behind in both."""
        clock = self._node.clock
        latest = max(time_of(self._node.metadata.view.highest_ceiling), clock.physical_ms())
        return id_before(latest + CLOCK_AHEAD_MS_MAX)


def term_of(found: Versioned[SegmentRecord], view: ClusterView) -> Term:
    """Return what a record says to replication."""
    record = found.record
    return Term(
        segment=record.segment,
        revision=found.revision,
        epoch=record.epoch,
        primary=record.primary,
        owners=record.owners,
        in_sync=tuple(Replica(replica.node, replica.incarnation) for replica in record.in_sync),
        min_in_sync=record.min_in_sync,
        session=record.session,
        lost=tuple(GivenUpRange(lost.after, lost.upto) for lost in view.lost_ranges(record.segment)),
    )


def change_of(proposal: asked.Propose) -> InSyncChange:
    """Return what a primary proposes, as the driver of the records takes it."""
    joined = proposal.joined
    return InSyncChange(
        segment=proposal.segment,
        epoch=proposal.epoch,
        revision=proposal.revision,
        gone=tuple(ReplicaRecord(node=gone.node, incarnation=gone.incarnation) for gone in proposal.gone),
        joined=ReplicaRecord(node=joined.node, incarnation=joined.incarnation) if joined else None,
    )


def _diverged(command: asked.Diverged) -> None:
    log.error(
        "replica_diverged segment=%d node=%d end=%d watermark=%d", command.segment, command.replica.node, command.end, command.watermark
    )


class CopyThrottle:
    """Paces, and counts, what this node reads for others. `seconds` is a monotonic clock.

    `sent` has how many bytes of each moving segment went out from here.
    """

    def __init__(
        self,
        view: Callable[[], ClusterView],
        *,
        seconds: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._view = view
        self._seconds = seconds
        self._sleep = sleep
        self._of = ""  # the rebalancing whose limit was looked at last
        self._due = 0.0  # everything that it let through so far is paid for by then
        self.sent: dict[int, int] = {}

    async def take(self, segment: int, nbytes: int, *, to: int) -> None:
        """Return when `nbytes` of a copy of `segment` may be sent to the node `to`; at once where nothing limits it."""
        if not self._is_move(segment, to):
            return
        await self._wait(segment, nbytes, to)
        segments = self._view().segments
        self.sent = {number: count for number, count in self.sent.items() if number in segments and segments[number].record.target}
        if self._is_move(segment, to):
            self.sent[segment] = self.sent.get(segment, 0) + nbytes

    async def _wait(self, segment: int, nbytes: int, to: int) -> None:
        limited = self._limited()
        if limited is None:
            return
        if limited.nonce != self._of:
            self._of, self._due = limited.nonce, 0.0
        self._due = max(self._due, self._seconds()) + nbytes / self._share(limited)
        due = self._due
        while (left := due - self._seconds()) > 0:
            await self._sleep(min(left, _STEP_S))
            if self._limited() != limited or not self._is_move(segment, to):
                return

    def _is_move(self, segment: int, to: int) -> bool:
        """Return whether a node gets a copy because the segment moves: those that it is to have anyway come first among the owners."""
        view = self._view()
        found = view.segments.get(segment)
        if found is None or not found.record.target or to not in found.record.owners[view.replicas :]:
            return False
        return all(replica.node != to for replica in found.record.in_sync)

    def _limited(self) -> RebalanceRecord | None:
        """Return the rebalancing that runs under a limit."""
        found = self._view().rebalance
        return found.record if found is not None and found.record.state == "running" and found.record.throttle_bytes else None

    def _share(self, limited: RebalanceRecord) -> float:
        """Return how many bytes a second this node may send while something moves."""
        sources = {moving.record.primary for moving in self._view().segments.values() if moving.record.target}
        return limited.throttle_bytes / len(sources)
