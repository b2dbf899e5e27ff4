"""The write road's shell: takes waiting frames as one group, calls the cores in order, and lets everyone know of the commit.

One group is in flight; what arrives meanwhile becomes the next, so load makes groups larger, not queues longer. A commit is one
step on the loop: the watermark moves, the clients are answered, entries enter the overlay, readers see both.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from eventlog.batch.check import BadBlocks, Bounds
from eventlog.batch.entries import decode_entry
from eventlog.batch.stored import ids_needed, make_values
from eventlog.consume.groups import CacheValues, CommittedGroup
from eventlog.errors import BadBlock, CacheDropped, ClockAhead, EventLogError, MetadataUnavailable, NotPrimary, OutcomeUnknown, SequenceGap
from eventlog.ids import EPOCH_MS, ID_STEP, FlakeClock
from eventlog.interceptor import INTERCEPTORS, Share, admit, lay_out, plan_reads
from eventlog.interceptor.producers import Verdict
from eventlog.limits import OVERLAY_BYTES_MAX, REQUEST_TIMEOUT_MS_DEFAULT
from eventlog.node.apply import Change, changes_of
from eventlog.node.groups import Joined, Pending, Queue, WriteResult, join_frames
from eventlog.node.overlay import Overlay
from eventlog.node.replicate import Flight, Replicas
from eventlog.node.replicate_body import group_values
from eventlog.node.results import Part, answer_frames, record_producers
from eventlog.node.storage import Append, StorageThread
from eventlog.segment.keys import encode_step, entry_prefix, log_keys
from eventlog.segment.port import Pair, Store

Ints = npt.NDArray[np.int64]
_WAIT_MS = 20
_EVENTS_WORTH_OVERLAP = 256  # fewer are settled after the sync: the storage thread would wait for the GIL before it could begin


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterHooks:
    """Whom the writer tells, each in the same step as what it tells: ids stamped for segments, segments committed, the group.

    `steps` indexes a group by id and returns the rows to keep, (cache, last id, events, bytes).
    """

    steps: Callable[[int, int, int, int], list[tuple[int, int, int, int]]]
    stamped: Callable[[Ints, int, int], None]
    committed: Callable[[Ints, Ints], None]
    visible: Callable[[CommittedGroup], None]


class Writer:
    """Takes frames in with `submit`; `run` is the one task that writes them."""

    def __init__(
        self,
        *,
        store: Store,
        storage: StorageThread,
        replicas: Replicas,
        clock: FlakeClock,
        overlay: Overlay,
        bounds: Bounds,
        hooks: WriterHooks,
        wait_ms_max: int = REQUEST_TIMEOUT_MS_DEFAULT,
    ) -> None:
        self.queue = Queue()
        self._store = store
        self._storage = storage
        self._replicas = replicas
        self._core = replicas.core
        self._clock = clock
        self._overlay = overlay
        self._bounds = bounds
        self._hooks = hooks
        self.wait_ms_max = wait_ms_max  # how long a group waits for ids
        self._wake = asyncio.Event()
        self.exclusive = asyncio.Lock()  # held while a group is written; who holds it sees no group in flight
        self._applying: asyncio.Future[None] | None = None
        self._has_ended = False
        self.groups = 0
        self.frames = 0
        self.events = 0

    def submit(self, pending: Pending) -> None:
        """Queue a frame for the next group."""
        self.queue.put(pending)
        self._wake.set()

    def wake(self) -> None:
        """Look again at what waits: another set of segments is led."""
        self._wake.set()

    async def run(self) -> None:
        """Write groups until cancelled; a group in flight is finished first by `drain`."""
        try:
            while True:
                if not self.queue:
                    self._wake.clear()
                    await self._wake.wait()
                    await asyncio.sleep(0)  # what else arrived in this tick belongs to the same group
                async with self.exclusive:
                    await self.write_group(self.queue.take())
        finally:
            self._has_ended = True

    async def write_group(self, frames: list[Pending]) -> None:
        """Write frames as one group and answer them."""
        await self._room_in_overlay()
        if not self._replicas.serving.all():
            frames = self._refuse_elsewhere(frames)
        by_cache: dict[int, list[Pending]] = {}
        for pending in frames:
            by_cache.setdefault(pending.cache.cache_id, []).append(pending)
        now = self._clock.physical_ms() - EPOCH_MS
        parts = [part for own in by_cache.values() if (part := await self._prepare(own, now=now)) is not None]
        parts = [part for part in parts if not self._answered_at_once(part)]
        if not parts:
            return
        try:
            base = await self._ids(sum(ids_needed(part.stamped.sections) for part in parts))
            group = self._stamp(parts, base)
        except EventLogError as error:
            for part in parts:
                self._refuse_share(part.waiting, part.share, error)
            return
        await self._append(parts, group)

    async def drain(self) -> None:
        """Wait until nothing is queued or in flight, or `run` has failed, and what was committed is in the store.

        A group that waits for nodes that do not come back is given up after a while: nobody was told that it is written.
        """
        deadline = time.monotonic() + self.wait_ms_max / 1000
        while (self.queue or self.exclusive.locked()) and not self._has_ended and time.monotonic() < deadline:  # noqa: ASYNC110 -- once in a life; an event would cost every group something
            await asyncio.sleep(0.001)
        if self._applying is not None:
            await self._applying

    async def _prepare(self, frames: list[Pending], *, now: int) -> Part | None:
        """Run admission and the interceptors over the frames of one cache; None when nothing of them is left."""
        cache = frames[0].cache
        if cache.dropped:
            _refuse(frames, CacheDropped(cache=cache.name))
            return None
        joined, share = self._admit(frames, now=now)
        if joined is None or share is None:
            return None
        verdict = cache.producers.sort_out(share, joined.blocks)
        wanted = plan_reads(share)
        try:
            if wanted:
                await self._read_entries(share, wanted)
        except EventLogError as error:  # a damaged entry: nothing can be said about its key, the node serves the others
            self._refuse_share(joined.frames, share, error)
            return None
        postponed = self._postpone(joined, share, verdict) if verdict.deferred else frozenset()
        for intercept in INTERCEPTORS:
            intercept(share)
        return Part(joined=joined, share=share, verdict=verdict, postponed=postponed, stamped=lay_out(share))

    def _refuse_elsewhere(self, frames: list[Pending]) -> list[Pending]:
        """Refuse frames with blocks of segments that are not served here; return the others."""
        serving = self._replicas.serving
        good = []
        for pending in frames:
            segments = pending.table["segment"]
            known = segments[segments < len(serving)]
            elsewhere = known[~serving[known]]
            if len(elsewhere):
                pending.done(NotPrimary(segment=int(elsewhere[0])))
            else:
                good.append(pending)
        return good

    def _refuse_share(self, frames: list[Pending], share: Share, error: EventLogError) -> None:
        frames[0].cache.producers.give_back(share)
        _refuse(frames, error)

    def _postpone(self, joined: Joined, share: Share, verdict: Verdict) -> frozenset[int]:
        """Put frames that repeat a frame of this very group in front of the queue; the next group answers them."""
        postponed = set()
        for index, (low, high) in enumerate(pairwise(joined.blocks)):
            late = verdict.deferred & set(range(low, high))
            if late and not share.live[low:high].any():
                postponed.add(index)
                continue
            for block in late:
                segment, sequence = int(joined.submitted.segments[block]), int(joined.submitted.sequences[block])
                producer = int(joined.submitted.producers[block])
                share.refuse(block, SequenceGap(producer=producer, segment=segment, found=sequence, last=sequence))
        self.queue.put_back(joined.frames[index] for index in sorted(postponed))
        return frozenset(postponed)

    def _admit(self, frames: list[Pending], *, now: int) -> tuple[Joined | None, Share | None]:
        """Check all blocks in one pass; frames with bad ones are refused and the rest is checked again."""
        cache = frames[0].cache
        while frames:
            joined = join_frames(frames, now=now)
            try:
                return joined, admit(joined.submitted, rules=cache.rules, table=cache.keys, bounds=self._bounds)
            except BadBlocks as error:
                frames = _refuse_bad(joined, error)
        return None, None

    async def _read_entries(self, share: Share, wanted: dict[bytes, int]) -> None:
        cache_id = share.rules.cache_id
        prefixes = {segment: entry_prefix(segment, cache_id) for segment in set(wanted.values())}
        keys = [prefixes[segment] + key for key, segment in wanted.items()]
        found, missing = self._overlay.find(keys)
        if missing:
            stored = await self._storage.run(partial(self._store.get_many, missing))
            found.update(zip(missing, stored, strict=True))
        where = f"cache {cache_id}"
        entries = [None if (data := found[key]) is None else decode_entry(data, where=where) for key in keys]
        share.entries.update(zip(wanted, entries, strict=True))

    def _answered_at_once(self, part: Part) -> bool:
        """Answer what leaves nothing in the log: repeated frames, refused ones, removals of nothing."""
        if len(part.stamped.sections.segments):
            return False
        answer_frames(part)
        return True

    async def _ids(self, count: int) -> int:
        """Return the base of a run of ids; waits while ids run too far ahead of the clock or the lease is being renewed."""
        for _ in range(self.wait_ms_max // _WAIT_MS):
            try:
                return self._clock.next(count)
            except (ClockAhead, MetadataUnavailable):
                await asyncio.sleep(_WAIT_MS / 1000)
        return self._clock.next(count)

    def _stamp(self, parts: list[Part], base: int) -> "_Group":
        """Give ids, register the group as in flight, and send it, in one step.

        Raises:
            NotPrimary, NotEnoughReplicas: nothing of it was registered.
        """
        for part in parts:
            cache = part.cache
            values = make_values(
                part.stamped.sections, base=base, epochs=self._core.epochs, next_offsets=cache.next_offsets, seeds=cache.seeds
            )
            part.values = values
            base = values.last_id + ID_STEP
        group = _Group(parts=parts, done=asyncio.get_running_loop().create_future())
        values_of_all = group_values([(part.cache.cache_id, part.stored) for part in parts])
        group.flight = self._replicas.append(values_of_all, partial(self._settled, group))
        for part in parts:
            self._hooks.stamped(part.stored.segments, int(part.stored.bases[0]), part.stored.last_id)
        return group

    async def _append(self, parts: list[Part], group: "_Group") -> None:
        log: list[Pair] = []
        meta: list[Pair] = []
        for part in parts:
            values, cache = part.stored, part.cache
            log += zip(log_keys(values.segments.tolist(), cache.cache_id, values.bases.tolist()), values.data, strict=True)
            rows = self._hooks.steps(cache.cache_id, values.last_id, int(values.counts.sum()), values.nbytes)
            meta += [encode_step(*row) for row in rows]
        written = self._storage.append(_append_of(parts, log, meta, epochs=self._core.epochs))
        if sum(part.stamped.events for part in parts) >= _EVENTS_WORTH_OVERLAP:
            group.changes = [changes_of(part) for part in parts]
        try:
            await written
        except EventLogError as error:
            _leave_unknown(parts, str(error))
            raise
        assert group.flight is not None, "stamped"
        self._replicas.written(group.flight)
        await group.done

    async def _room_in_overlay(self) -> None:
        while self._overlay.nbytes > OVERLAY_BYTES_MAX and self._applying is not None:
            await self._applying

    def _settled(self, group: "_Group", flight: Flight) -> None:
        """The group is committed, or some of its segments are led by others now: of those nobody here knows what became."""
        if flight.lost:
            lost = min(flight.lost)
            _leave_unknown(group.parts, f"segment {lost} is led by another node now")
            self._replicas.abandon(flight)
        else:
            self._commit(group.parts)
            self._settle(group.parts, group.changes or [changes_of(part) for part in group.parts])
        group.flight = None  # they hold each other, and all values of the group: no collector comes by for long
        if not group.done.done():
            group.done.set_result(None)

    def _commit(self, parts: list[Part]) -> None:
        """Answer a committed group; `_settle` follows in the same step, when the answers are on their way."""
        for part in parts:
            answer_frames(part)
        for send in {pending.send for part in parts for pending in part.joined.frames if pending.send is not None}:
            send()

    def _settle(self, parts: list[Part], changes: list[Change]) -> None:
        """Make a committed group visible, and remember what repeated frames are answered with."""
        caches = []
        for part, change in zip(parts, changes, strict=True):
            values, cache = part.stored, part.cache
            self._hooks.committed(values.segments, values.last_ids)
            change.commit(cache, values)
            record_producers(part)
            if change.layer:
                self._overlay.push(change.layer, change.nbytes)
            caches.append(
                CacheValues(
                    cache_id=cache.cache_id,
                    segments=values.segments.tolist(),
                    bases=values.bases.tolist(),
                    counts=values.counts.tolist(),
                    data=values.data,
                )
            )
            self.events += part.stamped.events
        self.groups += 1
        self.frames += sum(len(part.joined.frames) for part in parts)
        first_id, last_id = int(parts[0].stored.bases[0]), parts[-1].stored.last_id
        self._hooks.visible(CommittedGroup(first_id=first_id, last_id=last_id, caches=tuple(caches)))
        self._apply([change for change in changes if change.layer])

    def _apply(self, changes: list[Change]) -> None:
        """Hand committed entries to the storage thread; their layers go when the store holds them."""
        puts: list[tuple[bytes, bytes | None]] = []
        for change in changes:
            puts += change.layer.items()
            puts += change.expiries
        if not puts:
            return
        # vital: a state that misses committed entries must never get a mark that says otherwise
        self._applying = self._storage.run(partial(self._store.apply, puts), is_vital=True)
        self._applying.add_done_callback(partial(self._applied, len(changes)))

    def _applied(self, layers: int, done: "asyncio.Future[None]") -> None:
        if done.cancelled() or done.exception() is not None:
            return  # the storage thread fenced itself or is gone; the layers stay, so that readers keep seeing them
        for _ in range(layers):
            self._overlay.pop_oldest()


@dataclass(slots=True, kw_only=True, eq=False)
class _Group:
    """A group between its stamp and its end; `changes` are empty until there was time to make them."""

    parts: list[Part]
    done: "asyncio.Future[None]"
    flight: Flight | None = None
    changes: list[Change] = field(default_factory=list)


def _leave_unknown(parts: list[Part], why: str) -> None:
    for part in parts:
        _refuse(part.waiting, OutcomeUnknown(why=why, outcome="unknown"))


def _append_of(parts: list[Part], log: list[Pair], meta: list[Pair], *, epochs: npt.NDArray[np.uint32]) -> Append:
    values = [part.stored for part in parts]
    segments, ends = values[0].segments, values[0].last_ids
    if len(values) > 1:  # ids rise from part to part: of a segment's ends the last counts
        segments = np.concatenate([own.segments for own in values])
        ends = np.concatenate([own.last_ids for own in values])
    nbytes = sum(own.nbytes for own in values)
    return Append(log=log, meta=meta, segments=segments, ends=ends, epochs=epochs[segments], nbytes=nbytes)


def _refuse(frames: list[Pending], error: EventLogError) -> None:
    for pending in frames:
        pending.done(error)


def _refuse_bad(joined: Joined, error: BadBlocks) -> list[Pending]:
    """Refuse the frames that hold bad blocks; return the others."""
    found = dict(error.found)
    good = []
    for index, pending in enumerate(joined.frames):
        bad = next((block for block in range(joined.blocks[index], joined.blocks[index + 1]) if block in found), None)
        if bad is None:
            good.append(pending)
            continue
        pending.done(BadBlock(segment=int(joined.submitted.segments[bad]), block=bad - joined.blocks[index], why=found[bad]))
    return good


__all__ = ["Pending", "WriteResult", "Writer", "WriterHooks"]
