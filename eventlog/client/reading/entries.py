"""The calls of a cache that go through all of its entries."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from eventlog.client.core import ClientCore
from eventlog.client.handle import CacheHandle
from eventlog.client.reading.columns import checked_columns
from eventlog.client.reading.filtering import Parameters, Select, compiled_here, filter_of, json_of
from eventlog.client.reading.following import ReadingCore
from eventlog.client.reading.iterating import EntryBatch, EntryReader, ForEachResult, IterationOptions, Key, TaskOptions, TaskRunner
from eventlog.client.reading.past import PastReader, id_at
from eventlog.client.reading.rows import Rows
from eventlog.client.reading.wanted import segments_of
from eventlog.client.values import CacheInfo, Entry, Shown, checked_bound, checked_flag, checked_text
from eventlog.errors import InvalidArgument
from eventlog.limits import ANSWER_BYTES_MAX, CHUNK_BYTES_DEFAULT, ITERATION_BATCH_ENTRIES_MAX

if TYPE_CHECKING:
    from eventlog.predicate.spec import Bounds

Row = TypeVar("Row")

_PARALLEL_MAX = 64
_PREFETCH_MAX = 64


class Entries(Rows[tuple[Key, Entry]]):
    """Entries of a cache. In an `async with` statement it gives keys with values, iterated or awaited without one keys with entries."""

    def __init__(self, make: Callable[..., AsyncGenerator[EntryBatch, None]], *, limit: int, metadata: bool) -> None:
        super().__init__(_first_rows(make(metadata=True), EntryBatch.entries, limit))
        self._make = make
        self._limit = limit
        self._metadata = metadata
        self._opened: EntryRows | None = None

    def batches(self) -> AsyncGenerator[EntryBatch, None]:
        """Yield the entries as columns, each time from the beginning. `limit` does not cut them."""
        return self._make(metadata=self._metadata)

    async def __aenter__(self) -> "EntryRows":
        self._opened = EntryRows(self.batches(), limit=self._limit, metadata=self._metadata)
        return self._opened

    async def __aexit__(self, *_: object) -> None:
        if self._opened is not None:
            await self._opened.aclose()


class EntryRows(Shown):
    """Iterate it for keys with their values (with `metadata`, their entries), or its `batches()` for columns: one of the two, once."""

    def __init__(self, batches: AsyncGenerator[EntryBatch, None], *, limit: int, metadata: bool) -> None:
        self._batches = batches
        self.rows: AsyncGenerator[tuple[Key, Any], None] = _first_rows(batches, EntryBatch.entries if metadata else EntryBatch.pairs, limit)

    def __aiter__(self) -> AsyncIterator[tuple[Key, Any]]:
        return self.rows

    def batches(self) -> AsyncGenerator[EntryBatch, None]:
        """Yield the entries as columns. `limit` does not cut them."""
        return self._batches

    async def aclose(self) -> None:
        """End the reading."""
        await self.rows.aclose()
        await self._batches.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _first_rows(
    batches: AsyncGenerator[EntryBatch, None], rows_of: Callable[[EntryBatch], Iterator[tuple[Key, Row]]], limit: int
) -> AsyncGenerator[tuple[Key, Row], None]:
    """Yield the rows of all batches, or the first `limit` if that is not 0."""
    left = limit
    async with aclosing(batches):
        async for batch in batches:
            for row in rows_of(batch):
                yield row
                left -= 1
                if not left:
                    return


class CacheEntries(CacheHandle):
    """Every entry once, as of a moment of its segment, whatever becomes of the nodes meanwhile."""

    _core: ReadingCore

    def entries(
        self,
        prefix: str | bytes | None = None,
        *,
        limit: int | None = None,
        segments: Collection[int] | None = None,
        where: str | None = None,
        parameters: Parameters | None = None,
        select: Select | None = None,
        filter: str | None = None,
        params: Mapping[str, Any] | None = None,
        batch_size: int = 1_000,
        batch_bytes: int = 1 << 20,
        scope: str = "global",
        scope_parameters: Mapping[str, Any] | None = None,
        parallel: int = 1,
        prefetch: int = 2,
        metadata: bool = False,
        at: int | datetime | None = None,
        columns: Sequence[str] | None = None,
    ) -> Entries:
        """Return the entries whose keys begin with `prefix`, at most `limit`, that match `where` or the installed `filter`.

            async with cache.entries(where="value.total > 2") as rows:
                async for key, value in rows: ...

        Segment by segment, keys ascending in each; with `parallel` streams at the same time, in the order in which they come. What is
        written meanwhile may be seen or not; what is there all the time is seen once, also when a node dies or segments move. Memory
        holds `prefetch` batches a stream, and nothing that grows with the cache.

        `scope`: `global`, `local` (what the node leads that this client is connected to), `segments` (those given), or a function
        installed on the nodes, with its `scope_parameters`. With `metadata` rows have entries, which know version and expiry.

        `columns` are for `batches()`: of those of `batch.arrow()` the ones that are wanted. Keys or values that are not do not leave the
        nodes, and there are no rows without both.

        With `at` (an id, or a moment) they are the entries as they were then, one by one as `get` with `at` gives them, also where
        nobody was reading then. Memory holds `parallel` segments as they were, with what was changed there since. `where` and `select`
        are evaluated by this client, as the nodes do it on entries of now; an installed `filter` and a `scope` are refused, as they run on
        the nodes, which do not have what was.

        Raises:
            EventsTrimmed: retention has removed what would tell how an entry was at `at`; or its version, and `where` names `id` or `time`.
            NotFinal: `at` lies ahead of what nobody can write any more.
            InvalidArgument: `at` lies ahead of what anybody can have written by now.
            NoState: the cache keeps no entries.
            BadPredicate, BadFilterParameters, FilterNotFound: the filter does not fit the cache, or no node has it.
        """
        _check_positive(limit=limit, batch_size=batch_size, batch_bytes=batch_bytes, parallel=parallel, prefetch=prefetch)
        wanted = IterationOptions(
            filter=filter_of(where=where, parameters=parameters, select=select, filter=filter, params=params),
            batch_entries=min(batch_size, limit or batch_size, ITERATION_BATCH_ENTRIES_MAX),
            batch_bytes=min(batch_bytes, ANSWER_BYTES_MAX),
            scope="" if checked_text("scope", scope) in {"global", "segments"} else scope,
            scope_parameters=json_of(scope_parameters),
            parallel=min(parallel, _PARALLEL_MAX),
            prefetch=min(prefetch, _PREFETCH_MAX),
            columns=checked_columns(columns),
        )
        if at is not None and (filter is not None or wanted.scope):
            what = f"scope {scope!r}" if filter is None else f"filter {filter!r}"
            raise InvalidArgument(why=f"{what} runs on the nodes, which have no entries of the past: with at, choose by where and segments")
        make = partial(self._entry_batches, wanted, prefix, segments)
        if at is not None:
            make = partial(self._past_batches, wanted, prefix, segments, id_at(at))
        return Entries(make, limit=limit or 0, metadata=checked_flag("metadata", metadata))

    async def _past_batches(
        self, wanted: IterationOptions, prefix: str | bytes | None, segments: Collection[int] | None, at: int, *, metadata: bool
    ) -> AsyncGenerator[EntryBatch, None]:
        del metadata  # they have it anyway
        info, form = await self._found()
        of = self._core.routes.segments
        matches = None if wanted.filter is None else await asyncio.to_thread(compiled_here, wanted.filter, info)
        start = b"" if prefix is None else form.key(prefix)
        reader = PastReader(self._core, info=info, form=form, at=at, prefix=start, matches=matches, columns=wanted.columns)
        chosen: Sequence[int] = segments_of(segments, of=of) or range(of)
        if matches is not None:
            chosen = self._within(matches.bounds, info, chosen)
        async with aclosing(reader.batches(chosen, batch_entries=wanted.batch_entries, parallel=wanted.parallel)) as found:
            async for batch in found:
                yield batch

    def _within(self, bounds: "Bounds", info: CacheInfo, segments: Sequence[int]) -> Sequence[int]:
        """Return those of some segments in which an entry can match: a condition on keys has no other logs read."""
        if bounds.keys is not None:
            own = {self._core.routes.segment(key, by_prefix=info.route_by_prefix) for key in bounds.keys}
            segments = [segment for segment in segments if segment in own]
        return segments if bounds.segments is None else [segment for segment in segments if segment in bounds.segments]

    async def _entry_batches(
        self, wanted: IterationOptions, prefix: str | bytes | None, segments: Collection[int] | None, *, metadata: bool
    ) -> AsyncGenerator[EntryBatch, None]:
        info, form = await self._found()
        if wanted.filter is not None and wanted.filter.select:
            form = form.selected()
        wanted = replace(
            wanted,
            segments=None if segments is None else segments_of(segments, of=self._core.routes.segments),
            prefix=b"" if prefix is None else form.key(prefix),
            metadata=metadata,
        )
        reader = EntryReader(self._core.nodes, self._core.options, info=info, form=form)
        async with aclosing(reader.batches(wanted)) as found:
            async for batch in found:
                yield batch


class CacheTasks(CacheHandle):
    """Work on the entries of a cache, done where they are."""

    _core: ClientCore

    async def for_each(
        self,
        task: str,
        params: Mapping[str, Any] | None = None,
        *,
        where: str | None = None,
        parameters: Parameters | None = None,
        filter: str | None = None,
        filter_params: Mapping[str, Any] | None = None,
        segments: Collection[int] | None = None,
        batch_size: int | None = None,
        batch_bytes: int = CHUNK_BYTES_DEFAULT,
        parallel: int | None = None,
    ) -> ForEachResult:
        """Run a task, which is installed on the nodes under this name, over the entries that match, at the nodes that lead them.

        `count` and `remove` are always there; others are entry points of the group `eventlog.tasks` (`eventlog.node.state.tasks`). No entry
        leaves its node. Each batch is acknowledged after it was worked on: when segments move or a node leaves, nothing is worked on
        twice; when one dies, at most the batch it was working on, for each of the streams. A batch is by default as large as what is
        copied at once where segments move; `batch_bytes` says otherwise, `batch_size` bounds its entries. Listeners are not waited for,
        also not those that the cache waits for.

        Raises:
            TaskNotFound: a node does not have it.
            TaskFailed: it raised something; what was done stays.
        """
        _check_positive(batch_size=batch_size, batch_bytes=batch_bytes, parallel=parallel)
        info, _ = await self._found()
        wanted = TaskOptions(
            cache_id=info.id,
            task=checked_text("task", task),
            parameters=json_of(params),
            filter=filter_of(where=where, parameters=parameters, filter=filter, params=filter_params),
            batch_entries=min(batch_size or ITERATION_BATCH_ENTRIES_MAX, ITERATION_BATCH_ENTRIES_MAX),
            batch_bytes=min(batch_bytes, ANSWER_BYTES_MAX),
        )
        of = self._core.routes.segments
        runner = TaskRunner(self._core.nodes, self._core.options, wanted)
        try:
            await runner.run(range(of) if segments is None else segments_of(segments, of=of), parallel=parallel)
        finally:
            self._core.nears.wrote_unknown(info.id)  # nobody here knows what a task does
        return runner.result


def _check_positive(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None:
            checked_bound(name, number)
