"""Which window has which segment: one window for each primary, and segments that change windows when their primary changes.

A segment's frames follow it, in their order. Nothing of it may be on its way in the old window when it leaves, or two primaries could
get its numbers out of order: until then the old window is paused (`is_paused`), and whoever uses it waits for its answers, or loses
its connection.
"""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from eventlog.routing.numbering import Numbering
from eventlog.routing.routes import NOBODY
from eventlog.routing.window import Blocks, Frame, Window

Content = TypeVar("Content")
Split = Callable[[Frame[Content], Blocks], Frame[Content]]


class Lanes(Generic[Content]):
    """Windows by node number. `split` returns a frame with some of the blocks of another, by index; places and numbers are set here."""

    def __init__(self, numbering: Numbering, *, split: Split[Content], numbered: bool = True) -> None:
        self.numbering = numbering
        self.windows: dict[int, Window[Content]] = {}
        self._split = split
        self._numbered = numbered
        self._holders = np.full(numbering.segments, NOBODY, np.int64)
        self._wanted = self._holders
        self._only: int | None = NOBODY  # the lane that has all segments

    def window(self, lane: int) -> Window[Content]:
        """Return the window of a lane."""
        found = self.windows.get(lane)
        if found is None:
            found = self.windows[lane] = Window(self.numbering, numbered=self._numbered)
        return found

    def add(self, frame: Frame[Content]) -> list[tuple[int, Frame[Content]]]:
        """Put a new frame, or its parts, into the windows; return each with its lane."""
        if self._only is not None:
            lane = self._only
        elif frame.only >= 0:
            lane = self._holders.item(frame.only)
        else:
            frame.place = self.numbering.next_place()
            parts = list(self._parts(frame))
            for own, part in parts:
                self.window(own).add(part)
            return parts
        self.window(lane).add(frame)
        return [(lane, frame)]

    def _parts(self, frame: Frame[Content]) -> Iterator[tuple[int, Frame[Content]]]:
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
                part.sequences = frame.sequences[blocks]
            yield lane, part

    def aim(self, primaries: npt.ArrayLike) -> None:
        """Say which lane each segment belongs to from now on; `settle` moves those that can be moved."""
        self._wanted = np.array(primaries, np.int64)

    def settle(self, moved: Callable[[Frame[Content], list[Frame[Content]]], None]) -> bool:
        """Move segments out of windows that are quiet, and pause the others that have some to give away; True when all is done.

        `moved` is told of each frame that was taken apart, and of its parts.
        """
        for window in self.windows.values():
            window.is_paused = False
        leaving = self._wanted != self._holders
        if not np.count_nonzero(leaving):
            return True
        for lane in np.unique(self._holders[leaving]).tolist():
            window = self.window(lane)
            window.is_paused = not window.is_quiet
            if window.is_paused:
                continue
            own = leaving & (self._holders == lane)
            self._holders = np.where(own, self._wanted, self._holders)
            self._hand_on(window.withdraw(), moved)
        lanes = np.unique(self._holders)
        self._only = lanes.item(0) if len(lanes) == 1 else None
        return not np.count_nonzero(self._wanted != self._holders)

    def _hand_on(self, frames: list[Frame[Content]], moved: Callable[[Frame[Content], list[Frame[Content]]], None]) -> None:
        by_lane: dict[int, list[Frame[Content]]] = {}
        for frame in frames:
            parts = list(self._parts(frame))
            if len(parts) > 1:
                moved(frame, [part for _, part in parts])
            for lane, part in parts:
                by_lane.setdefault(lane, []).append(part)
        for lane, own in by_lane.items():
            self.window(lane).put_back(own)

    def unsettled(self) -> list[int]:
        """Return the lanes that are paused because segments are to leave them."""
        return [lane for lane, window in self.windows.items() if window.is_paused]

    @property
    def is_quiet(self) -> bool:
        """Whether nothing at all is on its way or of unknown fate."""
        return not any(window.has_unanswered for window in self.windows.values())
