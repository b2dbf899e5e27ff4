"""A near cache: entries kept in this process, told of changes by the log, so that most reads cost a look into a dictionary."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Self

from eventlog.batch.one import EntryRow
from eventlog.client.formats import CacheFormat
from eventlog.client.handle import CacheHandle
from eventlog.client.near.table import MISS, Fill, NearStatistics, NearTable, Read
from eventlog.client.near.tail import NearTail
from eventlog.client.reading.rows import RowReader, entry_of
from eventlog.client.shown import Shown
from eventlog.client.values import CacheInfo, Entry, Removed, Stored, StoredMany
from eventlog.clock import now_s
from eventlog.errors import ClientClosed, InvalidArgument, NoEvents, NoState, TimedOut
from eventlog.hashing import hash_key
from eventlog.limits import NEAR_ENTRIES_MAX
from eventlog.wire.eventlog_pb2 import PRIMARY, Get, Message

if TYPE_CHECKING:
    from eventlog.client.cache import Cache

NEVER = float("inf")
ENTRIES_DEFAULT = 10_000
STALENESS_MS_DEFAULT = 1_000


class NearCache(Shown):
    """Open while it is entered. Reads are those of the cache, at most `max_staleness_ms` older; writes go through it.

    What is read is shared by all readers: do not change the values. Use it from the client's loop; `peek` from any thread.
    """

    def __init__(self, cache: "Cache", *, entries_max: int, bytes_max: int, staleness_ms: int) -> None:
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
        """Store a value, as `cache.put`. Whoever reads here afterwards reads it, or something later; mostly from memory."""
        return await self._write(key, value, options, self._cache.put)

    async def replace(self, key: str | bytes, value: Any, /, **options: Any) -> Stored:
        """Replace a value, as `cache.replace`."""
        return await self._write(key, value, options, self._cache.replace)

    async def _write(self, key: str | bytes, value: Any, options: Mapping[str, Any], write: Callable[..., Awaitable[Stored]]) -> Stored:
        """Write a value, and keep it as it is stored. One that expires is not kept: the node says when, and to who reads it.

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


class CacheNear(CacheHandle):
    """The call of a cache that makes a near cache of it."""

    def near(
        self, *, max_entries: int | None = None, max_bytes: int | None = None, max_staleness_ms: int = STALENESS_MS_DEFAULT
    ) -> NearCache:
        """Return a near cache, to be entered with `async with`; by default it holds up to 10,000 entries.

        `max_bytes` bounds keys, values and about 400 bytes an entry. Nothing older than `max_staleness_ms` is served: with the log
        silent for that long, reads go to the primaries.

        Raises:
            InvalidArgument: a bound is not above 0, or above what a node watches for one near cache.
        """
        entries_max = max_entries if max_entries is not None else NEAR_ENTRIES_MAX if max_bytes is not None else ENTRIES_DEFAULT
        for name, given in (("max_entries", entries_max), ("max_bytes", max_bytes), ("max_staleness_ms", max_staleness_ms)):
            if given is not None and given <= 0:
                raise InvalidArgument(why=f"{name} is {given}: give a number above 0")
        if entries_max > NEAR_ENTRIES_MAX:
            raise InvalidArgument(why=f"max_entries is {entries_max}, at most {NEAR_ENTRIES_MAX} are watched")
        return NearCache(
            self,  # type: ignore[arg-type]  # a cache is made of this and the calls that write
            entries_max=entries_max,
            bytes_max=max_bytes if max_bytes is not None else 1 << 62,
            staleness_ms=max_staleness_ms,
        )
