"""Starting a node: the directory, metadata, store, recovery, a new primary term, its adoption, the state; in this order.

Being primary does not survive a process: the node is appointed again under epoch + 1, appends a marker of that epoch to every
segment, and serves once those are on disk.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from eventlog.clock import Clock, Entropy, SystemClock, SystemEntropy
from eventlog.control.cluster import ClusterRecords, OwnMember
from eventlog.control.membership import NodeLabels
from eventlog.control.metastore import MetaStore
from eventlog.control.metastores.location import Location, OpenMetaStore, open_metastore
from eventlog.control.metastores.resolving import ResolvingStore
from eventlog.control.metastores.sqlite import SqliteStore
from eventlog.errors import CorruptData, EventLogError, Stopping
from eventlog.ids import ID_MAX
from eventlog.node.background import attempt, every
from eventlog.node.cluster.joining import FoundCluster, find_cluster
from eventlog.node.cluster.managed import TEND_MS, Managed, open_managed, seat_of
from eventlog.node.cluster.metadata import ViewChange, keep_now, keep_records
from eventlog.node.config import NodeConfig, split_address
from eventlog.node.entering import SET_ASIDE, STORE, Engine, Entrance, Me, enter
from eventlog.node.home import Home
from eventlog.node.node import Node, Opened
from eventlog.node.periodic import Periodic
from eventlog.node.workers import MakeWorker, ThreadWorker
from eventlog.read.steps import StepIndex
from eventlog.read.watermark import LowWatermark, Promises
from eventlog.replication import EpochStart, Replica, Replication
from eventlog.segment.keys import decode_step, step_range
from eventlog.segment.port import Store
from eventlog.segment.recovery import Recovery
from eventlog.segment.trimming import heads_between
from eventlog.state.caches import Caches
from eventlog.state.replay import rewind_offsets, trim_markers

log = logging.getLogger("eventlog.node")
_ADOPT_ALONE_MS_MAX = 60_000  # how long a start waits for the segments it begins with: when nobody else has to be there ...
_ADOPT_MS_MAX = 1_000  # ... and when others have, which may be down

T = TypeVar("T")


@dataclass(kw_only=True)
class Started:
    """A running node with what has to be closed after it."""

    node: Node
    periodic: Periodic
    records: ClusterRecords
    metastore: MetaStore
    home: Home
    managed: Managed | None

    async def close(self, *, clean: bool) -> None:
        """End the periodic work, write what is committed into the store, and close it.

        A node that had to stop (not `clean`) writes nothing any more: whatever the disk holds is what the next start finds.
        """
        node = self.node
        if clean:
            await node.value_gate.drain()
            await node.writer.drain()
            await node.checkpoints.write()
        await node.end_tasks()
        await node.value_gate.stop()
        await node.reads.stop()
        await node.state_reads.stop()
        node.iterations.stop()
        await node.storage.stop()
        node.entries.close()
        try:
            await asyncio.to_thread(node.store.close)
        except CorruptData:
            await _note_unreadable(self.records, node.store)
            raise
        if clean:
            try:
                await self.records.release(acknowledged=int(node.core.watermark.max()), unreadable=bool(node.store.unreadable))
            except EventLogError as error:
                log.warning("lease_not_given_back error=%s", error)  # the next start begins above it
            else:
                await attempt(partial(keep_now, self.metastore, self.home), name="records", failures=node.failures)
            self.home.remember(self.records.remember())
        else:
            await _note_unreadable(self.records, node.store)
        await self.metastore.close()
        if self.managed is not None:
            await self.managed.stop(is_removed=self.managed.seat.name in node.view.removed_names)
        self.home.close()


async def open_node(
    config: NodeConfig,
    *,
    on_fatal: Callable[[EventLogError], None],
    listens: str = "",
    stop: asyncio.Future[EventLogError | None] | None = None,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    engine: Engine | None = None,
    make_worker: MakeWorker = ThreadWorker,
    open_metadata: OpenMetaStore = open_metastore,
) -> Started:
    """Open everything and start the node's work; it can be served from when this returns.

    `listens` is the address that it will be served at, if that is known better than the configuration knows it. `engine` opens the
    store in place of the engine that the configuration names. `clock`, `entropy`, `make_worker` and what opens the metadata store are the
    machine's unless given.

    Raises:
        Stopping: `stop` was done while it waited for other nodes or the metadata store; what comes after that is seen through.
        EventLogError: says what is wrong and what to do.
    """
    shell = _Shell(
        config=config,
        listens=listens or config.listen,
        on_fatal=on_fatal,
        stop=stop,
        engine=engine,
        make_worker=make_worker,
        open_metadata=open_metadata,
    )
    clock, entropy = clock or SystemClock(), entropy or SystemEntropy()
    try:
        return await _try_to_open(shell, clock=clock, entropy=entropy)
    except _Unreadable as unreadable:
        log.warning("opening_again error=%s", unreadable.error)  # now that it is noted, others may fill this node
    try:
        return await _try_to_open(shell, clock=clock, entropy=entropy)
    except _Unreadable as unreadable:
        raise _with_advice(unreadable.error, config) from None


def _with_advice(error: CorruptData, config: NodeConfig) -> CorruptData:
    """Return why a store stays unread although it was noted, with what is left to do: nobody that is up has what lies in it."""
    aside = f" and remove {config.data / SET_ASIDE}" if (config.data / SET_ASIDE).exists() else ""
    others = f"start the other nodes that hold its segments{aside}, and this one again"
    away = f"move {config.data / STORE} away and give --accept-data-loss, which keeps nothing of it"
    return CorruptData(
        where=error.where, why=f"{error.why}; {others}; if no other does, and there is no better copy of the directory, {away}"
    )


class _Unreadable(Exception):  # never leaves this module
    """The store opens, and cannot be read."""

    def __init__(self, error: CorruptData) -> None:
        super().__init__()
        self.error = error


async def _try_to_open(shell: "_Shell", *, clock: Clock, entropy: Entropy) -> Started:
    async with AsyncExitStack() as undo:
        started = await _open(shell, undo, clock=clock, entropy=entropy)
        undo.pop_all()
        return started


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shell:
    """What a node is started with."""

    config: NodeConfig
    listens: str
    on_fatal: Callable[[EventLogError], None]
    stop: asyncio.Future[EventLogError | None] | None
    engine: Engine | None
    make_worker: MakeWorker
    open_metadata: OpenMetaStore

    @property
    def name(self) -> str:
        """Return the node's name. Of a wildcard, which all hosts may listen at, it would be the name of other members as well."""
        return self.config.node_name or self.address.replace(":", "-")

    @property
    def address(self) -> str:
        """Return where clients and other members reach the node: a wildcard says nothing to them."""
        if self.config.advertise:
            return self.config.advertise
        host, port = split_address(self.listens, option="listen")
        return f"{socket.gethostname()}:{port}" if host in ("0.0.0.0", "::") else self.listens  # noqa: S104  # compared, not bound

    @property
    def labels(self) -> NodeLabels:
        """Return what placement goes by."""
        config = self.config
        return NodeLabels(host_label=config.host_label, rack=config.rack, weight=config.weight, gateway=config.gateway)


async def _open(shell: _Shell, undo: AsyncExitStack, *, clock: Clock, entropy: Entropy) -> Started:
    config = shell.config
    home = Home.open(config.data)
    undo.callback(home.close)
    cluster, managed, unsure = await _unless(shell.stop, _reach(shell, undo, home))
    entrance = Entrance(
        config=config,
        home=home,
        store=unsure,
        where=cluster.location,
        me=Me(name=shell.name, address=shell.address, labels=shell.labels),
        clock=clock,
        entropy=entropy,
        engine=shell.engine,
    )
    entered = await enter(entrance, cluster=cluster.cluster)
    records, member, store = entered.records, entered.member, entered.store
    undo.callback(store.close)
    home.remember_metastore(cluster.location, default=config.default_location)
    home.remember(records.remember())
    terms = await records.appoint(accepts_loss=config.accept_data_loss)
    await records.renew_lease(on_lost=lambda _: None)  # right before the first ids are needed: recovery may take longer than a lease
    origin = _Begun(
        config=config,
        location=cluster.location,
        member=member,
        store=store,
        records=records,
        metastore=entered.metastore,
        look=partial(_look, unsure),
        managed=managed,
        make_worker=shell.make_worker,
    )
    try:
        opened = await asyncio.to_thread(_bring_up, origin, entered.caches, entered.found)
    except CorruptData as error:
        if not store.unreadable:
            raise
        await _note_unreadable(records, store)
        raise _Unreadable(error) from None
    home.remember(records.remember())
    node = Node(opened, view=await records.view(), on_fatal=shell.on_fatal)
    node.metadata.hooks.append(partial(reach_members, node))
    reach_members(node, ViewChange(view=node.view, segments=(), members=True))
    entered.metastore.on_commit = node.metadata.committed
    if managed is not None:
        tend = every(TEND_MS, partial(_tend, node, managed), name="etcd", failures=node.failures)
        node.own(asyncio.create_task(tend, name="etcd"))
    node.start()
    node.clock.hear_others([], members=len(node.view.members))  # one that is alone knows what time it is
    _start_controller(node)
    periodic = Periodic(node)
    periodic.start()
    node.own(asyncio.create_task(keep_records(entered.metastore, node.metadata, home, node.failures), name="records"))
    is_alone = all(len(term.in_sync) == 1 for term in terms)
    primaries = node.view.segments  # of some another node may have become primary during recovery
    led = np.array([term.segment for term in terms if primaries[term.segment].record.primary == node.number], np.int64)
    await node.takeover.served(led, wait_ms=_ADOPT_ALONE_MS_MAX if is_alone else _ADOPT_MS_MAX)
    return Started(node=node, periodic=periodic, records=records, metastore=entered.metastore, home=home, managed=managed)


async def _reach(shell: _Shell, undo: AsyncExitStack, home: Home) -> tuple[FoundCluster, Managed | None, MetaStore]:
    """Return where the metadata are, what this node does for them, and their store; others may take their time to answer."""
    managed = None
    if shell.config.is_managed:
        managed = await open_managed(shell.config, home, seat=seat_of(shell.config, name=shell.name, address=shell.address))
        undo.push_async_callback(managed.stop)
    cluster = managed.found if managed else await find_cluster(shell.config, home)
    store = await shell.open_metadata(cluster.location, create=cluster.create)
    undo.push_async_callback(store.close)
    return cluster, managed, store


async def _unless(stop: asyncio.Future[EventLogError | None] | None, work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` does, or give it up as soon as `stop` is done. Raises Stopping."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait((task,) if stop is None else (task, stop), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return await task
        raise Stopping
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _look(store: MetaStore) -> None:
    """Have a store that is a file look for what other processes changed; others tell by themselves what is new."""
    if isinstance(store, SqliteStore):
        store.look()


def _start_controller(node: Node) -> None:
    """Run a node's controller, in tasks that the node owns."""
    loop = node.controller
    node.metadata.hooks.append(loop.changed)
    node.peers.hooks.connected.append(loop.wake)
    node.peers.hooks.lost.append(loop.wake)
    node.own(asyncio.create_task(loop.run(), name="controller"))
    node.own(asyncio.create_task(node.verifier.run(), name="verifier"))
    node.own(asyncio.create_task(node.sizes.run(), name="sizes"))


def reach_members(node: Node, change: ViewChange) -> None:
    """Keep a connection to every member, at its address as it is now."""
    if change.members:
        node.peers.update({number: member.address for number, member in change.view.members.items()})


async def _tend(node: Node, managed: Managed) -> None:
    """Have the node run etcd if there is need; not while it leaves."""
    own = node.view.members.get(node.number)
    if own is not None and not own.draining:
        await managed.tend(node.view.removed_names)


async def _note_unreadable(records: ClusterRecords, store: Store) -> None:
    """Have the next start know of a damaged file that ended this process, or its start."""
    if store.unreadable:
        log.error("store_unreadable why=%s", store.unreadable)
        try:
            await records.renew_lease(on_lost=lambda _: None, unreadable=True)
        except EventLogError as error:
            log.warning("unreadable_not_noted error=%s", error)  # the next process meets it as well


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """What the steps before recovery have made."""

    config: NodeConfig
    location: Location
    member: OwnMember
    store: Store
    records: ClusterRecords
    metastore: ResolvingStore
    look: Callable[[], None]
    managed: Managed | None
    make_worker: MakeWorker


def _bring_up(origin: _Begun, caches: Caches, found: Recovery) -> Opened:
    """Open the replicas as the log has them, and the state as far as its marks say; nothing is led yet."""
    store, member = origin.store, origin.member
    member.clock.raise_above(found.last_id)
    core = Replication(store.segments, own=Replica(member.number, member.incarnation), session=member.session)
    histories = [[EpochStart(row.epoch, row.first_id, row.previous) for row in rows] for rows in found.epochs]
    core.open(found.ends.ids, histories=histories, applied=found.marks)
    for cache in caches:
        rewind_offsets(store, cache, marks=found.marks, segments=found.segments_to_replay)
        if cache.live.any():
            cache.keys = None  # built when segments are led
    core.trimmed(np.arange(store.segments), np.max([cache.trimmed_ids for cache in caches], axis=0, initial=0))
    trim_markers(store, marks=found.marks)
    log.info("opened segments_to_replay=%d", len(found.segments_to_replay))
    low = LowWatermark(store.segments)
    low.hold(np.arange(store.segments), found.marks)
    return Opened(
        config=origin.config,
        cluster=origin.records.identity.cluster,
        location=origin.location,
        member=member,
        store=store,
        core=core,
        applied=found.marks.copy(),
        caches=caches,
        steps=_load_steps(store, caches, found),
        promises=Promises(store.segments),
        low=low,
        records=origin.records,
        metastore=origin.metastore,
        look=origin.look,
        managed=origin.managed,
        make_worker=origin.make_worker,
    )


def _load_steps(store: Store, caches: Caches, found: Recovery) -> StepIndex:
    """Return the index of the log by id, with what came after each cache's last step."""
    steps = StepIndex()
    for cache in caches:
        steps.load(decode_step(pair) for pair in store.read_meta(*step_range(cache.cache_id)))
        after = steps.last(cache.cache_id).id
        own = found.caches.get(cache.cache_id)
        segments = [] if own is None else np.flatnonzero(own.ends > after).tolist()
        tail = heads_between(store, cache.cache_id, segments, after=after, upto=ID_MAX - 1)
        steps.add_tail(cache.cache_id, events=sum(head.events for head in tail), nbytes=sum(head.nbytes for head in tail))
    return steps
