"""Reading the current state: point reads, off the loop and gathered into one `get_many` unless memory has them, and ordered pages.

Every read looks into the overlay of committed groups first, so it sees what was acknowledged before it was asked.

Entries of segments that other nodes lead are fetched from there (`EntriesElsewhere`).
"""

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from eventlog.batch.entries import StoredEntry, decode_entry
from eventlog.batch.one import EntryRow, decode_rows
from eventlog.errors import CorruptData, EventLogError
from eventlog.limits import ANSWER_BYTES_DEFAULT
from eventlog.node.cluster.forward import Forwarding, forwarded, translated
from eventlog.segment.keys import TAG_ENTRY, entry_key, entry_prefix, tag_range
from eventlog.segment.port import Pair, Store
from eventlog.state.caches import CacheState
from eventlog.transport.connection import Connection, Exchange
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.session import Reply
from eventlog.write.overlay import Overlay, find_held

_ROWS_FIRST = 64
_ROWS_MAX = 2_000
Place = tuple[int, bytes]  # segment, key


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Where to read: up to `rows` entries of `segment` behind the key `after`, of those that begin with `prefix`."""

    segment: int
    after: bytes | None = None
    prefix: bytes = b""
    rows: int = _ROWS_MAX


class PageRows:
    """How many entries to read at once: few at first, then about as many as hold ANSWER_BYTES_DEFAULT.

    So large values do not fill the memory, and small ones cost few reads.
    """

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows = _ROWS_FIRST

    def saw(self, rows: int, nbytes: int) -> None:
        """Learn from what was read last."""
        fitting = ANSWER_BYTES_DEFAULT * max(rows, 1) // max(nbytes, 1)
        self.rows = max(1, min(fitting, 4 * self.rows, _ROWS_MAX))


class EntryThread:
    """Reads entries in one thread of its own; what is asked during a read goes with the next."""

    def __init__(self, store: Store, overlay: Overlay) -> None:
        self._store = store
        self._overlay = overlay
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="entries")
        self._waiting: dict[bytes, list[asyncio.Future[bytes | None]]] = {}
        self._reading = False

    def close(self) -> None:
        """Stop the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def get(self, state_key: bytes) -> "asyncio.Future[bytes | None]":
        """Return the stored entry of a state key, None where there is none."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes | None] = loop.create_future()
        found, missing = find_held(self._overlay, self._store, [state_key])
        if not missing:
            future.set_result(found[state_key])
            return future
        self._waiting.setdefault(state_key, []).append(future)
        if not self._reading:
            self._reading = True
            loop.call_soon(self._read)
        return future

    def _read(self) -> None:
        waiting, self._waiting = self._waiting, {}
        keys = list(waiting)
        reading = asyncio.get_running_loop().run_in_executor(self._thread, self._store.get_many, keys)
        reading.add_done_callback(partial(self._deliver, waiting, keys))

    def _deliver(
        self,
        waiting: dict[bytes, list["asyncio.Future[bytes | None]"]],
        keys: list[bytes],
        done: "asyncio.Future[list[bytes | None]]",
    ) -> None:
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._read)
        else:
            self._reading = False
        error = ConnectionAbortedError("the node stops") if done.cancelled() else done.exception()
        results: Sequence[bytes | None] = [None] * len(keys) if error is not None else done.result()
        for key, entry in zip(keys, results, strict=True):
            for future in waiting[key]:
                if future.done():
                    continue
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(entry)

    async def find(self, cache: CacheState, places: Sequence[tuple[int, bytes]], *, now: int) -> list[StoredEntry | None]:
        """Return the entry of each (segment, key), None where there is none or its lifespan is over."""
        keys = [entry_key(segment, cache.cache_id, key) for segment, key in places]
        found, missing = find_held(self._overlay, self._store, keys)
        if missing:
            stored = await asyncio.get_running_loop().run_in_executor(self._thread, self._store.get_many, missing)
            found.update(zip(missing, stored, strict=True))
        return [visible(found[key], now=now, cache=cache) for key in keys]

    async def page(self, cache: CacheState, where: Page, *, now: int) -> tuple[list[tuple[bytes, StoredEntry]], bytes | None]:
        """Return the next entries of a segment in key order, and the key to go on after, or None at the segment's end.

        An entry committed while pages are read is seen if its key lies ahead.
        """
        segment, after, prefix = where.segment, where.after, where.prefix
        lower, upper = tag_range(segment, cache.cache_id, TAG_ENTRY)
        start = entry_prefix(segment, cache.cache_id) + prefix
        if prefix:
            upper = min(upper, _after_prefix(start))
        if after is not None:
            start = entry_key(segment, cache.cache_id, after) + b"\0"
        lower = max(lower, start)
        layers = self._overlay.within(lower, upper)
        stored: list[Pair] = await asyncio.get_running_loop().run_in_executor(
            self._thread, partial(self._store.read_state, lower, upper, limit=where.rows)
        )
        more = len(stored) == where.rows
        end = stored[-1][0] if more else upper
        merged = dict(stored) | {key: entry for key, entry in layers.items() if key <= end}
        size = len(entry_prefix(segment, cache.cache_id))
        rows = []
        for key in sorted(merged):
            data = merged[key]
            if data is None or not key[size:].startswith(prefix):
                continue
            entry = visible(data, now=now, cache=cache)
            if entry is not None:
                rows.append((key[size:], entry))
        return rows, end[size:] if more else None

    async def some_keys(self, cache: CacheState, *, segments: Iterable[int], limit: int, nbytes: int) -> tuple[list[bytes], bool]:
        """Return keys of some segments of a cache, expired ones included until their events commit, and whether there may be more.

        They are up to `limit`, and up to the one with which their entries have `nbytes`.
        """
        found: list[bytes] = []
        pace = PageRows()
        for segment in segments:
            after: bytes | None = None
            while cache.live[segment] > 0:
                rows, after = await self.page(cache, Page(segment=segment, after=after, rows=pace.rows), now=0)
                pace.saw(len(rows), sum(len(entry.value) for _, entry in rows))
                for key, entry in rows:
                    found.append(key)
                    nbytes -= len(key) + len(entry.value)
                    if len(found) >= limit or nbytes <= 0:
                        return found, True
                if after is None:
                    break
        return found, False


def _after_prefix(prefix: bytes) -> bytes:
    """Return the least key above all that begin with `prefix`; its first byte is not 0xff."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


def visible(data: bytes | None, *, now: int, cache: CacheState) -> StoredEntry | None:
    """Return the entry, or None where there is none or its lifespan is over at `now` (milliseconds since 2020; 0: look at all)."""
    if data is None:
        return None
    entry = decode_entry(data, where=f"cache {cache.name}")
    return None if now and 0 < entry.expiry <= now else entry


class ForwardEntriesGround(Protocol):
    """What this module needs of the node."""

    forwarding: Forwarding


class EntriesElsewhere:
    """Fetches entries from the nodes that lead their segments."""

    def __init__(self, node: ForwardEntriesGround) -> None:
        self._node = node

    def _by_connection(self, segments: Sequence[int], *, forwarded: bool) -> dict[Connection, list[int]]:
        found: dict[Connection, list[int]] = {}
        for segment in segments:
            found.setdefault(self._node.forwarding.connection_to(segment, forwarded=forwarded), []).append(segment)
        return found

    async def fetch(self, message: Message, places: Sequence[Place]) -> list[EntryRow]:
        """Return the entries of keys of other primaries, in their order. Raises NotPrimary."""
        found: dict[Place, EntryRow] = {}
        owners = self._by_connection(sorted({segment for segment, _ in places}), forwarded=message.forwarded)
        for connection, segments in owners.items():
            chosen = frozenset(segments)
            own = [place for place in places if place[0] in chosen]
            rows = await _fetch(connection, message, own)
            found.update(zip(own, rows, strict=True))
        return [found[place] for place in places]

    async def relay_keys(self, exchange: Exchange, segments: Sequence[int], *, after: bytes | None, limit: int) -> int:
        """Pass on the keys of segments that one other node leads, at most `limit`; return how many there were. Raises NotPrimary."""
        connection = self._node.forwarding.connection_to(segments[0], forwarded=exchange.message.forwarded)
        request = forwarded(exchange.message)
        keys = request.keys
        keys.segments[:] = segments
        keys.limit = limit
        keys.ClearField("after")
        if after is not None:
            keys.after = after
        sent = 0
        try:
            async with connection.stream(request) as stream:
                async for item in stream:
                    message = Message()
                    message.stream_item.CopyFrom(item.message.stream_item)
                    await exchange.credit()
                    exchange.stream_send(message, item.body)
                    sent += message.stream_item.entries.count
        except EventLogError as error:
            raise translated(error, segments[0]) if connection.is_closed else error from error
        return sent


async def _fetch(connection: Connection, message: Message, places: Sequence[Place]) -> list[EntryRow]:
    request = forwarded(message)
    request.get_many.count = len(places)
    offsets = np.zeros(len(places) + 1, "<i4")
    np.cumsum([len(key) for _, key in places], out=offsets[1:])
    rows: list[EntryRow] = []
    try:
        stream = connection.stream(request, offsets.tobytes(), b"".join([key for _, key in places]))
        async for item in stream:
            rows += read_rows(item)
    except EventLogError as error:
        raise translated(error, places[0][0]) from error
    if len(rows) != len(places):
        raise CorruptData(where="answer", why=f"{len(rows)} entries to {len(places)} keys")
    return rows


def read_rows(item: Reply) -> list[EntryRow]:
    """Return the entries in one item of a stream of them. Raises CorruptData."""
    entries = item.message.stream_item.entries
    return decode_rows(item.body, count=entries.count, has_metadata=entries.metadata)
