"""Answering readers: position -> how far they may see -> the tail or the store -> one encoded answer for all that ask the same.

Everything here runs on the loop; what needs the store or more than a moment is made in the reader thread. A pull is in one of
three places: being answered, being made in the thread, or waiting in `Rounds` for news of its cache.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.errors import CorruptData, EventLogError, EventsTrimmed, NotPrimary, Stopping, Unavailable, tellable
from eventlog.ids import ID_MAX, TIME_SHIFT
from eventlog.limits import (
    CLOSE_UP_MS_MAX,
    CONNECTIONS_MAX,
    HISTORY_CACHE_BYTES_MAX,
    REQUESTS_PER_CONNECTION_MAX,
)
from eventlog.node.reading.column_files import ColumnFiles
from eventlog.node.reading.crowds import Crowds
from eventlog.node.reading.fetch import Fetching
from eventlog.node.reading.filters import Filters, segments_of
from eventlog.node.reading.finding import Finding, Later, NotFetched
from eventlog.node.reading.pulls import READ_PACE, Delivered, Pull, ReadContext, ReadPace, begin
from eventlog.node.reading.reader import ReaderThread
from eventlog.node.reading.rounds import Deadlines, Rounds, Turns
from eventlog.node.reading.sharing import Alike, Shared, bare_message
from eventlog.node.reading.stalls import Stalls
from eventlog.predicate.spec import CompiledFilter
from eventlog.read.answer import CommittedGroup, Limits
from eventlog.read.cursor import Cursor, Lost, diverged
from eventlog.state.caches import CacheState
from eventlog.wire.eventlog_pb2 import Poll, Stalled
from eventlog.wire.frames import SharedFrame

_FETCH_AGAIN_S = 0.05
_LIMIT_S = 0.02  # how old the low watermark may be that readers are answered by

log = logging.getLogger("eventlog.node")


class Reads:
    """All readers of a node. Start it on the running loop; the writer tells it of commits with `appended`."""

    def __init__(
        self,
        context: ReadContext,
        *,
        thread: ReaderThread,
        history_bytes_max: int = HISTORY_CACHE_BYTES_MAX,
        files: ColumnFiles | None = None,
        pace: ReadPace = READ_PACE,
    ) -> None:
        self._context = context
        self.pace = pace
        self._thread = thread
        self.crowds = Crowds(self, pace=pace)
        self.kept = FirstKept(context.segments, take=self.pull, fail=self.fail)
        self.rounds = Rounds(self._look_in_round, begin=self._begin_round, renew=self._renew_round, answers=self, pace=pace)
        self._deadlines = Deadlines(self._expire, pace=pace)
        self._limit = 0  # the low watermark as of a moment ago ...
        self._limit_until = 0.0  # ... and how long that will do; 0: something was committed or promised since
        self._round_limit = ID_MAX  # how far readers might see when the last round began
        self._alike = Alike()  # of this round
        self._turns = Turns(self._look, pace=pace)
        self.fetching = Fetching(context, pull=self.pull, thread=self._thread)
        self.mend: Callable[[CacheState], asyncio.Future[bool]] | None = None  # repairs what is damaged from other nodes' copies
        self.files = files or ColumnFiles()
        self._finding = Finding(
            context,
            thread=self._thread,
            fetching=self.fetching,
            history_bytes_max=history_bytes_max,
            files=self.files,
            scan_step_bytes=pace.scan_step_bytes,
        )
        self.filters = Filters(self._thread)
        self._held_caches: set[int] = set()  # those with events that readers may not see yet
        self.stalls = Stalls(context, self.rounds, refresh=self._refresh, say=self._say_stalled, stalled_ms=pace.stalled_ms)
        self._lost: Mapping[int, Sequence[Lost]] = {}
        self._lost_changes = 0
        self._is_stopping = False
        self.watches = 0  # how many go on for now
        self._ended = 0  # pulls since start

    def start(self) -> None:
        """Begin to serve."""
        self.files.open()
        self._thread.start()

    async def stop(self) -> None:
        """Fail all waiting pulls with `Stopping`, end the thread."""
        self._is_stopping = True
        self._finding.stop()
        self.stalls.stop()
        for pull in self.rounds.waiting():
            self.fail(pull, Stopping())
        self.rounds.stop()
        for pull in self._turns.stop():
            self.fail(pull, Stopping())
        await self._thread.stop()

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of everything bounded in reading."""
        readers_max = CONNECTIONS_MAX * REQUESTS_PER_CONNECTION_MAX
        waiting = {
            "readers_waiting": (len(self.rounds) + self.crowds.waiting, readers_max, self.rounds.peak + self.crowds.peak),
            "readers_behind": (len(self._turns), readers_max, self._turns.peak),
        }
        return self._context.tail.figures() | self._finding.figures() | self._thread.figures() | self.filters.figures() | waiting

    @property
    def made(self) -> int:
        """Return how many answers were read, judged and encoded since start; `given` were given."""
        return self._finding.made

    @property
    def given(self) -> int:
        """Return how many answers were given since start."""
        return self._ended + self.crowds.given

    @property
    def due(self) -> int:
        """Return how many answers are made and still to be given."""
        return self.crowds.due

    # ------------------------------------------------------------ what the node tells

    def appended(self, group: CommittedGroup) -> None:
        """Take a group that was committed here into the tail; peers that wait hear of it now, its readers are woken in the next round."""
        self._context.closing.answer_soon()
        self._context.tail.append(group)
        self._held_caches.update(values.cache_id for values in group.caches)
        self.watermark_rose()

    def learned(self, segments: Ints, watermarks: Ints, groups: Iterable[CommittedGroup], *, skipped: int = 0) -> None:
        """Note what is committed of segments that others lead and this node holds: up to `watermarks`, with the values in `groups`.

        Groups may be part of what was written together. Whatever else came to be held up to the id `skipped` is in the store only.
        """
        if skipped:
            self._context.tail.skip(skipped)
        for group in groups:
            self._context.tail.append(group)
            self._held_caches.update(values.cache_id for values in group.caches)
        self._context.low.hold(segments, watermarks)
        self.watermark_rose()

    def place(self, is_placed: npt.NDArray[np.bool_]) -> None:
        """Note which segments have a copy here that is kept up; the others are read at other nodes."""
        low = self._context.low
        is_less = bool((low.here & ~is_placed).any())
        low.place(is_placed)
        if is_less:
            self._finding.moved()
            self.files.clear()

    def lose(self, lost: Mapping[int, Sequence[Lost]]) -> None:
        """Note which ids of segments forced takeovers gave up; a reader that stands there hears of it."""
        if lost != self._lost:
            self._lost, self._lost_changes = lost, self._lost_changes + 1
            for pull in self.rounds.waiting():
                if self.rounds.remove(pull):
                    self._look(pull)

    def watermark_rose(self) -> None:
        """Look again at readers that wait for what is committed and could not be seen."""
        self._limit_until = 0.0
        held, self._held_caches = self._held_caches, set()
        for cache_id in held:
            self.rounds.mark(cache_id)

    def dropped(self, cache: CacheState) -> None:
        """Fail all pulls that wait for a cache that is gone."""
        self._context.tail.drop(cache.cache_id)
        self.files.drop(cache.cache_id)
        self.altered(cache)

    def altered(self, cache: CacheState) -> None:
        """Fail all pulls that wait for events of a cache that keeps none any more."""
        for pull in self.rounds.waiting(cache.cache_id):
            if (refusal := pull.refusal) is not None:
                self.fail(pull, refusal)

    def trimmed(self, cache: CacheState) -> None:
        """Tell the pulls that wait at a place that retention has passed."""
        self.files.trim(cache.cache_id, cache.last_trimmed_id)
        for pull in self.rounds.waiting(cache.cache_id):
            if pull.cursor.lost(cache.trimmed_ids, cache.trimmed_offsets) and self.rounds.remove(pull):
                self._look(pull)

    # ------------------------------------------------------------ how far

    def limit(self, asked: Ints | None = None) -> int:
        """Return the id up to which a reader of `asked` may see; covers everything that was acknowledged before the call."""
        if asyncio.get_running_loop().time() >= self._limit_until:
            self._refresh()
        return self._limit if asked is None else self._context.low.limit(asked)

    def _refresh(self) -> int:
        """Promise what the clock allows, and return how far all segments may be seen by now."""
        self._context.closing.close_up()
        self._limit = self._context.low.limit()
        self._limit_until = asyncio.get_running_loop().time() + _LIMIT_S
        return self._limit

    def end(self, done: Callable[[int | EventLogError], None], asked: Ints | None = None, *, whole: bool = True) -> None:
        """Pass to `done` an id at or above everything of `asked` that was committed anywhere before, or that a reader was told before.

        `NotPrimary` where a segment has no primary that is reached, unless what is reached will do (not `whole`).
        """
        if self._context.closing.is_alone:
            done(self.limit(asked))
        else:
            self._context.closing.end(done, asked, whole=whole)

    async def end_known(self, asked: Ints | None = None, *, whole: bool = True) -> int:
        """Return what `end` passes on. Raises NotPrimary: a segment has no primary that is reached, and `whole` is wanted."""
        told: asyncio.Future[int | EventLogError] = asyncio.get_running_loop().create_future()
        self.end(lambda end: None if told.done() else told.set_result(end), asked, whole=whole)
        if isinstance(end := await told, EventLogError):
            raise end
        return end

    # ------------------------------------------------------------ pulls

    def cache(self, cache_id: int) -> CacheState:
        """Return a cache to be read."""
        return self._context.caches.find(cache_id)

    def begin(self, poll: Poll, *, matches: CompiledFilter | None = None) -> Pull:
        """Return the pull of a request, of which only what `matches` is answered: see `pulls.begin`."""
        pull = begin(self._context, poll, limit=self.limit)
        pull.matches = matches
        if matches is not None and pull.cursor.asked is None and self._context.low.is_all_here:
            pull.only = segments_of(matches, pull.cache)
        return pull

    def pull(self, pull: Pull) -> None:
        """Answer a pull now, or when there is something."""
        if self._is_stopping:
            self.fail(pull, Stopping())
            return
        if pull.wait_ms:
            self._deadlines.set(pull, pull.wait_ms)
        if pull.wait_ms != 0 and pull.cursor.lowest >= self._round_limit and not (self._lost or pull.refusal):
            self._wait(pull)  # it has had what there was in the last round; what came since is for the next one
            if pull.says_stalled:
                self.stalls.watch()
            if self._last_id(pull) > pull.cursor.lowest or pull.until < ID_MAX:
                self.rounds.mark(pull.cache.cache_id)
        else:
            self._turns.take(pull)

    def _begin_round(self) -> None:
        self._renew_round()
        self._round_limit = self.limit()

    def _renew_round(self) -> None:
        self._alike.clear()
        self._refresh()

    def _look_in_round(self, pull: Pull) -> None:
        """Go on with a pull that waits; readers at one place that want the same are answered for the price of one."""
        if pull.matches is not None or pull.is_notify or pull.limits.is_raw or pull.is_over:
            self._look(pull)
            return
        found = self._alike.find(pull)
        if found is not None:
            self._finish(pull, found)
            return
        self._alike.begin(pull)
        self._look(pull)
        self._alike.end()

    def cancel(self, pull: Pull) -> None:
        """Forget a pull; `done` is not called any more."""
        pull.is_over = True
        self.rounds.remove(pull)
        self._turns.remove(pull)
        self._deadlines.clear(pull)
        if pull.until_passed is not None:
            pull.until_passed.cancel()
            pull.until_passed = None
        if not len(self.rounds):
            self._context.closing.follow(on=False)

    def fail(self, pull: Pull, error: EventLogError) -> None:
        """End a pull with an error."""
        if not pull.is_over:
            self.cancel(pull)
            pull.done(error)

    def _expire(self, pull: Pull) -> None:
        """End the waiting: what there is now, or nothing, is the answer. A follower that was told where it stands is not told so again."""
        if pull.told == pull.cursor.key:
            self._deadlines.set(pull, self.pace.position_told_ms)
            return
        pull.wait_ms, pull.is_expired = 0, True
        self._limit_until = 0.0
        if self.rounds.remove(pull):
            self._look(pull)

    def _look(self, pull: Pull, step: Callable[[Pull], None] | None = None) -> None:
        """Go on with a pull: from its cursor, or with `step`. Whatever goes wrong ends this pull and no other."""
        if pull.is_over:
            return
        try:
            (step or self._advance)(pull)
        except EventLogError as error:
            self.fail(pull, error)
        except Exception as error:  # the edge of a reader: one that meets a bug of ours hears of it, the others go on
            log.exception("read_failed cache=%s", pull.cache.name)
            self.fail(pull, tellable(error))

    def _advance(self, pull: Pull) -> None:
        """Take a pull as far as it comes: to its answer, into the thread, or to waiting."""
        cache, cursor, tail = pull.cache, pull.cursor, self._context.tail
        if (refusal := pull.refusal) is not None:
            raise refusal
        if self.kept.is_trimmed(pull):
            return
        if self._lost:
            self._check_diverged(pull)
        limit = self.limit(cursor.asked)
        top = min(limit, pull.until)
        lowest = cursor.lowest
        floor = tail.floor(cache.cache_id)
        far = self._context.low.far(cursor.asked)
        if lowest >= floor or len(far) == self._context.segments:
            is_behind_all = tail.last_id(cache.cache_id) <= lowest
        else:
            is_behind_all = self._context.closing.is_alone and not cache.events_kept
        if is_behind_all and (not len(far) or self._context.low.named(far) <= lowest):
            cursor.advance(top)
        elif lowest < top:
            found = self._finding.find(pull, top=top, floor=min(floor, limit), far=far)
            if isinstance(found, Shared):
                self._take(pull, found)
            elif isinstance(found, NotFetched):
                self._not_fetched(pull, found.error)
            else:
                found.add_done_callback(partial(self._found, pull))
            return
        self._idle(pull, limit)

    def _check_diverged(self, pull: Pull) -> None:
        """Refuse a pull, once, that stands where events were lost."""
        if pull.lost_known < self._lost_changes:
            pull.lost_known = self._lost_changes
            error = None if pull.accepts_diverged else diverged(pull.cursor, self._lost)
            if error is not None:
                raise error

    def _last_id(self, pull: Pull) -> int:
        """Return the id above which no event of a pull is known of."""
        last_id, low = self._context.tail.last_id(pull.cache.cache_id), self._context.low
        return last_id if low.is_all_here else max(last_id, low.named(low.far(pull.cursor.asked)))

    def _idle(self, pull: Pull, limit: int) -> None:
        """Nothing to read: end here, or wait."""
        if limit >= pull.until or pull.is_expired or (pull.wait_ms == 0 and self._is_at_end(pull, limit)):
            self._deliver_nothing(pull, limit, stalled=self.stalls.holding(pull))
            return
        self._wait(pull)
        last_id = self._last_id(pull)
        if last_id > limit:
            self._hasten(pull, last_id)
        elif pull.ends_at and pull.ends_at != ID_MAX:
            self._hasten(pull, min(pull.ends_at, pull.until))
        elif pull.until < ID_MAX:
            self._await_until(pull)
        if pull.says_stalled:
            self.stalls.watch()

    def _await_until(self, pull: Pull) -> None:
        """Have the last id that a pull wants promised once the clock has passed it: where nobody writes nothing else tells of it."""
        left_ms = (pull.until >> TIME_SHIFT) - self._context.now_2020()
        if left_ms < 0:
            self._hasten(pull, pull.until)
        elif pull.until_passed is None:
            pull.until_passed = asyncio.get_running_loop().call_later((left_ms + 1) / 1000, self._until_passed, pull)

    def _until_passed(self, pull: Pull) -> None:
        pull.until_passed = None
        self._limit_until = 0.0
        self.rounds.mark(pull.cache.cache_id)

    def _wait(self, pull: Pull) -> None:
        self.rounds.add(pull)
        if len(self._context.low.far(pull.cursor.asked)):
            self._held_caches.add(pull.cache.cache_id)  # nothing but a promise tells of news there
        if not self._context.closing.is_alone:
            self._context.closing.follow(on=True)

    def has_news(self, pull: Pull) -> bool:
        """Return whether readers may see more by now than a pull has had."""
        lowest = pull.cursor.lowest
        return self._last_id(pull) > lowest and self._refresh() > lowest

    def _is_at_end(self, pull: Pull, limit: int) -> bool:
        """Return whether a pull that waits for nothing new has seen all there was when it began, here or anywhere else."""
        if pull.ends_at is not None or self._context.closing.is_alone:
            return self._is_end(pull, limit)
        pull.ends_at = ID_MAX
        if pull.deadline is None:
            self._deadlines.set(pull, CLOSE_UP_MS_MAX)
        self._context.closing.end(partial(self._ends_at, pull), pull.cursor.asked)
        return pull.is_over or limit >= pull.ends_at

    def _is_end(self, pull: Pull, limit: int) -> bool:
        """Return whether it is known that nothing above `limit` was committed before a pull began, or, if it waited, ended."""
        if pull.ends_at is not None:
            return limit >= pull.ends_at
        closing = self._context.closing
        return closing.is_alone or (pull.is_expired and closing.hears(pull.cursor.asked))

    def _ends_at(self, pull: Pull, end: int | EventLogError) -> None:
        if pull.ends_at == ID_MAX and not isinstance(end, EventLogError):
            pull.ends_at = end
            if self.rounds.remove(pull):
                self._look(pull)

    def _hasten(self, pull: Pull, id_: int) -> None:
        """Have an id promised that a pull waits for."""
        closing = self._context.closing
        closing.close_up(id_)
        self._limit_until = 0.0
        if closing.is_alone:
            self.rounds.mark_again(pull.cache.cache_id)
        elif self.limit(pull.cursor.asked) >= id_:
            self.rounds.mark(pull.cache.cache_id)
        else:
            self._held_caches.add(pull.cache.cache_id)
            closing.want(id_, is_told=pull.wait_ms != 0)

    # ------------------------------------------------------------ what was found later, or not

    def _found(self, pull: Pull, later: Later) -> None:
        self._look(pull, partial(self._go_on, later=later))

    def _go_on(self, pull: Pull, later: Later) -> None:
        if (error := later.exception()) is not None:
            self._not_made(pull, error)
        elif isinstance(found := later.result(), Shared):
            self._take_late(pull, found)
        else:
            self._not_fetched(pull, found.error)

    def _not_fetched(self, pull: Pull, error: BaseException | None) -> None:
        """Try again later what could not be read at other nodes now, or soon with what was learned of retention there."""
        if error is not None and not isinstance(error, Unavailable):
            raise error
        if pull.is_expired or (pull.wait_ms == 0 and pull.ends_at == 0):
            self._deliver_nothing(pull, self.limit(pull.cursor.asked), stalled=self.stalls.holding(pull))
            return
        if pull.wait_ms == 0 and pull.deadline is None:
            self._deadlines.set(pull, CLOSE_UP_MS_MAX)
        self._wait(pull)
        if pull.says_stalled:
            self.stalls.watch()
        asyncio.get_running_loop().call_later(_FETCH_AGAIN_S, self.rounds.mark, pull.cache.cache_id)

    def _not_made(self, pull: Pull, error: BaseException) -> None:
        """Say why there is no answer; where retention or a drop explains what was found missing, say that instead."""
        cache = pull.cache
        if isinstance(error, Unavailable) and not self._is_stopping:
            self._advance(pull)
            return
        if isinstance(error, CorruptData) and (cache.dropped or cache.last_trimmed_id > pull.trimmed_before):
            pull.trimmed_before = cache.last_trimmed_id
            self._advance(pull)
            return
        if isinstance(error, CorruptData) and self.mend is not None and not pull.was_mended:
            pull.was_mended = True
            self.mend(cache).add_done_callback(partial(self._mended, pull, error))
            return
        raise error

    def _mended(self, pull: Pull, error: CorruptData, done: "asyncio.Future[bool]") -> None:
        """Look again at what was damaged, or say that it is."""
        if not done.cancelled() and done.exception() is None and done.result():
            self._look(pull)
        else:
            self.fail(pull, error)

    # ------------------------------------------------------------ delivering

    def _take_late(self, pull: Pull, shared: Shared) -> None:
        """Deliver what was made in the thread, unless the cache went or retention passed in the meantime."""
        if (refusal := pull.refusal) is not None:
            raise refusal
        if not self.kept.is_trimmed(pull):
            self._take(pull, shared)

    def _take(self, pull: Pull, shared: Shared) -> None:
        """Deliver an answer; one without events only moves the cursor, and the search goes on."""
        answer, cursor, cache = shared.answer, pull.cursor, pull.cache
        pull.scanned_bytes += answer.scanned_bytes
        if not answer.events:
            cursor.advance(answer.upto, answer.ends)
            if pull.scanned_bytes >= self.pace.scan_bytes_max and pull.matches is not None:
                self._deliver_nothing(pull, self.limit(cursor.asked), stalled=())
            else:
                self._turns.take(pull)  # a narrow reader may meet many such answers
            return
        limit = self.limit(cursor.asked)
        if pull.is_notify:
            self._deliver_nothing(pull, limit, stalled=())
            return
        top = min(limit, pull.until)
        is_all = self._last_id(pull) <= answer.upto
        upto = max(answer.upto, top) if is_all else answer.upto
        cursor.advance(upto, answer.ends)
        place = (self._context.cluster, cache.cache_id)
        is_end = upto >= top and (pull.is_stream or limit >= pull.until or self._is_end(pull, limit))
        says = (upto, is_end, limit)
        message = b"" if pull.limits.is_raw else shared.message(cursor=cursor, place=place, is_stream=pull.is_stream, says=says)
        body = tuple(filter(None, answer.body))
        is_first = self._alike.is_first(pull)
        delivered = Delivered(
            message=message,
            body=body,
            events=answer.events,
            first_id=answer.first_id,
            upto=upto,
            is_end=is_end,
            parts=answer.parts,
            shared=SharedFrame(message, body) if is_first else None,
        )
        if is_first:
            self._alike.note(delivered, answer)
        self._finish(pull, delivered)

    def _deliver_nothing(self, pull: Pull, limit: int, *, stalled: Sequence[Stalled]) -> None:
        """Deliver an answer without events: the bare notification, or that there is nothing."""
        cursor = pull.cursor
        upto = limit if pull.is_notify else cursor.lowest
        has_all = cursor.lowest >= min(limit, pull.until)
        is_end = has_all and (pull.is_stream or limit >= pull.until or self._is_end(pull, limit))
        place = (self._context.cluster, pull.cache.cache_id)
        message = bare_message(cursor=cursor, place=place, is_stream=pull.is_stream, says=(upto, is_end, limit), stalled=stalled)
        self._finish(pull, Delivered(message=message, body=(), events=0, first_id=0, upto=upto, is_end=is_end, has_all=has_all))

    def _finish(self, pull: Pull, delivered: Delivered) -> None:
        self.cancel(pull)
        self._ended += 1
        pull.done(delivered)

    def _say_stalled(self, pull: Pull, stalled: Sequence[Stalled]) -> None:
        self._deliver_nothing(pull, self.limit(pull.cursor.asked), stalled=stalled)


class FirstKept:
    """Finds the first event kept, by pulls of its own: `take` has one answered, `fail` ends one with an error."""

    def __init__(self, segments: int, *, take: Callable[[Pull], None], fail: Callable[[Pull, EventLogError], None]) -> None:
        self._segments = segments
        self._take = take
        self._fail = fail

    def first_id(self, cache: CacheState, done: Callable[[int | EventLogError], None], *, owner: object) -> None:
        """Pass the first id kept of a cache to `done`, 0 when nothing is kept up to the limit; `NotPrimary` where that cannot be read."""
        self._probe(cache, Cursor(self._segments, 0), done, owner=owner)

    def is_trimmed(self, pull: Pull) -> bool:
        """Return whether retention has passed the cursor, and begin to say so; a pull that asked for it is moved on instead."""
        cache, cursor = pull.cache, pull.cursor
        if pull.skips_trimmed:
            cursor.skip_trimmed(cache.trimmed_ids, cache.trimmed_offsets)
            return False
        lost = cursor.lost(cache.trimmed_ids, cache.trimmed_offsets)
        if not lost:
            return False

        def say(first_id: int | EventLogError) -> None:
            error = first_id if isinstance(first_id, EventLogError) else EventsTrimmed(first_id=first_id, lost=lost)
            if isinstance(error, EventsTrimmed) and cache.options.archive:
                error.archive = cache.options.archive
            self._fail(pull, error)

        self._probe(cache, cursor.copy(), say, owner=pull.owner)
        return True

    def _probe(self, cache: CacheState, cursor: Cursor, done: Callable[[int | EventLogError], None], *, owner: object) -> None:
        """Find the first event kept behind `cursor`."""

        def say(found: Delivered | EventLogError) -> None:
            if isinstance(found, EventLogError):
                done(found)
            elif found.events or found.has_all:
                done(found.first_id)
            else:
                done(NotPrimary(segment=cursor.last))

        limits = Limits(events=1, nbytes=1)
        self._take(Pull(cache=cache, cursor=cursor, until=ID_MAX, limits=limits, owner=owner, done=say, skips_trimmed=True))
