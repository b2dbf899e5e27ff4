"""What this node knows of the cluster and holds in it: one view a revision, its lease of ids, and a copy of the records.

A revision is applied in one step: caches first, then members and segments with all that asked to be told. A node that commits tells
its peers which revision that was, so that they look at once and not when their store's watch gets to it. The copy lies in the data
directory: from it a lost metadata store can be made again.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec

from eventlog.control.cluster import ClusterRecords
from eventlog.control.metastore import MetaStore
from eventlog.control.metastores.resolving import WRITER_PREFIX
from eventlog.control.rebuilding import encode_kept
from eventlog.control.records import CACHES_SCOPE, IDENTITY_KEY, NODE_PREFIX, NodeRecord
from eventlog.control.view import ClusterView
from eventlog.errors import ConnectionLost, EventLogError, MemberReplaced, MetadataLost, MetadataUnavailable, Overloaded, Unavailable
from eventlog.node.background import attempt
from eventlog.node.cluster.peers import Peers
from eventlog.node.home import Home
from eventlog.replication import Replication
from eventlog.segment.port import Store
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.session import Reply

log = logging.getLogger("eventlog.node")
_AGAIN_MS = 200
_OF_ONE_NODE = (NODE_PREFIX, WRITER_PREFIX)  # what the renewal of a lease writes
SPREAD_MS_MAX = 1_000  # how long a change waits for the other nodes to have seen it


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepingTimes:
    """When a copy of the records is written."""

    pause_ms: int = 1_000  # changes come in crowds
    leases_ms: int = 10_000  # how old a lease may be in the copy: it is renewed all the time, and a rebuilt one is raised above any id


KEEPING_TIMES = KeepingTimes()


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewChange:
    """A new view and what is different in it: the segments whose records changed, and whether any member's did, its lease left out.

    `steering`: whether settings, controller, a rebalance or lost ranges did.
    """

    view: ClusterView
    segments: tuple[int, ...]
    members: bool
    steering: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where a view comes from: `read` lists it, `follow_caches` brings this node's caches up to date, `look` hurries the watch on."""

    read: Callable[[], Awaitable[ClusterView]]
    follow_caches: Callable[[], Awaitable[None]]
    look: Callable[[], None]


class Metadata:
    """The view of one node. `hooks` are called in their order with every change, and must not wait."""

    def __init__(self, store: MetaStore, *, view: ClusterView, sources: Sources, peers: Peers, again_ms: int = _AGAIN_MS) -> None:
        self.view = view
        self._again_ms = again_ms
        self.hooks: list[Callable[[ViewChange], None]] = []
        self._store = store
        self._sources = sources
        self._peers = peers
        self._revision = 0  # applied, whatever it was about
        self._moved = asyncio.Event()
        self.changed = asyncio.Event()  # set by whatever is more than the renewal of a lease; cleared by what keeps a copy of the records
        self._outage = ""  # why the store could not be followed, as it was logged last
        self._told = 0  # the last revision that the others were told of
        self._answers: set[asyncio.Future[Reply]] = set()
        peers.membership, peers.revision = self, max(peers.revision, view.revision)
        peers.hooks.beaten.append(self._heard)

    @property
    def revision(self) -> int:
        """Return the last revision that was applied."""
        return self._revision

    async def run(self) -> None:
        """Follow the store until cancelled."""
        while True:
            try:
                await self._follow()
            except LookupError:
                log.info("metadata_watch_behind revision=%d", self._revision)
            except (MetadataUnavailable, MetadataLost) as error:  # what was known goes on to hold
                if str(error) != self._outage:
                    log.warning("metadata_unavailable error=%s", error)
                self._outage = str(error)
                await asyncio.sleep(self._again_ms / 1000)

    async def _follow(self) -> None:
        view = _not_emptied(await self._sources.read())
        await self._sources.follow_caches()
        self._outage = ""
        self._apply(view, view.revision)
        async with aclosing(self._store.watch("", view.revision + 1)) as revisions:
            async for changes in revisions:
                view = _not_emptied(view.applied(changes))
                if any(change.key.startswith(CACHES_SCOPE) for change in changes.changes):
                    await self._sources.follow_caches()
                is_of_node = all(change.key.startswith(_OF_ONE_NODE) for change in changes.changes)
                self._apply(view, changes.revision, is_of_node=is_of_node)

    def _apply(self, view: ClusterView, revision: int, *, is_of_node: bool = False) -> None:
        before, self.view = self.view, view
        self._revision = max(self._revision, revision)
        change = difference(before, view)
        if not is_of_node or change.members:
            self._peers.revision = max(self._peers.revision, revision)
            self.changed.set()
        if view is not before:
            for hook in self.hooks:
                hook(change)
        if change.members or before.key is not view.key:
            self._peers.judge({number: member.incarnation for number, member in view.members.items()})
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    # ------------------------------------------------------------ membership

    @property
    def keys(self) -> tuple[bytes, ...]:
        """Return the cluster keys that are valid, the newest first."""
        return self.view.keys

    async def has_member(self, number: int, incarnation: str, *, revision: int) -> bool:
        """Return whether a number is a member's, with that incarnation; where it seems not to be, as of a later revision."""
        if not self._has(number, incarnation):
            await self.reached(revision)
        return self._has(number, incarnation)

    def _has(self, number: int, incarnation: str) -> bool:
        found = self.view.members.get(number)
        return found is not None and found.incarnation == incarnation

    # ------------------------------------------------------------ between members

    async def reached(self, revision: int, *, wait_ms: int = SPREAD_MS_MAX) -> bool:
        """Return whether a revision has been applied here; wait for it, but not longer than `wait_ms`."""
        if self._revision < revision:
            self._sources.look()
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while self._revision < revision:
                    await self._moved.wait()
        except TimeoutError:
            return False
        return True

    def committed(self, revision: int, keys: Collection[str]) -> None:
        """Tell the others of a commit of this process, unless it may be but the renewal of its lease: that nobody waits for."""
        if not all(key.startswith(NODE_PREFIX) for key in keys):
            self._tell(revision)

    def _tell(self, revision: int) -> None:
        self._told = max(self._told, revision)
        self._peers.revision = max(self._peers.revision, revision)
        for number in self._peers.incarnations:
            try:
                answer = self._peers.send(number, Message(see_revision=pb.SeeRevision(revision=revision)), timeout_ms=SPREAD_MS_MAX)
            except (ConnectionLost, Overloaded):
                continue  # it will see by itself
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)

    async def spread(self, revision: int = 0) -> None:
        """Wait until the connected members have seen what they were told of so far, and `revision` in any case, or time is up."""
        if self._told < revision:
            self._tell(revision)
        if self._answers:
            await asyncio.wait(set(self._answers), timeout=SPREAD_MS_MAX / 1000)

    def _heard(self, number: int, revision: int) -> None:
        if revision > self._revision:
            log.debug("metadata_behind number=%d revision=%d", number, revision)
            self._sources.look()


def _not_emptied(view: ClusterView) -> ClusterView:
    """Return a view that a cluster can have: its own reader is a member, of which something stays even when it is removed."""
    if not view.nodes:
        raise MetadataLost(where="its store", why="it holds no member any more")
    return view


def difference(before: ClusterView, after: ClusterView) -> ViewChange:
    """Return what is different between two views."""
    segments: tuple[int, ...] = ()
    if after.segments is not before.segments:
        old = before.segments
        changed = [number for number, found in after.segments.items() if number not in old or old[number].revision != found.revision]
        segments = (*sorted(changed), *sorted(set(old) - set(after.segments)))
    members = before.nodes.keys() != after.nodes.keys() or any(
        found is not before.nodes[number] and _without_lease(found.record) != _without_lease(before.nodes[number].record)
        for number, found in after.nodes.items()
    )
    names = ("settings", "controller", "rebalance", "lost")
    steering = any(getattr(before, name) is not getattr(after, name) for name in names)
    return ViewChange(view=after, segments=segments, members=members, steering=steering)


def _without_lease(record: NodeRecord) -> NodeRecord:
    return msgspec.structs.replace(record, ceiling=0, acknowledged=0)


async def keep_records(
    store: MetaStore, metadata: Metadata, home: Home, failures: Counter[str], *, times: KeepingTimes = KEEPING_TIMES
) -> None:
    """Write a copy a moment after each change, and now and then for leases. A disk that takes nothing costs the copy, not the node."""
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(times.leases_ms / 1000):
                await metadata.changed.wait()
        metadata.changed.clear()
        if not await attempt(partial(keep_now, store, home), name="records", failures=failures):
            metadata.changed.set()
        await asyncio.sleep(times.pause_ms / 1000)


async def keep_now(store: MetaStore, home: Home) -> None:
    """Write a copy. Raises Unavailable where there is nothing to be copied, or the disk takes nothing."""
    listing = await store.list("")
    if all(item.key != IDENTITY_KEY for item in listing.items):
        raise Unavailable(why="the copy of the metadata stays as it is: their store was emptied")
    copy = await asyncio.to_thread(encode_kept, listing)  # 100 ms for 4,096 segments
    try:
        await asyncio.to_thread(home.keep_records, copy)
    except OSError as error:
        raise Unavailable(why=f"the copy of the metadata was not written: {error}") from error


class Leading(Protocol):
    """What this node leads."""

    def stop(self, segments: Iterable[int]) -> None:
        """Stamp and promise nothing for `segments` any more."""
        ...


class LeaseGround(Protocol):
    """What the lease needs of the node."""

    core: Replication
    store: Store

    @property
    def takeover(self) -> Leading: ...


class NodeLease:
    """The lease in the metadata. One change of it at a time; holding `lock` keeps it from being renewed."""

    def __init__(self, node: LeaseGround, records: ClusterRecords, *, on_lost: Callable[[EventLogError], None]) -> None:
        self._node = node
        self._records = records
        self._on_lost = on_lost
        self.lock = asyncio.Lock()
        self.renewed_s = asyncio.get_running_loop().time()  # by the loop's clock
        self.failure: MetadataUnavailable | MetadataLost | None = None  # why it was not renewed the last time

    async def renew(self) -> None:
        """Renew it; what is another's now is led no more, and a node whose record is another's has nothing left to do."""
        node = self._node
        try:
            async with self.lock:
                await self._records.renew_lease(
                    on_lost=node.takeover.stop,
                    acknowledged=int(node.core.watermark.max()),
                    unreadable=bool(node.store.unreadable),
                )
                self.renewed_s, self.failure = asyncio.get_running_loop().time(), None
        except (MetadataUnavailable, MetadataLost) as error:
            self.failure = error
            raise
        except MemberReplaced as error:
            self._on_lost(error)

    async def give_back(self) -> None:
        """Have successors begin right above what was issued here, and not above all that might have been."""
        async with self.lock:
            await self._records.release(on_lost=self._node.takeover.stop, acknowledged=int(self._node.core.watermark.max()))
