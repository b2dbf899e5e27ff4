"""Segments of which this node has no copy: their stored values are asked of nodes that have one, and joined here with the others.

The node that is asked answers as it would a reader of these segments, but with stored values as they are; all parts of an answer are cut
at the lowest id that somebody got to. What is on the wire is what is in the logs, so any node can serve everything, one that owns
nothing too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np

from eventlog.arrays import Ints
from eventlog.batch.layout import read_head
from eventlog.batch.marks import CONTENT
from eventlog.errors import BadMessage, EventLogError, NotPrimary, Stopping
from eventlog.ids import ID_MAX
from eventlog.limits import ANSWER_BYTES_MAX, CLOSE_UP_MS_MAX
from eventlog.node.reading.closing import Members
from eventlog.node.reading.filters import message_of
from eventlog.node.reading.pulls import Delivered, Pull, ReadContext
from eventlog.node.reading.reader import ReaderThread
from eventlog.predicate.spec import CompiledFilter
from eventlog.read.answer import NO_LIMIT, Answer, Limits, Part, build_answer
from eventlog.read.cursor import Cursor, SegmentEnds
from eventlog.read.filtered import Gathered, merge_gathered, read_matched
from eventlog.read.history import checked
from eventlog.read.position import OFFSET_UNKNOWN, SegmentPositions
from eventlog.segment.keys import log_key, log_range, parse_log_key
from eventlog.segment.port import Pair, Range, Store
from eventlog.state.caches import CacheState
from eventlog.transport.connection import Exchange
from eventlog.wire.eventlog_pb2 import Fetch, FetchAnswer, Message
from eventlog.wire.session import Reply

VALUE: Final = np.dtype([("segment", "<u2"), ("zero", "<u2"), ("length", "<u4")])
_BYTES_MIN = 64 << 10  # asked of each node, however many are asked


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fetched:
    """Stored values of some segments with everything up to `upto`; `is_trimmed`: retention has passed the reader there.

    For a reader with a filter `gathered` holds what matched instead.
    """

    upto: int
    pairs: list[Pair] = field(default_factory=list)
    is_trimmed: bool = False
    gathered: Gathered | None = None


class Fetching:
    """Asks for values, and gives them. `pull` reads what is here."""

    def __init__(self, context: ReadContext, *, pull: Callable[[Pull], None], thread: ReaderThread) -> None:
        self._context = context
        self._thread = thread
        self._pull = pull
        self._members: Members | None = None
        self._copies: Callable[[int], Sequence[int]] = lambda _: ()

    def join(self, members: Members, *, copies: Callable[[int], Sequence[int]]) -> None:
        """Have others to ask from now on; `copies` gives the nodes with a copy of a segment, the one to ask first first."""
        self._members = members
        self._copies = copies

    # ------------------------------------------------------------ being asked

    def asked(self, exchange: Exchange, *, matches: CompiledFilter | None = None) -> None:
        """Answer a member with stored values, or with the events that match."""
        request = exchange.message.fetch
        try:
            cache = self._context.caches.find(request.cache_id)
            cursor = _cursor_of(request, self._context.segments)
            assert cursor.asked is not None, "a member names segments"
            elsewhere = cursor.asked[~self._context.low.here[cursor.asked]]
            if len(elsewhere):
                raise NotPrimary(segment=int(elsewhere[0]))
        except EventLogError as error:
            exchange.fail(error)
            return
        self._context.closing.close_up(min(request.upto, ID_MAX))
        after = SegmentPositions(of=cursor.asked, ids=_ids_of(cursor), offsets=cursor.asked, epochs=cursor.asked)
        nbytes, without = min(request.max_bytes or NO_LIMIT, ANSWER_BYTES_MAX), CONTENT.intersection(request.without)
        pull = self._raw(cache, cursor, upto=request.upto, limits=Limits(nbytes=nbytes, without=without))
        pull.owner, pull.matches = exchange.connection, matches
        pull.done = partial(self._answer_all if request.all else _answer, exchange, pull, after)
        self._pull(pull)

    def _answer_all(self, exchange: Exchange, pull: Pull, after: SegmentPositions, found: Delivered | EventLogError) -> None:
        """Answer with all that the log has as far as was found: what a reader gets lacks values without events."""
        if isinstance(found, EventLogError):
            _answer(exchange, pull, after, found)
            return
        places = zip(after.of.tolist(), after.ids.tolist(), strict=True)
        ranges = [log_range(segment, pull.cache.cache_id, after=id_, upto=found.upto) for segment, id_ in places if id_ < found.upto]
        job = partial(_values_in, self._context.store, ranges, upto=found.upto, bytes_max=pull.limits.nbytes)
        self._thread.run(pull.owner, job).add_done_callback(lambda done: _answer_found(exchange, pull, after, found=found, done=done))

    @staticmethod
    def _raw(cache: CacheState, cursor: Cursor, *, upto: int, limits: Limits) -> Pull:
        """Return a pull for stored values that waits for nothing and says nothing of what is trimmed."""
        return Pull(
            cache=cache,
            cursor=cursor,
            until=min(upto, ID_MAX),
            limits=replace(limits, is_raw=True),
            owner=None,
            done=_unheard,
            ends_at=0,
            skips_trimmed=True,
        )

    # ------------------------------------------------------------ asking

    def gather(self, pull: Pull, far: Ints, *, top: int) -> "asyncio.Future[list[Fetched]]":
        """Return what follows a pull's cursor up to `top`, of the segments `far` from others and of the rest from here.

        The future fails with `ConnectionLost` or `NotPrimary` while nobody can be asked: try again later.
        """
        asked = np.arange(self._context.segments) if pull.cursor.asked is None else pull.cursor.asked
        near = np.setdiff1d(asked, far, assume_unique=True)
        of: dict[int, list[int]] = {}
        for segment in far.tolist():
            of.setdefault(self._choose(segment), []).append(segment)
        waiting: list[Awaitable[Fetched]] = []
        if len(near):
            waiting.append(self._near(pull, near, top=top, share=len(near) / len(asked)))
        for number, segments in of.items():
            waiting.append(self._ask(number, pull, np.array(segments), top=top, share=len(segments) / len(asked)))
        return asyncio.gather(*waiting)

    def _choose(self, segment: int) -> int:
        """Return the node to ask for a segment; raises NotPrimary where there is none."""
        connected = self._members.incarnations if self._members is not None else {}
        for number in self._copies(segment):
            if number in connected:
                return number
        raise NotPrimary(segment=segment)

    def _near(self, pull: Pull, segments: Ints, *, top: int, share: float) -> "asyncio.Future[Fetched]":
        found: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
        own = self._raw(pull.cache, part_of(pull.cursor, segments), upto=top, limits=_share_of(pull.limits, share))
        own.owner, own.matches = pull.owner, pull.matches

        def take(delivered: Delivered | EventLogError) -> None:
            if found.done():
                return
            if isinstance(delivered, EventLogError):
                found.set_exception(delivered)
            elif own.matches is not None:
                found.set_result(_fetched_matches(own, delivered, segments))
            else:
                values = zip((part.segment for part in delivered.parts), delivered.body, strict=True)
                found.set_result(Fetched(upto=delivered.upto, pairs=_pairs(values, pull.cache.cache_id)))

        own.done = take
        self._pull(own)
        return found

    async def _ask(self, number: int, pull: Pull, segments: Ints, *, top: int, share: float) -> Fetched:
        cursor = part_of(pull.cursor, segments)
        ids = _ids_of(cursor)
        request = Fetch(cache_id=pull.cache.cache_id, segments=segments.tolist(), upto=top, max_bytes=_share_of(pull.limits, share).nbytes)
        request.after.extend(ids.tolist() if bool((ids != ids[0]).any()) else [int(ids[0])])
        if pull.matches is not None:
            request.filter.CopyFrom(message_of(pull.matches.spec))
            request.without.extend(sorted(pull.limits.without))
        assert self._members is not None, "somebody was chosen"
        reply = await self._members.send(number, Message(fetch=request), timeout_ms=2 * CLOSE_UP_MS_MAX)
        answer = reply.message.fetch_answer
        is_trimmed = note_trimmed(pull.cache, answer)
        upto = min(answer.upto, top)
        if pull.matches is not None:
            joined, changes = read_matched(reply.body, runs=answer.runs, has_changes=answer.changes)
            ends = SegmentEnds(list(answer.passed), list(answer.next_offsets), list(answer.epochs))
            scanned = answer.scanned_bytes
            gathered = Gathered(segments=segments, upto=upto, ends=ends, joined=joined, changes=changes, scanned_bytes=scanned)
            return Fetched(upto=upto, is_trimmed=is_trimmed, gathered=gathered)
        return Fetched(upto=upto, pairs=pairs_of(reply, cache_id=pull.cache.cache_id), is_trimmed=is_trimmed)


def join_fetched(found: Sequence[Fetched], pull: Pull, *, cursor: Cursor) -> Answer:
    """Return one answer out of what several nodes gave, cut where all of them got to."""
    if pull.matches is not None:
        answer = merge_gathered([part.gathered for part in found if part.gathered is not None], limits=pull.limits)
        return answer if cursor.asked is not None else replace(answer, ends=None)
    values = checked(sorted(pair for part in found for pair in part.pairs), cache_id=pull.cache.cache_id)
    return build_answer(values, cursor=cursor, top=min(part.upto for part in found), limits=pull.limits)


def part_of(cursor: Cursor, segments: Ints) -> Cursor:
    """Return a cursor at the same places of some of the segments."""
    at = cursor.at
    if not isinstance(at, SegmentPositions):
        return Cursor.at_id(cursor.segments, at, asked=segments)
    rows = np.searchsorted(at.of, segments)
    return Cursor(cursor.segments, SegmentPositions(of=segments, ids=at.ids[rows], offsets=at.offsets[rows], epochs=at.epochs[rows]))


def _share_of(limits: Limits, share: float) -> Limits:
    nbytes = max(int(min(limits.nbytes, ANSWER_BYTES_MAX) * share), _BYTES_MIN)
    return replace(limits, nbytes=nbytes)


def _ids_of(cursor: Cursor) -> Ints:
    at = cursor.at
    assert isinstance(at, SegmentPositions), "a cursor of some segments has a place in each"
    return at.ids.copy()


def _cursor_of(request: Fetch, segments: int) -> Cursor:
    of = np.array(request.segments, np.int64)
    after = np.array(request.after, np.int64)
    if not len(of) or bool((of[1:] <= of[:-1]).any()) or int(of[-1]) >= segments or len(after) not in {1, len(of)}:
        raise BadMessage(why="values are asked for of segments that rise, after one id or one for each")
    ids = np.broadcast_to(after, len(of)).copy()
    places = SegmentPositions(of=of, ids=ids, offsets=np.full(len(of), OFFSET_UNKNOWN, np.int64), epochs=np.zeros(len(of), np.int64))
    return Cursor(segments, places)


def _fetched_matches(pull: Pull, found: Delivered, segments: Ints) -> Fetched:
    """Return what a pull with a filter found here."""
    runs, has_changes = (found.parts[0].runs, found.parts[0].has_changes) if found.parts else (0, False)
    joined, changes = read_matched(b"".join(found.body), runs=runs, has_changes=has_changes)
    ends = SegmentEnds(*_places_of(pull.cursor))
    gathered = Gathered(segments=segments, upto=found.upto, ends=ends, joined=joined, changes=changes, scanned_bytes=pull.scanned_bytes)
    return Fetched(upto=found.upto, gathered=gathered)


def _places_of(cursor: Cursor) -> tuple[list[int], list[int], list[int]]:
    """Return segments, offsets and epochs where they are known."""
    at = cursor.at
    assert isinstance(at, SegmentPositions), "a cursor of some segments has a place in each"
    known = at.offsets != OFFSET_UNKNOWN
    return at.of[known].tolist(), at.offsets[known].tolist(), at.epochs[known].tolist()


def _answer(exchange: Exchange, pull: Pull, after: SegmentPositions, found: Delivered | EventLogError) -> None:
    if exchange.is_over:
        return
    if isinstance(found, EventLogError):
        exchange.fail(found)
        return
    cache = pull.cache
    answer = FetchAnswer(upto=found.upto)
    head = b""
    if pull.matches is not None:
        answer.runs = found.parts[0].runs if found.parts else 0
        answer.changes = bool(found.parts and found.parts[0].has_changes)
        answer.scanned_bytes = pull.scanned_bytes
        for column, numbers in zip((answer.passed, answer.next_offsets, answer.epochs), _places_of(pull.cursor), strict=True):
            column.extend(numbers)
    else:
        rows = np.zeros(len(found.parts), VALUE)
        rows["segment"] = [part.segment for part in found.parts]
        rows["length"] = [part.length for part in found.parts]
        answer.values, head = len(rows), rows.tobytes()
    trimmed = after.of[cache.trimmed_ids[after.of] > after.ids]
    answer.trimmed.extend(trimmed.tolist())
    answer.trimmed_ids.extend(cache.trimmed_ids[trimmed].tolist())
    answer.trimmed_offsets.extend(cache.trimmed_offsets[trimmed].tolist())
    try:
        exchange.answer(Message(fetch_answer=answer), head, *found.body)
    except EventLogError as error:  # too large for a frame
        exchange.fail(error)


def _values_in(store: Store, ranges: Sequence[Range], *, upto: int, bytes_max: int) -> Fetched:
    """Return all values of a log in some ranges of keys, one a segment, as far as about so many bytes go.

    Raises:
        CorruptData: the engine cannot read them.
    """
    pairs: list[Pair] = []
    share = max(bytes_max // max(len(ranges), 1), 1)
    for lower, upper in ranges:
        found = store.read_log(lower, upper, bytes_max=share)
        if sum(len(value) for _, value in found) >= share:
            upto = min(upto, parse_log_key(found[-1][0])[2])
        pairs += found
    return Fetched(upto=upto, pairs=[pair for pair in pairs if parse_log_key(pair[0])[2] <= upto])


def _answer_found(exchange: Exchange, pull: Pull, after: SegmentPositions, *, found: Delivered, done: "asyncio.Future[Fetched]") -> None:
    error = Stopping() if done.cancelled() else done.exception()
    if error is not None:
        assert isinstance(error, EventLogError), "reading the store fails with errors of ours"
        _answer(exchange, pull, after, error)
        return
    whole = done.result()
    parts = tuple(Part(length=len(value), runs=0, segment=parse_log_key(key)[0], events=0) for key, value in whole.pairs)
    _answer(exchange, pull, after, replace(found, upto=whole.upto, parts=parts, body=tuple(value for _, value in whole.pairs)))


def _values_of(reply: Reply) -> list[tuple[int, bytes]]:
    """Return segment and bytes of each value in an answer.

    Raises:
        BadMessage: the rows do not fit the body.
    """
    count, body = reply.message.fetch_answer.values, reply.body
    size = count * VALUE.itemsize
    rows = np.frombuffer(body[:size], VALUE) if size <= len(body) else np.zeros(0, VALUE)
    ends = size + np.cumsum(rows["length"], dtype=np.int64)
    if len(rows) != count or (int(ends[-1]) if count else 0) != len(body):
        raise BadMessage(why=f"{count} values do not fill a body of {len(body)} bytes")
    starts = (ends - rows["length"]).tolist()
    return [(segment, bytes(body[low:high])) for segment, low, high in zip(rows["segment"].tolist(), starts, ends.tolist(), strict=True)]


def pairs_of(reply: Reply, *, cache_id: int) -> list[Pair]:
    """Return what another node sent of its logs; raises BadMessage."""
    return _pairs(_values_of(reply), cache_id)


def _pairs(values: Any, cache_id: int) -> list[Pair]:
    where = f"cache {cache_id}, read elsewhere"
    return [(log_key(segment, cache_id, read_head(data, where=where).base), bytes(data)) for segment, data in values]


def note_trimmed(cache: CacheState, answer: FetchAnswer) -> bool:
    """Take over what retention removed at the other node; return whether that was news here."""
    news = False
    for segment, id_, offset in zip(answer.trimmed, answer.trimmed_ids, answer.trimmed_offsets, strict=True):
        if id_ > cache.trimmed_ids[segment]:
            cache.trimmed_ids[segment], cache.trimmed_offsets[segment] = id_, offset
            news = True
    return news


def _unheard(_: Delivered | EventLogError) -> None:
    raise AssertionError("a pull of values has somebody to give them to")
