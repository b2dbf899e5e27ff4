"""Taking waiting writes together into one group, and their answers apart again. Pure: no clock, no I/O."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints, Mask
from eventlog.batch.build import Table
from eventlog.batch.check import BadBlocks, BlockLimits, check_blocks
from eventlog.batch.marks import BLOCK_HEAD_BYTES, HEADERS, REFUSED, TABLE_ROW_BYTES, pad8
from eventlog.batch.one import find_one
from eventlog.batch.stored import Values
from eventlog.errors import EventLogError
from eventlog.events import Kind
from eventlog.limits import GROUP_BYTES_MAX, GROUP_FRAMES_MAX
from eventlog.state.caches import CacheState
from eventlog.state.producers import FrameResult, Verdict, runs_of
from eventlog.write import Share, Stamped
from eventlog.write.chain import image_of, refused_before
from eventlog.write.share import KeyCondition, Submitted

REPLACING = (Kind.MODIFIED, Kind.REMOVED)


@dataclass(slots=True, kw_only=True)  # one a frame: `frozen` ones take longer to make
class WriteResult:
    """What became of a frame: id (0: no event) and kind of each item in order of the blocks; blocks refused, with the reason."""

    ids: Ints
    kinds: npt.NDArray[np.uint8]
    refusals: dict[int, EventLogError]
    previous: bytes | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Pending:
    """One frame that waits to be written. `done` is called once, with its result or the error that refused it whole.

    `send` has the answers of a connection leave at once; the frames of one connection have the same. `place` is the queue's: its turn.
    """

    cache: CacheState
    table: Table
    blocks: memoryview
    producer: int
    conditions: tuple[KeyCondition, ...]
    previous: bool
    internal: bool
    done: Callable[[WriteResult | EventLogError], None]
    send: Callable[[], None] | None = None
    place: int = field(default=0, init=False)


_SEGMENTS = 1 << 16  # whatever a frame may name


class Queue:
    """Frames waiting for a group, in order of arrival. `nbytes` is the size of their blocks.

    Segments of groups in flight are `hold`-ed. A frame that touches one of them steps aside, and so does whatever comes later and
    touches a segment of its: the writes of a segment keep their order. All of them come back when a group ends.
    """

    __slots__ = ("_aside", "_blocked", "_busy", "_held", "_places", "_waiting", "nbytes", "peak")

    def __init__(self) -> None:
        self._waiting: deque[Pending] = deque()
        self._aside: list[Pending] = []
        self._busy: Mask = np.zeros(_SEGMENTS, bool)
        self._blocked = self._busy  # ... or touched by frames that stepped aside
        self._held = 0
        self._places = 0
        self.nbytes = 0
        self.peak = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._aside)

    def put(self, pending: Pending) -> None:
        """Append a frame."""
        self._places += 1
        pending.place = self._places
        self._waiting.append(pending)
        self.nbytes += len(pending.blocks)
        self.peak = max(self.peak, self.nbytes)

    def put_back(self, frames: Iterable[Pending]) -> None:
        """Put frames in front again, in their order."""
        for pending in reversed(list(frames)):
            self._waiting.appendleft(pending)
            self.nbytes += len(pending.blocks)

    def hold(self, segments: Ints) -> None:
        """Note that a group is in flight in `segments`: no other one is taken that touches them."""
        self._held += 1
        self._busy[segments] = True
        self._blocked[segments] = True

    def release(self, segments: Ints) -> None:
        """Note the end of a group in flight."""
        self._held -= 1
        self._busy[segments] = False
        if self._aside:
            self._waiting = deque(sorted((*self._aside, *self._waiting), key=_place_of))
            self._aside.clear()
            self._blocked = self._busy

    def withdraw(self, of: Mask) -> list[Pending]:
        """Take out the frames that touch segments `of` some, and return them in their order."""
        gone: list[Pending] = []
        stay: list[Pending] = []
        for pending in sorted((*self._aside, *self._waiting), key=_place_of):
            segments = pending.table.segments
            (gone if np.count_nonzero(of[segments[segments < len(of)]]) else stay).append(pending)
        self._waiting = deque(stay)
        self._aside.clear()
        self._blocked = self._busy
        self.nbytes -= sum([len(pending.blocks) for pending in gone])
        return gone

    def _steps_aside(self, pending: Pending) -> bool:
        only = pending.table.only
        segments = only if only >= 0 else pending.table.segments
        if not (self._blocked.item(only) if only >= 0 else np.count_nonzero(self._blocked[segments])):
            return False
        if self._blocked is self._busy:
            self._blocked = self._busy.copy()
        self._blocked[segments] = True
        self._aside.append(pending)
        return True

    def take(self, fates: Ints | None = None) -> list[Pending]:
        """Return the frames of the next group: the oldest, up to GROUP_BYTES_MAX, at least one unless all wait for groups in flight.

        With `fates` (a number a segment) the frames have one fate: what would be held up together. The next call gives the others.
        A frame with conditions, and all behind it in its cache, waits for the next group when an earlier frame of this one touches
        a segment that its conditions are about (unless that one writes nothing but other keys, of its own conditions): conditions
        see committed state.
        """
        if len(self._waiting) == 1 and not self._held:  # nothing to compare it with
            self.nbytes -= len(self._waiting[0].blocks)
            return [self._waiting.popleft()]
        taken: list[Pending] = []
        held: set[int] = set()
        rest: list[Pending] = []
        touched: dict[int, _Touched] = {}
        size = 0
        fate: int | None = None
        others = _Others()
        while self._waiting and len(taken) < GROUP_FRAMES_MAX:
            pending = self._waiting[0]
            if taken and size + len(pending.blocks) > GROUP_BYTES_MAX:
                break
            self._waiting.popleft()
            if self._held and self._steps_aside(pending):
                continue
            if fates is not None:
                own = _fate_of(pending, fates)
                fate = own if fate is None else fate
                if own != fate or others.block(pending):
                    others.add(pending)
                    rest.append(pending)
                    continue
            cache_id = pending.cache.cache_id
            if cache_id in held or not touched.setdefault(cache_id, _Touched()).admits(pending):
                held.add(cache_id)
                rest.append(pending)
                continue
            taken.append(pending)
            size += len(pending.blocks)
        self.nbytes -= size
        self._waiting.extendleft(reversed(rest))
        return taken


def _place_of(pending: Pending) -> int:
    return pending.place


def _fate_of(pending: Pending, fates: Ints) -> int:
    """Return the fate of all segments of a frame, `_MIXED` if they have several."""
    if 0 <= pending.table.only < len(fates):
        return fates.item(pending.table.only)
    segments = pending.table.segments
    found = fates[segments[segments < len(fates)]]
    return found.item(0) if len(found) and not np.count_nonzero(found != found[0]) else _MIXED


_MIXED = -1


class _Others:
    """Segments of frames that are left for another group: what comes behind them there is left, too."""

    __slots__ = ("_segments",)

    def __init__(self) -> None:
        self._segments: set[int] = set()

    def add(self, pending: Pending) -> None:
        self._segments.update(pending.table.segment_list())

    def block(self, pending: Pending) -> bool:
        return bool(self._segments) and not self._segments.isdisjoint(pending.table.segment_list())


class _Touched:
    """What the frames of one cache in a group touch so far."""

    __slots__ = ("_internal", "_keys", "_last", "_segments")

    def __init__(self) -> None:
        self._segments: set[int] = set()
        self._last: list[Pending] = []
        self._keys: set[bytes] = set()
        self._internal: bool | None = None

    def admits(self, pending: Pending) -> bool:
        if self._internal is None:
            self._internal = pending.internal
        elif self._internal != pending.internal:
            return False
        if pending.conditions:
            keys = {condition.key for condition in pending.conditions}
            for earlier in self._last:
                self._segments.update(earlier.table.segment_list())
            self._last.clear()
            if not self._segments.isdisjoint(pending.table.segment_list()) or not self._keys.isdisjoint(keys):
                return False
            if _writes_only(pending, keys):
                self._keys |= keys
                return True
        self._last.append(pending)
        return True


def _writes_only(pending: Pending, keys: set[bytes]) -> bool:
    """Whether a frame is one event on the one key in `keys`; False, which costs a group, for all else and for what is malformed."""
    if len(keys) != 1 or len(pending.table) != 1:
        return False
    (key,) = keys
    blocks = pending.blocks
    count, bitmap, key_bytes, _ = np.frombuffer(blocks[:BLOCK_HEAD_BYTES], "<u4").tolist() if len(blocks) >= BLOCK_HEAD_BYTES else (0,) * 4
    at = BLOCK_HEAD_BYTES + pad8(4 * bitmap.bit_count()) + 16  # behind the lengths, the kind and the offsets
    return count == 1 and key_bytes == len(key) and blocks[at : at + key_bytes] == key


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedFrames:
    """Frames of one cache as one submission: frame i has blocks `[blocks[i], blocks[i + 1])` and rows `[rows[i], rows[i + 1])`."""

    frames: list[Pending]
    submitted: Submitted
    blocks: list[int]
    rows: list[int]


def join_frames(frames: list[Pending], *, now: int) -> JoinedFrames:
    """Return the blocks of all frames of one cache as one submission: where they lie if that is side by side, else back to back."""
    first = frames[0]
    sizes = [len(pending.table) for pending in frames]
    data, frames_at = _side_by_side(frames) if len(frames) > 1 else (np.frombuffer(first.blocks, np.uint8), None)
    table = np.frombuffer(b"".join([pending.table.data for pending in frames]), "<u4")
    places, counts, lengths, sequences = np.array(table.reshape(-1, TABLE_ROW_BYTES // 4).T, np.int64, order="C")
    blocks = [0, *accumulate(sizes)]
    events_before = [0, *counts.cumsum().tolist()]
    conditions = [
        KeyCondition(block=before + condition.block, key=condition.key, version=condition.version)
        for pending, before in zip(frames, blocks, strict=False)
        for condition in pending.conditions
    ]
    rows = [events_before[block] for block in blocks]
    submitted = Submitted(
        data=data,
        segments=places & _SEGMENT,
        lengths=lengths,
        counts=counts,
        producers=np.array([pending.producer for pending in frames], np.uint64).repeat(sizes),
        sequences=sequences,
        starts=None if frames_at is None else _starts(frames_at, lengths, firsts=blocks[:-1], sizes=sizes),
        conditions=tuple(conditions),
        previous_rows=tuple([row for pending, row in zip(frames, rows, strict=False) if pending.previous]),
        internal=first.internal,
        now=now,
    )
    return JoinedFrames(frames=frames, submitted=submitted, blocks=blocks, rows=rows)


_SEGMENT = 0xFFFF  # of the first word of a table's row


def _side_by_side(frames: list[Pending]) -> tuple[npt.NDArray[np.uint8], Ints | None]:
    """Return memory with the blocks of all frames, and where those of each frame begin; None where they are copied back to back."""
    slab = frames[0].blocks.obj
    if isinstance(slab, np.ndarray) and all(pending.blocks.obj is slab for pending in frames):
        at = np.array([_address(np.frombuffer(pending.blocks, np.uint8)) for pending in frames])
        ends = at + [len(pending.blocks) for pending in frames]
        low, high = int(at.min()), int(ends.max())
        if high - low <= _SPREAD_MAX * sum(len(pending.blocks) for pending in frames):
            data = slab[low - _address(slab) : high - _address(slab)]
            data.flags.writeable = False  # a frame that is refused may be read again, and sent to somebody else
            return data, at - low
    return np.frombuffer(bytearray().join([pending.blocks for pending in frames]), np.uint8), None


_SPREAD_MAX = 2  # times their bytes: caches with state copy what lies between frames, too


def _address(data: npt.NDArray[np.uint8]) -> int:
    found: int = data.__array_interface__["data"][0]
    return found


def _starts(frames_at: Ints, lengths: Ints, *, firsts: list[int], sizes: list[int]) -> Ints:
    """Return where each block begins."""
    running = lengths.cumsum() - lengths
    starts: Ints = running + (frames_at - running[firsts]).repeat(sizes)
    return starts


@dataclass(kw_only=True)
class CachePart:
    """One cache's part of a group on its way: the frames at `postponed` wait for the next group. `values` come with the stamp.

    `images`: by block, what events written before replaced, None where nobody knows any more.
    """

    joined: JoinedFrames
    share: Share
    verdict: Verdict
    postponed: frozenset[int]
    images: Mapping[int, bytes | None]
    stamped: Stamped
    values: Values | None = None

    @property
    def cache(self) -> CacheState:
        """Return the cache that the part writes to."""
        return self.joined.frames[0].cache

    @property
    def waiting(self) -> list[Pending]:
        """Return the frames that this group answers."""
        return [pending for index, pending in enumerate(self.joined.frames) if index not in self.postponed]

    @cached_property
    def ids(self) -> Ints:
        """Return the id of every row of a stamped part, 0 where it made no event."""
        return self.stored.ids(self.stamped.rank)

    @property
    def stored(self) -> Values:
        """Return the values of a stamped part."""
        assert self.values is not None, "stamped"
        return self.values


def answer_frames(part: CachePart) -> None:
    """Tell every frame what became of it; a part without values left nothing in the log."""
    joined, share, values, verdict = part.joined, part.share, part.values, part.verdict
    ids = np.zeros(len(share.kinds), np.int64) if values is None else part.ids
    kinds = share.kinds
    if verdict.answered or share.refusals:
        kinds = kinds.copy()
        starts = share.blocks.counts.cumsum() - share.blocks.counts
        for block in share.refusals:
            kinds[starts[block] : starts[block] + share.blocks.counts[block]] = REFUSED
        for block, (known_ids, known_kinds) in verdict.answered.items():
            rows = slice(int(starts[block]), int(starts[block] + share.blocks.counts[block]))
            ids[rows], kinds[rows] = known_ids, known_kinds
            if REFUSED in known_kinds:
                share.refusals[block] = refused_before(share, block)
    for index, pending in enumerate(joined.frames):
        if index in part.postponed:
            continue
        low, high = joined.rows[index], joined.rows[index + 1]
        refusals = {}
        if share.refusals:
            first = joined.blocks[index]
            refusals = {block - first: error for block, error in share.refusals.items() if first <= block < joined.blocks[index + 1]}
        previous = None
        if pending.previous and share.rules.state and not refusals and kinds[low] in REPLACING:
            block = joined.blocks[index]
            previous = part.images.get(block) if block in verdict.answered else image_of(share, low)
        pending.done(WriteResult(ids=ids[low:high], kinds=kinds[low:high], refusals=refusals, previous=previous))


def record_producers(part: CachePart) -> None:
    """Remember the results of the frames of idempotent producers, so that a repeated block gets its first answer."""
    joined, share, values = part.joined, part.share, part.stored
    producers = joined.submitted.producers
    if not np.count_nonzero(producers):
        return
    ids = part.ids
    kinds = share.kinds
    logged = share.live
    if share.conflicts:
        kinds = kinds.copy()
        kinds[~share.live_rows] = REFUSED
        logged = share.live.copy()
        logged[list(share.conflicts)] = True
    row_starts = np.concatenate((np.zeros(1, np.int64), share.blocks.counts.cumsum()))
    last_ids = np.zeros(share.rules.segments, np.int64)
    last_ids[values.segments] = values.last_ids
    everything = np.count_nonzero(logged) == len(logged)
    for low, high in runs_of(producers, joined.blocks):
        number = producers.item(low)
        if number == 0:
            continue
        ranges = [(low, high)] if everything else [(block, block + 1) for block in range(low, high) if logged[block]]
        for bounds in ranges:
            frame = _result(joined, row_starts, bounds, ids=ids, kinds=kinds)
            part.cache.producers.record(number, frame, last_ids=last_ids[frame.segments])


def _result(joined: JoinedFrames, row_starts: Ints, bounds: tuple[int, int], *, ids: Ints, kinds: npt.NDArray[np.uint8]) -> FrameResult:
    first, end = bounds
    low, high = int(row_starts[first]), int(row_starts[end])
    return FrameResult(
        segments=joined.submitted.segments[first:end],
        sequences=joined.submitted.sequences[first:end],
        starts=row_starts[first : end + 1] - low,
        ids=ids[low:high],
        kinds=kinds[low:high],
    )


def puts_of(pending: Pending, limits: BlockLimits) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of every put of a frame, none of one that is no frame: the writer has the words for that."""
    data = pending.blocks
    if pending.table.only >= 0 and (one := find_one(data, len(data), columns=HEADERS)) is not None:
        if one.kind == Kind.CREATED:
            yield bytes(data[one.key_at : one.key_end]), bytes(data[one.value_at : one.value_end])
        return
    frame = join_frames([pending], now=0).submitted
    try:
        blocks = check_blocks(frame.data, lengths=frame.lengths, counts=frame.counts, bounds=limits)
    except BadBlocks:
        return
    puts = (blocks.kinds == Kind.CREATED).nonzero()[0]
    places = (at[puts].tolist() for at in (blocks.key_at, blocks.key_end, blocks.value_at, blocks.value_end))
    for key_at, key_end, value_at, value_end in zip(*places, strict=True):
        yield bytes(data[key_at:key_end]), bytes(data[value_at:value_end])
