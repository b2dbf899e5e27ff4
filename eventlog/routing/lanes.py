"""Which window has which segment: one window for each primary, and segments that change windows when their primary changes.

A segment that is refused for now is set apart: it has a window of its own until it is written again, so that its frames wait, drain
and come again without those of other segments.

A segment's frames follow it, in their order. Nothing of it may be on its way in the old window when it leaves, or two primaries could
get its numbers out of order: until then the old window is paused (`is_paused`), and its user waits for its answers, or loses
its connection.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from eventlog.routing.routes import NOBODY
from eventlog.routing.window import Blocks, NumberedFrame, Numbering, Window

Content = TypeVar("Content")
Split = Callable[[NumberedFrame[Content], Blocks], NumberedFrame[Content]]


def lane_apart(segment: int) -> int:
    """Return the lane of a segment that is set apart; lanes of nodes have their numbers, which are not negative."""
    return -1 - segment


class Lanes(Generic[Content]):
    """Windows by lane. `split` returns a frame with some of the blocks of another, by index; places and numbers are set here."""

    def __init__(self, numbering: Numbering, *, split: Split[Content], numbered: bool = True) -> None:
        self.numbering = numbering
        self.windows = defaultdict[int, Window[Content]](partial(Window, numbering, numbered=numbered))
        self._split = split
        self._holders = np.full(numbering.segments, NOBODY, np.int64)
        self._wanted = self._primaries = self._holders
        self._apart: set[int] = set()
        self._only: int | None = NOBODY  # the lane that has all segments

    def add(self, frame: NumberedFrame[Content]) -> list[tuple[int, NumberedFrame[Content]]]:
        """Put a new frame, or its parts, into the windows; return each with its lane."""
        if self._only is not None:
            lane = self._only
        elif frame.only >= 0:
            lane = self._holders.item(frame.only)
        else:
            frame.place = next(self.numbering.places)
            parts = list(self._parts(frame))
            for own, part in parts:
                self.windows[own].add(part)
            return parts
        self.windows[lane].add(frame)
        return [(lane, frame)]

    def _parts(self, frame: NumberedFrame[Content]) -> Iterator[tuple[int, NumberedFrame[Content]]]:
        """Yield the parts of a frame by lane, the frame itself where that is all."""
        holders = self._holders[frame.segments]
        lanes = np.unique(holders).tolist()
        if len(lanes) < 2:
            yield lanes[0], frame
            return
        for lane in lanes:
            blocks = (holders == lane).nonzero()[0]
            part = self._split(frame, blocks)
            part.place, part.wanted, part.doubtful = frame.place, frame.wanted, frame.doubtful
            if frame.doubtful:
                part.sequences, part.sent_at = frame.sequences[blocks], frame.sent_at
            yield lane, part

    def aim(self, primaries: npt.ArrayLike) -> None:
        """Say which node each segment belongs to from now on; `settle` moves those that can be moved."""
        self._primaries = np.array(primaries, np.int64)
        self._aim()

    def set_apart(self, segments: Iterable[int]) -> None:
        """Give each of some segments a lane of its own; `settle` moves them."""
        self._apart.update(segments)
        self._aim()

    def rejoin(self, segment: int) -> None:
        """Have a segment that was set apart go with the others of its primary again; `settle` moves it."""
        self._apart.discard(segment)
        self._aim()

    def _aim(self) -> None:
        wanted = self._primaries.copy()
        apart = list(self._apart)
        wanted[apart] = [lane_apart(segment) for segment in apart]
        self._wanted = wanted

    def settle(self, moved: Callable[[NumberedFrame[Content], list[NumberedFrame[Content]]], None]) -> bool:
        """Move segments out of windows that are quiet, and pause the others that have some to give away; True when all is done.

        `moved` is told of each frame that was taken apart, and of its parts.
        """
        for window in self.windows.values():
            window.is_paused = False
        leaving = self._wanted != self._holders
        if not np.count_nonzero(leaving):
            return True
        for lane in np.unique(self._holders[leaving]).tolist():
            window = self.windows[lane]
            window.is_paused = not window.is_quiet
            if window.is_paused:
                continue
            own = leaving & (self._holders == lane)
            self._holders = np.where(own, self._wanted, self._holders)
            self._hand_on(window.withdraw(), moved)
        lanes = np.unique(self._holders)
        self._only = lanes.item(0) if len(lanes) == 1 else None
        return not np.count_nonzero(self._wanted != self._holders)

    def _hand_on(
        self, frames: list[NumberedFrame[Content]], moved: Callable[[NumberedFrame[Content], list[NumberedFrame[Content]]], None]
    ) -> None:
        by_lane: dict[int, list[NumberedFrame[Content]]] = {}
        for frame in frames:
            parts = list(self._parts(frame))
            if len(parts) > 1:
                moved(frame, [part for _, part in parts])
            for lane, part in parts:
                by_lane.setdefault(lane, []).append(part)
        for lane, own in by_lane.items():
            self.windows[lane].put_back(own)

    def unsettled(self) -> list[int]:
        """Return the nodes whose lanes are paused because segments are to leave them for other nodes."""
        moves = (self._wanted != self._holders) & (self._wanted >= 0) & (self._holders >= 0)
        return [lane for lane in np.unique(self._holders[moves]).tolist() if self.windows[lane].is_paused]

    @property
    def is_quiet(self) -> bool:
        """Whether nothing at all is on its way or of unknown fate."""
        return not any(window.has_unanswered for window in self.windows.values())
