"""Segments that this node begins to lead, or leads no more, while it runs.

A term begins with a marker, the first id of its epoch, above the segment's floor. When the whole in-sync set has it the tail is
adopted; the state is brought up to there, and then the segment is served. A term ends at once: nothing is stamped or promised any
more, and what is in flight has an unknown outcome.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, Protocol

import numpy as np

from eventlog.arrays import NONE, Ints
from eventlog.batch.layout import ValueHead, encode_value
from eventlog.control.cluster import ClusterRecords
from eventlog.errors import ClockAhead, CorruptData, EventLogError, MetadataConflict, MetadataLost, MetadataUnavailable
from eventlog.ids import ID_STEP, FlakeClock
from eventlog.limits import KEY_INDEX_BYTES_MAX
from eventlog.node.background import aside
from eventlog.node.cluster.metadata import NodeLease
from eventlog.node.copying.mending import Mending
from eventlog.node.copying.replicate import Replicas
from eventlog.node.copying.replicate_in import IncomingAppends, Tally
from eventlog.node.reading.answers import Reads
from eventlog.node.state.checkpoint import Checkpoints
from eventlog.node.state.following import Followed
from eventlog.node.state.keys_build import build_key_table
from eventlog.node.writing.storage import Append, StorageThread
from eventlog.node.writing.writer import NodeWriter
from eventlog.read.watermark import LowWatermark, Promises
from eventlog.replication import commands as asked
from eventlog.replication.bodies import Carried, values_from
from eventlog.segment.cutting import delete_segments
from eventlog.segment.keys import encode_epoch, log_key, partial_range
from eventlog.segment.port import Store
from eventlog.state.caches import Caches, CacheState
from eventlog.state.replay import MARKER_CACHE

log = logging.getLogger("eventlog.node")
_AGAIN_MS = 20
_STORE_AGAIN_MS = 200
_TABLE_BYTES_A_KEY = 32


class CopyTurns(Protocol):
    """Steps of copies that are being installed."""

    def turns(self, segments: Iterable[int]) -> AbstractAsyncContextManager[None]:
        """Wait until no step of a copy of `segments` is under way, and hold off the next."""
        ...


class TakeOverGround(Protocol):
    """What this module needs of the node."""

    incoming: IncomingAppends
    store: Store
    clock: FlakeClock
    caches: Caches
    promises: Promises
    low: LowWatermark
    storage: StorageThread
    writer: NodeWriter
    records: ClusterRecords
    followed: Followed
    checkpoints: Checkpoints
    is_stopping: bool
    mending: Mending
    reads: Reads
    lease: NodeLease

    @property
    def copies(self) -> CopyTurns: ...

    def own(self, task: "asyncio.Task[Any]") -> None: ...

    def fatal(self, error: EventLogError) -> None: ...


class TakeOver:
    """The primary's terms: their begin and their end."""

    def __init__(self, node: TakeOverGround, replicas: Replicas) -> None:
        self._replicas = replicas
        self._node = node
        self._core = replicas.core
        self.serving = replicas.serving
        self._changed = asyncio.Event()
        self._tally = Tally(of=lambda: int(self.serving.sum()))

    def commands(self) -> dict[type, Callable[..., None]]:
        """Return what is carried out here."""
        return {
            asked.Mark: self._mark,
            asked.Lead: self._lead,
            asked.Resign: self._resign,
            asked.Recheck: self._recheck,
            asked.Release: self._release,
        }

    async def served(self, segments: Ints, *, wait_ms: int) -> bool:
        """Return whether all of `segments` are served; wait for it, but not longer than `wait_ms`, and not for one whose term is over."""
        led = self._core.leads[segments]
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while not (self.serving[segments] | (led & ~self._core.leads[segments])).all():
                    await self._changed.wait()
                    led |= self._core.leads[segments]
        except TimeoutError:
            pass
        return bool(self.serving[segments].all())

    # ------------------------------------------------------------ a term begins

    def _mark(self, mark: asked.Mark) -> None:
        self._node.own(asyncio.create_task(self._stamp_markers(mark), name="mark"))

    async def _stamp_markers(self, mark: asked.Mark) -> None:
        """Stamp one id a segment, and write and send the markers of those that are still this node's to lead."""
        segments = np.array(sorted(mark.segments), np.int64)
        base = await self._ids(segments)
        epoch_of = dict(zip(mark.segments, mark.epochs, strict=True))
        segments = segments[self._core.epochs[segments] == [epoch_of[segment] for segment in segments.tolist()]]
        segments = self._still_led(segments)
        if not len(segments):
            return
        ids = base + np.arange(len(segments)) * ID_STEP
        epochs = self._core.epochs[segments]
        values = [_marker(*row) for row in zip(segments.tolist(), ids.tolist(), epochs.tolist(), strict=True)]
        commands = self._core.mark(segments, ids, now_ms=self._replicas.now_ms)
        carried = Carried(caches=[MARKER_CACHE] * len(values), data=values, bounds=range(len(values) + 1))
        at = np.flatnonzero(np.isin(segments, self._core.marked))
        starts = [(int(segments[row]), self._core.history(int(segments[row]))[-1]) for row in at.tolist()]
        append = Append(
            log=[(log_key(int(segments[row]), MARKER_CACHE, int(ids[row])), values[row]) for row in at.tolist()],
            meta=[encode_epoch(segment, start.epoch, start.first, previous=start.previous) for segment, start in starts],
            segments=segments[at],
            ends=ids[at],
            epochs=epochs[at],
            nbytes=sum(len(values[row]) for row in at.tolist()),
        )
        self._count("taking_over", len(at))
        written = self._node.storage.append(append)
        self._replicas.carry_out(commands, carried)
        try:
            await written
        except EventLogError as error:
            self._node.fatal(error)
            return
        self._node.followed.keep(values_from(segments[at], [MARKER_CACHE] * len(at), [values[row] for row in at.tolist()]))
        self._replicas.carry_out(self._core.written(segments[at], ids[at]))

    def _still_led(self, segments: Ints) -> Ints:
        """Return those of `segments` whose terms here are not over; from now on their loss is noticed."""
        epochs = self._core.epochs[segments]
        lost = self._node.records.lead(dict(zip(segments.tolist(), epochs.tolist(), strict=True)))
        if lost:
            log.warning("term_over segments=%d", len(lost))
        return segments[~np.isin(segments, list(lost))]

    async def _ids(self, segments: Ints) -> int:
        """Return the base of a run of ids above the floors of `segments`; the lease is raised above them first where it has to be."""
        node = self._node
        while True:
            floor = max(self._replicas.floor(segment) for segment in segments.tolist())
            node.clock.raise_above(max(floor, int(self._core.ends[segments].max(initial=0))))
            try:
                return node.clock.next(len(segments))
            except (ClockAhead, MetadataUnavailable):
                # Without metadata nobody leads, and everybody reads on. Conflicts: many segments given to this node one by one,
                # as by force-primary, change its record faster than it reads it again.
                with suppress(MetadataUnavailable, MetadataLost, MetadataConflict):
                    await node.lease.renew()
                await asyncio.sleep(_AGAIN_MS / 1000)

    def _lead(self, lead: asked.Lead) -> None:
        segments, followed = lead.segments, self._node.followed
        behind = followed.learned(segments, self._core.watermark[segments])
        if len(behind):
            self._node.own(asyncio.create_task(self._lead_later(segments, behind), name="take_over"))
        else:
            self._serve(segments)

    async def _lead_later(self, segments: Ints, behind: Ints) -> None:
        await self._node.followed.catch_up(behind)
        self._serve(segments)

    def _serve(self, segments: Ints) -> None:
        """Begin to serve those of `segments` that are still led and whose state is where their log is."""
        node, core = self._node, self._core
        ready = segments[core.adopted[segments] & (node.followed.applied[segments] >= core.watermark[segments])]
        ready = self._still_led(ready)  # the lease may have told of its loss while the marker was on its way
        if not len(ready):
            return
        node.promises.lead(ready, epochs=core.epochs[ready].astype(np.int64), last_ids=core.watermark[ready])
        node.low.hold(ready, core.watermark[ready])
        self.rebuild_keys(ready)
        self.serving[ready] = True
        self._replicas.shortage.mark()
        self._count("leading", len(ready))
        self._tell()
        node.writer.wake()

    def rebuild_keys(self, segments: Ints) -> None:
        """Build key tables anew, beside the first writes: what they knew of these segments may be of an earlier term."""
        node = self._node
        for cache in node.caches:
            may_know_more = cache.building is not None or (cache.keys is not None and cache.keys.size > 0)
            if not cache.options.state or not (may_know_more or cache.live[segments].any()):
                continue
            cache.keys = None
            cache.building = []  # from this step on: what is committed before the scan begins
            node.own(asyncio.create_task(self._build_keys(cache), name="key_table"))

    async def _build_keys(self, cache: CacheState) -> None:
        node = self._node
        changes = cache.building
        await node.storage.run(_nothing)  # the scan must find what was handed to the storage thread so far
        if cache.building is changes and not cache.dropped:
            keys_max = KEY_INDEX_BYTES_MAX // _TABLE_BYTES_A_KEY
            try:
                await build_key_table(
                    node.store, cache, keys_max=keys_max, is_stopping=lambda: node.is_stopping or cache.building is not changes
                )  # begun anew: segments come one by one, and a scan for each of them would keep all processors busy
            except CorruptData as error:
                log.error("no_key_table cache=%s error=%s", cache.name, error)  # noqa: TRY400 -- it is looked up in the store
                cache.building = None if cache.building is changes else cache.building
                node.mending.leave()

    # ------------------------------------------------------------ a term ends

    def _resign(self, resign: asked.Resign) -> None:
        self.stop(resign.segments.tolist())

    def stop(self, segments: Iterable[int]) -> None:
        """Stamp and promise nothing for `segments` any more, from this step on."""
        lost = frozenset(segments)
        at = np.array(sorted(lost), np.int64)
        self.serving[at] = False
        self._replicas.shortage.mark()
        self._node.promises.resign(at)
        self._node.followed.take_up(at)
        for cache in self._node.caches:
            cache.producers.rewind(at)
        self._node.records.resign(lost)
        self._replicas.settle(lost)
        self._replicas.shortage.forget(lost)
        self._count("resigned", len(at))
        self._tell()
        self._node.writer.wake()

    def _count(self, event: str, segments: int) -> None:
        self._tally.add(event, segments)

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # ------------------------------------------------------------ a replica ends

    def _recheck(self, recheck: asked.Recheck) -> None:
        self._node.own(asyncio.create_task(self._read_anew(recheck.segments), name="recheck"))

    async def _read_anew(self, segments: Sequence[int]) -> None:
        """Read the records of segments from the store, however long it does not answer: until then their replicas rest."""
        left = set(segments)
        while left:
            with suppress(MetadataUnavailable, MetadataLost, MetadataConflict):
                found = await self._node.records.segments_now(sorted(left))
                self._replicas.learn_now(found.values())
                left -= found.keys()
            if left:
                await asyncio.sleep(_STORE_AGAIN_MS / 1000)
        self._replicas.carry_out(self._core.rechecked(segments))

    def _release(self, release: asked.Release) -> None:
        self._node.own(asyncio.create_task(self._give_back(list(release.segments)), name="release"))

    async def _give_back(self, segments: list[int]) -> None:
        await self.discard(segments)
        self._count("released", len(segments))
        self._core.discarded(np.array(segments))

    async def discard(self, segments: list[int]) -> None:
        """Delete everything stored of `segments`, and forget what is known of it, when no step of a copy of them is under way.

        Such a step would go on from what it had read before, and make the segment look whole.
        """
        node = self._node
        async with self._node.copies.turns(segments):
            await self.empty(segments)
            await node.checkpoints.write()
            await aside(node.store.flush_state)
            gone = [partial_range(segment) for segment in segments]
            await node.storage.run(partial(node.store.trim, [], [], meta_ranges=gone))

    async def empty(self, segments: list[int]) -> None:
        """Do what `discard` does, but for the mark that says that they are not whole: a copy is to follow, whose step this is."""
        node = self._node
        self._node.incoming.follow_late()
        for cache in node.caches:
            cache.forget(segments)
        at = np.array(segments)
        node.low.drop(at)
        node.reads.files.clear()
        passed = int(max(self._core.ends[at].max(), node.followed.applied[at].max()))
        node.reads.learned(NONE, NONE, groups=(), skipped=passed)  # what comes again does not come through the tail
        for segment in segments:
            node.followed.restart(segment, 0)
        caches = [cache.cache_id for cache in node.caches]
        reached = int(self._core.ends[at].max(initial=0))
        delete = partial(delete_segments, node.store, segments, caches, reached=reached)
        await node.storage.forget(segments, delete=delete)


def _nothing() -> None:
    """Be a job, to wait for the ones before it."""


def _marker(segment: int, id_: int, epoch: int) -> bytes:
    head = ValueHead(flags=0, sections=0, epoch=epoch, count=0, bitmap=0, kinds=0, producers=0, base=id_, first_offset=0)
    return encode_value(head, segment=segment, cache=MARKER_CACHE, sections=[])
