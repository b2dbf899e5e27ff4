"""Reads as one table: all entries, or the events of a stretch of the log, for pyarrow, pandas and polars."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any
from typing import Unpack as Options

from eventlog.client.core import ClientCore
from eventlog.client.reading.batches import ArrowRows
from eventlog.client.reading.columns import CHANGE, OPTIONAL, ROW_COLUMNS, FrameForm
from eventlog.client.reading.entries import CacheEntries
from eventlog.client.reading.filtering import Parameters, Select
from eventlog.client.reading.iterating import form_of
from eventlog.client.reading.reads import CacheReads
from eventlog.client.reading.wanted import ScanOptions
from eventlog.client.values import Shown, checked_bound
from eventlog.errors import InvalidArgument
from eventlog.events import Kind

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from eventlog.client.reading.frames import TableChoice, TableMaker

SCAN_ENTRIES = 10_000  # of a batch: what is done once a batch is then nothing beside what is done for its rows


class Scan(Shown):
    """A read as a table. Nothing is read before it is asked for; each call reads anew.

    Iterate it for `pyarrow.RecordBatch`es, of which none but the present one is held; the other calls return everything at once.
    """

    def __init__(
        self,
        read: Callable[[], AsyncGenerator[ArrowRows, None]],
        form: Callable[[], Awaitable[FrameForm]],
        choice: "TableChoice",
        *,
        limit: int,
    ) -> None:
        self._read = read
        self._form = form
        self._choice = choice
        self._limit = limit
        self._frame: TableMaker | None = None

    async def schema(self) -> "pa.Schema":
        """Return the schema of the table. With `value_schema="infer"` the first values are read for it, once."""
        return (await self.frame()).schema

    async def frame(self) -> "TableMaker":
        """Return what makes the table, the same for every read of this scan."""
        if self._frame is None:
            self._frame = await self._made()
        return self._frame

    async def _made(self) -> "TableMaker":
        from eventlog.client.reading import frames  # noqa: PLC0415 -- as in `arrow_module`

        form, choice = await self._form(), self._choice
        if choice.typed != frames.INFER:
            return frames.frame_of(form, choice)
        frames.check_typed(form)
        async with aclosing(self._read()) as found:
            async for rows in found:
                if values := _values_of(rows):
                    return frames.frame_of(form, choice._replace(typed=frames.inferred(values)))
        return frames.frame_of(form, choice._replace(typed=None))  # of nothing nothing can be said: what comes later stays text

    async def batches(self) -> "AsyncGenerator[pa.RecordBatch, None]":
        """Yield the table in batches, none of them empty.

        Raises:
            BadValue: a value does not fit the `value_schema`, or that which was inferred.
        """
        frame, left = await self.frame(), self._limit
        async with aclosing(self._read()) as found:
            async for rows in found:
                if not len(rows):
                    continue
                batch = frame.batch(rows)
                yield batch[:left] if self._limit else batch
                left -= len(rows)
                if self._limit and left <= 0:
                    return

    def __aiter__(self) -> "AsyncGenerator[pa.RecordBatch, None]":
        return self.batches()

    async def to_arrow(self) -> "pa.Table":
        """Return everything as a `pyarrow.Table`."""
        import pyarrow as pa  # noqa: PLC0415 -- slow to load

        batches = [batch async for batch in self.batches()]
        return pa.Table.from_batches(batches, schema=await self.schema())

    async def to_pandas(self) -> "pd.DataFrame":
        """Return everything as a `pandas.DataFrame`.

        Raises:
            InvalidArgument: pandas is not installed.
        """
        _installed("pandas")
        table = await self.to_arrow()
        return await asyncio.to_thread(table.to_pandas)

    async def to_polars(self) -> "pl.DataFrame":
        """Return everything as a `polars.DataFrame`.

        Raises:
            InvalidArgument: polars is not installed.
        """
        polars = _installed("polars")
        return await asyncio.to_thread(polars.from_arrow, await self.to_arrow())


class CacheScans(CacheReads, CacheEntries):
    """The calls of a cache that read a table."""

    _core: ClientCore

    def scan(
        self,
        prefix: str | bytes | None = None,
        *,
        where: str | None = None,
        parameters: Parameters | None = None,
        select: Select | None = None,
        filter: str | None = None,
        params: Mapping[str, Any] | None = None,
        segments: Collection[int] | None = None,
        limit: int | None = None,
        parallel: int = 1,
        include: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        value_schema: "pa.Schema | pa.DataType | str | None" = None,
        as_of: int | datetime | None = None,
    ) -> Scan:
        """Return the entries as a table: `await cache.scan(where="value.total > 2").to_polars()`.

        The columns are those of `arrow()` of every batch; `include` and `columns` choose of them. `value_schema` is the type of the values
        of a JSON cache, a type of pyarrow or a schema of their fields, or `"infer"`: what the first values have, kept for all of the
        scan. With `as_of`, an id or a moment, they are the entries as they were then: `at` of `entries`, whose options the others are.

        Raises, as it is read:
            InvalidArgument: there is no column of a name, or values cannot have the type.
            BadValue: a value does not fit the type; with its key, the place in it and its id.
            EventsTrimmed, NotFinal: with `as_of`, as `entries`.
        """
        choice = _choice(include, columns, value_schema)
        entries = self.entries(
            prefix,
            where=where,
            parameters=parameters,
            select=select,
            filter=filter,
            params=params,
            segments=segments,
            limit=limit,
            parallel=parallel,
            batch_size=SCAN_ENTRIES,
            at=as_of,
            columns=_answered(include, columns, value_schema),
        )

        async def form() -> FrameForm:
            own = (await self._found())[1]
            return form_of(own.selected() if select else own)

        return Scan(entries.batches, form, choice, limit=limit or 0)

    def scan_events(
        self,
        from_id: int | str | None = None,
        *,
        from_time: int | datetime | None = None,
        tail: int | None = None,
        limit: int | None = None,
        include: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        value_schema: "pa.Schema | pa.DataType | str | None" = None,
        **options: Options[ScanOptions],
    ) -> Scan:
        """Return the events after `from_id`, to the log's end of the moment at which they are read, as a table, in the order of ids.

        With `tail`, the last so many.

        Columns and types are chosen as in `scan`; the other options are those of `events`, of which those that follow, poll or acknowledge
        for a listener mean nothing here.

        Raises, as it is read: as `scan` and `events`.
        """
        if alien := set(options) - set(ScanOptions.__annotations__):
            raise TypeError(f"scan_events takes no {', '.join(sorted(alien))}")
        if limit is not None:
            limit = checked_bound("limit", limit)
        choice = _choice(include, columns, value_schema)
        answered = _answered(include, columns, value_schema, has_changes=bool(options.get("continuous")))

        async def form() -> FrameForm:
            own = (await self._found())[1]
            return form_of(own.selected() if options.get("select") else own)._replace(has_changes=bool(options.get("continuous")))

        return Scan(
            lambda: self.event_batches(from_id, from_time=from_time, tail=tail, columns=answered, **options),
            form,
            choice,
            limit=limit or 0,
        )


def _choice(include: Sequence[str] | None, columns: Sequence[str] | None, value_schema: Any) -> "TableChoice":
    from eventlog.client.reading import frames  # noqa: PLC0415 -- as in `arrow_module`

    return frames.choice_of(include, columns, value_schema)


def _answered(
    include: Sequence[str] | None, columns: Sequence[str] | None, value_schema: object, *, has_changes: bool = False
) -> list[str] | None:
    """Return the columns that are needed of the nodes, None for all: of what does not fit a `value_schema` the key is told.

    Names that there are not are refused where the table is made.
    """
    known = (*ROW_COLUMNS, CHANGE) if has_changes else ROW_COLUMNS
    if columns is None:
        return None if include is None else [name for name in known if name not in OPTIONAL or name in include]
    beside = () if value_schema is None else ("key", "value")
    return [name for name in known if name in columns or name in beside] or None


def _values_of(rows: ArrowRows) -> list[bytes]:
    kinds = rows.kinds
    return [value for value, kind in zip(rows.values.to_list(), kinds.tolist(), strict=True) if kind not in _WITHOUT_VALUE]


_WITHOUT_VALUE = frozenset({Kind.REMOVED, Kind.EXPIRED})


def _installed(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise InvalidArgument(why=f"to_{name} needs a package that is not there: pip install {name}") from error
