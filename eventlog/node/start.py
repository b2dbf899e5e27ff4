"""Starting a node: the directory, metadata, store, recovery, a new primary term, its adoption, the state; in this order.

Being primary does not survive a process: the node is appointed again under epoch + 1, appends a marker of that epoch to every
segment, and serves once those are on disk.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np

from eventlog.batch.layout import read_head
from eventlog.clock import Clock, Entropy, SystemClock, SystemEntropy
from eventlog.consume.steps import StepIndex
from eventlog.consume.watermark import LowWatermark, Promises
from eventlog.control.cache_records import CacheRecords
from eventlog.control.caches import CacheBook
from eventlog.control.cluster import ClusterRecords, Member
from eventlog.control.membership import NodeLabels
from eventlog.control.metastore import MetaStore
from eventlog.control.metastores.location import Location, open_metastore
from eventlog.control.metastores.resolving import ResolvingStore
from eventlog.control.metastores.sqlite import SqliteStore
from eventlog.errors import BadConfig, EventLogError, MemberReplaced, MetadataUnavailable, WrongCluster
from eventlog.ids import ID_MAX
from eventlog.limits import MIB
from eventlog.node.cluster.controller import start_controller
from eventlog.node.cluster.joining import find_cluster
from eventlog.node.cluster.keeping import keep_records
from eventlog.node.cluster.managed import Managed, open_managed, seat_of
from eventlog.node.cluster.metadata import Metadata, Sources, ViewChange
from eventlog.node.config import NodeConfig, split_address
from eventlog.node.copying.segment_data import drop_partial
from eventlog.node.home import Home
from eventlog.node.node import Node, Opened
from eventlog.node.operations import drop_cache_data, follow_caches
from eventlog.node.periodic import Periodic
from eventlog.node.state.caches import Caches, CacheState, new_cache
from eventlog.node.state.checkpoint import load_counts
from eventlog.node.state.replay import MARKER_CACHE, rewind_offsets, trim_markers
from eventlog.replication import EpochStart, Replica, Replication
from eventlog.segment.keys import decode_step, log_range, step_range
from eventlog.segment.port import Identity, Store, StoreOptions
from eventlog.segment.recovery import Recovery, recover

log = logging.getLogger("eventlog.node")
_ADOPT_ALONE_MS_MAX = 60_000  # how long a start waits for the segments it begins with: when nobody else has to be there ...
_ADOPT_MS_MAX = 1_000  # ... and when others have, who may be down
_READ_BYTES = 4 * MIB


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
            await node.writer.drain()
            await node.checkpoints.write()
        await node.end_tasks()
        await node.reads.stop()
        await node.state_reads.stop()
        node.iterations.stop()
        await node.storage.stop()
        node.entries.close()
        await asyncio.to_thread(node.store.close)
        if clean:
            try:
                await self.records.release(acknowledged=int(node.core.watermark.max()))
            except (MetadataUnavailable, MemberReplaced) as error:
                log.warning("lease_not_given_back error=%s", error)  # the next start begins above it
            self.home.remember(self.records.remember())
        await self.metastore.close()
        if self.managed is not None:
            await self.managed.stop()
        self.home.close()


async def open_node(
    config: NodeConfig,
    *,
    on_fatal: Callable[[EventLogError], None],
    listens: str = "",
    clock: Clock | None = None,
    entropy: Entropy | None = None,
) -> Started:
    """Open everything and start the node's work; it can be served from when this returns.

    `listens` is the address that it will be served at, if that is known better than the configuration knows it.

    Raises:
        EventLogError: says what is wrong and what to do.
    """
    shell = _Shell(config=config, listens=listens or config.listen, on_fatal=on_fatal)
    async with AsyncExitStack() as undo:
        started = await _open(shell, undo, clock=clock or SystemClock(), entropy=entropy or SystemEntropy())
        undo.pop_all()
        return started


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shell:
    """What a node is started with."""

    config: NodeConfig
    listens: str
    on_fatal: Callable[[EventLogError], None]

    @property
    def name(self) -> str:
        """Return the node's name."""
        return self.config.node_name or self.listens.replace(":", "-")

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
    remembered = home.remembered
    managed = None
    if config.is_managed:
        managed = await open_managed(config, home, seat=seat_of(config, name=shell.name, address=shell.address))
        undo.push_async_callback(managed.stop)
    cluster = managed.found if managed else await find_cluster(config, home)
    unsure = await open_metastore(cluster.location, create=cluster.create)
    undo.push_async_callback(unsure.close)
    incarnation = remembered.incarnation if remembered is not None else entropy.token(8).hex()
    metastore = ResolvingStore(unsure, writer=incarnation, entropy=entropy)
    records = ClusterRecords(metastore, incarnation=incarnation, entropy=entropy, where=str(cluster.location))
    identity = await records.open_or_create(
        segments=config.segments, now_ms=clock.wall_ms(), remembered=remembered, replicas=config.replicas
    )
    if cluster.cluster not in ("", identity.cluster):
        raise WrongCluster(where=f"the node at {' or '.join(config.join)}", theirs=cluster.cluster, ours=identity.cluster)
    if identity.segments != config.segments and not config.join:
        log.warning("segments_fixed asked=%d cluster=%d", config.segments, identity.segments)
    member = await records.join(name=shell.name, address=shell.address, clock=clock, labels=shell.labels)
    owner = Identity(cluster=identity.cluster, node=member.number, incarnation=incarnation)
    store = await asyncio.to_thread(_open_store, config, identity.segments, owner)
    undo.callback(store.close)
    home.remember_metastore(cluster.location, default=config.default_location)
    home.remember(records.remember())
    terms = await records.appoint()
    cache_records = CacheRecords(metastore)
    book = await cache_records.read()
    caches, found = await asyncio.to_thread(_recover, store, book, acknowledged=records.acknowledged)
    await records.renew_lease(on_lost=lambda _: None)  # right before the first ids are needed: recovery may take longer than a lease
    origin = _Origin(config=config, cluster=identity.cluster, location=cluster.location, member=member, store=store)
    opened = await asyncio.to_thread(_bring_up, origin, caches, found)
    home.remember(records.remember())
    node = Node(opened, cache_records=cache_records, on_fatal=shell.on_fatal)
    node.metadata = Metadata(metastore, view=await records.view(), sources=_sources(node, records, unsure), peers=node.peers)
    node.metadata.hooks.append(partial(reach_members, node))
    reach_members(node, ViewChange(view=node.view, segments=(), members=True))
    metastore.on_commit = node.metadata.committed
    node.records, node.managed = records, managed
    renew_lease = partial(_renew_lease, records, node, shell.on_fatal)
    node.renew_lease = renew_lease
    node.start()
    node.controller = start_controller(node, records)
    periodic = Periodic(node, renew_lease=renew_lease)
    periodic.start()
    node.own(asyncio.create_task(keep_records(metastore, node.metadata, home, node.failures), name="records"))
    is_alone = all(len(term.in_sync) == 1 for term in terms)
    led = np.array([term.segment for term in terms], np.int64)
    await node.replicas.takeover.served(led, wait_ms=_ADOPT_ALONE_MS_MAX if is_alone else _ADOPT_MS_MAX)
    return Started(node=node, periodic=periodic, records=records, metastore=metastore, home=home, managed=managed)


def _sources(node: Node, records: ClusterRecords, store: MetaStore) -> Sources:
    def look() -> None:
        if isinstance(store, SqliteStore):
            store.look()  # others tell by themselves what is new

    return Sources(read=records.view, follow_caches=partial(follow_caches, node), look=look)


def reach_members(node: Node, change: ViewChange) -> None:
    """Keep a connection to every member, at its address as it is now."""
    if change.members:
        node.peers.update({number: member.address for number, member in change.view.members.items()})


async def _renew_lease(records: ClusterRecords, node: Node, on_fatal: Callable[[EventLogError], None]) -> None:
    """Renew the id lease; what is another's now is led no more, and a node whose record is another's has nothing left to do."""
    try:
        async with node.renewing_lease:
            reached = int(node.core.watermark.max())
            await records.renew_lease(on_lost=node.replicas.takeover.stop, acknowledged=reached)
    except MemberReplaced as error:
        on_fatal(error)


def _open_store(config: NodeConfig, segments: int, owner: Identity) -> Store:
    engines = entry_points(group="eventlog.storage", name=config.storage)
    if not engines:
        raise BadConfig(option="storage", why=f"there is no storage engine {config.storage!r}")
    opened: Store = next(iter(engines)).load()(Path(config.data) / "store", segments=segments, options=StoreOptions(identity=owner))
    return opened


@dataclass(frozen=True, slots=True, kw_only=True)
class _Origin:
    """What the steps before recovery have made."""

    config: NodeConfig
    cluster: str
    location: Location
    member: Member
    store: Store


def _recover(store: Store, book: CacheBook, *, acknowledged: int) -> tuple[Caches, Recovery]:
    """Return the caches as the log has them, and where it ends; what is left of caches that are not in the book is dropped.

    Raises:
        EventLogError: the log is not what it must be; says where.
    """
    caches = Caches()
    caches.remember_dropped(book.dropped)
    for record in (versioned.record for versioned in book.caches.values()):
        caches.add(new_cache(cache_id=record.id, name=record.name, options=record.options, from_id=record.from_id, segments=store.segments))
    if dropped := drop_partial(store, [cache.cache_id for cache in caches]):
        log.info("dropped_partial segments=%d", len(dropped))
    found = recover(store, keyed=[cache.cache_id for cache in caches if cache.options.state], acknowledged=acknowledged)
    if found.refusals:
        raise found.refusals[0]
    for cache in caches:
        if (own := found.caches.get(cache.cache_id)) is not None:
            cache.next_offsets[:] = own.next_offsets
            cache.trimmed_ids[:], cache.trimmed_offsets[:] = own.trimmed_ids, own.trimmed_offsets
    for cache_id in sorted(set(found.caches) - {cache.cache_id for cache in caches} - {MARKER_CACHE}):
        log.info("dropping_unknown cache=%d", cache_id)
        drop_cache_data(store, cache_id, ends=found.ends)
    return caches, found


def _bring_up(origin: _Origin, caches: Caches, found: Recovery) -> Opened:
    """Open the replicas as the log has them, and the state as far as its marks say; nothing is led yet."""
    store, member = origin.store, origin.member
    member.clock.raise_above(found.last_id)
    core = Replication(store.segments, own=Replica(member.number, member.incarnation), session=member.session)
    histories = [[EpochStart(row.epoch, row.first_id, row.previous) for row in rows] for rows in found.epochs]
    core.open(found.ends.ids, histories=histories, applied=found.marks)
    for cache in caches:
        load_counts(store, cache)
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
        cluster=origin.cluster,
        location=origin.location,
        member=member,
        store=store,
        core=core,
        applied=found.marks,
        caches=caches,
        steps=_load_steps(store, caches),
        promises=Promises(store.segments),
        low=low,
    )


def _load_steps(store: Store, caches: Caches) -> StepIndex:
    """Return the index of the log by id, with what came after each cache's last step."""
    steps = StepIndex()
    for cache in caches:
        steps.load(decode_step(pair) for pair in store.read_meta(*step_range(cache.cache_id)))
        _count_tail(store, steps, cache)
    return steps


def _count_tail(store: Store, steps: StepIndex, cache: CacheState) -> None:
    after = steps.last(cache.cache_id).id
    events = nbytes = 0
    for segment in range(store.segments):
        lower, upper = log_range(segment, cache.cache_id, after=after, upto=ID_MAX - 1)
        while pairs := store.read_log(lower, upper, bytes_max=_READ_BYTES):
            events += sum(read_head(data, where=f"segment {segment}, cache {cache.name}").count for _, data in pairs)
            nbytes += sum(len(data) for _, data in pairs)
            lower = pairs[-1][0] + b"\0"
    steps.add_tail(cache.cache_id, events=events, nbytes=nbytes)
