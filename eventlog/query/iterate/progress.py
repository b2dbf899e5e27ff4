"""Where an iteration is: of each segment that was begun, the last key and as of which id it was read.

Segments are read one after the other, so one key is all there is to remember, and one for each that somebody else reads at the same
time. Keys of a segment only rise, so no entry comes twice; an entry that was there all the time is met once.
"""

from collections.abc import Iterable

from eventlog.batch.entries import StateCursor
from eventlog.errors import BadMessage
from eventlog.limits import KEY_BYTES_MAX

ID_MAX = (1 << 63) - 1


def checked_cursor(cursor: StateCursor, *, of: int) -> StateCursor:
    """Return a cursor that came from outside. Raises BadMessage where it cannot be one of a cluster of `of` segments."""
    if cursor.segment >= of or cursor.pin > ID_MAX or len(cursor.key) > KEY_BYTES_MAX or (cursor.finished and cursor.key):
        raise BadMessage(why=f"no place in segment {cursor.segment} of {of}: a key of {len(cursor.key)} bytes as of {cursor.pin}")
    return cursor


class IterationProgress:
    """What is left of an iteration over some segments. `open` has a cursor for each that was begun."""

    def __init__(self, segments: Iterable[int], cursors: Iterable[StateCursor] = ()) -> None:
        self.left: dict[int, None] = dict.fromkeys(segments)
        self.open: dict[int, StateCursor] = {}
        self.took(cursors)

    @property
    def is_finished(self) -> bool:
        """Whether every segment was read to its end."""
        return not self.left

    @property
    def next(self) -> tuple[tuple[int, ...], StateCursor | None]:
        """Return the segments that are left in the order to read them in, and where the first was left if it was begun."""
        if not self.open:
            return tuple(self.left), None
        first, cursor = next(iter(self.open.items()))
        return (first, *(segment for segment in self.left if segment != first)), cursor

    def took(self, cursors: Iterable[StateCursor]) -> None:
        """Note what was handed on.

        Raises:
            BadMessage: it goes back, or is of a segment that is not, or no longer, read.
        """
        for cursor in cursors:
            before = self.open.get(cursor.segment)
            if cursor.segment not in self.left:
                raise BadMessage(why=f"entries of segment {cursor.segment}, which is not being read")
            if before is not None and (cursor.pin < before.pin or not (cursor.finished or cursor.key > before.key)):
                raise BadMessage(why=f"the iteration of segment {cursor.segment} goes back")
            if cursor.finished:
                self.open.pop(cursor.segment, None)
                del self.left[cursor.segment]
            else:
                self.open[cursor.segment] = cursor
