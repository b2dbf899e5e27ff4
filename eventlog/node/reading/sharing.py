"""One answer for all that ask the same: kept, handed on within a round, and serialized once.

`AnswerCache` keeps answers for followers of one cache, and for many that read one history one after the other. `Alike` hands what the
first reader of a round got to those that stand at its place. `Shared` holds the bytes of an answer.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from eventlog.limits import ANSWER_CACHE_BYTES_MAX, ANSWER_CACHE_ENTRIES_MAX
from eventlog.node.reading.pulls import Delivered, Pull
from eventlog.read import token
from eventlog.read.answer import Answer, Limits
from eventlog.read.answer import Part as AnswerPart
from eventlog.read.cursor import Cursor
from eventlog.wire.eventlog_pb2 import Message, Part, PollAnswer, Stalled, StreamItem

Says = tuple[int, bool, int]  # id to go on after, whether it is the end, low watermark
# cache id, cursor, id up to which it was looked, what the answer may hold, digest of the filter
Key = tuple[int, tuple[bytes, int], int, Limits, bytes | None]
_ENTRY_BYTES = 500
Sameness = tuple[int, tuple[bytes, int], Limits, int, bool, bool, int]


@dataclass(slots=True, kw_only=True, eq=False)
class Shared:
    """An answer that several readers may get, and the last message made of it: (what it says beside the answer, its bytes)."""

    answer: Answer
    _made: tuple[tuple[object, ...], bytes] = field(default=((), b""))

    def message(self, *, cursor: Cursor, place: tuple[str, int], is_stream: bool, says: Says) -> bytes:
        """Return the message for a reader whose cursor stands behind the answer; `place` is (cluster, cache id).

        Readers of one shared answer had the same cursor before it, so they have the same after it.
        """
        if self._made[0] != (is_stream, *says):
            upto, is_end, low_watermark = says
            message = PollAnswer(
                parts=[_part(part) for part in self.answer.parts],
                last_id=upto,
                position=token.encode(cursor.position(cluster=place[0], cache_id=place[1])),
                end=is_end,
                low_watermark=low_watermark,
                events=self.answer.events,
            )
            self._made = ((is_stream, *says), wrap(message, is_stream=is_stream))
        return self._made[1]


def bare_message(*, cursor: Cursor, place: tuple[str, int], is_stream: bool, says: Says, stalled: Sequence[Stalled]) -> bytes:
    """Return the message of an answer without events."""
    last_id, is_end, low_watermark = says
    message = PollAnswer(
        last_id=last_id,
        position=token.encode(cursor.position(cluster=place[0], cache_id=place[1])),
        end=is_end,
        low_watermark=low_watermark,
        stalled=stalled,
    )
    return wrap(message, is_stream=is_stream)


def wrap(message: PollAnswer, *, is_stream: bool) -> bytes:
    """Return the serialization of the frame's message."""
    whole = Message(stream_item=StreamItem(poll_answer=message)) if is_stream else Message(poll_answer=message)
    return whole.SerializeToString()


def _part(part: AnswerPart) -> Part:
    if part.runs:
        return Part(form=Part.JOINED, length=part.length, runs=part.runs, events=part.events, changes=part.has_changes)
    return Part(form=Part.STORED, length=part.length, segment=part.segment, events=part.events)


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
        """Keep an answer for others that ask the same; return the one to give."""
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


class Alike:
    """What was delivered since `clear`, by the readers that would get the same. Between `begin` and `end` of a pull its answer is noted."""

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

    def note(self, delivered: Delivered, answer: Answer) -> None:
        """Take note of what the pull gets that is the first of its kind."""
        assert self._first is not None, "`begin` was called"
        self._found[self._first[1]] = (delivered, answer)


def _sameness(pull: Pull) -> Sameness:
    return pull.cache.cache_id, pull.cursor.key, pull.limits, pull.until, pull.is_stream, pull.skips_trimmed, pull.lost_known
