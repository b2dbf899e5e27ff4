"""The write road's shell: takes waiting frames as a group, calls the cores in order, and lets everyone know of the commit.

A group is in flight from its stamp to its commit, one at a time in each segment: a frame waits while one of its segments has a group
in flight, and a group has segments that wait for the same replicas (a frame that spans others goes alone). So a backup that is silent
holds up nothing but what it shares. What arrives until the next groups begin (`pace.py`) goes together: load makes groups larger, not
queues longer. A commit is one step on the loop: the watermark moves, the clients are answered, entries enter the overlay, readers see both.

Most groups need nothing but the loop and pass in one step; `run` is the one task for those that have to read first, or wait for ids.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import starmap

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.check import BlockLimits
from eventlog.batch.stored import ids_needed, make_values
from eventlog.errors import ClockAhead, EventLogError, MetadataUnavailable, NotEnoughReplicas, NotPrimary, OutcomeUnknown
from eventlog.ids import EPOCH_MS, ID_STEP, FlakeClock
from eventlog.limits import OVERLAY_BYTES_MAX, REQUEST_TIMEOUT_MS_DEFAULT
from eventlog.node.copying.replicate import Flight, Replicas
from eventlog.node.writing.pace import Pace
from eventlog.node.writing.storage import Append, StorageThread
from eventlog.read.answer import CacheValues, CommittedGroup
from eventlog.read.watermark import Promises
from eventlog.replication.bodies import group_values
from eventlog.segment.keys import encode_step, log_key, log_keys
from eventlog.segment.port import Pair, Store
from eventlog.write.apply import StateChange, changes_of
from eventlog.write.drafts import Draft, Drafter, check_frame, refuse, refuse_share
from eventlog.write.few import Few, few_of
from eventlog.write.groups import CachePart, Pending, Queue, WriteResult, answer_frames, record_producers
from eventlog.write.overlay import Overlay

_WAIT_MS = 20
_GROUPS_A_TURN_MAX = 8  # the rest waits for these to be on disk; a turn must not hold the loop for long
_EVENTS_WORTH_OVERLAP = 256  # fewer are settled after the sync: the storage thread would wait for the GIL before it could begin
__all__ = ["NodeWriter", "Pending", "WriteResult", "WriterHooks"]
Steps = Callable[[int, int, int, int], list[tuple[int, int, int, int]]]
"""Indexes a group by id: takes and returns rows of (cache, last id, events, bytes), returns those to keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterHooks:
    """What the writer tells, each in the same step as what it tells of: a group that is stamped, and one that is committed."""

    steps: Steps
    visible: Callable[[CommittedGroup], None]


@dataclass(slots=True, kw_only=True, eq=False)
class _Group:
    """A group between its stamp and its end: its parts, or its `few` events. `changes` are empty until there was time to make them."""

    parts: list[CachePart]
    flight: Flight
    changes: list[StateChange] = field(default_factory=list)
    few: Few | None = None


class NodeWriter:
    """Takes frames in with `submit`. Owns the overlay's layers and the queue.

    A commit moves `applied` in its segments: of each, everything up to there is in the state.
    """

    def __init__(
        self,
        *,
        store: Store,
        storage: StorageThread,
        replicas: Replicas,
        clock: FlakeClock,
        overlay: Overlay,
        promises: Promises,
        applied: Ints,
        bounds: BlockLimits,
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
        self._promises = promises
        self._marks = applied
        self.bounds = bounds
        self._drafter = Drafter(overlay=overlay, store=store, bounds=bounds, put_back=self.queue.put_back)
        self._hooks = hooks
        self.wait_ms_max = wait_ms_max  # how long a group waits for ids
        self.look_ms = _WAIT_MS  # and how often it looks for them
        self._is_turn_due = False
        self._parts_ready: list[CachePart] | None = None  # ... if it waits for ids alone
        self._drafts: list[Draft] | None = None  # of the group that `run` makes ready
        self._epochs = replicas.core.epochs  # when that was begun
        self._needed = asyncio.Event()
        self._error: EventLogError | None = None
        self._pace = Pace(self.wake)
        self._stuck: set[int] = set()  # held in the queue by no group: something given up is in flight there
        self._has_ended = False
        self.groups = 0
        self.frames = 0
        self.events = 0

    @property
    def groups_in_flight(self) -> int:
        """Return how many groups are stamped and not committed."""
        return len(self._pace)

    def check(self, pending: Pending) -> None:
        """Look at a frame that is to be written later. Raises BadBlock, TooLarge: it would be refused."""
        check_frame(pending, bounds=self.bounds, now=self._clock.physical_ms() - EPOCH_MS)

    def submit(self, pending: Pending) -> None:
        """Queue a frame for the next group."""
        self.queue.put(pending)
        self.wake()

    def wake(self) -> None:
        """Look again at what waits, at the end of this tick: what else arrives in it belongs to the same group."""
        if self.queue and not self._is_turn_due:
            self._is_turn_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def refuse_waiting(self, short: npt.NDArray[np.bool_]) -> None:
        """Refuse the frames that wait for a group and touch segments that lack replicas: that group may not end for long."""
        for pending in self.queue.withdraw(short):
            segments = pending.table.segments
            known = segments[segments < len(short)]
            pending.done(self._replicas.shortage.refusal(int(known[short[known]][0])))
            if pending.send is not None:
                pending.send()
        self.wake()

    def freed(self, segments: Iterable[int]) -> None:
        """Take note that what was given up in some segments is in flight no more."""
        for segment in self._stuck.intersection(segments):
            self._stuck.remove(segment)
            self.queue.release(np.array((segment,)))
        self.wake()

    async def run(self) -> None:
        """Make groups ready that cannot be at once. Runs until cancelled.

        Raises:
            EventLogError: a group could not be written: the node cannot go on.
        """
        try:
            while True:
                await self._needed.wait()
                self._needed.clear()
                if self._error is not None:
                    raise self._error
                if self._drafts is not None:
                    await self._make_ready(self._drafts)
                    self._drafts = None
                    self._pace.ready()
                    self.wake()
        finally:
            self._has_ended = True

    def exclusive(self) -> AbstractAsyncContextManager[None]:
        """Begin no group in here, and enter when none is in flight."""
        return self._pace.alone()

    async def drain(self) -> None:
        """Wait until nothing is queued or in flight, or `run` has failed, and what was committed is in the store.

        A group that waits for nodes that do not come back is given up after a while: nobody was told that it is written.
        """
        deadline = time.monotonic() + self.wait_ms_max / 1000
        while (self.queue or not self._pace.is_quiet) and not self._has_ended and time.monotonic() < deadline:  # noqa: ASYNC110 -- once in a life; an event would cost every group something
            await asyncio.sleep(0.001)
        await self._storage.run(_nothing)

    # ------------------------------------------------------------ beginning

    def _turn(self) -> None:
        """Begin what can be begun: a group, or one for each set of replicas that would hold it up."""
        self._is_turn_due = False
        if self._error is not None or not self._pace.is_turn:
            return
        fates, queue = self._core.roster.fates(), self.queue
        groups = 1 if fates is None else _GROUPS_A_TURN_MAX
        while queue and self._overlay.nbytes <= OVERLAY_BYTES_MAX and self._pace.has_room(groups=groups, waiting_bytes=queue.nbytes):
            frames = queue.take(fates)
            if not frames:
                return  # all of them wait for groups in flight
            try:
                self._begin(frames)
            except Exception as error:  # noqa: BLE001 -- the edge to the loop: nothing may go on from half a group
                self._fail(error)
                return

    def _begin(self, frames: list[Pending]) -> None:
        if self._has_sent_few(frames):
            return
        if not (self._replicas.shortage.writable.all() and self._core.primary.ready.all()):
            frames = self._refuse_elsewhere(frames)
            if not frames:
                return
        drafts = self._drafter.drafts(frames, now=self._clock.physical_ms() - EPOCH_MS)
        if not all(draft.is_known for draft in drafts):
            self._take_time(drafts)
            return
        parts = self._parts(drafts)
        if not parts:
            return
        try:
            base = self._clock.next(_ids_of(parts))
        except (ClockAhead, MetadataUnavailable):
            self._take_time([], parts)
            return
        self._send(parts, base)

    def _has_sent_few(self, frames: list[Pending]) -> bool:
        """Send a group of a few plain events; False where that is not all that is to be done."""
        found = few_of(frames, self.bounds)
        if found is None:
            return False
        few, rest = found
        writable, ready = self._replicas.shortage.writable, self._core.primary.ready
        for lone in few.lones:
            if not (writable.item(lone.segment) and ready.item(lone.segment)):
                return False
        if not few.see(self._overlay, self._store):
            return False
        try:
            base = self._clock.next(len(few.lones))
        except (ClockAhead, MetadataUnavailable):
            return False
        if rest:
            self.queue.put_back(rest)
        flight = self._replicas.append(few.stamp(base, epochs=self._core.epochs))
        self._launch(_Group(parts=[], flight=flight, few=few))
        self._promises.begin(few.segments, first_id=base, last_id=few.lones[-1].id)
        return True

    def _refuse_elsewhere(self, frames: list[Pending]) -> list[Pending]:
        """Refuse frames with blocks of segments that are not served here, or have too few replicas; return the others."""
        writable, ready = self._replicas.shortage.writable, self._core.primary.ready
        good = []
        for pending in frames:
            if 0 <= (only := pending.table.only) < len(writable) and writable.item(only) and ready.item(only):
                good.append(pending)
                continue
            segments = pending.table.segments
            known = segments[segments < len(writable)]
            elsewhere = known[~writable[known]]
            if len(elsewhere):
                pending.done(self._replicas.shortage.refusal(int(elsewhere[0])))
                continue
            try:
                self._core.check_ready(known.astype(np.int64))
            except (NotPrimary, NotEnoughReplicas) as error:
                pending.done(error)
                continue
            good.append(pending)
        return good

    def _parts(self, drafts: list[Draft]) -> list[CachePart]:
        """Return what goes into the log; answer what leaves nothing there: repeated frames, refused ones, removals of nothing."""
        parts = []
        for draft in drafts:
            part = self._drafter.part(draft)
            if part is None:
                continue
            if len(part.stamped.sections.segments):
                parts.append(part)
            else:
                answer_frames(part)
        return parts

    # ------------------------------------------------------------ what takes time

    def _take_time(self, drafts: list[Draft], parts: list[CachePart] | None = None) -> None:
        self._drafts, self._parts_ready, self._epochs = drafts, parts, self._core.epochs.copy()
        self._pace.makes_ready()
        self._needed.set()

    async def _make_ready(self, drafts: list[Draft]) -> None:
        """Read what `drafts` need to know, wait for ids, and send the group."""
        parts, self._parts_ready = self._parts_ready, None
        if parts is None:
            parts = await self._read(drafts)
        if not parts:
            return
        try:
            base = await self._ids(_ids_of(parts))
            self._demand_still_led(parts)
        except EventLogError as error:
            _refuse_parts(parts, error)
            return
        self._send(parts, base)

    def _demand_still_led(self, parts: list[CachePart]) -> None:
        """Refuse what cannot be written any more, or was made ready in a term that has ended: another primary may have written since."""
        for part in parts:
            segments = part.stamped.sections.segments
            ended = segments[self._core.epochs[segments] != self._epochs[segments]]
            if len(ended):  # even these very blocks may be written
                raise NotPrimary(segment=int(ended[0]))
            elsewhere = segments[~self._replicas.shortage.writable[segments]]
            if len(elsewhere):
                raise self._replicas.shortage.refusal(int(elsewhere[0]))
            self._core.check_ready(segments)

    async def _read(self, drafts: list[Draft]) -> list[CachePart]:
        readable = []
        for draft in drafts:
            if not draft.is_known:
                try:
                    await self._storage.run(partial(self._drafter.read, draft), needs_state=False)
                except EventLogError as error:  # a damaged entry: nothing can be said about its key, the node serves the others
                    refuse_share(draft.joined.frames, draft.share, error)
                    continue
            readable.append(draft)
        return self._parts(readable)

    async def _ids(self, count: int) -> int:
        """Return the base of a run of ids; waits while ids run too far ahead of the clock or the lease is being renewed."""
        for _ in range(self.wait_ms_max // self.look_ms):
            try:
                return self._clock.next(count)
            except (ClockAhead, MetadataUnavailable):
                await asyncio.sleep(self.look_ms / 1000)
        return self._clock.next(count)

    # ------------------------------------------------------------ in flight

    def _send(self, parts: list[CachePart], base: int) -> None:
        """Stamp a group, register it as in flight, send it and have it written, in one step."""
        for part in parts:
            cache = part.cache
            values = make_values(
                part.stamped.sections, base=base, epochs=self._core.epochs, next_offsets=cache.next_offsets, seeds=cache.seeds
            )
            part.values = values
            base = values.last_id + ID_STEP
        values_of_all = group_values([(part.cache.cache_id, part.stored) for part in parts])
        flight = self._replicas.append(values_of_all)
        for part in parts:
            self._promises.begin(part.stored.segments, first_id=int(part.stored.bases[0]), last_id=part.stored.last_id)
        group = _Group(parts=parts, flight=flight)
        self._launch(group)
        if sum(part.stamped.events for part in parts) >= _EVENTS_WORTH_OVERLAP:
            group.changes = [changes_of(part) for part in parts]

    def _launch(self, group: _Group) -> None:
        flight = group.flight
        steps, epochs = self._hooks.steps, self._core.epochs
        append = append_of_parts(group.parts, steps, epochs=epochs) if group.few is None else append_of_few(group.few, steps, epochs=epochs)
        self._storage.append_and_tell(append, partial(self._written, group))  # first: its thread wakes up meanwhile
        flight.settled = partial(self._settled, group)
        self._pace.began(group)
        self.queue.hold(flight.segments)

    def _written(self, group: _Group, error: BaseException | None) -> None:
        """The group is on disk here: another one may begin."""
        self._pace.written()
        if error is not None:
            _leave_unknown(group, str(error))
            self._fail(error)
            return
        self._replicas.written(group.flight)
        self.wake()

    def _fail(self, error: BaseException) -> None:
        # of what ends the process its own operator is told, by its last line: nobody else hears of it
        self._error = error if isinstance(error, EventLogError) else EventLogError(why=repr(error))
        self._needed.set()

    def _settled(self, group: _Group, flight: Flight) -> None:
        """The group is committed, or some of its segments are led by others now: of those nobody here knows what became."""
        try:
            if flight.lost:
                self._give_up(group, flight)
            elif group.few is not None:
                group.few.answer()
                self._settle_few(group.few)
            else:
                self._commit(group.parts)
                self._settle(group.parts, group.changes or [changes_of(part) for part in group.parts])
        except Exception as error:  # noqa: BLE001 -- the edge to replication: nothing may go on from half a commit
            self._fail(error)
            return
        self._pace.ended(group)
        self.queue.release(flight.segments)
        for segment in self._replicas.shortage.stuck.intersection(flight.segments.tolist()) if flight.lost else ():
            self._stuck.add(segment)
            self.queue.hold(np.array((segment,)))
        flight.settled = None  # they hold each other, and all values of the group: no collector comes by for long
        self.wake()

    def _give_up(self, group: _Group, flight: Flight) -> None:
        lost = min(flight.lost)
        is_led = self._core.leads.item(lost)
        why = f"segment {lost} lacks in-sync replicas" if is_led else f"segment {lost} is led by another node now"
        _leave_unknown(group, why)
        self._replicas.abandon(flight)

    # ------------------------------------------------------------ committed

    def _commit(self, parts: list[CachePart]) -> None:
        """Answer a committed group; `_settle` follows in the same step, when the answers are on their way."""
        for part in parts:
            answer_frames(part)
        for send in dict.fromkeys(pending.send for part in parts for pending in part.joined.frames if pending.send is not None):
            send()

    def _settle_few(self, few: Few) -> None:
        """Do what `_settle` does, for a few events."""
        last_id = few.lones[-1].id
        self._promises.commit(few.segments, few.ids, upto=last_id)
        self._marks[few.segments] = few.ids
        few.commit()
        layer, nbytes = few.layer()
        if layer:
            self._overlay.push(layer, nbytes)
            self._storage.apply_and_tell(layer, partial(self._applied, 1), nbytes=nbytes)
        self.groups += 1
        self.frames += len(few.by_frame)
        self.events += len(few.lones)
        self._hooks.visible(CommittedGroup(first_id=few.lones[0].id, last_id=last_id, caches=(few.seen(),)))

    def _settle(self, parts: list[CachePart], changes: list[StateChange]) -> None:
        """Make a committed group visible, and remember what repeated frames are answered with."""
        caches = []
        for part, change in zip(parts, changes, strict=True):
            values, cache = part.stored, part.cache
            self._promises.commit(values.segments, values.last_ids, upto=int(values.last_ids[-1]))
            self._marks[values.segments] = values.last_ids
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

    def _apply(self, changes: list[StateChange]) -> None:
        """Hand committed entries to the storage thread; their layers go when the store holds them."""
        puts: list[tuple[bytes, bytes | None]] = []
        for change in changes:
            puts += change.layer
            puts += change.expiries
        if not puts:
            return
        self._storage.apply_and_tell(puts, partial(self._applied, len(changes)), nbytes=sum(change.nbytes for change in changes))

    def _applied(self, layers: int, error: BaseException | None) -> None:
        if error is not None:
            return  # the storage thread fenced itself or is gone; the layers stay, so that readers keep seeing them
        for _ in range(layers):
            self._overlay.pop_oldest()
        self.wake()


def _nothing() -> None:
    """Nothing, behind all that was handed to the storage thread before."""


def _ids_of(parts: list[CachePart]) -> int:
    return sum(ids_needed(part.stamped.sections) for part in parts)


def _refuse_parts(parts: list[CachePart], error: EventLogError) -> None:
    for part in parts:
        refuse_share(part.waiting, part.share, error)


def _leave_unknown(group: _Group, why: str) -> None:
    error = OutcomeUnknown(why=why, outcome="unknown")
    if group.few is not None:
        refuse([pending for pending, _ in group.few.by_frame], error)
    for part in group.parts:
        refuse(part.waiting, error)


def append_of_parts(parts: Sequence[CachePart], steps: Steps, *, epochs: npt.NDArray[np.uint32]) -> Append:
    """Return what the stamped parts of a group put into the store."""
    log: list[Pair] = []
    meta: list[Pair] = []
    for part in parts:
        values, cache = part.stored, part.cache
        log += zip(log_keys(values.segments.tolist(), cache.cache_id, values.bases.tolist()), values.data, strict=True)
        meta += starmap(encode_step, steps(cache.cache_id, values.last_id, int(values.counts.sum()), values.nbytes))
    of_all = [part.stored for part in parts]
    segments, ends = of_all[0].segments, of_all[0].last_ids
    if len(of_all) > 1:  # ids rise from part to part: of a segment's ends the last counts
        segments = np.concatenate([own.segments for own in of_all])
        ends = np.concatenate([own.last_ids for own in of_all])
    nbytes = sum(own.nbytes for own in of_all)
    return Append(log=log, meta=meta, segments=segments, ends=ends, epochs=epochs[segments], nbytes=nbytes)


def append_of_few(few: Few, steps: Steps, *, epochs: npt.NDArray[np.uint32]) -> Append:
    """Return what a few stamped events put into the store."""
    cache_id, nbytes = few.cache.cache_id, sum([len(lone.stored) for lone in few.lones])
    return Append(
        log=[(log_key(lone.segment, cache_id, lone.id), lone.stored) for lone in few.lones],
        meta=list(starmap(encode_step, steps(cache_id, few.lones[-1].id, len(few.lones), nbytes))),
        segments=few.segments,
        ends=few.ids,
        epochs=epochs[few.segments],
        nbytes=nbytes,
    )
