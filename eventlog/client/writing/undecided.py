"""Frames whose fate is not decided yet: all that are queued, on their way, lost or refused for now."""

from collections.abc import Iterator

from eventlog.client.writing.changes import Call
from eventlog.client.writing.contents import Contents
from eventlog.errors import ClientClosed, EventLogError
from eventlog.routing.window import Frame, State

WriteFrame = Frame[Contents]


class Undecided:
    """Frames by identity. Whoever decides one takes it out."""

    __slots__ = ("_frames",)

    def __init__(self) -> None:
        self._frames: dict[int, WriteFrame] = {}

    def __bool__(self) -> bool:
        return bool(self._frames)

    def __iter__(self) -> Iterator[WriteFrame]:
        return iter(list(self._frames.values()))

    def add(self, frame: WriteFrame) -> None:
        """Take note of a frame."""
        self._frames[id(frame)] = frame

    def decided(self, frame: WriteFrame) -> bool:
        """Forget a frame: its calls are to be told by the caller. False where they were told before: there was no hope of an answer."""
        return self._frames.pop(id(frame), None) is not None

    def replaced(self, frame: WriteFrame, parts: list[WriteFrame]) -> None:
        """Take note that others stand for a frame."""
        if self._frames.pop(id(frame), None) is not None:
            for part in parts:
                self._frames[id(part)] = part

    def fail(self, frame: WriteFrame, error: EventLogError) -> None:
        """Tell whoever waits for a frame that it failed, unless they know."""
        if self._frames.pop(id(frame), None) is not None:
            frame.content.fail(error)

    def drop_unwanted(self) -> None:
        """Take note of frames that nobody waits for any more: cancelled, or out of time."""
        for frame in self:
            if not frame.content.is_live:
                frame.wanted = False
                if frame.state in (State.QUEUED, State.HELD) and not frame.doubtful:
                    self.fail(frame, ClientClosed(what="call"))

    def calls(self) -> Iterator[Call]:
        """Yield the calls in frames; one that is in several comes several times."""
        for frame in self:
            yield from frame.content.calls


def may_be_written(frame: WriteFrame) -> bool:
    """Whether a frame has left at least once and nobody said what became of it."""
    return frame.state in (State.SENT, State.LOST) or frame.doubtful


def is_forgettable(frame: WriteFrame) -> bool:
    """Whether what a frame of one segment carries may change before it is sent again: it was refused, and never left in doubt."""
    return frame.only >= 0 and frame.content.error is not None and not frame.doubtful
