"""Making files of columns in the background, for caches whose history was asked for with a filter.

One piece of a cache's log at a time, in the reader thread and in turn with its readers, resting three times as long as each took: a
quarter of a core while there is something to do. What has just been written is left alone until it fills a file, or until nothing
more has come for a moment.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from eventlog.batch.column_file import encode_columns
from eventlog.batch.columns import columns_of_values
from eventlog.errors import EventLogError
from eventlog.limits import COLUMN_FILE_ASKED_S
from eventlog.node.reading.column_files import ColumnFiles, Span
from eventlog.node.reading.pulls import ReadContext
from eventlog.node.reading.reader import ReaderThread
from eventlog.read.answer import Limits
from eventlog.read.cursor import Cursor, earliest_id
from eventlog.read.history import ChunkEnd, History, HistoryRead, LogBounds
from eventlog.state.caches import CacheState

log = logging.getLogger("eventlog.node")
_AGAIN_S = 60.0  # after something went wrong


@dataclass(slots=True, kw_only=True, eq=False)
class _Demand:
    """A cache with readers that have filters: when one last asked, its last event and since when that is the last, and when to go on."""

    cache: CacheState
    at: float
    last_id: int = -1
    quiet_since: float = 0.0
    not_before: float = 0.0


class ColumnBuilding:
    """Decides what to make next, and has it made."""

    def __init__(self, context: ReadContext, files: ColumnFiles, *, history: History, thread: ReaderThread) -> None:
        self._context = context
        self._files = files
        self._history = history
        self._thread = thread
        self._asked: dict[int, _Demand] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self._is_making = False

    def ask(self, cache: CacheState) -> None:
        """Note that a cache's history is read with a filter, and not from files."""
        now = time.monotonic()
        asked = self._asked.get(cache.cache_id)
        if asked is None:
            self._asked[cache.cache_id] = _Demand(cache=cache, at=now)
        else:
            asked.at = now
        if self._timer is None and not self._is_making:
            self._wait(self._files.pace.look_s)

    def stop(self) -> None:
        """Begin nothing more."""
        self._is_stopping = True
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, seconds: float) -> None:
        if not self._is_stopping:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._step)

    def _step(self) -> None:
        self._timer = None
        now = time.monotonic()
        for cache_id, asked in list(self._asked.items()):
            if asked.cache.dropped or asked.at + COLUMN_FILE_ASKED_S < now:
                del self._asked[cache_id]
        for asked in sorted(self._asked.values(), key=lambda one: one.not_before):
            span = self._due(asked, now) if asked.not_before <= now else None
            if span is not None:
                self._is_making = True
                self._thread.run(self, partial(self._make, asked.cache, span)).add_done_callback(partial(self._made, asked))
                return
        if self._asked:
            self._wait(self._files.pace.look_s)

    def _due(self, asked: _Demand, now: float) -> Span | None:
        """Return what to make of a cache now."""
        cache, low, steps = asked.cache, self._context.low, self._context.steps
        held = low.here.copy()
        if not held.any() or not self._files.has_room(2 * self._files.pace.log_bytes):
            return None
        last_id = self._context.tail.last_id(cache.cache_id)
        if asked.last_id != last_id:
            asked.last_id, asked.quiet_since = last_id, now
        after, covered = earliest_id(cache.trimmed_ids, asked=None), 0
        for filed in self._files.of(cache.cache_id):
            if filed.span.after <= after < filed.span.upto and bool(filed.span.held[held].all()):
                covered = filed.span.upto
                after = covered if filed.span.is_final else after
        limit = low.limit(np.flatnonzero(held))
        cut = steps.choose_cut(cache.cache_id, after=after, nbytes_max=self._files.pace.log_bytes)
        is_final = steps.now(cache.cache_id)[1] - steps.at_or_below(cache.cache_id, after).nbytes >= self._files.pace.log_bytes
        if is_final and cut is not None and cut <= limit:
            return Span(cache_id=cache.cache_id, after=after, upto=cut, held=held, is_final=True)
        if asked.quiet_since + self._files.pace.quiet_s <= now and max(after, covered) < last_id <= limit:
            return Span(cache_id=cache.cache_id, after=after, upto=limit, held=held, is_final=False)
        return None

    def _make(self, cache: CacheState, span: Span) -> float | None:
        """Make a file; return how long it took, None where there was nothing to keep. In the reader thread."""
        began, clears = time.monotonic(), self._files.clears
        segments = np.flatnonzero(span.held)
        wanted = HistoryRead(
            cache_id=span.cache_id,
            cursor=Cursor.at_id(len(span.held), span.after, asked=None if len(segments) == len(span.held) else segments),
            top=span.upto,
            limits=Limits(),
            chunk_after=span.after,
            ends=(ChunkEnd(id=span.upto, nbytes=0),),
            nbytes_max=2 * self._files.pace.log_bytes,
            bounds=LogBounds.of(cache),
        )
        values, upto = self._history.load(wanted)
        rows = np.arange(len(values.counts))
        events = columns_of_values(values.packed(rows), after=span.after, until=upto)
        if not len(events):
            return None
        contents, buffers = encode_columns(events, fields=cache.options.promoted)
        made = replace(span, upto=upto, is_final=span.is_final or upto < span.upto)
        is_kept = self._files.add(made, contents, buffers, clears=clears)
        return time.monotonic() - began if is_kept else None

    def _made(self, asked: _Demand, done: "asyncio.Future[float | None]") -> None:
        self._is_making = False
        if done.cancelled():
            return
        error = done.exception()
        took = done.result() if error is None else None
        if took is not None:
            self._wait(self._files.pace.rest_times * took)
            return
        if error is not None:
            if not isinstance(error, (EventLogError, OSError)):
                raise error
            log.warning("column_file_not_made cache=%s error=%s", asked.cache.name, error)
        asked.not_before = time.monotonic() + _AGAIN_S
        self._wait(self._files.pace.look_s)
