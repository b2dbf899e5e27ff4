"""A near cache: entries kept in this process, told of changes by the log, so that most reads cost a look into a dictionary.

Its tail keeps it true: word of the writes to the keys that it holds, from one node after the other.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Self

import numpy as np

from eventlog.batch.one import EntryRow
from eventlog.client.connections.nodes import Nodes
from eventlog.client.connections.requests import chance
from eventlog.client.formats import CacheFormat
from eventlog.client.near.table import MISS, Fill, NearStatistics, NearTable, Read
from eventlog.client.options import ClientOptions
from eventlog.client.reading.rows import RowReader, entry_of
from eventlog.client.values import CacheInfo, Entry, Removed, Shown, Stored, StoredMany
from eventlog.client.writing.writes import CacheWrites
from eventlog.clock import now_s
from eventlog.errors import (
    ClientClosed,
    EventLogError,
    EventsTrimmed,
    InvalidArgument,
    NoEvents,
    NoState,
    PositionDiverged,
    Stopping,
    TimedOut,
    Unavailable,
)
from eventlog.hashing import hash_key
from eventlog.routing.retry import backoff_ms
from eventlog.transport.connection import Connection
from eventlog.transport.stream import Stream
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import PRIMARY, Get, Message
from eventlog.wire.session import Reply

NEVER = float("inf")
ENTRIES_DEFAULT = 10_000
STALENESS_MS_DEFAULT = 1_000
PROBES_PER_STALENESS = 4  # so that an answer or two may be late
PROBE_S_MIN = 0.02
SILENT_S_MIN = 3.0  # a node that answers no probe for so long, and longer than a value may be old, is left for another
_PROBES_MAX = 64


class NearCache(Shown):
    """Open while it is entered. Reads are those of the cache, at most `max_staleness_ms` older; writes go through it.

    What is read is shared by all readers: do not change the values. Use it from the client's loop; `peek` from any thread.
    """

    def __init__(self, cache: CacheWrites, *, entries_max: int, bytes_max: int, staleness_ms: int) -> None:
        self._cache = cache
        self._core = cache._core  # noqa: SLF001 -- a part of the cache, in a module of its own
        self._table = NearTable(entries_max=entries_max, bytes_max=bytes_max, staleness_s=staleness_ms / 1000)
        self._find = self._table.find
        self._info: CacheInfo
        self._form: CacheFormat
        self._tail: NearTail
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def _described(self) -> str:
        return f" of cache {self._cache.name!r}: {self._core}"

    async def __aenter__(self) -> Self:
        """Begin to follow the cache.

        Raises:
            NoEvents: the cache keeps no events, so nothing would tell of changes.
            NoState: it has no entries.
            TimedOut: no node could say in time that it has heard from every primary.
        """
        if self._task is not None:
            raise InvalidArgument(why="this near cache was entered before; make another")
        self._info = info = await self._cache.info()
        if not info.events:
            raise NoEvents(cache=info.name)
        if not info.state:
            raise NoState(cache=info.name)
        self._form = CacheFormat(info)
        self._tail = NearTail(self._core.nodes, self._core.options, self._table, cache_id=info.id)
        self._task = asyncio.create_task(self._tail.run(), name=f"eventlog-client near {info.name}")
        self._core.nears.setdefault(info.id, []).append(self._table)
        try:
            async with asyncio.timeout(self._core.options.timeout_ms / 1000):
                await asyncio.shield(self._tail.opened)
        except TimeoutError:
            await self._end()
            raise TimedOut(what="the tail of a near cache", timeout_ms=self._core.options.timeout_ms) from None
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def _end(self) -> None:
        task = self._task
        if task is None or self._is_closed:
            return
        self._is_closed = True
        tables = self._core.nears.get(self._info.id, [])
        if self._table in tables:
            tables.remove(self._table)
        if not tables:
            self._core.nears.pop(self._info.id, None)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._table.reset()

    # ------------------------------------------------------------ reading

    async def get(self, key: str | bytes) -> Entry | None:
        """Return the entry of `key`, None if there is none: from memory where that may be, else from its primary."""
        try:
            found = self._find(key, now_s())
        except TypeError:  # bytearray: a key that cannot be looked up as it is
            found = MISS
        return await self._read(key) if found is MISS else found

    def peek(self, key: str | bytes, default: Any = None) -> Any:
        """Return what `get` would return without asking anybody, else `default`. Waits for nothing; for any thread."""
        try:
            found = self._find(key, now_s())
        except TypeError:
            return default
        return default if found is MISS else found

    async def get_many(self, keys: Iterable[str | bytes]) -> list[Entry | None]:
        """Return the entries of many keys, in their order: those that memory lacks in one read of each primary."""
        given = list(keys)
        found = [self.peek(key, MISS) for key in given]
        missing = [row for row, entry in enumerate(found) if entry is MISS]
        if missing:
            for row, entry in zip(missing, await self._read_many([given[row] for row in missing]), strict=True):
                found[row] = entry
        return found

    async def _read(self, key: str | bytes) -> Entry | None:
        self._demand_open()
        stored_key = self._form.key(key)
        fill, asked_at = self._begin(key, stored_key), now_s()
        segment = self._core.routes.segment(stored_key, by_prefix=self._info.route_by_prefix)
        reply = await self._core.requests.ask(Message(get=Get(cache_id=self._info.id, key=stored_key)), segment=segment)
        answer = reply.message.get_answer
        version = answer.version if answer.found else 0
        row = EntryRow(stored_key, answer.value, version, answer.applied_id, answer.expires_ms, answer.lifespan_ms)
        return self._end_read(fill, row, asked_at)

    async def _read_many(self, keys: Sequence[str | bytes]) -> list[Entry | None]:
        self._demand_open()
        stored_keys = self._form.keys(keys)
        fills = [self._begin(key, stored_key) for key, stored_key in zip(keys, stored_keys, strict=True)]
        asked_at = now_s()
        reader = RowReader(self._core.nodes, self._core.options, info=self._info, form=self._form)
        async with aclosing(reader.rows_of(stored_keys, consistency=PRIMARY)) as rows:
            waiting = iter(fills)
            return [self._end_read(next(waiting), row, asked_at) async for row in rows]

    def _begin(self, key: str | bytes, stored_key: bytes) -> Fill | None:
        """Note that a key is about to be read, and have the tail watch it; None if the result cannot be kept."""
        fill = self._table.begin(key if self._form.is_text else stored_key, hash_key(stored_key), nbytes=len(stored_key))
        if self._table.has_changes:
            self._tail.wake()
        return fill

    def _end_read(self, fill: Fill | None, row: EntryRow, asked_at: float) -> Entry | None:
        """Return what was read, and keep it if that may be; one that expires, until its lifespan from the question on is over."""
        entry = entry_of(row, self._form)
        if fill is not None:
            until = asked_at + row.lifespan_ms / 1000 if row.lifespan_ms else NEVER
            self._table.end(fill, Read(entry=entry, as_of=row.applied_id, until=until, nbytes=len(row.value)))
        return entry

    # ------------------------------------------------------------ writing

    async def put(self, key: str | bytes, value: Any, /, **options: Any) -> Stored:
        """Store a value, as `cache.put`. A read here afterwards gets it, or something later; mostly from memory."""
        return await self._write(key, value, options, self._cache.put)

    async def replace(self, key: str | bytes, value: Any, /, **options: Any) -> Stored:
        """Replace a value, as `cache.replace`."""
        return await self._write(key, value, options, self._cache.replace)

    async def _write(self, key: str | bytes, value: Any, options: Mapping[str, Any], write: Callable[..., Awaitable[Stored]]) -> Stored:
        """Write a value, and keep it as it is stored. One that expires is not kept: the node says when, and to those that read it.

        Whether somebody else has given the cache a lifespan meanwhile is not in the answer, so it is held for `max_staleness_ms` alone.
        """
        self._demand_open()
        stored_key, data = self._form.key(key), self._form.value(key, value)
        fill, asked_at = None, now_s()
        if self._info.lifespan_ms is None and options.get("lifespan_ms") is None:
            place = key if self._form.is_text else stored_key
            fill = self._table.begin_write(place, hash_key(stored_key), nbytes=len(stored_key))
            if self._table.has_changes:
                self._tail.wake()
        stored = await write(key, value, **options)
        if fill is not None:
            entry = Entry(value=self._form.read_value(data), value_bytes=data, version=stored.id)
            until = asked_at + self._table.staleness_s
            self._table.end(fill, Read(entry=entry, as_of=stored.id, until=until, nbytes=len(data)))
        return stored

    async def remove(self, key: str | bytes, /, **options: Any) -> Removed:
        """Remove an entry, as `cache.remove`."""
        self._demand_open()
        return await self._cache.remove(key, **options)

    async def put_many(self, pairs: Iterable[tuple[Any, Any]] | Mapping[Any, Any], /, **options: Any) -> StoredMany:
        """Store many pairs, as `cache.put_many`."""
        self._demand_open()
        return await self._cache.put_many(pairs, **options)

    async def remove_many(self, keys: Iterable[str | bytes], /, **options: Any) -> StoredMany:
        """Remove many entries, as `cache.remove_many`."""
        self._demand_open()
        return await self._cache.remove_many(keys, **options)

    async def clear(self) -> int:
        """Remove every entry, as `cache.clear`."""
        self._demand_open()
        return await self._cache.clear()

    # ------------------------------------------------------------ what it is like

    @property
    def statistics(self) -> NearStatistics:
        """Hits, misses, invalidations and how full it is."""
        return self._table.statistics()

    @property
    def is_fresh(self) -> bool:
        """Whether it serves from memory: the log was heard of within the last `max_staleness_ms`."""
        return now_s() < self._table.fresh_until

    def _demand_open(self) -> None:
        if self._task is None:
            raise InvalidArgument(why="this near cache is not open: enter it with `async with`")
        if self._is_closed:  # nothing tells it of changes any more, so every read would be one of its primary
            raise ClientClosed(what="near cache")


class NearTail:
    """Follows the writes of one cache for one table, until cancelled. Lost connections are made good; meanwhile the table ages."""

    def __init__(self, nodes: Nodes, options: ClientOptions, table: NearTable, *, cache_id: int) -> None:
        self._nodes = nodes
        self._options = options
        self._table = table
        self._cache_id = cache_id
        self._probe_s = max(table.staleness_s / PROBES_PER_STALENESS, PROBE_S_MIN)
        self._silent_s = max(2 * table.staleness_s, SILENT_S_MIN)
        self._probes: deque[tuple[int, float]] = deque(maxlen=_PROBES_MAX)  # number, when it was asked
        self._number = 0
        self._heard_at = 0.0
        self._is_open = False
        self._due = asyncio.Event()
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        """Tell the server of new keys soon."""
        self._due.set()

    async def run(self) -> None:
        """Work until cancelled, or until the cache cannot be followed any more: then nothing is held, and every read goes through."""
        attempt = 0
        while True:
            self._is_open = False
            try:
                connection = await self._connection(attempt)
                await self._follow(connection)
            except (EventsTrimmed, PositionDiverged):
                self._table.reset()
            except EventLogError as error:
                self._table.close()
                if not error.retry:
                    self._give_up(error)
                    return
            attempt = 0 if self._is_open else attempt + 1
            await asyncio.sleep(backoff_ms(self._options.retry, attempt=attempt, chance=chance()) / 1000)

    def _give_up(self, error: EventLogError) -> None:
        self._table.reset()
        if not self.opened.done():
            self.opened.set_exception(error)

    async def _connection(self, attempt: int) -> Connection:
        live = self._nodes.live()
        if live:
            return live[attempt % len(live)]
        loop = asyncio.get_running_loop()
        return await self._nodes.home.connection(loop.time() + self._options.timeout_ms / 1000)

    async def _follow(self, connection: Connection) -> None:
        """Follow at one node. Raises why that ended."""
        digests = self._table.opening()
        self._probes.clear()
        self._heard_at = now_s()
        watch = pb.NearWatch(
            cache_id=self._cache_id,
            after=self._table.upto,
            latest=not self._table.upto,
            digests=len(digests),
            probe=self._probe(),
        )
        stream = connection.stream(
            Message(near_watch=watch), np.array(digests, "<u8").tobytes(), credit_bytes=self._options.read_ahead_bytes
        )
        tasks = [asyncio.create_task(self._listen(stream)), asyncio.create_task(self._tell(connection, stream))]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stream.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:  # of two that ended at once what ended the stream counts
            if task in done:
                task.result()
        raise Stopping  # a node ends a watch only when it goes away

    def _probe(self) -> int:
        self._number += 1
        self._probes.append((self._number, now_s()))
        return self._number

    # ------------------------------------------------------------ hearing

    async def _listen(self, stream: Stream) -> None:
        async for reply in stream:
            self._take(reply)

    def _take(self, reply: Reply) -> None:
        item = reply.message.stream_item.near_item
        size = 8 * item.digests
        digests: list[int] = np.frombuffer(reply.body[:size], "<u8").tolist()
        ids: list[int] = np.frombuffer(reply.body[size:], "<i8").tolist()
        self._table.advance(item.upto, digests=digests, ids=ids)
        if not self._is_open:
            self._is_open = True
            self._table.registered(item.upto)
            self._due.set()
        while self._probes and self._probes[0][0] <= item.probe:
            number, asked_at = self._probes.popleft()
            if number == item.probe:
                self._heard_at = now_s()
                self._table.confirm(asked_at)
                if not self.opened.done():
                    self.opened.set_result(None)

    # ------------------------------------------------------------ telling

    async def _tell(self, connection: Connection, stream: Stream) -> None:
        """Tell of new keys as they come, and ask now and then whether everything was heard of."""
        loop = asyncio.get_running_loop()
        while True:
            timer = loop.call_later(self._probe_s, self._due.set)
            try:
                await self._due.wait()
            finally:
                timer.cancel()
            self._due.clear()
            if now_s() - self._heard_at > self._silent_s:
                raise Unavailable(why=f"{connection.peer} has not said for {self._silent_s:.0f} s how far it is")
            if self._is_open:
                await self._tell_once(connection, stream)

    async def _tell_once(self, connection: Connection, stream: Stream) -> None:
        added, removed = self._table.changes()
        is_due = not self._probes or now_s() - self._probes[-1][1] >= self._probe_s * 0.9
        if not added and not removed and not is_due:
            self._table.registered(0)
            return
        probe = self._probe() if is_due else 0
        interest = pb.NearInterest(watch=stream.number, added=len(added), removed=len(removed), probe=probe)
        body = np.array(added + removed, "<u8").tobytes()
        reply = await connection.request(Message(near_interest=interest), *([body] if body else []), timeout_ms=self._options.timeout_ms)
        self._table.registered(reply.message.near_interest_answer.after)
