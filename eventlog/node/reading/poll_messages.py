"""Answers as messages: one serialization for all who get the same."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from eventlog.consume import token
from eventlog.consume.answer import Answer
from eventlog.consume.answer import Part as AnswerPart
from eventlog.consume.cursor import Cursor
from eventlog.wire.eventlog_pb2 import Message, Part, PollAnswer, Stalled, StreamItem

Says = tuple[int, bool, int]  # id to go on after, whether it is the end, low watermark


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
