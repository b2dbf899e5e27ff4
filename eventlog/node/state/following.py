"""The state of a replica follows its log, never above the watermark: on backups as the watermark comes, after a takeover at once.

What arrived lately is kept in memory until the watermark passes it; what is not there any more is read from the log. Counters,
offsets and producers move on the loop together with `applied`, and so do the entries, which stand in the overlay until the storage
thread has put them into the store; the marks that speak of them stand in its queue behind.

A few values of one plain event each, as single puts bring them to a backup, are taken without the arrays of many
(`write/apply.py`). Of many, what they say of their producers is learnt in one pass (`learn_values`); values some of whose
items were refused are left to the slow way, `ProducerTable.learn`. Each two ways leave the same state: tests hold them
against each other.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from eventlog.arrays import NONE, Ints
from eventlog.batch.layout import HAS_PRODUCERS
from eventlog.batch.marks import EXPIRY
from eventlog.batch.sections import Unfolded, spread, unfold
from eventlog.batch.views import decode_value
from eventlog.errors import BadMessage, CorruptData, EventLogError
from eventlog.events import Kind
from eventlog.ids import ID_STEP
from eventlog.limits import FOLLOW_BYTES_MAX
from eventlog.node.writing.storage import Append, StorageThread, fail
from eventlog.read.answer import CacheValues, CommittedGroup
from eventlog.replication.bodies import Arrived, joined, values_from
from eventlog.segment.keys import encode_step
from eventlog.segment.port import Store
from eventlog.segment.walking import LogPart, read_segment
from eventlog.state.caches import Caches, CacheState
from eventlog.state.producers import FrameResult, ProducerTable
from eventlog.write.apply import LoneEvent, Puts, puts_of, read_few
from eventlog.write.overlay import Overlay

log = logging.getLogger("eventlog.node")
Result = TypeVar("Result")
_READ_BYTES = 2 << 20  # applied in one step on the loop
_AGAIN_MS_MAX = 60_000  # to look for what is damaged costs a walk through the log
_PUT_BYTES = 100  # what an entry costs in memory beside its bytes, roughly
_JOINED_BYTES_MAX = 256 << 10  # well below a step of the log's index
_ORIGIN = ID_STEP - 1  # the part of an id that says whose it is
_MODIFIED = 1 << Kind.MODIFIED


Show = Callable[[Ints, Ints, Sequence[CommittedGroup], int], None]
"""Called in the step in which `applied` of segments moves: (segments, applied, the groups that became readable, upto which id others
are in the store alone)."""


class Mends(Protocol):
    """What has damage mended that is met in the log."""

    again_ms: int  # until it is worth another try

    async def read(self, work: Callable[[], Result]) -> Result:
        """Return what `work` reads of the log in a thread, once more where what it met was damaged and is mended. Raises CorruptData."""
        ...


Steps = Callable[[int, int, int, int], list[tuple[int, int, int, int]]]


@dataclass(slots=True)
class _Late:
    """What of one primary is not in the index of the log yet, and up to which id it is."""

    last_id: int = 0
    events: int = 0
    nbytes: int = 0


class Followed:
    """`applied[segment]`: everything up to there is in the state, or in the overlay and the storage thread's queue for it.

    The writer moves it for what this node commits.
    """

    def __init__(
        self,
        *,
        store: Store,
        storage: StorageThread,
        overlay: Overlay,
        caches: Caches,
        applied: Ints,
        ends: Ints,
        number: int,
        steps: Steps,
        show: Show,
        mending: Mends,
        refresh_caches: Callable[[], Awaitable[None]],
        made_room: Callable[[], None] = lambda: None,
    ) -> None:
        self.applied = applied
        self._store = store
        self._storage = storage
        self._overlay = overlay
        self._caches = caches
        self._show = show
        self._mending = mending
        self._refresh_caches = refresh_caches
        self._made_room = made_room  # in the overlay: groups of the writer may wait for it
        self._gone: set[int] = set()
        self._number = number
        self._steps = steps
        self._counted_at_open = int(ends.max(initial=0))
        self._late: dict[tuple[int, int], _Late] = {}
        self._kept: deque[Arrived] = deque()
        self._covered = ends.copy()  # of each segment everything above is kept here
        self._goal = applied.copy()
        self._reading: dict[int, asyncio.Event] = {}  # segments that are being read, and the end of that
        self.nbytes = 0
        self.peak = 0

    # ------------------------------------------------------------ what arrives

    def keep(self, arrived: Arrived) -> None:
        """Keep values that are in the log now, until the watermark passes them."""
        self._kept.append(arrived)
        self.nbytes += arrived.nbytes
        self.peak = max(self.peak, self.nbytes)
        while self.nbytes > FOLLOW_BYTES_MAX:
            gone = self._kept.popleft()
            self.nbytes -= gone.nbytes
            np.maximum.at(self._covered, gone.segments, gone.lasts)

    def take_up(self, segments: Ints) -> None:
        """Follow `segments` again, behind own commits: what is in their logs above those is kept from here on."""
        at = self.applied[segments]
        self._goal[segments] = at
        self._covered[segments] = np.maximum(self._covered[segments], at)

    def cut(self, segment: int, end: int) -> None:
        """Forget what was cut from a log that ends with `end` now."""
        self._drop_kept(segment, above=end)
        self._covered[segment] = min(int(self._covered[segment]), end)
        self._goal[segment] = self.applied[segment] = min(int(self.applied[segment]), end)

    def restart(self, segment: int, at: int) -> None:
        """Begin anew with a log and a state that both stand at `at`."""
        self._drop_kept(segment, above=0)
        self.applied[segment] = self._goal[segment] = self._covered[segment] = at

    def _drop_kept(self, segment: int, *, above: int) -> None:
        kept: deque[Arrived] = deque()
        for arrived in self._kept:
            stays = (arrived.segments != segment) | (arrived.lasts <= above)
            kept.append(arrived if np.count_nonzero(stays) == len(stays) else arrived.picked(stays.nonzero()[0]))
        self._kept = deque(arrived for arrived in kept if arrived.data)
        self.nbytes = sum(arrived.nbytes for arrived in self._kept)

    # ------------------------------------------------------------ following

    def learned(self, segments: Ints, watermarks: Ints) -> Ints:
        """Apply up to `watermarks` what is kept here; return the segments of which something must be read first (`catch_up`)."""
        self._goal[segments] = np.maximum(self._goal[segments], watermarks)
        groups = self._apply_kept()
        if groups is None:
            return segments
        is_here = self.applied[segments] >= np.minimum(self._covered[segments], self._goal[segments])
        at_hand = segments[is_here]
        self.applied[at_hand] = np.maximum(self.applied[at_hand], self._goal[at_hand])
        self._show(at_hand, self.applied[at_hand], groups, 0)
        return segments[~is_here]

    async def catch_up(self, segments: Ints) -> None:
        """Read what `learned` did not find here from the log, and apply it, then what is kept, until nothing of `segments` is missing.

        It waits for what is damaged to be mended, however long nobody can be asked for a sound copy.
        """
        behind = segments
        while len(behind):
            await self._meet()
            for segment in behind.tolist():
                await self._read_once(segment)
            behind = self.learned(behind, self._goal[behind])

    def unattended(self, segments: Ints) -> Ints:
        """Return those of `segments` that no replay reads at the moment; a replay goes on until it is where it was told to go."""
        return segments[[segment not in self._reading for segment in segments.tolist()]]

    async def _read_once(self, segment: int) -> None:
        """Read a segment, or wait until somebody else has: two at once would apply everything twice."""
        if (other := self._reading.get(segment)) is not None:
            await other.wait()
            return
        ended = self._reading[segment] = asyncio.Event()
        try:
            await self._read(segment)
        finally:
            del self._reading[segment]
            ended.set()

    async def _meet(self) -> None:
        """Ask for caches that values kept here name and nobody knows yet; one that is not known then was dropped."""
        strange = {cache for arrived in self._kept for cache in arrived.cache_ids if not self._knows(cache)}
        if strange:
            await self._refresh_caches()
            self._gone.update(cache for cache in strange if not self._knows(cache))

    def _knows(self, cache_id: int) -> bool:
        return cache_id == 0 or self._caches.get(cache_id) is not None or self._caches.was_dropped(cache_id) or cache_id in self._gone

    async def _read(self, segment: int) -> None:
        pause_ms = self._mending.again_ms
        while (after := int(self.applied[segment])) < (upto := min(int(self._covered[segment]), int(self._goal[segment]))):
            try:
                part, values = await self._mending.read(partial(_read_values, self._store, segment, after=after, upto=upto))
            except CorruptData as error:
                log.warning("state_waits segment=%d after=%d error=%s", segment, after, error)
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, _AGAIN_MS_MAX)
                continue
            if int(self.applied[segment]) != after or int(self._covered[segment]) < part.upto:
                continue  # cut, or begun anew, while it was read
            if not all(map(self._knows, part.caches)):
                await self._refresh_caches()
                self._gone.update(cache for cache in part.caches if not self._knows(cache))
                continue
            self._apply(values)
            self.applied[segment] = part.upto
            at = np.array([segment])
            self._show(at, self.applied[at], [], part.upto)

    def is_at(self, segments: Ints) -> bool:
        """Return whether the state of all segments is where it was told to go."""
        return not np.count_nonzero(self.applied[segments] < self._goal[segments])

    def _apply_kept(self) -> list[CommittedGroup] | None:
        """Apply what the goals have passed; None where a cache has to be asked for first."""
        ready: list[Arrived] = []
        rest: deque[Arrived] = deque()
        for arrived in self._kept:
            if len(arrived.data) == 1:
                (ready if self._has_passed_one(arrived) else rest).append(arrived)
                continue
            passed = (arrived.lasts <= self._goal[arrived.segments]) & (self.applied[arrived.segments] >= self._covered[arrived.segments])
            if np.count_nonzero(passed) == len(passed):
                ready.append(arrived)
            elif not np.count_nonzero(passed):
                rest.append(arrived)
            else:
                ready.append(arrived.picked(passed.nonzero()[0]))
                rest.append(arrived.picked((~passed).nonzero()[0]))
        if not all(self._knows(cache) for arrived in ready for cache in arrived.cache_ids):
            return None
        self._kept = rest
        self.nbytes -= sum(arrived.nbytes for arrived in ready)
        few = read_few(ready)
        if few is not None:
            self._apply_few(few)
        else:
            for arrived in _joined_small(ready):  # what was applied is not kept, and nothing below is missing
                self._covered[arrived.segments] = self.applied[arrived.segments] = arrived.lasts  # they rise: the last of a segment counts
                self._apply(arrived)
        return self._groups(ready)

    def _has_passed_one(self, arrived: Arrived) -> bool:
        """Return whether the goal has passed a value that came alone; without arrays, since there may be hundreds of them."""
        segment = arrived.segments.item(0)
        is_told: bool = arrived.lasts.item(0) <= self._goal.item(segment)
        return is_told and bool(self.applied.item(segment) >= self._covered.item(segment))

    def _groups(self, ready: Sequence[Arrived]) -> list[CommittedGroup]:
        """Return what readers get, group by group as it was committed."""
        known = (
            (cache_id, arrived) for arrived in ready for cache_id in sorted(arrived.cache_ids) if self._caches.get(cache_id) is not None
        )
        return [_group_of(cache_id, arrived.of_cache(cache_id)) for cache_id, arrived in known]

    def _apply(self, arrived: Arrived) -> None:
        """Move everything that stands for these values; values of dropped caches mean nothing any more."""
        steps: list[tuple[int, int, int, int]] = []
        for cache_id in sorted(arrived.cache_ids):
            cache = self._caches.get(cache_id)
            if cache is None:
                continue
            own = arrived.of_cache(cache_id)
            unfolded = unfold(own.data, own.heads)
            _move(cache, own, unfolded)
            steps += self._count(cache_id, own)
            if cache.options.state:
                self._put(cache_id, own, unfolded)
        self._store_steps(steps)

    def _apply_few(self, few: Sequence[LoneEvent]) -> None:
        """As `_apply`, event by event."""
        steps: list[tuple[int, int, int, int]] = []
        puts: Puts = []
        nbytes = 0
        for one in few:
            self._covered[one.segment] = self.applied[one.segment] = one.id
            cache = self._caches.get(one.cache_id)
            if cache is None:
                continue
            one.move(cache)
            if one.id > self._counted_at_open and one.id & _ORIGIN != self._number:
                steps += self._count_late(one.cache_id, one.id, events=1, nbytes=one.nbytes)
            if cache.options.state:
                puts.append(one.put())
                nbytes += one.nbytes
        self._store_steps(steps)
        self._show_puts(puts, nbytes)

    def _store_steps(self, steps: Sequence[tuple[int, int, int, int]]) -> None:
        if steps:
            meta = [encode_step(*row) for row in steps]
            self._storage.append(Append(log=[], meta=meta, segments=NONE, ends=NONE, epochs=NONE.astype(np.uint32), nbytes=0))

    def _put(self, cache_id: int, own: Arrived, unfolded: Unfolded) -> None:
        """Show what values make of the state to readers, and have the storage thread put it there soon."""
        try:
            puts = puts_of(cache_id, own.segments.tolist(), own.data, unfolded)
        except EventLogError as error:  # nothing may be built upon a state that misses them
            self._storage.run(partial(fail, error), is_vital=True)
            return
        self._show_puts(puts, own.nbytes)

    def _show_puts(self, puts: Puts, nbytes: int) -> None:
        if puts:
            nbytes += _PUT_BYTES * len(puts)
            self._overlay.push(puts, nbytes)
            self._storage.apply_and_tell(puts, self._applied_in_store, nbytes=nbytes)

    def _applied_in_store(self, error: BaseException | None) -> None:
        if error is None:
            self._overlay.pop_oldest()
            self._made_room()

    def _count(self, cache_id: int, own: Arrived) -> list[tuple[int, int, int, int]]:
        """Count what other primaries made in the index of the log by id; return the rows to store.

        The index wants the groups of each primary in the order of their ids: what comes late counts with the next one.
        """
        rows: list[tuple[int, int, int, int]] = []
        origins = own.bases & _ORIGIN
        for origin in set(origins.tolist()):
            fresh = ((origins == origin) & (own.bases > self._counted_at_open)).nonzero()[0]
            if origin == self._number or not len(fresh):
                continue  # counted when it was appended, or at the start
            nbytes = sum(len(own.data[index]) for index in fresh.tolist())
            rows += self._count_late(cache_id, int(own.lasts[fresh].max()), events=int(own.counts[fresh].sum()), nbytes=nbytes)
        return rows

    def _count_late(self, cache_id: int, last_id: int, *, events: int, nbytes: int) -> list[tuple[int, int, int, int]]:
        late = self._late.setdefault((cache_id, last_id & _ORIGIN), _Late())
        late.events += events
        late.nbytes += nbytes
        if last_id <= late.last_id:
            return []
        rows = self._steps(cache_id, last_id, late.events, late.nbytes)
        self._late[cache_id, last_id & _ORIGIN] = _Late(last_id=last_id)
        return rows

    def drop(self, cache_id: int) -> None:
        """Forget a cache that was dropped."""
        for place in [place for place in self._late if place[0] == cache_id]:
            del self._late[place]

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {"follow_bytes": (self.nbytes, FOLLOW_BYTES_MAX, self.peak)}


def _read_values(store: Store, segment: int, *, after: int, upto: int) -> tuple[LogPart, Arrived]:
    """Return what a log holds in `(after, upto]`, or the first of it. Raises CorruptData."""
    part = read_segment(store, segment, after=after, upto=upto, bytes_max=_READ_BYTES)
    try:
        return part, values_from(np.full(len(part.data), segment), part.caches, part.data)
    except BadMessage as error:
        raise CorruptData(where=f"log of segment {segment}, behind id {after}", why=error.why) from error


def _joined_small(ready: Sequence[Arrived]) -> Iterator[Arrived]:
    """Return the same values in the same order, small arrivals put together: what is done for each costs as much as for hundreds."""
    small: list[Arrived] = []
    nbytes = 0
    for arrived in ready:
        if small and nbytes + arrived.nbytes > _JOINED_BYTES_MAX:
            yield joined(small)
            small, nbytes = [], 0
        small.append(arrived)
        nbytes += arrived.nbytes
    if small:
        yield joined(small)


def _move(cache: CacheState, own: Arrived, unfolded: Unfolded) -> None:
    """Move offsets, counters and producers of a cache; values of a segment come in the order of their ids."""
    cache.next_offsets[own.segments] = own.offsets + own.counts
    cache.stored_bytes += own.nbytes
    cache.may_expire = cache.may_expire or bool(np.count_nonzero(own.heads["bitmap"] & EXPIRY))
    learn_values(cache.producers, unfolded, segments=own.segments, cache_id=cache.cache_id, data=own.data)
    if not cache.options.state or not np.count_nonzero(own.heads["kinds"] != _MODIFIED):
        return
    kinds = unfolded.kinds()
    segments = own.segments[unfolded.value].repeat(unfolded.counts)
    np.add.at(cache.live, segments, (kinds == Kind.CREATED).astype(np.int64) - (kinds >= Kind.REMOVED))
    for index in unfolded.is_ragged.nonzero()[0].tolist():
        segment = int(own.segments[index])
        decoded = [block.kinds for block in decode_value(segment, cache.cache_id, own.data[index]).blocks]
        cache.live[segment] += sum(int((found == Kind.CREATED).sum()) - int((found >= Kind.REMOVED).sum()) for found in decoded)


def _group_of(cache_id: int, own: Arrived) -> CommittedGroup:
    if len(own.data) == 1:
        segments, bases, counts = [own.segments.item(0)], [own.bases.item(0)], [own.counts.item(0)]
        values = CacheValues(cache_id=cache_id, segments=segments, bases=bases, counts=counts, data=own.data)
        return CommittedGroup(first_id=bases[0], last_id=own.lasts.item(0), caches=(values,))
    if np.count_nonzero(own.segments[1:] < own.segments[:-1]):
        own = own.picked(np.lexsort((own.bases, own.segments)))
    values = CacheValues(
        cache_id=cache_id, segments=own.segments.tolist(), bases=own.bases.tolist(), counts=own.counts.tolist(), data=own.data
    )
    return CommittedGroup(first_id=int(own.bases.min()), last_id=int(own.lasts.max()), caches=(values,))


def learn_values(table: ProducerTable, unfolded: Unfolded, *, segments: Ints, cache_id: int, data: Sequence[bytes]) -> None:
    """Have `table` learn the values in `data`, the same `unfolded`, in the order of the log; `segments` has one number a value."""
    told = unfolded.heads["flags"] & HAS_PRODUCERS != 0
    if not np.count_nonzero(told):
        return
    fast = ~unfolded.is_ragged
    if np.count_nonzero(fast) < len(fast):
        fast &= ~np.isin(segments, segments[~fast])  # a segment's values are learnt in their order
    if np.count_nonzero(fast):
        _learn(table, unfolded, segments=segments, fast=fast)
    for index in (told & ~fast).nonzero()[0].tolist():
        table.learn(decode_value(int(segments[index]), cache_id, data[index]))


def _learn(table: ProducerTable, unfolded: Unfolded, *, segments: Ints, fast: npt.NDArray[np.bool_]) -> None:
    """Rows of other producers between two of one change nothing: each has results of its own."""
    rows, value = unfolded.rows, unfolded.row_value
    kinds = unfolded.kinds()
    bases, counts = unfolded.heads["base"].astype(np.int64), unfolded.heads["count"].astype(np.int64)
    lasts = bases + (np.maximum(counts, 1) - 1) * ID_STEP
    ends = np.where(unfolded.is_ragged, 0, counts).cumsum()
    kinds_of_value = ends - counts
    for number in dict.fromkeys(rows["producer"].tolist()):
        own = (rows["producer"] == number) & fast[value]
        picked, of = rows[own], value[own]
        first, count = picked["first"].astype(np.int64), picked["count"].astype(np.int64)
        starts = np.zeros(len(count) + 1, np.int64)
        count.cumsum(out=starts[1:])
        intra = np.arange(starts[-1]) - starts[:-1].repeat(count)
        frame = FrameResult(
            segments=segments[of],
            sequences=picked["sequence"].astype(np.int64),
            starts=starts,
            ids=(bases[of] + first * ID_STEP).repeat(count) + intra * ID_STEP,
            kinds=kinds[spread(kinds_of_value[of] + first, count)],
        )
        table.learn_frame(number, frame, last_ids=lasts[of])
