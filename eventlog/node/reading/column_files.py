"""Files of columns: history once more, laid out for readers with filters: they read the columns that they judge by and what matches.

A file holds every event of one cache between two ids, of the segments that had a copy here when it was made. All of them are
scratch: a start begins without any, none is synced, and whatever is wrong with one is a reason to drop it and to read the log.
"""

import logging
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter

from eventlog.arrays import Ints, Mask
from eventlog.batch.column_file import ColumnFile, FileContents
from eventlog.batch.join import Bytes
from eventlog.errors import CorruptData, Unavailable
from eventlog.limits import COLUMN_FILE_LOG_BYTES, COLUMN_FILES_BYTES_DEFAULT
from eventlog.predicate.spec import CompiledFilter
from eventlog.read.answer import Answer, Limits
from eventlog.read.cursor import Cursor
from eventlog.read.filtered import filter_file, one_of

log = logging.getLogger("eventlog.node")
_FILES_TOGETHER = 8  # an answer goes on to the next of so many


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPace:
    """How large a file of columns gets, when one is made, and for how long an answer goes on from file to file."""

    log_bytes: int = COLUMN_FILE_LOG_BYTES
    look_s: float = 0.25
    quiet_s: float = 1.0  # nothing new for so long
    rest_times: int = 3  # as long as the making of a file took
    moment_s: float = 0.01


COLUMN_PACE = ColumnPace()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Span:
    """What a file holds: events of a cache with ids in `(after, upto]`, of the segments `held`. `is_final`: it is as large as any."""

    cache_id: int
    after: int
    upto: int
    held: Mask
    is_final: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Filed:
    """A file."""

    span: Span
    contents: FileContents
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileRead:
    """What a reader with a filter wants of a file. `cursor` and `trimmed`, ids by segment, belong to the read alone."""

    cursor: Cursor
    top: int
    limits: Limits
    matches: CompiledFilter
    trimmed: Ints
    only: Ints | None = None


class ColumnFiles:
    """The files of a node in a directory of their own, none without one. May be used from any thread.

    `has_room` says whether the disk has so many bytes to spare.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        bytes_max: int = COLUMN_FILES_BYTES_DEFAULT,
        has_room: Callable[[int], bool] = bool,
        pace: ColumnPace = COLUMN_PACE,
    ) -> None:
        self.pace = pace
        self._directory = directory
        self._bytes_max = bytes_max
        self._has_room = has_room
        self._lock = threading.Lock()
        self._caches: dict[int, tuple[Filed, ...]] = {}
        self._made = 0
        self.clears = 0
        self.nbytes = 0
        self.peak = 0

    def open(self) -> None:
        """Begin without files: what an earlier process left may be about a log that was cut since."""
        if self._directory is None:
            return
        shutil.rmtree(self._directory, ignore_errors=True)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:  # a full disk, for one: everything else works without
            log.warning("column_files_off error=%s", error)
            self._directory = None

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {"column_files_bytes": (self.nbytes, self._bytes_max, self.peak)}

    def has_room(self, nbytes: int) -> bool:
        """Return whether so many bytes more may be kept."""
        return self._directory is not None and self.nbytes + nbytes <= self._bytes_max and self._has_room(nbytes)

    def of(self, cache_id: int) -> tuple[Filed, ...]:
        """Return the files of a cache by rising ids."""
        return self._caches.get(cache_id, ())

    def find(self, cache_id: int, cursor: Cursor) -> tuple[Filed, ...]:
        """Return some files that go on where a cursor stands, one after the other."""
        found: list[Filed] = []
        at = cursor.lowest
        for filed in self._caches.get(cache_id, ()):
            span = filed.span
            if len(found) == _FILES_TOGETHER or span.after > at:
                break
            if at < span.upto and bool((span.held if cursor.asked is None else span.held[cursor.asked]).all()):
                found.append(filed)
                at = span.upto
        return tuple(found)

    def answer(self, files: Sequence[Filed], wanted: FileRead) -> Answer:
        """Return what a reader wants of files that follow each other; when that has taken a moment, of the first of them.

        Raises:
            Unavailable: the first is gone or damaged, and dropped now: look elsewhere.
        """
        cursor, limits, until = wanted.cursor, wanted.limits, perf_counter() + self.pace.moment_s
        found: list[Answer] = []
        for filed in files:
            try:
                answer = self._answer(filed, wanted, limits)
            except Unavailable:
                if not found:
                    raise
                break
            if found and answer.nbytes > limits.nbytes:
                break  # there is always one event in an answer, however large it is: it comes with the next one
            found.append(answer)
            cursor.advance(answer.upto, answer.ends)
            limits = replace(limits, events=limits.events - answer.events, nbytes=limits.nbytes - answer.nbytes)
            if answer.upto < filed.span.upto or min(limits.events, limits.nbytes) <= 0 or perf_counter() >= until:
                break
        return one_of(found)

    def _answer(self, filed: Filed, wanted: FileRead, limits: Limits) -> Answer:
        try:
            with filed.path.open("rb", buffering=0) as opened:
                file = ColumnFile(filed.contents, partial(os.pread, opened.fileno()), where=str(filed.path))
                return filter_file(
                    file,
                    cursor=wanted.cursor,
                    top=min(wanted.top, filed.span.upto),
                    limits=limits,
                    matches=wanted.matches,
                    trimmed=wanted.trimmed,
                    only=wanted.only,
                )
        except (OSError, CorruptData) as error:
            if self._remove([filed]):
                log.warning("column_file_dropped error=%s", error)
            raise Unavailable(why="a file of columns could not be read") from error

    def add(self, span: Span, contents: FileContents, buffers: list[Bytes], *, clears: int) -> bool:
        """Write a file, in place of those within its span, unless all were dropped since `clears` was read; False: it is too large.

        Raises:
            OSError: the disk did not take it.
        """
        if self._directory is None or not self.has_room(contents.nbytes):
            return False
        self._made += 1
        path = self._directory / f"{span.cache_id}-{self._made}"
        try:
            with path.open("wb") as opened:
                opened.writelines(buffers)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        filed = Filed(span=span, contents=contents, path=path)
        with self._lock:
            own = self._caches.get(span.cache_id, ())
            replaced = [other for other in own if span.after <= other.span.after and other.span.upto <= span.upto]
            is_late = clears != self.clears
            if not is_late:
                kept = [other for other in own if other not in replaced]
                self._caches[span.cache_id] = tuple(sorted([*kept, filed], key=lambda one: one.span.after))
                self.nbytes += contents.nbytes - sum(other.contents.nbytes for other in replaced)
                self.peak = max(self.peak, self.nbytes)
        for other in [filed] if is_late else replaced:
            other.path.unlink(missing_ok=True)
        return True

    def drop(self, cache_id: int) -> None:
        """Drop a cache's files."""
        self._remove(self.of(cache_id))

    def trim(self, cache_id: int, upto: int) -> None:
        """Drop a cache's files of what retention removed: everything up to an id."""
        self._remove([filed for filed in self.of(cache_id) if filed.span.upto <= upto])

    def clear(self) -> None:
        """Drop all files: copies of segments come or go, a log was cut, or the disk is full. What is being made is not kept either."""
        self.clears += 1
        self._remove([filed for own in list(self._caches.values()) for filed in own])

    def _remove(self, gone: Sequence[Filed]) -> bool:
        """Forget files; return whether any was known."""
        with self._lock:
            known = [filed for filed in gone if filed in self._caches.get(filed.span.cache_id, ())]
            for filed in known:
                own = self._caches[filed.span.cache_id]
                self._caches[filed.span.cache_id] = tuple(other for other in own if other is not filed)
                self.nbytes -= filed.contents.nbytes
        for filed in known:
            filed.path.unlink(missing_ok=True)
        return bool(known)
