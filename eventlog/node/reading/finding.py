"""Making a reader's answer from where it is cheapest to get: the tail, the store, other nodes. One for all that ask the same.

What takes a moment is made in the reader thread. With a filter the answer is made of what matches, and scans far more than it holds.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from eventlog.arrays import Ints
from eventlog.batch import arrow_pieces  # noqa: F401 -- loaded while the node starts
from eventlog.errors import Stopping, Unavailable
from eventlog.limits import HISTORY_READ_BYTES_MAX
from eventlog.node.reading.column_building import ColumnBuilding
from eventlog.node.reading.column_files import ColumnFiles, Filed, FileRead
from eventlog.node.reading.fetch import Fetched, Fetching, join_fetched
from eventlog.node.reading.filters import segments_of
from eventlog.node.reading.pulls import Pull, ReadContext
from eventlog.node.reading.reader import ReaderThread
from eventlog.node.reading.sharing import AnswerCache, Key, Shared
from eventlog.read.answer import NO_LIMIT, Answer, StoredValues, build_answer, values_of
from eventlog.read.cursor import Cursor
from eventlog.read.filtered import filter_answer
from eventlog.read.history import ChunkEnd, History, HistoryRead, LogBounds
from eventlog.read.steps import StepIndex

_INLINE_BYTES = 512 << 10  # joining more than this takes the loop longer than a millisecond
_JUDGED_INLINE_MAX = 8_000  # judging the columns of more events than this does, too ...
_DECODED_INLINE_MAX = 400  # ... and decoding the values of more than this
_CHUNK_ENDS_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFetched:
    """What other nodes have could not be had now. `error` is None where they have told of retention, or of nothing new, instead."""

    error: BaseException | None = None


Later: TypeAlias = asyncio.Future[Shared | NotFetched]
Found: TypeAlias = Shared | NotFetched | Later
"""An answer that is there, one that is being made, or none."""


class Finding:
    """Finds what lies between a pull's cursor and an id."""

    def __init__(
        self,
        context: ReadContext,
        *,
        thread: ReaderThread,
        fetching: Fetching,
        history_bytes_max: int,
        files: ColumnFiles,
        scan_step_bytes: int,
    ) -> None:
        self._context = context
        self._scan_step_bytes = scan_step_bytes
        self._thread = thread
        self._fetching = fetching
        self._history_bytes_max = history_bytes_max
        self._history = History(context.store, bytes_max=history_bytes_max)
        self._files = files
        self._building = ColumnBuilding(context, files, history=self._history, thread=thread)
        self._answers = AnswerCache()
        self._making: dict[Key, Later] = {}

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return self._history.figures() | self._answers.figures() | self._files.figures()

    @property
    def made(self) -> int:
        """Return how many answers were made since start, each for all that ask the same."""
        return self._answers.made

    def moved(self) -> None:
        """Note that copies of segments are going from here."""
        self._history.moved()

    def stop(self) -> None:
        """End what goes on by itself."""
        self._building.stop()

    def find(self, pull: Pull, *, top: int, floor: int, far: Ints) -> Found:
        """Return what lies between cursor and `top`: above `floor` it is in the tail, below in the store, `far` segments elsewhere."""
        cursor, limits, matches = pull.cursor, pull.limits, pull.matches
        read: HistoryRead | None = None
        filed = () if matches is None or len(far) else self._filed(pull, floor)
        if filed:
            top = min(top, filed[-1].span.upto)
        elif cursor.lowest < floor and not len(far):
            read = self._plan(pull, top=top, floor=floor)
            top = read.top
        key = (pull.cache.cache_id, cursor.key, top, limits, None if matches is None else matches.spec.digest)
        shared = self._answers.get(key)
        if shared is not None:
            return shared
        if key in self._making:
            return self._making[key]
        if len(far):
            return self._find_far(key, pull, top=top, far=far)
        if filed and matches is not None:
            wanted = FileRead(
                cursor=cursor.copy(),
                top=top,
                limits=limits,
                matches=matches,
                trimmed=pull.cache.trimmed_ids.copy(),
                only=segments_of(matches, pull.cache),  # the places in the others move on all the same
            )
            return self._make(key, pull, partial(self._files.answer, filed, wanted))
        if read is not None:
            return self._make(key, pull, partial(self._history.read, read))
        return self._find_in_tail(key, pull, top=top)

    def _filed(self, pull: Pull, floor: int) -> tuple[Filed, ...]:
        """Return the files to read for a pull with a filter, if there are any; of history there will be."""
        found = self._files.find(pull.cache.cache_id, pull.cursor)
        if found or pull.cursor.lowest < floor:
            self._building.ask(pull.cache)
        return found[:1] if pull.limits.is_raw else found  # another node gets one part

    def _find_in_tail(self, key: Key, pull: Pull, *, top: int) -> Found:
        cursor, limits, matches = pull.cursor, pull.limits, pull.matches
        is_counted = cursor.asked is None and matches is None
        found = self._context.tail.read(
            pull.cache.cache_id,
            after=cursor.lowest,
            upto=top,
            nbytes_max=max(limits.nbytes, self._scan_step_bytes if matches is not None else 0) * cursor.share,
            events_max=limits.events if is_counted else NO_LIMIT,
        )
        if found.upto < top:  # those that come here while more is committed ask the same
            key = (*key[:2], found.upto, *key[3:])
            shared = self._answers.get(key)
            if shared is not None:
                return shared
            if key in self._making:
                return self._making[key]
        is_heavy = found.nbytes > _INLINE_BYTES
        if matches is not None and not is_heavy:
            events = sum(sum(group.counts) for group in found.groups)
            is_heavy = events > (_DECODED_INLINE_MAX if matches.is_costly else _JUDGED_INLINE_MAX)
        own = cursor.copy()

        def build() -> Answer:
            return _answer(values_of(found.groups), pull, cursor=own, top=found.upto)

        return self._make(key, pull, build) if is_heavy else self._answers.put(key, build())

    def _find_far(self, key: Key, pull: Pull, *, top: int, far: Ints) -> Found:
        """Have values fetched of what is not here, and an answer made of them and of what is."""
        try:
            fetched = self._fetching.gather(pull, far, top=top)
        except Unavailable as error:  # nobody with a copy is connected
            return NotFetched(error=error)
        fetched.add_done_callback(partial(self._fetched, key, pull, pull.cursor.copy()))
        return self._begin(key)

    def _fetched(self, key: Key, pull: Pull, cursor: Cursor, done: "asyncio.Future[list[Fetched]]") -> None:
        error = Stopping() if done.cancelled() else done.exception()
        found = [] if error is not None else done.result()
        if error is not None or any(part.is_trimmed for part in found) or min(part.upto for part in found) <= cursor.lowest:
            self._making.pop(key).set_result(NotFetched(error=error))
            return
        job = partial(join_fetched, found, pull, cursor=cursor)
        self._thread.run(pull.owner, job).add_done_callback(partial(self._made, key))

    def _plan(self, pull: Pull, *, top: int, floor: int) -> HistoryRead:
        """Return what to read for a cursor below the tail; many readers at once share what may be read ahead."""
        ahead = min(HISTORY_READ_BYTES_MAX, self._history_bytes_max // (2 * self._thread.readers))
        return plan_read(self._context.steps, pull, between=(floor, top), ahead=ahead, scan_bytes=self._scan_step_bytes)

    def _make(self, key: Key, pull: Pull, job: Callable[[], Answer]) -> Later:
        """Have an answer made in the reader thread, for this pull and all that ask the same until it is there."""
        self._thread.run(pull.owner, job).add_done_callback(partial(self._made, key))
        return self._begin(key)

    def _begin(self, key: Key) -> Later:
        later = self._making[key] = asyncio.get_running_loop().create_future()
        return later

    def _made(self, key: Key, done: "asyncio.Future[Answer]") -> None:
        later = self._making.pop(key)
        error = Stopping() if done.cancelled() else done.exception()
        if error is None:
            later.set_result(self._answers.put(key, done.result()))
        else:
            later.set_exception(error)
            later.exception()  # the caller may be gone


def _answer(values: StoredValues, pull: Pull, *, cursor: Cursor, top: int) -> Answer:
    """Return what `values` hold for a pull that stood at `cursor`."""
    if pull.matches is None:
        return build_answer(values, cursor=cursor, top=top, limits=pull.limits)
    return filter_answer(values, cursor=cursor, top=top, limits=pull.limits, matches=pull.matches, only=pull.only)


def plan_read(steps: StepIndex, pull: Pull, *, between: tuple[int, int], ahead: int, scan_bytes: int) -> HistoryRead:
    """Return what to read for a pull whose cursor is below the tail, about `ahead` bytes of it, `scan_bytes` for a filter.

    `between` is (the id at which all history ends, the id at which its answer ends at the latest). A reader with a filter looks at far more
    than it is answered.
    """
    floor, top = between
    cache, cursor, limits = pull.cache, pull.cursor, pull.limits
    wanted = limits.nbytes if pull.matches is None else max(limits.nbytes, scan_bytes)
    only = pull.only
    share = cursor.share if only is None else cursor.segments // len(only)
    lowest = cursor.lowest

    def cut(nbytes: int) -> int:
        chosen = steps.choose_cut(cache.cache_id, after=lowest, nbytes_max=nbytes * share)
        return floor if chosen is None else min(chosen, floor)

    start, end = steps.at_or_below(cache.cache_id, lowest), cut(max(ahead, wanted))
    chunk_after = min(start.id, lowest)
    steps_between = steps.between(cache.cache_id, after=lowest, upto=end)
    ends = [
        ChunkEnd(id=step.id, nbytes=(step.nbytes - start.nbytes) // share)
        for step in steps_between[:: len(steps_between) // _CHUNK_ENDS_MAX + 1]
    ]
    if not ends or ends[-1].id < end:
        ends.append(ChunkEnd(id=end, nbytes=ends[-1].nbytes if ends else 0))
    return HistoryRead(
        cache_id=cache.cache_id,
        cursor=cursor.copy(),
        top=min(top, cut(wanted)),
        limits=limits,
        chunk_after=chunk_after,
        ends=tuple(ends),
        nbytes_max=2 * HISTORY_READ_BYTES_MAX,
        bounds=LogBounds.of(cache),
        matches=pull.matches,
        only=only,
    )
