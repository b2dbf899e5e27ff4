"""One entry; and keys, and entries of keys, as they stream in from all primaries: many a message, held only until they are taken.

A stream that breaks goes on after the last row that was taken, at the new primary.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from itertools import accumulate
from struct import pack
from typing import Any, Generic, TypeVar

from eventlog.batch.one import EntryRow, decode_rows
from eventlog.client.connections.requests import Asking, Patience, Roads
from eventlog.client.formats import CacheFormat, checked_keys
from eventlog.client.handle import CacheHandle
from eventlog.client.options import ClientOptions
from eventlog.client.values import CacheInfo, Entry, Shown, checked_bound, checked_id, consistency_number
from eventlog.errors import CorruptData, EventLogError, NotPrimary
from eventlog.routing.routes import Routes
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Consistency, GetMany, Keys, Message

Row = TypeVar("Row")
KEYS_PER_REQUEST_MAX = 10_000
COPY_ASK_MS = 250  # a read that has failed says a little later what another one would be answered


class Rows(Shown, Generic[Row]):
    """Rows of an answer. Iterate with `async for`, which keeps a bounded part in memory; or `await` them all as a list."""

    def __init__(self, rows: AsyncGenerator[Row, None]) -> None:
        self.generator = rows

    def __aiter__(self) -> AsyncIterator[Row]:
        return self.generator

    def __await__(self) -> Generator[Any, None, list[Row]]:
        return self._all().__await__()

    async def _all(self) -> list[Row]:
        return [row async for row in self.generator]

    async def aclose(self) -> None:
        """End the answer before its end."""
        await self.generator.aclose()


class RowReader:
    """Asks for rows of one cache."""

    def __init__(self, nodes: Roads[Any], options: ClientOptions, *, info: CacheInfo, form: CacheFormat) -> None:
        self._nodes = nodes
        self._options = options
        self._info = info
        self._form = form

    # ------------------------------------------------------------ entries of keys

    async def entries_of(self, keys: Sequence[bytes], *, consistency: Consistency) -> AsyncGenerator[Entry | None, None]:
        """Yield the entries of keys in their order, None where there is none. A lost connection is made good."""
        async with aclosing(self.rows_of(keys, consistency=consistency)) as rows:
            async for row in rows:
                yield entry_of(row, self._form)

    async def rows_of(self, keys: Sequence[bytes], *, consistency: Consistency) -> AsyncGenerator[EntryRow, None]:
        """Yield the same as rows, with their metadata."""
        done, patience = 0, Patience(self._nodes, self._options)
        while done < len(keys):
            part = keys[done : done + KEYS_PER_REQUEST_MAX]
            try:
                async with aclosing(self._entries_once(part, consistency, patience)) as rows:
                    async for row in rows:
                        done += 1
                        patience.has_progress()
                        yield row
            except EventLogError as error:
                await patience.wait_after(error)

    async def _entries_once(
        self, keys: Sequence[bytes], consistency: Consistency, patience: Patience[Any]
    ) -> AsyncGenerator[EntryRow, None]:
        """Yield the rows of keys, each from the stream of its primary."""
        routes = self._routes
        owners = [routes.primary(routes.segment(key, by_prefix=self._info.route_by_prefix)) for key in keys]
        async with AsyncExitStack() as stack:
            streams: dict[int, AsyncGenerator[EntryRow, None]] = {}
            for owner in dict.fromkeys(owners):
                own = [key for key, number in zip(keys, owners, strict=True) if number == owner]
                request = Message(get_many=GetMany(cache_id=self._info.id, count=len(own), consistency=consistency, metadata=True))
                connection = await patience.connection(owner)
                streams[owner] = await stack.enter_async_context(aclosing(self._stream(connection, request, *_key_column(own))))
            for owner in owners:
                row = await anext(streams[owner], None)
                if row is None:
                    raise CorruptData(where="answer", why="fewer entries than keys")
                yield row

    # ------------------------------------------------------------ all of them

    async def keys(self, *, prefix: bytes, limit: int) -> AsyncGenerator[str | bytes, None]:
        """Yield keys, segment by segment, ascending in each."""
        async with aclosing(self._scan(prefix, limit)) as rows:
            async for row in rows:
                yield self._form.read_key(row.key)

    async def _scan(self, prefix: bytes, limit: int) -> AsyncGenerator[EntryRow, None]:
        left = limit or LIMIT_NONE
        rest, after = list(range(self._routes.segments)), None
        patience = Patience(self._nodes, self._options)
        while rest and left > 0:
            owner, own = next(iter(self._routes.by_primary(rest).items()))
            keys = Keys(cache_id=self._info.id, prefix=prefix, limit=left if limit else 0, after=after)
            keys.segments.extend(own if len(own) < self._routes.segments or after is not None else ())
            last = after
            try:
                connection = await patience.connection(owner)
                async with aclosing(self._stream(connection, Message(keys=keys))) as rows:
                    async for row in rows:
                        last, left = row.key, left - 1
                        patience.has_progress()
                        yield row
                own_left: list[int] = []
                last = None
            except EventLogError as error:
                await patience.wait_after(error)
                own_left = own if last is None else self._from_segment_of(last, own)
            finished = set(own).difference(own_left)
            rest, after = own_left + [segment for segment in rest if segment not in finished and segment not in own_left], last

    def _from_segment_of(self, key: bytes, segments: list[int]) -> list[int]:
        segment = self._routes.segment(key, by_prefix=self._info.route_by_prefix)
        if segment not in segments:
            raise CorruptData(where="answer", why=f"a key of segment {segment}, which was not asked for")
        return segments[segments.index(segment) :]

    @property
    def _routes(self) -> Routes:
        routes = self._nodes.routes
        assert routes is not None, "a cache that was looked up was found by a node"
        return routes

    async def _stream(self, connection: Asking, request: Message, *buffers: bytes) -> AsyncGenerator[EntryRow, None]:
        stream = connection.stream(request, *buffers, credit_bytes=self._options.read_ahead_bytes)
        try:
            async for item in stream:
                entries = item.message.stream_item.entries
                for row in decode_rows(item.body, count=entries.count, has_metadata=entries.metadata):
                    yield row
        finally:
            stream.stop()


class CacheByKey(CacheHandle):
    """The calls of a cache that read by key: one entry as of now, or rows as they stream in."""

    async def get(self, key: str | bytes, *, consistency: str = "primary", at_least: int = 0) -> Entry | None:
        """Return the entry of `key`, None if there is none. `at_least`: an id that the answering node must have applied.

        Raises:
            NotPrimary: nobody can answer for the segment with this consistency; `copy_upto` says how far a copy is that `"any"` would be
                answered from, 0 where none was found.
        """
        info, form = await self._found()
        stored_key, number = form.key(key), consistency_number(consistency)
        request = pb.Get(cache_id=info.id, key=stored_key, consistency=number, at_least=checked_id(at_least, "at_least"))
        segment = None if number == pb.ANY else self._core.routes.segment(stored_key, by_prefix=info.route_by_prefix)
        try:
            answer = (await self._core.requests.ask(Message(get=request), segment=segment)).message.get_answer
        except NotPrimary as error:
            if number == pb.ANY:
                raise
            raise NotPrimary(segment=error.segment, copy_upto=await self._copy_upto(request)) from error
        if not answer.found:
            return None
        return Entry(
            value=form.read_value(answer.value),
            value_bytes=answer.value,
            version=answer.version,
            expires_ms=answer.expires_ms or None,
        )

    async def _copy_upto(self, request: pb.Get) -> int:
        """Return up to which id the copy is complete that a read from any copy would be answered from; 0 if none answers at once."""
        anyhow = pb.Get(cache_id=request.cache_id, key=request.key, consistency=pb.ANY)
        for connection in self._core.nodes.live():
            try:
                reply = await connection.request(Message(get=anyhow), timeout_ms=COPY_ASK_MS)
            except EventLogError:
                continue
            applied_id: int = reply.message.get_answer.applied_id
            return applied_id
        return 0

    def get_many(self, keys: Iterable[str | bytes], *, consistency: str = "primary") -> Rows[Entry | None]:
        """Return the entries of many keys, in their order, None where there is none: iterate them, or await them as a list."""
        number, given = consistency_number(consistency), checked_keys(keys)

        async def rows() -> AsyncGenerator[Entry | None, None]:
            reader, form = await self._row_reader()
            async for entry in reader.entries_of(form.keys(given), consistency=number):
                yield entry

        return Rows(rows())

    def keys(self, prefix: str | bytes | None = None, *, limit: int | None = None) -> Rows[str | bytes]:
        """Return the keys that begin with `prefix`, at most `limit`: segment by segment, ascending in each."""
        if limit is not None:
            limit = min(checked_bound("limit", limit), LIMIT_NONE)

        async def rows() -> AsyncGenerator[str | bytes, None]:
            reader, form = await self._row_reader()
            async for key in reader.keys(prefix=b"" if prefix is None else form.key(prefix), limit=limit or 0):
                yield key

        return Rows(rows())

    async def _row_reader(self) -> tuple[RowReader, CacheFormat]:
        info, form = await self._found()
        return RowReader(self._core.nodes, self._core.options, info=info, form=form), form


LIMIT_NONE = (1 << 63) - 1


def _key_column(keys: Sequence[bytes]) -> tuple[bytes, bytes]:
    return pack(f"<{len(keys) + 1}i", *accumulate(map(len, keys), initial=0)), b"".join(keys)


def entry_of(row: EntryRow, form: CacheFormat) -> Entry | None:
    """Return a row as callers see it, None where there is no entry."""
    if not row.version:
        return None
    return Entry(value=form.read_value(row.value), value_bytes=row.value, version=row.version, expires_ms=row.expires_ms or None)
