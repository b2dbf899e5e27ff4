"""Where the last events of a log begin, found by counts of what lies behind some ids, and then behind others between two of these.

Offsets are dense, so a primary counts with one seek. Reading backwards would grow with the number of events, and they lie at many nodes.
"""

from collections.abc import Sequence

_PARTS = 4  # what is left is cut into: two bits of the id a round, for three counts


class LastEvents:
    """Looks for the id behind which exactly `events` lie, up to `upto`.

    More than `events` lie behind `_low`, fewer behind `_high`; before anything is counted that is not known of `_low`.
    """

    def __init__(self, events: int, *, upto: int) -> None:
        self._events = events
        self._low, self._high = -1, upto
        self.after: int | None = None if upto else 0

    def ids(self) -> list[int]:
        """Return the ids, rising, behind which events are to be counted; none when the answer is there."""
        if self.after is not None:
            return []
        if self._low < 0:
            return [0]
        width = self._high - self._low
        return sorted({self._low + max(width * part // _PARTS, 1) for part in range(1, _PARTS)})

    def take(self, ids: Sequence[int], counts: Sequence[int]) -> None:
        """Take in how many events lie behind the ids that were asked for."""
        for id_, count in zip(ids, counts, strict=True):
            if count == self._events or (count < self._events and id_ == 0):
                self.after = id_
                return
            if count > self._events:
                self._low = max(self._low, id_)
            else:
                self._high = min(self._high, id_)
        if self._high - self._low <= 1:
            self.after = self._high  # retention took some while they were counted: there are fewer now
