"""A node put together: what its handlers and its periodic work reach for. How it starts stands in `start.py`."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from eventlog.arrays import Ints
from eventlog.batch.build import WriteFrame, read_table
from eventlog.batch.check import FROM_CLIENTS, BlockLimits
from eventlog.control.caches import CacheRecords
from eventlog.control.cluster import ClusterRecords, OwnMember
from eventlog.control.metastores.location import Location
from eventlog.control.metastores.resolving import ResolvingStore
from eventlog.control.view import ClusterView
from eventlog.errors import (
    BadMessage,
    CacheNotFound,
    EventLogError,
    MetadataLost,
    MetadataUnavailable,
    NotMember,
    OperationRefused,
    Stopping,
    tellable,
)
from eventlog.ids import EPOCH_MS
from eventlog.limits import HEADERS_BYTES_MAX, KEY_BYTES_MAX
from eventlog.node.answering import refuse_with
from eventlog.node.cluster.controller import ControllerLoop, ControllerParts
from eventlog.node.cluster.forcing import Forcing
from eventlog.node.cluster.forward import Forwarding
from eventlog.node.cluster.greeting import PeerIdentity
from eventlog.node.cluster.health import ClusterHealth
from eventlog.node.cluster.joining import Joiners
from eventlog.node.cluster.leaders import Leaders
from eventlog.node.cluster.leaving import Leaving
from eventlog.node.cluster.managed import Managed
from eventlog.node.cluster.metadata import Metadata, NodeLease, Sources
from eventlog.node.cluster.peers import Peers, is_of_member
from eventlog.node.cluster.primaries import HowFar, Primaries
from eventlog.node.cluster.rebalance import SegmentReports, SegmentSizes
from eventlog.node.cluster.serving import Availability
from eventlog.node.config import NodeConfig, join_token
from eventlog.node.consumers.coordinator import Coordinators
from eventlog.node.consumers.coordinator_admin import CoordinatorAdmin
from eventlog.node.consumers.coordinator_lag import GroupLag
from eventlog.node.consumers.coordinator_via import MemberConnections
from eventlog.node.consumers.dead_letters import DeadLetters
from eventlog.node.consumers.inner import Inner
from eventlog.node.consumers.listener_home import ListenerHome
from eventlog.node.consumers.listener_lag import ListenerLag
from eventlog.node.consumers.listeners import Listeners
from eventlog.node.consumers.near import NearReaders
from eventlog.node.consumers.shifting import Shifting
from eventlog.node.consumers.transactions import Transactions
from eventlog.node.consumers.work_reading import WorkReading
from eventlog.node.copying.digests import CopyVerifier, Digests
from eventlog.node.copying.mending import Mending
from eventlog.node.copying.replicate import Replicas
from eventlog.node.copying.replicate_copy import Copies
from eventlog.node.copying.replicate_in import IncomingAppends
from eventlog.node.copying.retention import Retention
from eventlog.node.copying.state_digests import StateDigests
from eventlog.node.copying.takeover import TakeOver
from eventlog.node.copying.trimmed_copies import TrimmedCopies
from eventlog.node.data_check import DataCheck
from eventlog.node.disk import DiskWatch
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.closing import Closing
from eventlog.node.reading.column_files import ColumnFiles
from eventlog.node.reading.installed import InstalledFilters
from eventlog.node.reading.reader import ReaderThread
from eventlog.node.reclaiming import Reclaiming
from eventlog.node.schemas import Schemas
from eventlog.node.state.cache_changes import CacheChanges
from eventlog.node.state.checkpoint import Checkpoints
from eventlog.node.state.entries import EntriesElsewhere, EntryThread
from eventlog.node.state.following import Followed
from eventlog.node.state.freshness import Freshness
from eventlog.node.state.iterations import Iterations
from eventlog.node.state.state_reads import StateReads
from eventlog.node.workers import MakeWorker
from eventlog.node.writing.forward_write import OwnWrites, PartedWrites, awaited
from eventlog.node.writing.storage import StorageThread
from eventlog.node.writing.value_gate import ValueGate
from eventlog.node.writing.writer import NodeWriter, WriterHooks
from eventlog.read.answer import CommittedGroup
from eventlog.read.cursor import Lost
from eventlog.read.steps import StepIndex
from eventlog.read.tail import Tail
from eventlog.read.watermark import LowWatermark, Promise, Promises
from eventlog.replication import Replica, Replication
from eventlog.segment.port import Store, StoreEnds
from eventlog.state.caches import Caches, CacheState
from eventlog.transport.connection import Exchange
from eventlog.wire.eventlog_pb2 import Message
from eventlog.write.groups import Pending, WriteResult
from eventlog.write.overlay import Overlay

log = logging.getLogger("eventlog.node")
CACHES_AGAIN_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What a start has opened and recovered, ready to be served from. `applied` is moved by the writer and by what follows others."""

    config: NodeConfig
    cluster: str
    location: Location
    member: OwnMember
    store: Store
    core: Replication
    applied: Ints
    caches: Caches
    steps: StepIndex
    promises: Promises
    low: LowWatermark
    records: ClusterRecords
    metastore: ResolvingStore
    look: Callable[[], None]
    managed: Managed | None
    make_worker: MakeWorker


class Node:
    """The parts of a running node. Attributes are what handlers use; everything happens on one event loop."""

    def __init__(self, opened: Opened, *, view: ClusterView, on_fatal: Callable[[EventLogError], None]) -> None:
        self.config = opened.config
        self.cluster = opened.cluster
        self.location = opened.location
        self.joiners = Joiners(join_token(opened.config))
        self.member = opened.member
        self.name = opened.member.name
        self.number = opened.member.number
        self.cache_records = CacheRecords(opened.metastore)
        self.records = opened.records
        self.managed = opened.managed
        self.store = opened.store
        self.clock = opened.member.clock
        self.core = opened.core
        self.caches = opened.caches
        self.steps = opened.steps
        self.promises = opened.promises
        self.low = opened.low
        self.segments = opened.store.segments
        self.overlay = Overlay()
        self.tail = Tail()
        self.disk = DiskWatch(opened.store, reserve_bytes=opened.config.disk_reserve_bytes)
        ends = StoreEnds(ids=opened.core.ends, epochs=opened.core.end_epochs)
        self.storage = StorageThread(opened.store, ends=ends, on_fenced=on_fatal, worker=opened.make_worker("storage"))
        self.entries = EntryThread(opened.store, self.overlay)
        self.replicas = Replicas(self, opened.core)
        self._make_writer(opened)
        me = PeerIdentity(cluster=self.cluster, number=self.number, incarnation=opened.member.incarnation)
        self.peers = Peers(me, own=self.own, clock=self.clock)
        self.closing = Closing(
            clock=self.clock,
            promises=opened.promises,
            low=opened.low,
            believed=self._believed,
            on_heard=self._heard,
            vouched=lambda: self.view.highest_ceiling,
        )
        self.leaders = Leaders(self.segments)
        self.freshness = Freshness(self)
        self._make_parts()
        self._make_threaded(opened.make_worker)
        self.followed = self._new_followed(opened)
        self._make_replication()
        self.checkpoints = Checkpoints(
            store=self.store, storage=self.storage, core=self.core, applied=self.followed.applied, caches=self.caches
        )
        self.reclaiming = Reclaiming(self)
        self.retention = Retention(self, checkpoint=self.checkpoints.write, read=self.mending.read)
        self.trimmed_copies = TrimmedCopies(self, flush=self.retention.flush, remove=self.retention.remove)
        self.changing_caches = asyncio.Lock()  # held from a commit to the caches' records until this node knows of it
        self.loop_delay_ms_peak = 0
        self.failures: Counter[str] = Counter()  # of periodic work, by its name
        self.is_stopping = False
        self.metadata = self._new_metadata(opened, view)
        self.lease = NodeLease(self, opened.records, on_lost=on_fatal)
        self.controller = self._new_controller(opened)
        self._on_fatal = on_fatal
        self._reads_elsewhere = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._has_ended_tasks = False

    def _new_metadata(self, opened: Opened, view: ClusterView) -> Metadata:
        sources = Sources(read=opened.records.view, follow_caches=self.cache_changes.follow, look=opened.look)
        return Metadata(opened.metastore, view=view, sources=sources, peers=self.peers)

    def _new_controller(self, opened: Opened) -> ControllerLoop:
        """Make the controller, which may rule the cluster from here; it looks whenever the view or the connected peers change."""
        parts = ControllerParts(
            records=opened.records,
            reach=self.peers,
            seen=lambda: self.view,
            now_ms=lambda: time.monotonic_ns() // 1_000_000,
            wall_ms=self.clock.wall_ms,
            verifier=self.verifier,
            sizes=self.sizes.take,
        )
        return ControllerLoop(parts)

    def _make_replication(self) -> None:
        """Make what carries out the commands of the replicas."""
        self.incoming = IncomingAppends(self, self.replicas)
        self.takeover = TakeOver(self, self.replicas)
        self.copies = Copies(self, self.replicas)
        self.replicas.open(self.incoming, self.takeover, self.copies)

    def _make_parts(self) -> None:
        """Make what has no state of its own: what this node asks others, does for them, and tells operators."""
        self.forwarding = Forwarding(self)
        self.primaries = Primaries(self)
        self.how_far = HowFar(self)
        self.availability = Availability(self)
        self.segment_reports = SegmentReports(self)
        self.health = ClusterHealth(self)
        self.forcing = Forcing(self)
        self.leaving = Leaving(self)
        self.group_admin = CoordinatorAdmin(self)
        self.group_lag = GroupLag(self)
        self.member_connections = MemberConnections(self)
        self.dead_letters = DeadLetters(self)
        self.listener_lag = ListenerLag(self)
        self.digests = Digests(self)
        self.verifier = CopyVerifier(self)
        self.sizes = SegmentSizes(self)
        self.state_digests = StateDigests(self)
        self.installed_filters = InstalledFilters(self)
        self.entries_elsewhere = EntriesElsewhere(self)
        self.parted_writes = PartedWrites(self)
        self.own_writes = OwnWrites(self)
        self.shifting = Shifting(self)
        self.work_reading = WorkReading(self)
        self.cache_changes = CacheChanges(self)
        self.data_check = DataCheck(self)

    def _make_threaded(self, make_worker: MakeWorker) -> None:
        """Make what has a thread for what would hold the loop, and the parts that it serves."""
        self.value_gate = ValueGate(self.writer, thread=ReaderThread(make_worker("values")))
        self.near = NearReaders(self)
        self.mending: Mending = Mending(self)
        self.state_reads = StateReads(self, thread=ReaderThread(make_worker("state reader")))
        self.iterations = Iterations(self)
        self.inner = Inner(self)
        self.schemas = Schemas(self.inner)
        self.transactions = Transactions(self)
        self.listeners = Listeners(self, ListenerHome(self))
        self.coordinators = Coordinators(self)

    def _make_writer(self, opened: Opened) -> None:
        """Make the writer, and the readers, who see what it has committed."""
        columns = Path(self.config.data) / "columns"
        files = ColumnFiles(columns, bytes_max=self.config.column_files_bytes_max, has_room=self.disk.has_room)
        self.reads = Reads(self, thread=ReaderThread(opened.make_worker("reader")), files=files)
        self.writer: NodeWriter = NodeWriter(
            store=opened.store,
            storage=self.storage,
            replicas=self.replicas,
            clock=self.clock,
            overlay=self.overlay,
            promises=self.promises,
            applied=opened.applied,
            bounds=BlockLimits(
                key_bytes=KEY_BYTES_MAX, value_bytes=opened.config.value_bytes_max, header_bytes=HEADERS_BYTES_MAX, columns=FROM_CLIENTS
            ),
            hooks=WriterHooks(steps=self.steps.add, visible=self.reads.appended),
        )

    def _new_followed(self, opened: Opened) -> Followed:
        return Followed(
            store=self.store,
            storage=self.storage,
            overlay=self.overlay,
            caches=self.caches,
            applied=opened.applied,
            ends=opened.core.ends,
            number=self.number,
            steps=self.steps.add,
            show=self._follow,
            mending=self.mending,
            refresh_caches=self.learn_caches,
            made_room=self.writer.wake,
        )

    def start(self) -> None:
        """Start the threads and the writer's task."""
        self.storage.start()
        self.value_gate.start()
        self.tail.start(int(self.core.ends.max(initial=0)))  # everything up to there is in the store alone
        self.reads.start()
        self.state_reads.start()
        self.own(asyncio.get_running_loop().create_task(self.writer.run(), name="writer"))
        self.closing.join(self.peers)
        self.reads.mend = self.mending.mend
        self.reads.fetching.join(self.peers, copies=self.forwarding.copies_elsewhere)
        self._placed = np.ones(self.segments, bool)
        self._place(self.view, range(self.segments))
        self.metadata.hooks.append(lambda change: self._place(change.view, change.segments) if change.segments else None)
        self.peers.hooks.connected.append(lambda *_: self.closing.changed())
        self.peers.hooks.lost.append(lambda *_: self.closing.changed())
        self.peers.start()
        self.leaders.join(self.metadata)
        self.replicas.start()
        self.listeners.start()
        self.own(asyncio.get_running_loop().create_task(self.metadata.run(), name="metadata"))

    @property
    def view(self) -> ClusterView:
        """Return members and segments as this node knows them."""
        return self.metadata.view

    def why_not_ready(self) -> str:
        """Return why the node takes no requests, or an empty text."""
        return "stopping" if self.is_stopping else ""

    # ------------------------------------------------------------ requests

    def leader_of(self, segment: int) -> int:
        """Return the number of the node that leads a segment, 0 when nobody does."""
        return self.forwarding.leader_of(segment)

    def now_2020(self) -> int:
        """Return physical time in milliseconds since 2020, by which lifespans end."""
        return self.clock.physical_ms() - EPOCH_MS

    def check_writable(self) -> None:
        """Raise where a write would be refused whatever it is."""
        if self.is_stopping:
            raise Stopping
        if self.disk.is_full:
            raise self.disk.refusal()

    def own(self, task: "asyncio.Task[Any]") -> None:
        """Keep a task until it ends; an error that escapes it stops the node. Once tasks are ended, it is cancelled."""
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        if self._has_ended_tasks:
            task.cancel()

    def _task_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("task_failed name=%s error=%r", task.get_name(), error)
            self._on_fatal(tellable(error))

    async def end_tasks(self) -> None:
        """Cancel every owned task and wait for it."""
        self._has_ended_tasks = True
        self.closing.stop()
        self.peers.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def write(self, cache: CacheState, frame: WriteFrame) -> WriteResult:
        """Write a frame of the node's own making; raises what refused it whole."""
        done, finish = awaited()
        table, blocks = read_table(memoryview(b"".join(frame.buffers)), len(frame.table))
        self.writer.submit(
            Pending(cache=cache, table=table, blocks=blocks, producer=0, conditions=(), previous=False, internal=False, done=finish)
        )
        return await done

    # ------------------------------------------------------------ what the writer tells

    def _follow(self, segments: Ints, applied: Ints, groups: Sequence[CommittedGroup], skipped: int) -> None:
        self.reads.learned(segments, applied, groups=groups, skipped=skipped)

    async def refresh_caches(self) -> None:
        """Bring the caches to what the metadata say now."""
        await self.cache_changes.follow()

    async def learn_caches(self) -> None:
        """Do what `refresh_caches` does, as soon as the metadata can be asked."""
        while True:
            try:
                await self.refresh_caches()
            except (MetadataUnavailable, MetadataLost) as error:
                log.warning("caches_unknown why=%s", error)
                await asyncio.sleep(CACHES_AGAIN_S)
            else:
                return

    def fatal(self, error: EventLogError) -> None:
        """End the process: it cannot go on without breaking a promise."""
        self._on_fatal(error)

    def _place(self, view: ClusterView, segments: Sequence[int]) -> None:
        """Read here what this node is in sync with, and the rest elsewhere; `segments` are those with another record.

        After `read_elsewhere` only what it leads.
        """
        for segment in segments:
            found = view.segments.get(segment)
            if found is not None and self._reads_elsewhere:
                self._placed[segment] = found.record.primary == self.number
            else:
                self._placed[segment] = found is None or any(one.node == self.number for one in found.record.in_sync)
        self.reads.lose(
            {
                segment: [Lost(epoch=one.epoch, after=one.after, upto=one.upto) for one in known.record.ranges]
                for segment, known in view.lost.items()
            }
        )
        self.reads.place(self._placed.copy())

    def read_elsewhere(self) -> None:
        """Have what others lead read there, from now on."""
        self._reads_elsewhere = True
        self._place(self.view, range(self.segments))

    def _believed(self, sender: Replica, last_id: int, promises: Sequence[Promise]) -> list[Promise]:
        """Return what of some promises is their sender's to make. Raises BadMessage where an id in them cannot have been issued."""
        for id_ in (last_id, *(promise.id for promise in promises)):
            if id_ > self.core.ids_max:
                raise BadMessage(why=f"node {sender.node} names id {id_}; no id above {self.core.ids_max} can have been issued")
        return [promise.of(self.core.believes(sender, promise.segments, epochs=promise.epochs)) for promise in promises]

    def _heard(self, sender: Replica, promises: Sequence[Promise]) -> None:
        for promise in promises:
            commands = self.core.promised(sender, promise.segments, epochs=promise.epochs, last_ids=promise.last_ids)
            self.replicas.carry_out(commands)
        self.incoming.follow_late()  # somebody reads here, or is about to
        self.reads.watermark_rose()

    def close_up(self) -> int:
        """Promise as much as the clock allows, have the others do the same, and return the low watermark as it is by now."""
        self.closing.close_up()
        self.closing.refresh()
        return self.low.limit()


def dispatcher(node: Node, table: dict[str, Any]) -> Callable[[Exchange], None]:
    """Return what the server calls once a request: a plain handler runs at once, a coroutine in a task that the node owns.

    Which peer may ask what members ask, pass requests on, or use the cluster's own caches is decided here and nowhere else.
    """
    loop = asyncio.get_running_loop()
    plain = {kind: handler.function for kind, handler in table.items() if not handler.is_async}
    with_body = frozenset(kind for kind, handler in table.items() if handler.has_body)
    of_members = frozenset(kind for kind, handler in table.items() if handler.right == "peer")
    long = frozenset(kind for kind, handler in table.items() if handler.takes_long)

    def dispatch(exchange: Exchange) -> None:
        kind = exchange.kind
        is_peers = kind in of_members
        _check_right(node, exchange, is_peers=is_peers)
        if len(exchange.body):
            if kind not in with_body:
                raise BadMessage(why=f"a body of {len(exchange.body)} bytes, and {kind} has none")
            if not is_peers:  # for theirs those that fill the memory may be waiting
                exchange.connection.budget.process.check(len(exchange.body))
        if kind in long:
            exchange.connection.ends_turn = True
        function = plain.get(kind)
        if function is not None:
            try:
                function(node, exchange)
            except CacheNotFound:
                node.own(loop.create_task(_run(node, function, exchange), name=kind))
            return
        handler = table.get(kind)
        if handler is None:
            raise BadMessage(why=f"no node answers {kind}")
        node.own(loop.create_task(_run(node, handler.function, exchange), name=kind))

    return dispatch


def _cache_places() -> dict[str, Callable[[Message], int]]:
    """Return how each kind of request that is about a cache says which: read from the schema, so that none is forgotten."""
    kinds: Any = Message.DESCRIPTOR.oneofs_by_name["kind"].fields  # typed as possibly not messages
    places = {kind.name: set(kind.message_type.fields_by_name) for kind in kinds}
    found = {kind: f"{kind}.cache_id" for kind, fields in places.items() if "cache_id" in fields}
    found |= {kind: f"{kind}.poll.cache_id" for kind, fields in places.items() if "poll" in fields}
    return {kind: attrgetter(place) for kind, place in found.items()}


_CACHE_PLACES = _cache_places()


def _check_right(node: Node, exchange: Exchange, *, is_peers: bool) -> None:
    """Refuse what is for members alone where its peer has not proved to be one.

    Raises:
        NotMember: only members ask it, or pass requests on.
        OperationRefused: it is about one of the cluster's own caches.
    """
    cache_of = _CACHE_PLACES.get(exchange.kind)
    cache_id = 0 if cache_of is None else cache_of(exchange.message)
    is_for_members = is_peers or exchange.message.forwarded
    if not (is_for_members or cache_id in node.caches.internal) or is_of_member(exchange.connection):
        return
    if is_for_members:
        what = exchange.kind if is_peers else "passing requests on"
        raise NotMember(what=what, why="this connection has not proved to be one's")
    raise OperationRefused(what=f"{exchange.kind} of {node.caches.find(cache_id).name}", why="it is the cluster's own")


async def _run(node: Node, function: Callable[..., Any], exchange: Exchange, *, is_informed: bool = False) -> None:
    """Run a handler to its end; once more, after a look at the metadata, if it did not know a cache: another node may just have made it."""
    try:
        if is_informed:
            _check_right(node, exchange, is_peers=False)  # the cache was not known here when the request came
        done = function(node, exchange)
        if done is not None:
            await done
    except CacheNotFound as error:
        if not is_informed and await _is_informed(node):
            await _run(node, function, exchange, is_informed=True)
        else:
            exchange.fail(error)
    except Exception as error:  # noqa: BLE001 -- the edge to what a client can make happen
        refuse_with(exchange, node.mending.judged(error))


async def _is_informed(node: Node) -> bool:
    """Bring the caches up to date; return whether that could be done."""
    try:
        await node.refresh_caches()
    except EventLogError:
        return False
    return True
