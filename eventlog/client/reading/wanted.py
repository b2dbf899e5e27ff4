"""What the calls that read events are asked for: the same options for all of them, checked once and made into a `Reading`. Pure.

A reading says where events begin and end, and makes the request for what comes next.
"""

from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import index
from typing import Any, Final, Literal, TypedDict, TypeVar

import numpy as np

from eventlog.client.reading.columns import left_out
from eventlog.client.reading.filtering import Parameters, Select, filter_of
from eventlog.client.reports import Stalled
from eventlog.client.values import checked_flag, checked_id, checked_span, checked_text
from eventlog.errors import BadMessage, InvalidArgument, Unavailable
from eventlog.ids import id_before
from eventlog.limits import ANSWER_BYTES_MAX
from eventlog.read import token
from eventlog.read.position import ID_MAX, OFFSET_UNKNOWN, Position, SegmentPositions, place_in
from eventlog.read.state import tail_of, with_steps
from eventlog.wire.eventlog_pb2 import Filter, Poll, PollAnswer

OnTrimmed = Literal["error", "earliest", "resync"]
OnStalled = Literal["wait", "error"]
ReadFrom = Literal["owner", "any"]
ON_TRIMMED: Final[tuple[OnTrimmed, ...]] = ("error", "earliest", "resync")
_ON_STALLED: Final[tuple[OnStalled, ...]] = ("wait", "error")
_READ_FROM: Final[tuple[ReadFrom, ...]] = ("owner", "any")
_FLAGS: Final = ("follow", "state_first", "accept_diverged")
SHOWN_MAX: Final = 60  # characters of what is no position, in what is said of it: a token has hundreds
Start = int | Literal["latest"]
Scope = tuple[str, int, int]  # cluster, cache id, segments
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What to read. Everything after `after`, or after `position` (a token), up to `until_id`, 0 for no end.

    `listener` says what is wanted of it instead of `filter`; `goes_on`: from where that one has acknowledged. `columns` are those that are
    asked for, None for all.
    """

    after: int = 0
    position: Position | None = None
    until_id: int = 0
    segments: tuple[int, ...] = ()
    on_trimmed: OnTrimmed = "error"
    max_bytes: int = 0
    accept_diverged: bool = False
    on_stalled: OnStalled = "wait"
    read_from: ReadFrom = "owner"
    filter: Filter | None = None
    listener: str = ""
    goes_on: bool = False
    state_first: bool = False
    columns: tuple[str, ...] | None = None

    @property
    def has_state(self) -> bool:
        """Whether it has entries before the events, or goes on among them or behind them: these are told apart by their keys."""
        return self.state_first or (self.position is not None and bool(self.position.unread or self.position.steps))

    def poll(self, cache_id: int) -> Poll:
        """Return the request for what comes next."""
        poll = Poll(cache_id=cache_id, until_id=self.until_id, max_bytes=self.max_bytes, earliest=self.on_trimmed == "earliest")
        poll.segments.extend(self.segments)
        poll.accept_diverged = self.accept_diverged
        if self.filter is not None:
            poll.filter.CopyFrom(self.filter)
        poll.state_first = self.state_first
        if self.position is not None:
            poll.position = token.encode(self.position if self.position.unread else tail_of(self.position))
        elif not self.state_first:
            poll.after = self.after
        poll.listener = self.listener
        if self.columns is not None and not self.has_state:
            poll.without.extend(left_out(self.columns))
        if self.goes_on:
            poll.ClearField("after")
        return poll

    def after_answer(self, answer: PollAnswer) -> "Reading":
        """Return what is left to read after an answer."""
        if answer.state:
            return replace(self, position=token.decode(answer.position), state_first=False)
        if self.position is None or not isinstance(self.position.at, SegmentPositions):
            return replace(self, after=answer.last_id, position=None, goes_on=False)
        return replace(self, position=with_steps(token.decode(answer.position), self.position.steps))

    def check_stalled(self, stalled: Sequence[Stalled]) -> None:
        """Refuse to wait for segments that stand still, where that was asked for.

        Raises:
            Unavailable: naming the first of them.
        """
        if self.on_stalled == "error" and stalled:
            raise Unavailable(why=str(stalled[0]))

    def token_after(self, answer: PollAnswer) -> str:
        """Return the token to go on with after an answer, empty where it has none."""
        if self.has_state and answer.position:
            position = self.after_answer(answer).position
            if position is not None and position.steps:
                return token.to_text(position)
        return token_text(answer.position)

    def is_done(self, answer: PollAnswer) -> bool:
        """Whether an answer reached the end that was asked for."""
        return 0 < self.until_id <= answer.last_id


def checked_bytes(max_bytes: int) -> int:
    """Return what an answer may hold at most, as a request can say it; 0: as the node likes. Raises InvalidArgument: below 0."""
    if isinstance(max_bytes, bool | type) or not hasattr(max_bytes, "__index__") or index(max_bytes) < 0:
        raise InvalidArgument(why=f"max_bytes is {max_bytes!r:.60}: give a number above 0, or 0 for the node's choice")
    return min(index(max_bytes), ANSWER_BYTES_MAX)


def start_of(*, from_id: int | str | None, from_time: int | datetime | None, position: str | None) -> tuple[Start, Position | None]:
    """Return where a read begins: an id or `latest`, or else a position.

    Raises:
        InvalidArgument: more than one is given, or one that is neither id nor word nor token.
    """
    if sum(given is not None for given in (from_id, from_time, position)) > 1:
        raise InvalidArgument(why="give one of from_id, from_time and position")
    if from_time is not None:
        return id_before(time_ms(from_time)), None
    if position is None and isinstance(from_id, str) and not (from_id.isascii() and from_id.isdigit()):
        if from_id == "latest":
            return "latest", None
        position = None if from_id == "earliest" else from_id
    elif position is None and from_id is not None:
        return checked_id(int(from_id) if isinstance(from_id, str) else from_id, "from_id"), None
    return 0, None if position is None else read_token(position)


def begins_with_state(start: Start, place: Position | None) -> bool:
    """Return whether a read that asks for the state first begins with it; one that goes on from a position does as that says.

    Raises:
        InvalidArgument: it is to begin somewhere in the log as well.
    """
    if start:
        raise InvalidArgument(why="a read that begins with the state begins nowhere else: leave from_id and from_time out")
    return place is None


def checked_tail(tail: int) -> int:
    """Return how many of the last events are wanted.

    Raises:
        InvalidArgument: not a number above 0.
    """
    if isinstance(tail, bool | type) or not hasattr(tail, "__index__") or not 0 < index(tail) <= ID_MAX:
        raise InvalidArgument(why=f"tail is {tail!r}: give a whole number above 0")
    return index(tail)


def one_of(words: Sequence[T], given: str, *, option: str) -> T:
    """Return the word that is given.

    Raises:
        InvalidArgument: none of the words.
    """
    for word in words:
        if word == given:
            return word
    raise InvalidArgument(why=f"{option} is {given!r}: use {', '.join(map(str, words[:-1]))} or {words[-1]}")


def segments_of(segments: Collection[int] | None, *, of: int) -> tuple[int, ...]:
    """Return segments as they are asked for; none stands for all.

    Raises:
        InvalidArgument: they are no numbers, one is not in `[0, of)`, or an empty choice.
    """
    if segments is None:
        return ()
    try:
        found = tuple(sorted({_segment(segment) for segment in segments}))
    except TypeError:
        raise InvalidArgument(why=f"segments are {segments!r:.60}: give whole numbers, as in range(16) or [3, 5]") from None
    if alien := [segment for segment in found if not 0 <= segment < of]:
        raise InvalidArgument(why=f"there is no segment {alien[0]}: give some of 0 to {of - 1}")
    if not found:
        raise InvalidArgument(why=f"no segments to read: give some of 0 to {of - 1}, or None for all")
    return found


def _segment(number: int) -> int:
    if isinstance(number, bool):
        raise TypeError  # a number to Python, and a mask to numpy
    return index(number)


def time_ms(moment: "int | datetime") -> int:
    """Return a moment in milliseconds since 1970."""
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise InvalidArgument(why=f"{moment} has no time zone: use an aware datetime, or milliseconds since 1970")
        return int(moment.timestamp() * 1000)
    if isinstance(moment, bool | type) or not hasattr(moment, "__index__"):
        raise InvalidArgument(why=f"from_time {moment!r:.60} is no moment: use an aware datetime, or milliseconds since 1970")
    return index(moment)


def read_token(text: str) -> Position:
    """Return the position of a token.

    Raises:
        InvalidArgument: not one.
    """
    try:
        return token.from_text(text)
    except (BadMessage, AttributeError) as error:  # or it is no text at all
        shown = repr(text) if len(repr(text)) < SHOWN_MAX + 2 else f"{repr(text)[: SHOWN_MAX + 1]}...'"
        raise InvalidArgument(why=f"{shown} is neither an id nor a position of a reader: {getattr(error, 'why', error)}") from error


def shortest(text: str) -> str:
    """Return a token as an id, where that says as much."""
    at = token.from_text(text).at
    return str(at) if isinstance(at, int) else text


def token_text(data: bytes) -> str:
    """Return a binary token as printable text."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def position_after(start: Position | None, scope: Scope, last_id: int, *, of: Sequence[int] = ()) -> str:
    """Return the token of a reader that began at `start` and has everything up to `last_id`.

    `of` are the segments that it reads, rising; none stands for all. The token has no place in any other: whoever went on there would miss
    what was not read.
    """
    cluster, cache_id, segments = scope
    at: int | SegmentPositions = last_id
    before: int | SegmentPositions = 0 if start is None else start.at
    if 0 < len(of) < segments:
        before = place_in(before, np.array(of, np.int64))
    if isinstance(before, SegmentPositions) and (len(before.of) < segments or int(before.ids.max()) > last_id):
        passed = before.ids < last_id
        at = SegmentPositions(
            of=before.of,
            ids=np.where(passed, last_id, before.ids),
            offsets=np.where(passed, OFFSET_UNKNOWN, before.offsets),
            epochs=np.where(passed, 0, before.epochs),
        )
    return token.to_text(Position(cluster=cluster, cache_id=cache_id, segments=segments, at=at))


def one_id(position: Position) -> int | None:
    """Return the id behind which a position stands in every segment that it holds, None where they differ or entries are still read."""
    if position.unread or position.steps:
        return None
    at = position.at
    if not isinstance(at, SegmentPositions):
        return at
    return int(at.ids[0]) if bool((at.ids == at.ids[0]).all()) else None


class ScanOptions(TypedDict, total=False):
    """Options of `scan_events`, by name."""

    position: str | None
    until_id: int | None
    segments: Collection[int] | None
    on_trimmed: OnTrimmed
    accept_diverged: bool
    state_first: bool
    where: str | None
    parameters: Parameters | None
    select: Select | None
    filter: str | None
    params: Mapping[str, Any] | None
    continuous: bool


class PollOptions(ScanOptions, total=False):
    """Options of `poll`, by name."""

    listener: str | None


class ReadOptions(PollOptions, total=False):
    """Options of `events` and `event_batches`, by name."""

    from_time: int | datetime | None
    tail: int | None
    follow: bool
    on_stalled: OnStalled
    read_from: ReadFrom
    poll_interval_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PollWanted:
    """What a poll wants, with what holds where nothing is said."""

    position: str | None = None
    until_id: int | None = None
    segments: Collection[int] | None = None
    on_trimmed: OnTrimmed = "error"
    accept_diverged: bool = False
    state_first: bool = False
    where: str | None = None
    parameters: Parameters | None = None
    select: Select | None = None
    filter: str | None = None
    params: Mapping[str, Any] | None = None
    listener: str | None = None
    continuous: bool = False
    from_time: int | datetime | None = None
    tail: int | None = None
    follow: bool = False
    on_stalled: OnStalled = "wait"
    read_from: ReadFrom = "owner"
    poll_interval_ms: int | None = None

    def reading(self, from_id: int | str | None, *, max_bytes: int) -> tuple[Start, Reading]:
        """Return where to begin, and the reading without its ends.

        Raises:
            InvalidArgument: something that cannot be wanted, or not together.
        """
        if self.poll_interval_ms is not None:
            checked_span("poll_interval_ms", self.poll_interval_ms)
        max_bytes = checked_bytes(max_bytes)
        for name in _FLAGS:
            if (given := getattr(self, name)) is not False and given is not True:
                checked_flag(name, given)
        if self.listener is not None:
            checked_text("listener", self.listener)
        if self.listener == "":  # further down that is none, and everything would be read
            raise InvalidArgument(why="listener is empty: leave it out, or name one")
        if self.tail is not None:
            self._check_tail(from_id)
        start, place = start_of(from_id=from_id, from_time=self.from_time, position=self.position)
        is_placed = any(given is not None for given in (from_id, self.from_time, self.position))
        reading = Reading(
            position=place,
            on_trimmed=one_of(ON_TRIMMED, self.on_trimmed, option="on_trimmed"),
            on_stalled=one_of(_ON_STALLED, self.on_stalled, option="on_stalled"),
            read_from=one_of(_READ_FROM, self.read_from, option="read_from"),
            accept_diverged=self.accept_diverged,
            max_bytes=max_bytes,
            listener=self.listener or "",
            goes_on=self.listener is not None and not is_placed,
            filter=filter_of(
                where=self.where,
                parameters=self.parameters,
                select=self.select,
                filter=self.filter,
                params=self.params,
                continuous=self.continuous,
            ),
            state_first=self.state_first and begins_with_state(start, place),
        )
        return start, reading

    def _check_tail(self, from_id: int | str | None) -> None:
        """Raise InvalidArgument where the last events are wanted, and something that begins or ends elsewhere."""
        for name, given in (
            ("from_id", from_id is not None),
            ("from_time", self.from_time is not None),
            ("position", self.position is not None),
            ("until_id", self.until_id is not None),
            ("state_first", self.state_first),
            ("listener", self.listener is not None),
        ):
            if given:
                raise InvalidArgument(why=f"tail begins so many events before the end of the log: leave {name} out")
