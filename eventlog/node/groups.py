"""Taking waiting writes together into one group, and their answers apart again. Pure: no clock, no I/O."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from eventlog.batch.layout import BLOCK_HEAD_BYTES, TABLE_ROW_BYTES, pad8
from eventlog.errors import EventLogError
from eventlog.interceptor.share import Condition, Submitted
from eventlog.limits import GROUP_BYTES_MAX, GROUP_FRAMES_MAX
from eventlog.node.caches import CacheState

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """What became of a frame: id (0: no event) and kind of each item in order of the blocks; blocks refused, with the reason."""

    ids: Ints
    kinds: npt.NDArray[np.uint8]
    refusals: dict[int, EventLogError]
    previous: bytes | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Pending:
    """One frame that waits to be written. `done` is called once, with its result or the error that refused it whole.

    `send` has the answers of a connection leave at once; the frames of one connection have the same.
    """

    cache: CacheState
    table: npt.NDArray[np.void]
    blocks: memoryview
    producer: int
    conditions: tuple[Condition, ...]
    previous: bool
    internal: bool
    done: Callable[[WriteResult | EventLogError], None]
    send: Callable[[], None] | None = None


class Queue:
    """Frames waiting for the next group, in order of arrival. `nbytes` is the size of their blocks."""

    __slots__ = ("_waiting", "nbytes", "peak")

    def __init__(self) -> None:
        self._waiting: deque[Pending] = deque()
        self.nbytes = 0
        self.peak = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, pending: Pending) -> None:
        """Append a frame."""
        self._waiting.append(pending)
        self.nbytes += len(pending.blocks)
        self.peak = max(self.peak, self.nbytes)

    def put_back(self, frames: Iterable[Pending]) -> None:
        """Put frames in front again, in their order."""
        for pending in reversed(list(frames)):
            self._waiting.appendleft(pending)
            self.nbytes += len(pending.blocks)

    def take(self) -> list[Pending]:
        """Return the frames of the next group: the oldest, up to GROUP_BYTES_MAX, at least one.

        A frame with conditions, and all behind it in its cache, waits for the next group when an earlier frame of this one touches
        a segment that its conditions are about (unless that one writes nothing but other keys, of its own conditions): conditions
        see committed state.
        """
        taken: list[Pending] = []
        held: set[int] = set()
        rest: list[Pending] = []
        touched: dict[int, _Touched] = {}
        size = 0
        while self._waiting and len(taken) < GROUP_FRAMES_MAX:
            pending = self._waiting[0]
            if taken and size + len(pending.blocks) > GROUP_BYTES_MAX:
                break
            self._waiting.popleft()
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
                self._segments.update(earlier.table["segment"].tolist())
            self._last.clear()
            if not self._segments.isdisjoint(pending.table["segment"].tolist()) or not self._keys.isdisjoint(keys):
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
class Joined:
    """Frames of one cache as one submission: frame i has blocks `[blocks[i], blocks[i + 1])` and rows `[rows[i], rows[i + 1])`."""

    frames: list[Pending]
    submitted: Submitted
    blocks: list[int]
    rows: list[int]


def join_frames(frames: list[Pending], *, now: int) -> Joined:
    """Return the blocks of all frames of one cache, back to back."""
    first = frames[0]
    if len(frames) == 1:
        table, data = first.table.view("<u4"), np.frombuffer(first.blocks, np.uint8)
    else:  # tables as bytes: concatenate compares the fields of every pair of them
        table = np.frombuffer(b"".join([pending.table.data for pending in frames]), "<u4")
        data = np.frombuffer(bytearray().join([pending.blocks for pending in frames]), np.uint8)
    places, counts, lengths, sequences = np.array(table.reshape(-1, TABLE_ROW_BYTES // 4).T, np.int64, order="C")
    sizes = [len(pending.table) for pending in frames]
    blocks = [0, *accumulate(sizes)]
    events_before = [0, *np.cumsum(counts).tolist()]
    conditions = [
        Condition(block=before + condition.block, key=condition.key, version=condition.version)
        for pending, before in zip(frames, blocks, strict=False)
        for condition in pending.conditions
    ]
    rows = [events_before[block] for block in blocks]
    submitted = Submitted(
        data=data,
        segments=places & _SEGMENT,
        lengths=lengths,
        counts=counts,
        producers=np.repeat(np.array([pending.producer for pending in frames], np.uint64), sizes),
        sequences=sequences,
        conditions=tuple(conditions),
        previous_rows=tuple([row for pending, row in zip(frames, rows, strict=False) if pending.previous]),
        internal=first.internal,
        now=now,
    )
    return Joined(frames=frames, submitted=submitted, blocks=blocks, rows=rows)


_SEGMENT = 0xFFFF  # of the first word of a table's row
