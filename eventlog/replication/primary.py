"""The primary's side of the segments that a node leads, as columns over all segments."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eventlog.errors import NotEnoughReplicas, NotPrimary

Ints = npt.NDArray[np.int64]
_NEVER = np.int64(-1)


class PrimaryCore:
    """Ends, acknowledgements and high watermarks of segments `[0, segments)` with members numbered from 0 (this node).

    Invariants: `watermark <= ends`, both only rise within an epoch; the watermark is the least acknowledgement of the in-sync set;
    nothing is appended to a segment that is not adopted, except the marker that adopts it.
    """

    def __init__(self, segments: int, members: int = 1) -> None:
        self.segments = segments
        self.epochs = np.zeros(segments, np.uint32)
        self.ends = np.zeros(segments, np.int64)
        self.watermark = np.zeros(segments, np.int64)
        self.adopted = np.zeros(segments, bool)
        self._leads = np.zeros(segments, bool)
        self._starts = np.full(segments, _NEVER)
        self._in_sync = np.zeros((members, segments), bool)
        self._acknowledged = np.zeros((members, segments), np.int64)
        self._needed = np.ones(segments, np.int64)

    def appoint(self, segments: Ints, *, epochs: Ints, ends: Ints, in_sync: Sequence[int], needed: int) -> None:
        """Become primary of `segments` under `epochs`, with own logs that reach `ends`.

        Until the marker of the new epoch is committed nothing else is appended and nothing is promised.

        Raises:
            ValueError: an epoch does not rise.
        """
        if (epochs <= self.epochs[segments]).any():
            raise ValueError("an epoch must be above the one before it")
        self.epochs[segments] = epochs
        self.ends[segments] = ends
        self._acknowledged[:, segments] = 0
        self._acknowledged[0, segments] = ends
        self.adopted[segments] = False
        self._leads[segments] = True
        self._starts[segments] = _NEVER
        self._in_sync[:, segments] = False
        self._in_sync[np.asarray(in_sync)[:, None], segments] = True
        self._needed[segments] = needed

    def resign(self, segments: Ints) -> None:
        """Stop leading: nothing is appended, acknowledged or promised for them any more."""
        self._leads[segments] = False
        self.adopted[segments] = False

    def append_marker(self, segments: Ints, ids: Ints) -> None:
        """Register the first entry of the new epoch; its commit adopts the segment, an empty tail included."""
        self._register(segments, ids)
        self._starts[segments] = ids

    def append(self, segments: Ints, last_ids: Ints) -> None:
        """Register events up to `last_ids` as in flight, in the same step as they are stamped.

        Raises:
            NotPrimary: a segment is not led, or not adopted yet.
            NotEnoughReplicas: fewer members in sync than the segment needs.
        """
        ready = self.adopted[segments]
        if not ready.all():
            raise NotPrimary(segment=int(segments[~ready][0]))
        have = self._in_sync[:, segments].sum(axis=0)
        if (have < self._needed[segments]).any():
            worst = int(np.argmin(have - self._needed[segments]))
            raise NotEnoughReplicas(segment=int(segments[worst]), have=int(have[worst]), need=int(self._needed[segments][worst]))
        self._register(segments, last_ids)

    def _register(self, segments: Ints, last_ids: Ints) -> None:
        assert self._leads[segments].all(), "only a primary appends"
        assert (last_ids > self.ends[segments]).all(), "ids of a segment rise"
        self.ends[segments] = last_ids

    def acknowledged(self, member: int, segments: Ints, last_ids: Ints) -> Ints:
        """Note that a member's log holds everything up to `last_ids` on disk; return the segments whose watermark moved."""
        acknowledged = self._acknowledged[member]
        acknowledged[segments] = np.maximum(acknowledged[segments], np.minimum(last_ids, self.ends[segments]))
        held = np.where(self._in_sync[:, segments], self._acknowledged[:, segments], np.iinfo(np.int64).max).min(axis=0)
        enough = self._in_sync[:, segments].sum(axis=0) >= self._needed[segments]
        moves = (held > self.watermark[segments]) & enough & self._leads[segments]
        moved: Ints = segments[moves]
        self.watermark[moved] = held[moves]
        if not self.adopted[moved].all():
            self.adopted[moved[(self._starts[moved] != _NEVER) & (self.watermark[moved] >= self._starts[moved])]] = True
        return moved
