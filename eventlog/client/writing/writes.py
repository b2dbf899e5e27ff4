"""The calls of a cache that write."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from eventlog.arrays import NONE
from eventlog.client.core import ClientCore
from eventlog.client.formats import headers_bytes, lifespan
from eventlog.client.reading.columns import arrow_module
from eventlog.client.values import Removed, StoredMany
from eventlog.client.writing.bulk import arrow_columns, pair_columns, parts_of
from eventlog.client.writing.calls import Changes
from eventlog.client.writing.singles import CacheSingles, Condition, Expecting, OnWaitTimeout, Written
from eventlog.errors import EventLogError, InvalidArgument, PartlyWritten
from eventlog.limits import BATCH_BYTES_MAX, BATCH_EVENTS_MAX
from eventlog.wire.eventlog_pb2 import Clear, Message


class CacheWrites(CacheSingles):
    """Puts and removals of one and of many. They take effect in the order in which they were called, and are durable when they return."""

    _core: ClientCore

    async def _write_one(
        self,
        key: bytes,
        value: bytes,
        *,
        becomes: type[Written],
        condition: Condition | None,
        headers: bytes,
        wants_previous: bool,
        timeout_ms: int | None,
        lifespan_ms: int = 0,
        expecting: Expecting | None = None,
    ) -> Written:
        info, form = self._info, self._form
        assert info is not None, "the key was made for this cache"
        assert form is not None, "likewise"
        changes = Changes(
            cache_id=info.id,
            by_prefix=info.route_by_prefix,
            keys=(key,),
            values=(value,),
            removed=(True,) if becomes is Removed else None,
            lifespans=(lifespan_ms,) if lifespan_ms else None,
            headers=(headers,) if headers else None,
            condition=condition,
            wants_previous=bool(wants_previous),  # what the request cannot hold would end the sending of everything behind it
        )
        future = await self._core.writer.write(changes, is_many=False, timeout_ms=timeout_ms)
        stored: Written = await future
        if self._core.nears:
            self._core.nears.wrote(info.id, (key,), (stored.id,))
        if expecting is not None:
            await self._acknowledged(expecting, (key,), (stored.id,))
        return stored if stored.previous is None else replace(stored, previous=form.read_value(stored.previous))

    async def put_many(
        self,
        pairs: Iterable[tuple[Any, Any]] | Mapping[Any, Any],
        *,
        headers: Mapping[str, bytes] | None = None,
        lifespan_ms: int | None = None,
        timeout_ms: int | None = None,
        wait_listeners: Sequence[str] | str = (),
        wait_ms: int | None = None,
        on_wait_timeout: OnWaitTimeout | None = None,
    ) -> StoredMany:
        """Store many pairs of key and value; with `eventlog.REMOVE` as its value, a key is removed instead.

        Pairs of one segment are written together or not at all, unless the call is larger than 16 MiB. `headers` and `lifespan_ms` are
        for every pair; listeners are waited for as `put` does. `timeout_ms` is for the whole call, however large.

        Raises:
            PartlyWritten: some were written, some not.
            EventLogError: none was; or, if its `outcome` says so, nobody knows.
        """
        _, form = await self._found()
        keys, values, removed = pair_columns(pairs, form)
        return await self._write_many(
            keys,
            values,
            removed=removed,
            headers=headers_bytes(headers),
            lifespan_ms=lifespan(lifespan_ms),
            timeout_ms=timeout_ms,
            expecting=await self._expecting(wait_listeners, wait_ms, on_wait_timeout),
        )

    async def remove_many(self, keys: Iterable[str | bytes], *, timeout_ms: int | None = None) -> StoredMany:
        """Remove the entries of many keys, as `put_many`."""
        _, form = await self._found()
        stored, expecting = form.keys(keys), await self._expecting((), None, None)
        return await self._write_many(stored, [b""] * len(stored), removed=[True] * len(stored), timeout_ms=timeout_ms, expecting=expecting)

    async def put_arrow(self, batch: Any, *, key: str = "key", value: str = "value", timeout_ms: int | None = None) -> StoredMany:
        """Store two columns of a table, as `put_many`; a null value removes its key.

        A table is one of pyarrow (a `RecordBatch`, a `Table`, a reader, which is read to its end), or what has `__arrow_c_stream__` or
        `__arrow_c_array__`: a DataFrame of polars or pandas, a relation of DuckDB. Keys may be any text or binary of Arrow. Values of
        a JSON cache may be text or bytes that hold JSON, or anything else, which becomes JSON; of an Avro cache text with JSON, bytes
        that are encoded, or what fits its schema.

        Raises:
            InvalidArgument: no table, or a column is missing, cannot be a key or holds what no value can be made of; it is named.
            BadValue: a value does not fit the cache.
        """
        _, form = await self._found()
        arrow = arrow_module()
        # a stream may compute, or wait for what this very client reads
        table = batch if arrow.is_table(batch) else await asyncio.to_thread(arrow.table_of, batch)
        keys, values, removed = arrow_columns(table, form, key=key, value=value)
        expecting = await self._expecting((), None, None)
        return await self._write_many(keys, values, removed=removed, timeout_ms=timeout_ms, expecting=expecting)

    async def send_columns(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        *,
        removed: Sequence[bool] | None = None,
        timeout_ms: int | None = None,
    ) -> "asyncio.Future[StoredMany]":
        """Take in columns of bytes as they are to be stored, and return the future of their result.

        The future is done when the listeners that the cache waits for have acknowledged the events, too. Returns as soon as there is
        room among the bytes unanswered, so that a producer that does not wait for results is held back by their number alone. Values of
        a JSON cache have to be JSON, which only the node checks; those of an Avro cache are checked here. At most a frame's worth: 16 MiB
        and 200,000 events; the node does nothing else while it takes a frame apart, so some thousand are better.

        Raises:
            InvalidArgument: the columns are not of one length, or hold something else than bytes.
            BadValue: a value was not written with the cache's Avro schema.
        """
        keys, values, removed = tuple(keys), tuple(values), tuple(removed or ()) or None  # the caller's own lists may change meanwhile
        info, form = await self._found()
        changes = Changes(cache_id=info.id, by_prefix=info.route_by_prefix, keys=keys, values=values, removed=removed)
        if len(keys) != len(values) or len(removed or keys) != len(keys):
            raise InvalidArgument(why=f"{len(keys)} keys, {len(values)} values, {len(removed or ())} marks of removal")
        if len(keys) > BATCH_EVENTS_MAX:
            raise InvalidArgument(why=f"{len(keys)} events; a frame takes {BATCH_EVENTS_MAX}")
        strange = {*map(type, keys), *map(type, values)} - {bytes}
        if strange:
            raise InvalidArgument(why=f"columns hold bytes, not {min(kind.__name__ for kind in strange)}")
        form.check(keys, values, removed=removed)
        if not keys:
            return _done(_nothing())
        expecting = await self._expecting((), None, None)
        future: asyncio.Future[StoredMany] = await self._core.writer.write(changes, is_many=True, timeout_ms=timeout_ms)
        if self._core.nears:
            future.add_done_callback(lambda _: self._core.nears.wrote_some(info.id, keys))
        return future if expecting is None else asyncio.ensure_future(self._once_acknowledged(future, expecting, keys))

    async def _once_acknowledged(self, sent: "asyncio.Future[StoredMany]", expecting: Expecting, keys: Sequence[bytes]) -> StoredMany:
        stored = await sent
        await self._acknowledged(expecting, keys, stored.ids)
        return stored

    async def _write_many(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        *,
        removed: Sequence[bool] | None,
        headers: bytes = b"",
        lifespan_ms: int = 0,
        timeout_ms: int | None,
        expecting: Expecting | None,
    ) -> StoredMany:
        stored = await self._commit_many(keys, values, removed=removed, headers=headers, lifespan_ms=lifespan_ms, timeout_ms=timeout_ms)
        if expecting is not None:
            await self._acknowledged(expecting, keys, stored.ids)
        return stored

    async def _commit_many(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        *,
        removed: Sequence[bool] | None,
        headers: bytes,
        lifespan_ms: int,
        timeout_ms: int | None,
    ) -> StoredMany:
        info, _ = await self._found()
        changes = Changes(
            cache_id=info.id,
            by_prefix=info.route_by_prefix,
            keys=keys,
            values=values,
            removed=removed,
            lifespans=[lifespan_ms] * len(keys) if lifespan_ms else None,
            headers=[headers] * len(keys) if headers else None,
        )
        if not keys:
            return _nothing()
        parts = list(parts_of(changes, bytes_max=BATCH_BYTES_MAX))
        try:
            if len(parts) == 1:
                only: StoredMany = await (await self._core.writer.write(parts[0], is_many=True, timeout_ms=timeout_ms))
                return only
            return _together(await self._write_parts(parts, timeout_ms=timeout_ms), [len(part) for part in parts])
        finally:
            if self._core.nears:
                self._core.nears.wrote_some(info.id, keys)

    async def _write_parts(self, parts: list[Changes], *, timeout_ms: int | None) -> "list[StoredMany | BaseException]":
        """Return what became of each part of one call, which has one deadline."""
        timeout_ms = self._core.options.limit_ms(timeout_ms)
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        futures: list[asyncio.Future[StoredMany]] = []
        refused: list[StoredMany | BaseException] = []
        for part in parts:
            try:
                futures.append(await self._core.writer.write(part, is_many=True, timeout_ms=timeout_ms, deadline=deadline))
            except EventLogError as error:  # no room in time, or closed: nor is there for what follows
                refused = [error] * (len(parts) - len(futures))
                break
        return await asyncio.gather(*futures, return_exceptions=True) + refused

    async def clear(self) -> int:
        """Remove every entry that is there when it is called, one REMOVED event each; return how many, and those written meanwhile.

        Not atomic; called again, it goes on. What a node had removed when it was lost, and could not say so, is not counted.
        Listeners are not waited for, also not those that the cache waits for.

        Raises:
            PrimariesMissing: some segments had no primary until the deadline; what is in them may be left.
        """
        info, _ = await self._found()
        removed = 0
        while True:
            try:
                reply = await self._core.requests.ask(Message(clear=Clear(cache_id=info.id)))
            finally:
                self._core.nears.wrote_unknown(info.id)
            removed += reply.message.clear_answer.removed
            if not reply.message.clear_answer.more:
                return removed


def _nothing() -> StoredMany:
    return StoredMany(NONE, np.zeros(0, np.uint8))


def _done(result: StoredMany) -> "asyncio.Future[StoredMany]":
    future: asyncio.Future[StoredMany] = asyncio.get_running_loop().create_future()
    future.set_result(result)
    return future


def _together(parts: "list[StoredMany | BaseException]", sizes: list[int]) -> StoredMany:
    """Return the results of the parts of one call as one, or say which of them failed."""
    found = [part for part in parts if isinstance(part, StoredMany)]
    if len(found) == len(parts):
        return StoredMany(np.concatenate([part.id_column for part in found]), np.concatenate([part.kind_column for part in found]))
    fates: dict[str, list[int]] = {"ok": [], "none": [], "unknown": []}
    errors: list[EventLogError] = []
    low = 0
    for part, size in zip(parts, sizes, strict=True):
        rows = range(low, low + size)
        low += size
        if isinstance(part, StoredMany):
            fates["ok"] += rows
        elif isinstance(part, PartlyWritten):
            errors.append(part)
            for name, indexes in fates.items():
                indexes += [rows[index] for index in getattr(part, name)]
        elif isinstance(part, EventLogError):
            errors.append(part)
            fates[part.outcome] += rows
        else:
            raise part
    if len(fates["none"]) == low or len(fates["unknown"]) == low:
        raise errors[0]
    raise PartlyWritten(outcome="unknown" if fates["unknown"] else "none", why=str(errors[0]), **fates)
