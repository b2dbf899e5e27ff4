"""Readers at one place who want the same, within one round: the first is answered, the others get what it got."""

from eventlog.consume.answer import Answer
from eventlog.consume.cut import Limits
from eventlog.node.reading.pulls import Delivered, Pull

Sameness = tuple[int, tuple[bytes, int], Limits, int, bool, bool, int]


class Alike:
    """What was delivered since `clear`, by who would get the same. Between `begin` and `end` of a pull its answer is noted."""

    def __init__(self) -> None:
        self._found: dict[Sameness, tuple[Delivered, Answer]] = {}
        self._first: tuple[Pull, Sameness] | None = None

    def clear(self) -> None:
        """Forget what was delivered: there is more by now."""
        self._found.clear()

    def find(self, pull: Pull) -> Delivered | None:
        """Return what one like this pull got, its cursor moved on; None to the first of its kind."""
        found = self._found.get(_sameness(pull))
        if found is None:
            return None
        delivered, answer = found
        pull.cursor.advance(delivered.upto, answer.ends)
        return delivered

    def begin(self, pull: Pull) -> None:
        """Note what is delivered to this pull until `end`."""
        self._first = (pull, _sameness(pull))

    def end(self) -> None:
        """Note nothing any more: what is delivered later may be of another moment."""
        self._first = None

    def is_first(self, pull: Pull) -> bool:
        """Return whether others may get what this pull gets."""
        return self._first is not None and self._first[0] is pull

    def note(self, pull: Pull, delivered: Delivered, answer: Answer) -> None:
        """Take note of what a pull gets that is the first of its kind."""
        if self._first is not None and self._first[0] is pull:
            self._found[self._first[1]] = (delivered, answer)


def _sameness(pull: Pull) -> Sameness:
    return pull.cache.cache_id, pull.cursor.key, pull.limits, pull.until, pull.is_stream, pull.skips_trimmed, pull.lost_known
