"""What the windows of one producer share: the numbers of its blocks, the order of its frames, and the wish for another producer id."""

import numpy as np
import numpy.typing as npt

Sequences = npt.NDArray[np.int64]
SEQUENCE_MAX = (1 << 32) - 1


class Chains:
    """Of one cache, per segment: the next number to give, one above the highest answered, and how many blocks are unanswered."""

    __slots__ = ("answered", "next", "unanswered")

    def __init__(self, segments: int) -> None:
        self.next = np.zeros(segments, np.int64)
        self.answered = np.zeros(segments, np.int64)
        self.unanswered = np.zeros(segments, np.int64)


class Numbering:
    """A segment is in one window at a time, so windows never meet in a chain; what moves between windows finds its numbers here."""

    __slots__ = ("_frames", "caches", "segments", "wants_anew")

    def __init__(self, segments: int) -> None:
        self.segments = segments
        self.caches: dict[int, Chains] = {}
        self._frames = 0
        self.wants_anew = False  # only another producer id can go on

    def chains(self, cache: int) -> Chains:
        """Return the chains of a cache."""
        found = self.caches.get(cache)
        if found is None:
            found = self.caches[cache] = Chains(self.segments)
        return found

    def next_place(self) -> int:
        """Return the place of a new frame, behind all others."""
        self._frames += 1
        return self._frames

    def begin_anew(self) -> None:
        """Take note of another producer id: every chain begins at 0."""
        self.caches.clear()
        self.wants_anew = False
