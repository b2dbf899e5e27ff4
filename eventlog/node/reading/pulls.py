"""What one reader wants next, and how a request says it. A pull is a poll, or one item of a watch."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter, thread_time
from typing import Protocol

import numpy as np

from eventlog.arrays import Ints
from eventlog.batch.marks import CONTENT
from eventlog.errors import CacheDropped, CacheRecreated, EventLogError, InvalidArgument, NoEvents
from eventlog.ids import ID_MAX, id_before
from eventlog.limits import (
    ANSWER_BYTES_DEFAULT,
    ANSWER_BYTES_MAX,
    FILTER_SCAN_BYTES_MAX,
    FILTER_SCAN_STEP_BYTES,
    POLL_WAIT_MS_MAX,
    POSITION_TOLD_FIRST_MS,
    POSITION_TOLD_MS,
    STALLED_MS,
)
from eventlog.node.reading.closing import Closing
from eventlog.predicate.spec import CompiledFilter
from eventlog.read import token
from eventlog.read.answer import NO_LIMIT, Limits, Part
from eventlog.read.cursor import Cursor
from eventlog.read.position import Position, SegmentPositions
from eventlog.read.steps import StepIndex
from eventlog.read.tail import Tail
from eventlog.read.watermark import LowWatermark
from eventlog.segment.port import Store
from eventlog.state.caches import Caches, CacheState
from eventlog.wire.eventlog_pb2 import Poll
from eventlog.wire.frames import SharedFrame


class ReadContext(Protocol):
    """What reading needs of a node."""

    @property
    def cluster(self) -> str:
        """Id of the cluster, as positions carry it."""
        ...

    @property
    def segments(self) -> int:
        """Number of segments of the cluster."""
        ...

    @property
    def store(self) -> Store: ...

    @property
    def caches(self) -> Caches: ...

    @property
    def tail(self) -> Tail: ...

    @property
    def steps(self) -> StepIndex: ...

    @property
    def low(self) -> LowWatermark: ...

    @property
    def closing(self) -> Closing: ...

    def now_2020(self) -> int:
        """Return physical time in milliseconds since 2020."""
        ...

    def leader_of(self, segment: int) -> int:
        """Return the number of the node that leads a segment, 0 when nobody does."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPace:
    """How readers share the loop with everything else, and how long they wait for company, for a match and for news of where they stand."""

    slice_s: float = 0.001  # of a round, by the time that the thread works
    slice_looks: int = 24  # and what these make the loop do next: answers to send, requests to take
    renew_served: int = 200  # at least, before what was committed meanwhile is read for the readers left in a round
    pause_factor: float = 2
    answer_s: float = 0.00004  # a long poll on a machine of 2.5 GHz, until it is measured here
    turn_s: float = 0.001
    turn_looks: int = 24
    long_ms: int = 1_000  # from here on waits share timers, and those that wait alike share a pull
    tick_ms: int = 100  # a long wait ends so much later, at most
    join_ms: int = 100  # after the first of a crowd: a later one waits in another, so that all wait about as long as they asked for
    slice_answers: int = 24  # of a crowd, in one turn of the loop, and as many requests that follow: a write waits no longer than for these
    renew_answers: int = 200  # after so many the others get what was committed meanwhile, too
    scan_step_bytes: int = FILTER_SCAN_STEP_BYTES
    scan_bytes_max: int = FILTER_SCAN_BYTES_MAX
    position_told_first_ms: int = POSITION_TOLD_FIRST_MS
    position_told_ms: int = POSITION_TOLD_MS
    stalled_ms: int = STALLED_MS
    cpu_s: Callable[[], float] = thread_time  # on a busy machine the clock goes on while nothing is done
    wall_s: Callable[[], float] = perf_counter


READ_PACE = ReadPace()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What a pull got, encoded: `message` is a Message's serialization, the same object for all that got the same.

    `upto` is the id up to which everything wanted was in it; `is_end` says that there was nothing more at that moment, `has_all` of one
    without events that everything up to the limit was looked at. For another node it is not encoded: `parts` say what the body holds.
    `shared` is what many get, message and body in one.
    """

    message: bytes
    body: tuple[bytes, ...]
    events: int
    first_id: int
    upto: int
    is_end: bool
    parts: tuple[Part, ...] = ()
    shared: SharedFrame | None = None
    has_all: bool = True

    @property
    def content(self) -> tuple[bytes | SharedFrame, ...]:
        """Return what an exchange is answered with."""
        return (self.message, *self.body) if self.shared is None else (self.shared,)


@dataclass(slots=True, kw_only=True, eq=False)
class Pull:
    """One reader that wants what follows its cursor, no further than `until`. `done` is called once.

    `ends_at`, where it does not wait for new events: the id at or above everything that was committed anywhere when it began, ID_MAX
    as long as that is asked for. `owner` is whose turn it takes in the reader thread. `skips_trimmed`: it begins at the first id
    kept, whatever its cursor says. `says_stalled`: it wants to hear, with nothing to read, that it stands still. `wait_ms` None waits
    for ever. `trimmed_before` is how far retention had come when a value was last found missing, `lost_known` how many changes of the
    lost ranges it has been compared with.
    `matches` chooses its events, which are all in the segments `only`, if given; `scanned_bytes` were judged since it was last answered.
    `told` is the place of a follower with a filter, as it knows it.
    """

    cache: CacheState
    cursor: Cursor
    until: int
    limits: Limits
    owner: object
    done: Callable[[Delivered | EventLogError], None]
    wait_ms: int | None = 0
    ends_at: int | None = None
    is_expired: bool = False  # it waits no longer, whether it is known to be at the end or not
    is_notify: bool = False
    is_stream: bool = False
    skips_trimmed: bool = False
    says_stalled: bool = False
    is_over: bool = False
    trimmed_before: int = -1
    was_mended: bool = False
    accepts_diverged: bool = True
    lost_known: int = -1
    matches: CompiledFilter | None = None
    only: Ints | None = None
    scanned_bytes: int = 0
    told: tuple[bytes, int] | None = None
    deadline: asyncio.TimerHandle | int | None = None  # of `Deadlines`
    until_passed: asyncio.TimerHandle | None = None  # while it waits: looks again when the clock has passed `until`

    @property
    def refusal(self) -> EventLogError | None:
        """Why nothing of its cache is answered any more. Members are given what is stored, and a wait for an id reads nothing."""
        if self.cache.dropped:
            return CacheDropped(cache=self.cache.name)
        if not self.cache.options.events and not self.limits.is_raw and self.cursor.lowest < self.until:
            return NoEvents(cache=self.cache.name)
        return None


def begin(context: ReadContext, poll: Poll, *, limit: Callable[[Ints | None], int]) -> Pull:
    """Return the pull that a request describes; `owner` and `done` are the caller's to set.

    Raises:
        CacheNotFound, CacheDropped, NoEvents: there is nothing to read.
        BadMessage, PositionMismatch, CacheRecreated: the position is not one of this cache.
        InvalidArgument: segments that do not exist, or that the position does not hold.
    """
    cache = context.caches.find(poll.cache_id)
    if not cache.options.events:
        raise NoEvents(cache=cache.name)
    asked = segments_of(poll, context.segments) if poll.segments else None
    if poll.WhichOneof("from") == "position":
        cursor = _cursor_at(context, token.decode(poll.position), cache=cache, asked=asked)
    else:
        cursor = Cursor.at_id(context.segments, id_asked(poll), asked=asked)
    if poll.latest:
        cursor = Cursor.at_id(context.segments, limit(cursor.asked), asked=cursor.asked)
    is_notify = poll.notify and not poll.max_events
    return Pull(
        cache=cache,
        cursor=cursor,
        until=min(poll.until_id, ID_MAX) or ID_MAX,
        limits=_limits(1 if is_notify else poll.max_events, poll.max_bytes, CONTENT.intersection(poll.without)),
        owner=None,
        done=nobody,
        wait_ms=min(poll.wait_ms, POLL_WAIT_MS_MAX),
        is_notify=is_notify,
        accepts_diverged=poll.accept_diverged,
        skips_trimmed=poll.earliest or (not poll.latest and poll.WhichOneof("from") in {None, "after"} and not poll.after),
    )


@lru_cache(maxsize=64)
def _limits(events: int, nbytes: int, without: frozenset[str]) -> Limits:
    return Limits(events=events or NO_LIMIT, nbytes=min(nbytes or ANSWER_BYTES_DEFAULT, ANSWER_BYTES_MAX), without=without)


def nobody(result: Delivered | EventLogError) -> None:
    """Take what a pull got that nobody waits for."""
    raise AssertionError(f"nobody waits for {result}")


def segments_of(poll: Poll, segments: int) -> Ints | None:
    """Return the segments that a request names, rising; None for all. Raises InvalidArgument."""
    if not poll.segments:
        return None
    if len(poll.segments) > segments or max(poll.segments) >= segments:
        raise InvalidArgument(why=f"segments are below {segments}, each asked for once")
    asked = np.array(poll.segments, np.int64)
    if np.count_nonzero(asked[1:] > asked[:-1]) == len(asked) - 1:
        return asked  # they rise already
    asked = np.unique(asked)
    if len(asked) != len(poll.segments):
        raise InvalidArgument(why="a segment is asked for twice")
    return asked


def is_state_read(poll: Poll) -> bool:
    """Return whether a request asks for entries before events: it says so, or its position stands among entries."""
    return poll.state_first or token.is_unread(poll.position)


def id_asked(poll: Poll) -> int:
    """Return the id that a poll without a position goes on after."""
    return id_before(poll.from_time_ms) if poll.WhichOneof("from") == "from_time_ms" else min(poll.after, ID_MAX)


def _cursor_at(context: ReadContext, position: Position, *, cache: CacheState, asked: Ints | None) -> Cursor:
    if position.cache_id != cache.cache_id:
        refuse_recreated(context, position, cache)
    position.check(cluster=context.cluster, cache_id=cache.cache_id, segments=context.segments)
    if position.steps or position.acknowledged or position.unread:
        raise InvalidArgument(why="the position stands inside a state read or a work queue; events are read from other positions")
    at = position.at
    if not isinstance(at, SegmentPositions):
        return Cursor.at_id(context.segments, at, asked=asked)
    if asked is not None:
        rows = at.of.searchsorted(asked)
        if int(rows[-1]) >= len(at.of) or np.count_nonzero(at.of[rows] != asked):
            raise InvalidArgument(why="the position does not hold all segments asked for")
        at = SegmentPositions(of=asked, ids=at.ids[rows], offsets=at.offsets[rows], epochs=at.epochs[rows])
    return Cursor(context.segments, at)


def refuse_recreated(context: ReadContext, position: Position, cache: CacheState) -> None:
    """Say that the position is one of an earlier cache of the same name, where that is known or nothing speaks against it.

    Ids of caches rise and are never given out again, so a lower one that no cache has is a dropped one's. The names of the latest
    dropped ones are kept with the metadata.
    """
    if position.cluster != context.cluster or position.cache_id > cache.cache_id or context.caches.has(position.cache_id):
        return
    if context.caches.dropped_name(position.cache_id) in {None, cache.name}:
        raise CacheRecreated(cache=cache.name)
