"""The answers of a group, frame by frame, and what idempotence remembers of them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.marks import REFUSED
from eventlog.batch.stored import Values
from eventlog.events import Kind
from eventlog.state.caches import CacheState
from eventlog.state.producers import FrameResult, Verdict, runs_of
from eventlog.write import Share, Stamped
from eventlog.write.chain import image_of, refused_before
from eventlog.write.groups import Joined, Pending, WriteResult

REPLACING = (Kind.MODIFIED, Kind.REMOVED)


@dataclass(kw_only=True)
class CachePart:
    """One cache's part of a group on its way: the frames at `postponed` wait for the next group. `values` come with the stamp.

    `images`: by block, what events written before replaced, None where nobody knows any more.
    """

    joined: Joined
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


def _result(joined: Joined, row_starts: Ints, bounds: tuple[int, int], *, ids: Ints, kinds: npt.NDArray[np.uint8]) -> FrameResult:
    first, end = bounds
    low, high = int(row_starts[first]), int(row_starts[end])
    return FrameResult(
        segments=joined.submitted.segments[first:end],
        sequences=joined.submitted.sequences[first:end],
        starts=row_starts[first : end + 1] - low,
        ids=ids[low:high],
        kinds=kinds[low:high],
    )
