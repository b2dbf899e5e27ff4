"""The listeners whose routes this node leads: their records, how far they have acknowledged, and the writes that wait for that.

A node that begins to lead a segment of `__listeners` reads what is in it. Positions are moved in memory, and written down once in a
while and when the node stops: after a failover a durable listener is held to where it was a moment before, never to later. An
ephemeral one that nobody has used for its time is removed; a new home counts that time anew.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from eventlog.errors import (
    BadMessage,
    EventLogError,
    ListenerExists,
    ListenerNotFound,
    NotPrimary,
    Overloaded,
    PositionMismatch,
    Unavailable,
    VersionMismatch,
)
from eventlog.groups.listeners import (
    ListenerProgress,
    ListenerRecord,
    decode_record,
    encode_record,
    listener_of,
    position_key,
    record_key,
)
from eventlog.limits import LISTENER_POSITION_WRITE_MS, LISTENER_POSITIONS_PER_WRITE_MAX, LISTENERS_PER_NODE_MAX
from eventlog.node.consumers.inner import LISTENERS, Inner
from eventlog.node.copying.replicate import Replicas
from eventlog.read import token
from eventlog.replication import Replication
from eventlog.segment.holds import Hold
from eventlog.state.caches import Caches

log = logging.getLogger("eventlog.node")
WARN_PERCENTS = (50, 80, 95)
_ALTER_TRIES = 10


class ListenerHomeGround(Protocol):
    """What this module needs of the node."""

    cluster: str
    core: Replication
    caches: Caches
    segments: int
    replicas: Replicas
    inner: Inner


class KeptListener:
    """One listener at its home."""

    __slots__ = ("held_id", "held_percent", "progress", "record", "used_at", "version", "waiting", "writing", "written_at")

    def __init__(self, record: ListenerRecord, *, version: int, progress: ListenerProgress, now: float) -> None:
        self.record = record
        self.version = version
        self.progress = progress
        self.held_id = progress.lowest  # as it is written down: the next home knows of nothing later
        self.used_at = now
        self.written_at = now
        self.held_percent = 0
        self.waiting: dict[asyncio.Future[None], tuple[Sequence[int], Sequence[int]]] = {}
        self.writing = asyncio.Lock()  # one that is tried again must not overwrite a later one

    def is_unused(self, now: float) -> bool:
        """Return whether it is ephemeral, and nobody has polled for its time."""
        return not self.record.durable and not self.waiting and (now - self.used_at) * 1000 > self.record.expire_ms

    def answer_waiting(self) -> None:
        """Tell the waiting writes what is acknowledged by now."""
        for future, (segments, ids) in list(self.waiting.items()):
            if self.progress.covers(segments, ids):
                del self.waiting[future]
                if not future.done():
                    future.set_result(None)


class ListenerHome:
    """The listeners kept at this node."""

    def __init__(self, node: ListenerHomeGround) -> None:
        self._node = node
        self._kept: dict[str, KeptListener] = {}
        self._by_cache: dict[int, set[str]] = {}
        self._ephemeral: set[str] = set()
        self._dirty: set[str] = set()  # with a position to be written down
        self._epochs: dict[int, int] = {}  # segments that were read, and the epoch in which they were
        self._changes = np.zeros(node.segments, np.int64)  # of which listeners there are, and of their records
        self._registering: list[tuple[int, Hold]] = []  # with their caches
        self._reading = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def figures(self) -> dict[str, int]:
        """Return how many are kept, and the most that any of them has used up of what it may hold back."""
        return {"kept": len(self._kept), "held_percent_max": max((kept.held_percent for kept in self._kept.values()), default=0)}

    # ------------------------------------------------------------ what there is

    async def find(self, listener: str) -> KeptListener:
        """Return a listener that is kept here.

        Raises:
            NotPrimary: it is kept elsewhere.
            ListenerNotFound: there is none.
        """
        segment = self._node.inner.segment(listener.encode())
        await self._read([segment])
        kept = self._kept.get(listener)
        if kept is None:
            await self._node.inner.check_led(segment)  # one that was deposed does not know what was registered since
            raise ListenerNotFound(listener=listener)
        return kept

    async def of(self, segments: Sequence[int]) -> tuple[list[KeptListener], int]:
        """Return the listeners of segments that are led here, and how often they changed: as of one moment.

        Raises:
            NotPrimary: one of the segments is led elsewhere.
        """
        await self._read(segments)
        wanted = frozenset(segments)
        found = [kept for listener, kept in self._kept.items() if self._node.inner.segment(listener.encode()) in wanted]
        return found, int(self._changes[list(segments)].sum())

    async def holds(self, cache_id: int, segments: Sequence[int]) -> list[Hold]:
        """Return what the durable listeners of a cache hold back that are kept in segments led here.

        Raises:
            NotPrimary: one of the segments is led elsewhere.
        """
        await self._read(segments)
        wanted = frozenset(segments)
        kept = [self._kept[listener] for listener in self._by_cache.get(cache_id, ())]
        found = [
            Hold(one.record.id, one.held_id, one.record.hold_bytes, one.record.hold_ms, one.held_percent >= WARN_PERCENTS[-1])
            for one in kept
            if one.record.durable and self._node.inner.segment(one.record.id.encode()) in wanted
        ]
        return found + [hold for cache, hold in self._registering if cache == cache_id]

    @contextlib.contextmanager
    def registering(self, cache_id: int, *, hold_bytes: int, hold_ms: int) -> Iterator[None]:
        """Hold everything back while a listener is registered: where it begins is taken, and it is not kept yet."""
        entry = (cache_id, Hold("", 0, hold_bytes, hold_ms))
        self._registering.append(entry)
        try:
            yield
        finally:
            self._registering.remove(entry)

    def _led(self) -> list[int]:
        found: list[int] = np.flatnonzero(self._node.replicas.serving).tolist()
        return found

    async def _read(self, segments: Iterable[int]) -> None:
        """Take in segments that this node has begun to lead. Raises NotPrimary."""
        new = [segment for segment in segments if not self._is_read(segment)]
        if not new:
            return
        async with self._reading:
            for segment in new:
                if self._is_read(segment):
                    continue
                epoch = int(self._node.core.epochs[segment])
                if not self._node.replicas.serving[segment]:
                    raise NotPrimary(segment=segment)
                rows = await self._node.inner.scan_all(LISTENERS, segments=[segment])
                self._forget(segment)
                self._take_in({key: (entry.value, entry.version) for key, entry in rows})
                self._epochs[segment] = epoch

    def _is_read(self, segment: int) -> bool:
        serving = bool(self._node.replicas.serving[segment])
        return serving and self._epochs.get(segment) == int(self._node.core.epochs[segment])

    def _forget(self, segment: int) -> None:
        self._epochs.pop(segment, None)
        for listener in [one for one in self._kept if self._node.inner.segment(one.encode()) == segment]:
            self._drop(listener)

    def _take_in(self, rows: dict[bytes, tuple[bytes, int]]) -> None:
        now = asyncio.get_running_loop().time()
        for key, (value, version) in rows.items():
            listener, is_record = listener_of(key)
            if not is_record:
                continue
            record = decode_record(value)
            kept = KeptListener(record, version=version, progress=self._progress_of(record), now=now)
            stored = rows.get(position_key(listener))
            if stored is not None:
                kept.progress.move(token.decode(stored[0]))
                kept.held_id = kept.progress.lowest
            self._keep(kept)

    def _keep(self, kept: KeptListener) -> None:
        """Keep a listener. Nothing that is done by the clock looks at one that is durable and idle: there may be tens of thousands."""
        listener = kept.record.id
        self._kept[listener] = kept
        self._changed(listener)
        self._by_cache.setdefault(kept.record.cache_id, set()).add(listener)
        if not kept.record.durable:
            self._ephemeral.add(listener)

    def _changed(self, listener: str) -> None:
        self._changes[self._node.inner.segment(listener.encode())] += 1

    def _progress_of(self, record: ListenerRecord) -> ListenerProgress:
        return ListenerProgress(self._node.cluster, record.cache_id, self._node.segments, all_id=record.last_id)

    def _drop(self, listener: str) -> None:
        """Forget a listener; a write that waits for it asks again, its new home if it has one."""
        kept = self._kept.pop(listener, None)
        if kept is None:
            return
        self._changed(listener)
        self._ephemeral.discard(listener)
        self._dirty.discard(listener)
        of_cache = self._by_cache[kept.record.cache_id]
        of_cache.discard(listener)
        if not of_cache:
            del self._by_cache[kept.record.cache_id]
        for future in kept.waiting:
            if not future.done():
                future.set_exception(NotPrimary(segment=self._node.inner.segment(listener.encode())))

    # ------------------------------------------------------------ changes

    async def register(self, record: ListenerRecord) -> KeptListener:
        """Keep a new listener; one of this name that was asked for in the same words will do.

        Raises:
            ListenerExists: the name is another's.
            ListenerNotFound: it was another's a moment ago, and is removed by now.
            NotPrimary: it is to be kept elsewhere.
        """
        try:
            kept = await self.find(record.id)
        except ListenerNotFound:
            if len(self._kept) >= LISTENERS_PER_NODE_MAX:
                raise Overloaded(what="the number of listeners kept at one node", limit=LISTENERS_PER_NODE_MAX) from None
            key = record_key(record.id)
            puts = {key: encode_record(record)}
            try:
                version = await self._write(record.id, puts=puts, removes=[position_key(record.id)], expect={key: None})
            except VersionMismatch:
                kept = await self._registered_meanwhile(record.id)
            else:
                kept = self._kept.get(record.id) or self._new(record, version=version)
        if kept.record.asked_for != record.asked_for:
            raise ListenerExists(listener=record.id)
        return kept

    async def _registered_meanwhile(self, listener: str) -> KeptListener:
        """Return a listener that another call has written, and may not have come to keeping yet.

        Raises:
            NotPrimary: it is kept elsewhere.
            ListenerNotFound: it was removed again.
        """
        entry = await self._node.inner.entry(LISTENERS, record_key(listener))
        segment = self._node.inner.segment(listener.encode())
        if not self._is_read(segment):
            raise NotPrimary(segment=segment)
        kept = self._kept.get(listener)
        if kept is not None:
            return kept
        if entry is None:
            raise ListenerNotFound(listener=listener)
        return self._new(decode_record(entry.value), version=entry.version)

    def _new(self, record: ListenerRecord, *, version: int) -> KeptListener:
        kept = KeptListener(record, version=version, progress=self._progress_of(record), now=asyncio.get_running_loop().time())
        self._keep(kept)
        return kept

    async def alter(self, listener: str, change: Callable[[ListenerRecord], ListenerRecord]) -> KeptListener:
        """Keep a listener as `change` makes it of what it is then, which is asked again where somebody else was faster.

        Raises:
            NotPrimary: it is kept elsewhere.
            ListenerNotFound: there is none.
            VersionMismatch: somebody else was faster _ALTER_TRIES times.
        """
        key = record_key(listener)
        tries = 0
        while True:
            tries += 1
            kept = await self.find(listener)
            record, version = change(kept.record), kept.version
            try:
                version = await self._write(listener, puts={key: encode_record(record)}, expect={key: version})
                self._became(kept, record, version=version)
            except VersionMismatch:
                if tries == _ALTER_TRIES:
                    raise
                await self._look_again(kept)
            else:
                return kept

    async def _look_again(self, kept: KeptListener) -> None:
        """Take in the record as it is stored: another call has written it and has not come to noting that, or never learned of it."""
        entry = await self._node.inner.entry(LISTENERS, record_key(kept.record.id))
        if entry is not None:
            self._became(kept, decode_record(entry.value), version=entry.version)
        elif self._kept.get(kept.record.id) is kept:
            self._drop(kept.record.id)

    def _became(self, kept: KeptListener, record: ListenerRecord, *, version: int) -> None:
        """Note what was written, unless something newer is noted by now."""
        if version > kept.version:
            kept.record, kept.version = record, version
            self._changed(record.id)

    async def remove(self, listener: str) -> None:
        """Keep a listener no longer.

        Raises:
            ListenerNotFound: there is none.
        """
        await self.find(listener)
        await self._write(listener, puts={}, removes=[record_key(listener), position_key(listener)])
        self._drop(listener)

    async def _write(self, listener: str, **what: Any) -> int:
        """Write entries of a listener in the term in which it was read: another home has read what was there when this one was over."""
        route = listener.encode()
        term = self._epochs.get(self._node.inner.segment(route), 0)
        return max((await self._node.inner.write(LISTENERS, route, term=term, **what)).values())

    # ------------------------------------------------------------ use

    async def used(self, listener: str, position: bytes) -> tuple[int, int]:
        """Note that a listener was polled, at `position` unless that is empty; return its version, 0: there is none, and what it holds.

        Raises:
            NotPrimary: it is kept elsewhere.
        """
        try:
            kept = await self.find(listener)
        except ListenerNotFound:
            return 0, 0
        kept.used_at = asyncio.get_running_loop().time()
        if position:
            try:
                moved = kept.progress.move(token.decode(position))
            except (PositionMismatch, BadMessage):
                moved = False  # the reader hears of it with its answer
            if moved:
                if kept.record.durable:
                    self._dirty.add(listener)
                kept.answer_waiting()
        return kept.version, kept.held_percent

    async def settle(self, listener: str, position: bytes) -> KeptListener:
        """Note that a durable listener has had everything up to a position, and write that down.

        Raises:
            NotPrimary: it is kept elsewhere, maybe by now.
            ListenerNotFound: there is none.
            PositionMismatch: it is a position of something else.
            Unavailable: it could not be written down; it may have moved all the same.
        """
        kept = await self.find(listener)
        if kept.progress.move(token.decode(position)):
            kept.answer_waiting()
        try:
            await self._store_position(kept)
        except VersionMismatch:  # it was altered meanwhile, which is known by now, or removed
            if await self.find(listener) is not kept:
                raise ListenerNotFound(listener=listener) from None
            await self._store_position(kept)
        return kept

    async def acknowledged(self, listener: str, *, cache_id: int, segments: Sequence[int], ids: Sequence[int], wait_ms: int) -> bool:
        """Return whether a listener acknowledges an id in each of some segments of a cache within a time.

        Raises:
            NotPrimary: it is kept elsewhere, maybe by now.
            ListenerNotFound: there is none that does, only maybe one of another cache, or one whose position is not kept.
        """
        kept = await self.find(listener)
        if kept.record.cache_id != cache_id or not kept.record.durable:
            raise ListenerNotFound(listener=listener)
        if kept.progress.covers(segments, ids):
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        kept.waiting[future] = (segments, ids)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await future
        except TimeoutError:
            return False
        finally:
            kept.waiting.pop(future, None)
        return True

    # ------------------------------------------------------------ by the clock

    async def tick(self) -> None:
        """Look for what is led anew, remove what nobody uses, and write positions down."""
        for segment in [segment for segment in self._epochs if not self._node.replicas.serving[segment]]:
            self._forget(segment)
        try:
            await self._read(self._led())
            await self._remove_unused()
            await self.write_positions()
        except Unavailable as error:
            log.info("listeners_wait why=%s", error)

    async def _remove_unused(self) -> None:
        now = asyncio.get_running_loop().time()
        caches = self._node.caches
        dropped = [cache_id for cache_id in self._by_cache if not caches.has(cache_id) and caches.was_dropped(cache_id)]
        for listener in [one for cache_id in dropped for one in self._by_cache[cache_id]]:
            await self._remove_as(listener, why="cache dropped")
        for listener in list(self._ephemeral):
            kept = self._kept.get(listener)
            if kept is not None and kept.is_unused(now):
                await self._remove_as(listener, why="unused")

    async def _remove_as(self, listener: str, *, why: str) -> None:
        log.info("listener_removed listener=%s why=%s", listener, why)
        with contextlib.suppress(ListenerNotFound):
            await self.remove(listener)

    async def write_positions(self, *, is_last: bool = False) -> None:
        """Write positions down that have moved, those first that have waited longest; all of them when the node stops."""
        now = asyncio.get_running_loop().time()
        due = [
            (self._kept[listener].written_at, listener)
            for listener in self._dirty
            if is_last or (now - self._kept[listener].written_at) * 1000 >= LISTENER_POSITION_WRITE_MS
        ]
        due.sort()
        chosen = due if is_last else due[:LISTENER_POSITIONS_PER_WRITE_MAX]
        await asyncio.gather(*(self._write_position(listener, now) for _, listener in chosen))

    async def write_positions_of(self, cache_id: int) -> None:
        """Write down the positions of a cache's listeners that have moved, as many as in one turn: what they hold back goes by that."""
        now = asyncio.get_running_loop().time()
        due = sorted((self._kept[listener].written_at, listener) for listener in self._dirty & self._by_cache.get(cache_id, set()))
        await asyncio.gather(*(self._write_position(listener, now) for _, listener in due[:LISTENER_POSITIONS_PER_WRITE_MAX]))

    async def _write_position(self, listener: str, now: float) -> None:
        kept = self._kept.get(listener)
        if kept is None:
            return
        kept.written_at = now
        try:
            await self._store_position(kept)
        except EventLogError as error:
            log.info("listener_position_not_written listener=%s why=%s", listener, error)
        else:
            log.debug("listener_position_written listener=%s", listener)

    async def _store_position(self, kept: KeptListener) -> None:
        """Write down where a listener is. Raises what `Inner.write` does; it is due again then."""
        listener = kept.record.id
        async with kept.writing:
            self._dirty.discard(listener)
            data, lowest = token.encode(kept.progress.position()), kept.progress.lowest
            expect = {record_key(listener): kept.version}
            try:
                await self._write(listener, puts={position_key(listener): data}, expect=expect, deadline_ms=1_000)
            except EventLogError as error:
                if isinstance(error, VersionMismatch):
                    await self._look_again(kept)
                if self._kept.get(listener) is kept:
                    self._dirty.add(listener)
                raise
            kept.held_id = max(kept.held_id, lowest)

    def note_held(self, held: dict[str, int]) -> None:
        """Take in how much each listener of a cache has used up of what it may hold back; say so where it is much."""
        for listener, percent in held.items():
            kept = self._kept.get(listener)
            if kept is None:
                continue
            if any(kept.held_percent < limit <= percent for limit in WARN_PERCENTS):
                log.warning("listener_falls_behind listener=%s cache=%s percent=%d", listener, kept.record.cache, percent)
            kept.held_percent = percent
