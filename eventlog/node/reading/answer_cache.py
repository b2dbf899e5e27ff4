"""Answers kept for readers who ask the same: followers of one cache, and many who read one history one after the other."""

from collections import OrderedDict

from eventlog.consume.answer import Answer
from eventlog.consume.cut import Limits
from eventlog.limits import ANSWER_CACHE_BYTES_MAX, ANSWER_CACHE_ENTRIES_MAX
from eventlog.node.reading.poll_messages import Shared

# cache id, cursor, id up to which it was looked, what the answer may hold, digest of the filter
Key = tuple[int, tuple[bytes, int], int, Limits, bytes | None]
_ENTRY_BYTES = 500


class AnswerCache:
    """The latest answers by what was asked. What is committed does not change, so they never get wrong, only unwanted."""

    def __init__(self, *, bytes_max: int = ANSWER_CACHE_BYTES_MAX, entries_max: int = ANSWER_CACHE_ENTRIES_MAX) -> None:
        self._bytes_max = bytes_max
        self._entries_max = entries_max
        self._answers: OrderedDict[Key, Shared] = OrderedDict()
        self.nbytes = 0
        self.peak = 0
        self.made = 0  # so many answers were made, each from one reading and with one judging of its events

    def get(self, key: Key) -> Shared | None:
        """Return the answer to the same question."""
        shared = self._answers.get(key)
        if shared is not None:
            self._answers.move_to_end(key)
        return shared

    def put(self, key: Key, answer: Answer) -> Shared:
        """Keep an answer for others who ask the same; return the one to give."""
        if key in self._answers:
            return self._answers[key]
        self.made += 1
        shared = Shared(answer=answer)
        if answer.nbytes <= self._bytes_max:
            self._answers[key] = shared
            self.nbytes += _weight(key, shared)
            while self.nbytes > self._bytes_max or len(self._answers) > self._entries_max:
                place, gone = self._answers.popitem(last=False)
                self.nbytes -= _weight(place, gone)
            self.peak = max(self.peak, self.nbytes)
        return shared

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {"answer_cache_bytes": (self.nbytes, self._bytes_max, self.peak)}


def _weight(key: Key, shared: Shared) -> int:
    return shared.answer.nbytes + len(key[1][0]) + _ENTRY_BYTES
