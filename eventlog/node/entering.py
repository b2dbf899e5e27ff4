"""Becoming a member with the data directory as it is: first a member, then the store, then whether it holds all that it held.

A directory that lost something is not what the in-sync sets mean any more. Where other members hold all of it, it comes back as another
incarnation, which nobody elects: what is damaged is deleted, or a store that cannot be opened set aside, and the replicas fill it again.
What nobody else holds is given up only when an operator says so.
"""

import asyncio
import logging
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

from eventlog.clock import Clock, Entropy
from eventlog.control.appointment import held_alone
from eventlog.control.caches import CacheBook, CacheRecords
from eventlog.control.cluster import ClusterRecords, OwnMember
from eventlog.control.membership import NodeLabels
from eventlog.control.metastore import MetaStore
from eventlog.control.metastores.location import Location
from eventlog.control.metastores.resolving import ResolvingStore
from eventlog.errors import BadConfig, CorruptData, LostDisk, OperationRefused, UnsupportedFormat, WrongCluster
from eventlog.limits import SEGMENTS_DEFAULT
from eventlog.node.cluster.joining import is_up
from eventlog.node.config import NodeConfig
from eventlog.node.home import Home
from eventlog.node.state.cache_changes import drop_cache_data
from eventlog.node.state.checkpoint import counted_caches, load_counts
from eventlog.segment.cutting import drop_partial
from eventlog.segment.directory import Directory, sync_path
from eventlog.segment.port import Identity, Store, StoreOptions
from eventlog.segment.recovery import Recovery, recover
from eventlog.segment.salvage import cut_faulty, drop_faulty
from eventlog.state.caches import Caches, new_cache
from eventlog.state.replay import MARKER_CACHE

log = logging.getLogger("eventlog.node")
STORE = "store"
SET_ASIDE = "store.damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Me:
    """The node as its options describe it."""

    name: str
    address: str
    labels: NodeLabels


class Engine(Protocol):
    """Opens a store; raises as the port says."""

    def __call__(self, path: Any, *, segments: int, options: StoreOptions | None = None) -> Store: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """What entering begins with. `store` holds the metadata, and lies at `where`."""

    config: NodeConfig
    home: Home
    store: MetaStore
    where: Location
    me: Me
    clock: Clock
    entropy: Entropy
    engine: Engine | None = None  # in place of the one that the configuration names


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joined:
    """A member whose store is not open yet."""

    metastore: ResolvingStore
    records: ClusterRecords
    member: OwnMember
    book: CacheBook


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """A member with its store open and recovered. The caller closes the store."""

    metastore: ResolvingStore
    records: ClusterRecords
    member: OwnMember
    store: Store
    caches: Caches
    found: Recovery


class _Faulty(Exception):  # never leaves this module
    """The store opens, and segments of it are not what they were."""

    def __init__(self, recovery: Recovery) -> None:
        super().__init__()
        self.refusal = recovery.refusals[0]


async def enter(given: Entrance, *, cluster: str) -> Entered:
    """Become a member of `cluster` (any, if empty), and return with the store open.

    Raises:
        CorruptData, LostDisk: of what the directory lost there is no other copy, or nothing says what it lost.
        EventLogError: says what else is wrong, and what to do.
    """
    remembered = given.home.remembered
    joined = await _join(given, remembered.incarnation if remembered is not None else _token(given), cluster=cluster)
    try:
        if joined.records.unreadable:
            await _give_up_unreadable(given, joined)
        return await _open(given, joined, must_exist=remembered is not None and remembered.node > 0)
    except (CorruptData, LostDisk) as error:
        damage, is_open = error, False
    except _Faulty as faulty:
        if isinstance(faulty.refusal, UnsupportedFormat):
            raise faulty.refusal from None
        damage, is_open = faulty.refusal, True
    return await _come_back(given, joined, damage, is_open=is_open)


async def _join(given: Entrance, incarnation: str, *, cluster: str) -> _Joined:
    config = given.config
    metastore = ResolvingStore(given.store, writer=incarnation, entropy=given.entropy, where=str(given.where))
    records = ClusterRecords(metastore, incarnation=incarnation, entropy=given.entropy, where=str(given.where))
    identity = await records.open_or_create(
        segments=config.segments, now_ms=given.clock.wall_ms(), remembered=given.home.remembered, replicas=config.replicas
    )
    if cluster not in ("", identity.cluster):
        raise WrongCluster(where=f"the node at {' or '.join(config.join)}", theirs=cluster, ours=identity.cluster)
    if config.segments not in (identity.segments, SEGMENTS_DEFAULT):
        log.warning("segments_fixed asked=%d cluster=%d", config.segments, identity.segments)
    displaced = await records.displaced(name=given.me.name, address=given.me.address)
    if displaced is not None and await is_up(displaced, cluster=identity.cluster):
        there = f"{displaced.name!r} is the member at {displaced.address}, which is up"
        if displaced.incarnation == incarnation:
            raise BadConfig(
                option="data", why=f"{config.data} is a copy of a member's: {there}: give an empty directory, or stop that first"
            )
        raise BadConfig(option="node_name", why=f"{there}: choose another name, or stop that first")
    member = await records.join(name=given.me.name, address=given.me.address, clock=given.clock, labels=given.me.labels)
    return _Joined(metastore=metastore, records=records, member=member, book=await CacheRecords(metastore).read())


async def _open(given: Entrance, joined: _Joined, *, must_exist: bool) -> Entered:
    store = await _open_store(given, joined, must_exist=must_exist)
    try:
        caches, found = await asyncio.to_thread(_recover, store, joined.book, acknowledged=joined.records.acknowledged)
    except BaseException:
        await asyncio.to_thread(store.close)
        raise
    return Entered(metastore=joined.metastore, records=joined.records, member=joined.member, store=store, caches=caches, found=found)


# ---------------------------------------------------------------- coming back with less


async def _give_up_unreadable(given: Entrance, joined: _Joined) -> None:
    """Refuse a store in which an earlier process met a damaged file, where others that are up have all of it; else it is used as it is.

    All of it: merges of that file fail, and with them everything that is written afterwards, whatever is deleted before.

    Raises:
        CorruptData: the store is to be set aside.
    """
    number, aside = joined.member.number, given.config.data / SET_ASIDE
    members = (await joined.records.view()).members.values()
    up = [one.number for one in members if one.number != number and await is_up(one, cluster=joined.records.identity.cluster)]
    view = await joined.records.view()  # as it is after they answered: of two that start, at most one gives up what it has
    alone = held_alone(view, number, others=[other for other in up if other in view.members and not view.members[other].unreadable])
    if alone or aside.exists():
        log.error("unreadable_kept alone=%d set_aside_before=%s", len(alone), aside.exists())
        return
    raise CorruptData(where=str(given.config.data / STORE), why="a damaged file was met in it")


async def _come_back(given: Entrance, joined: _Joined, damage: CorruptData | LostDisk, *, is_open: bool) -> Entered:
    """Be another incarnation, with what is left of a store that `is_open` says opens, or with none."""
    config, home = given.config, given.home
    is_open = is_open or bool(await _check_others(given, joined, damage) and await _opens(given, joined))
    if not is_open:
        _check_aside(config.data)
    again = await _join(given, _token(given), cluster=joined.records.identity.cluster)
    alone = await _check_others(given, again, damage)  # once more: two that look at each other in one moment both see it now
    log.error("data_lost where=%s why=%s kept=%s alone=%d", damage.where, damage.why, is_open, len(alone))
    if is_open:
        home.become(again.records.remember(), keeps_store=True)
        store = await _open_store(given, again, must_exist=True)
        keyed = [found.record.id for found in again.book.caches.values() if found.record.options.state]
        try:
            segments = await asyncio.to_thread(cut_faulty if alone else drop_faulty, store, keyed=keyed)
        except CorruptData as error:
            away = f"move {config.data / STORE} away and give --accept-data-loss again, which keeps nothing of it"
            raise CorruptData(where=error.where, why=f"{error.why}; if there is no better copy of the directory, {away}") from error
        finally:
            await asyncio.to_thread(store.close)
        log.error("segments_%s segments=%s", "cut" if alone else "dropped", segments)
    else:
        await asyncio.to_thread(_set_aside, config.data)
        home.become(again.records.remember(), keeps_store=False)
    try:
        return await _open(given, again, must_exist=is_open)
    except _Faulty as faulty:
        raise faulty.refusal from None


async def _opens(given: Entrance, joined: _Joined) -> bool:
    """Return whether a store that is older than it was opens as it is, and have it be all that there is."""
    try:
        store = await _open_store(given, joined, must_exist=True, accepts_loss=True)
    except (CorruptData, LostDisk):
        return False
    await asyncio.to_thread(store.close)
    return True


async def _check_others(given: Entrance, joined: _Joined, damage: CorruptData | LostDisk) -> list[int]:
    """Return the segments that nobody else holds; raise the damage, with what to do, unless their loss is accepted."""
    alone = held_alone(await joined.records.view(), joined.member.number)
    if not alone or given.config.accept_data_loss:
        return alone
    which = f"segments {alone[0]} to {alone[-1]}" if len(alone) > 1 else f"segment {alone[0]}"
    why = (
        f"{damage.why}; no other node holds {which}: 'eventlog admin check --data {given.config.data}' says what is damaged, "
        "'eventlog serve --accept-data-loss' goes on with what is left"
    )
    raise type(damage)(where=damage.where, why=why)


def _check_aside(data: Path) -> None:
    """Refuse to set a second store aside; where the first is and none is left, a process ended in between."""
    aside = data / SET_ASIDE
    if aside.exists() and _has_store(data):
        why = f"a store was set aside before, in {aside}; look at the disk, then remove that"
        raise OperationRefused(what="setting a damaged store aside", why=why)


def _set_aside(data: Path) -> None:
    """Move the store out of the way, if there is one; nothing of it is deleted."""
    if _has_store(data):
        (data / STORE).rename(data / SET_ASIDE)
        sync_path(data)
        log.error("store_set_aside path=%s", data / SET_ASIDE)


def _has_store(data: Path) -> bool:
    """Return whether there is a store, whole or not; where one was looked for in vain, the folder for it is there."""
    return Directory(data / STORE).store.exists()


def _token(given: Entrance) -> str:
    return given.entropy.token(8).hex()


# ---------------------------------------------------------------- the store


async def _open_store(given: Entrance, joined: _Joined, *, must_exist: bool, accepts_loss: bool = False) -> Store:
    config, member, identity = given.config, joined.member, joined.records.identity
    owner = Identity(cluster=identity.cluster, node=member.number, incarnation=given.home.store_of(member.incarnation))
    options = StoreOptions(identity=owner, must_exist=must_exist, accepts_loss=accepts_loss)
    engine = given.engine or _engine_named(config.storage)
    opened: Store = await asyncio.to_thread(engine, config.data / STORE, segments=identity.segments, options=options)
    return opened


def _engine_named(name: str) -> Engine:
    engines = entry_points(group="eventlog.storage", name=name)
    if not engines:
        raise BadConfig(option="storage", why=f"there is no storage engine {name!r}")
    engine: Engine = next(iter(engines)).load()
    return engine


def _recover(store: Store, book: CacheBook, *, acknowledged: int) -> tuple[Caches, Recovery]:
    """Return the caches as the log has them, and where it ends; what is left of caches that are not in the book is dropped.

    That may be their state alone: it is deleted without the journal.

    Raises:
        _Faulty: segments are not what they must be.
        CorruptData: so it is with the whole store.
    """
    caches = Caches()
    caches.remember_dropped(book.dropped)
    for record in (versioned.record for versioned in book.caches.values()):
        caches.add(new_cache(cache_id=record.id, name=record.name, options=record.options, from_id=record.from_id, segments=store.segments))
    if dropped := drop_partial(store, [cache.cache_id for cache in caches]):
        log.info("dropped_partial segments=%d", len(dropped))
    found = recover(store, keyed=[cache.cache_id for cache in caches if cache.options.state], acknowledged=acknowledged)
    if found.faults:
        raise _Faulty(found)
    for cache in caches:
        if (own := found.caches.get(cache.cache_id)) is not None:
            cache.next_offsets[:] = own.next_offsets
            cache.trimmed_ids[:], cache.trimmed_offsets[:] = own.trimmed_ids, own.trimmed_offsets
            cache.removed_ids[:] = own.trimmed_ids
        load_counts(store, cache, marks=found.marks)
    for cache_id in sorted({*found.caches, *counted_caches(store)} - {cache.cache_id for cache in caches} - {MARKER_CACHE}):
        log.info("dropping_unknown cache=%d", cache_id)
        drop_cache_data(store, cache_id, ends=found.ends)
    store.settle(found.ends)
    return caches, found
