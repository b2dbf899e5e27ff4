"""What the last blocks of a producer became, and how the state keeps it.

Results are kept by frame, as the arrays that answered it, so that a frame of 256 blocks costs what a frame of one does; those of single
events, of which there are thousands, packed by segment.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from struct import Struct, error
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from eventlog.batch.unfold import spread
from eventlog.limits import PRODUCER_RESULTS_KEPT

Ints = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.uint8]
_ONE: Final = Struct("<qqB")  # the result of a block of one event: its sequence and 1, id, kind
_ONES: Final = np.dtype([("after", "<i8"), ("id", "<i8"), ("kind", "u1")])
_RING_BYTES: Final = _ONE.size * PRODUCER_RESULTS_KEPT
_OBJECT_BYTES: Final = 400  # what a frame's result costs beside its arrays' bytes, roughly
_HEAD: Final = Struct("<qqH")  # of a stored row: last sequence, last id, results; then sequences, sizes, ids, kinds
_NONE: Final = np.zeros(0, np.int64)


@dataclass(slots=True, kw_only=True)  # one a frame: `frozen` ones are dear to make
class FrameResult:
    """What the blocks of one frame became: block i is `segments[i]`, `sequences[i]` and rows `[starts[i], starts[i + 1])`."""

    segments: Ints
    sequences: Ints
    starts: Ints
    ids: Ints
    kinds: Kinds

    @property
    def nbytes(self) -> int:
        """Return about what it costs in memory."""
        return _OBJECT_BYTES + self.ids.nbytes + self.kinds.nbytes + 3 * self.segments.nbytes

    def block(self, index: int) -> tuple[Ints, Kinds]:
        """Return ids (0: no event) and kinds of the items of one block."""
        rows = slice(int(self.starts[index]), int(self.starts[index + 1]))
        return self.ids[rows], self.kinds[rows]

    def pick(self, blocks: Ints) -> "FrameResult":
        """Return some of the blocks, in the order of their indices in `blocks`."""
        sizes = np.diff(self.starts)[blocks]
        items = spread(self.starts[blocks], sizes)
        return FrameResult(
            segments=self.segments[blocks],
            sequences=self.sequences[blocks],
            starts=_starts(sizes),
            ids=self.ids[items],
            kinds=self.kinds[items],
        )


@dataclass(slots=True, kw_only=True)
class Results:
    """The results of one producer. `ones` has, of each segment, those of blocks of one event, at `sequence % KEPT`."""

    logged: Ints  # the producer's own array: sequence of the last block of each segment that is in the log
    frames: deque[FrameResult] = field(default_factory=deque)
    kept: int = 0  # frames after the last sifting
    ones: dict[int, bytearray] = field(default_factory=dict)
    nbytes: int = 0  # about

    def find(self, segment: int, sequence: int) -> tuple[Ints, Kinds] | None:
        """Return ids and kinds of a block that is in the log."""
        one = self._find_one(segment, sequence)
        for frame in reversed(self.frames):
            for index in ((frame.segments == segment) & (frame.sequences == sequence)).nonzero()[0].tolist():
                found = frame.block(index)
                return found if one is None or found[0].max(initial=0) > one[0].item(0) else one  # a number lost and given again
        return one

    def _find_one(self, segment: int, sequence: int) -> tuple[Ints, Kinds] | None:
        ring = self.ones.get(segment)
        if ring is None:
            return None
        after, id_, kind = _ONE.unpack_from(ring, sequence % PRODUCER_RESULTS_KEPT * _ONE.size)
        return (np.array((id_,)), np.array((kind,), np.uint8)) if after == sequence + 1 else None

    def keep(self, frame: FrameResult) -> None:
        """Keep a frame's results as long as they are among the last of any of its segments."""
        if len(frame.kinds) == 1 and len(frame.segments) == 1:
            self.keep_one(frame.segments.item(0), frame.sequences.item(0), frame.ids.item(0), frame.kinds.item(0))
            return
        if not len(frame.segments):
            return
        self.frames.append(frame)
        self.nbytes += frame.nbytes
        while not self._is_needed(self.frames[0]):
            self.nbytes -= self.frames.popleft().nbytes
        if len(self.frames) > 2 * self.kept + PRODUCER_RESULTS_KEPT:  # a quiet segment's frame stands before those of busy ones
            self.frames = deque(frame for frame in self.frames if self._is_needed(frame))
            self.kept = len(self.frames)
            self.nbytes = _RING_BYTES * len(self.ones) + sum(frame.nbytes for frame in self.frames)

    def keep_one(self, segment: int, sequence: int, id_: int, kind: int) -> None:
        """Keep the result of a block of one event."""
        ring = self.ones.get(segment)
        if ring is None:
            ring = self.ones[segment] = bytearray(_RING_BYTES)
            self.nbytes += _RING_BYTES
        _ONE.pack_into(ring, sequence % PRODUCER_RESULTS_KEPT * _ONE.size, sequence + 1, id_, kind)

    def restore(self, found: FrameResult) -> None:
        """Take over results that `read_row` gave."""
        sizes = np.diff(found.starts)
        for block in (sizes == 1).nonzero()[0].tolist():
            item = found.starts.item(block)
            self.keep_one(found.segments.item(block), found.sequences.item(block), found.ids.item(item), found.kinds.item(item))
        self.keep(found.pick((sizes != 1).nonzero()[0]))

    def _is_needed(self, frame: FrameResult) -> bool:
        if len(frame.segments) == 1:
            return self.logged.item(frame.segments.item(0)) - frame.sequences.item(0) < PRODUCER_RESULTS_KEPT
        return bool(np.count_nonzero(self.logged[frame.segments] - frame.sequences < PRODUCER_RESULTS_KEPT))

    def rows(self, segments: Ints, last_ids: Ints) -> Iterator[bytes]:
        """Yield the stored form of what is known of each of some segments, which ascend; `last_ids` is where their logs stand."""
        found = self._sorted(segments)
        rows = np.append(found.segments.searchsorted(segments), len(found.segments))
        items = found.starts[rows]
        sequences, sizes = found.sequences.tobytes(), np.diff(found.starts).astype("<u4").tobytes()
        ids, kinds = found.ids.tobytes(), found.kinds.tobytes()
        heads = zip(self.logged[segments].tolist(), last_ids.tolist(), strict=True)
        for (last, last_id), (low, high), (first, end) in zip(heads, pairwise(rows.tolist()), pairwise(items.tolist()), strict=True):
            yield b"".join(
                (
                    _HEAD.pack(last, last_id, high - low),
                    sequences[8 * low : 8 * high],
                    sizes[4 * low : 4 * high],
                    ids[8 * first : 8 * end],
                    kinds[first:end],
                )
            )

    def _sorted(self, segments: Ints) -> FrameResult:
        """Return the last results of blocks of `segments` that are in the log, by segment and sequence."""
        all_ = _joined([*self._ones_of(segments), *self.frames])
        wanted = np.zeros(len(self.logged), bool)
        wanted[segments] = True
        behind = self.logged[all_.segments] - all_.sequences
        picked = (wanted[all_.segments] & (behind >= 0) & (behind < PRODUCER_RESULTS_KEPT)).nonzero()[0]
        sizes = np.diff(all_.starts)
        ends = np.maximum.reduceat(np.append(all_.ids, 0), all_.starts[:-1]) if len(sizes) else _NONE
        picked = picked[np.lexsort((ends[picked], all_.sequences[picked], all_.segments[picked]))]
        own, sequences = all_.segments[picked], all_.sequences[picked]
        is_last = np.append((own[1:] != own[:-1]) | (sequences[1:] != sequences[:-1]), True)[: len(own)]  # a number lost and given again
        return all_.pick(picked[is_last])

    def _ones_of(self, segments: Ints) -> Iterator[FrameResult]:
        """Yield the results of blocks of one event of `segments`, as one frame."""
        held = [segment for segment in segments.tolist() if segment in self.ones]
        ones = np.frombuffer(b"".join(self.ones[segment] for segment in held), _ONES)
        is_one = ones["after"] > 0
        ones = ones[is_one]
        yield FrameResult(
            segments=np.array(held, np.int64).repeat(PRODUCER_RESULTS_KEPT)[is_one],
            sequences=ones["after"] - 1,
            starts=np.arange(len(ones) + 1),
            ids=ones["id"],
            kinds=ones["kind"],
        )


def _joined(frames: list[FrameResult]) -> FrameResult:
    """Return frames, one after the other, as one."""
    sizes = np.concatenate([np.diff(frame.starts) for frame in frames])
    return FrameResult(
        segments=np.concatenate([frame.segments for frame in frames]),
        sequences=np.concatenate([frame.sequences for frame in frames]),
        starts=_starts(sizes),
        ids=np.concatenate([frame.ids for frame in frames]),
        kinds=np.concatenate([frame.kinds for frame in frames]),
    )


def _starts(sizes: npt.NDArray[np.integer[Any]]) -> Ints:
    found = np.zeros(len(sizes) + 1, np.int64)
    sizes.cumsum(out=found[1:])
    return found


def read_row(segment: int, data: bytes) -> tuple[int, int, FrameResult]:
    """Return last sequence, last id and results of a row that `rows` gave.

    Raises:
        ValueError: it is not such a row.
    """
    try:
        last, last_id, count = _HEAD.unpack_from(data)
    except error as short:
        raise ValueError(f"{len(data)} bytes") from short
    sequences = np.frombuffer(data, "<i8", count, _HEAD.size)
    sizes = np.frombuffer(data, "<u4", count, _HEAD.size + 8 * count)
    starts = _starts(sizes)
    items, first = int(starts[-1]), _HEAD.size + 12 * count
    if len(data) != first + 9 * items:
        raise ValueError(f"{len(data)} bytes instead of {first + 9 * items}")
    return (
        last,
        last_id,
        FrameResult(
            segments=np.full(count, segment),
            sequences=sequences,
            starts=starts,
            ids=np.frombuffer(data, "<i8", items, first),
            kinds=np.frombuffer(data, np.uint8, items, first + 8 * items),
        ),
    )
