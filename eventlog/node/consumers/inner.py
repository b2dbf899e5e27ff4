"""The cluster's own caches, `__listeners`, `__groups` and so on: read and written from any node, wherever they are led.

They are caches like those of users: replicated, failing over with their segments. Keys are `route`, a zero byte, and the rest; all
entries of one route are in one segment, so that a write to them is one stored value, whole or not at all. A cache is made by the
first write to it. What cannot be reached now is tried again until a deadline: a failover is waited for.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from eventlog.batch.build import Columns, build_write
from eventlog.batch.entries import StoredEntry
from eventlog.control.caches import INTERNAL_PREFIX
from eventlog.errors import CacheNotFound, EventLogError, KeyExists, NotPrimary, OutcomeUnknown, Stopping, Unavailable, VersionMismatch
from eventlog.events import Kind
from eventlog.hashing import hash_key, route_bytes, segment_of
from eventlog.limits import MIB
from eventlog.node.cluster.forward import Forwarding, forwarded, translated
from eventlog.node.state.cache_changes import CacheChanges
from eventlog.node.state.entries import EntryThread, Page, PageRows, read_rows, visible
from eventlog.node.state.freshness import Freshness
from eventlog.node.writing.forward_write import OwnWrites
from eventlog.replication import Replication
from eventlog.segment.keys import entry_key
from eventlog.state.caches import Caches, CacheState
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.session import Reply
from eventlog.write.groups import WriteResult
from eventlog.write.share import KeyCondition

T = TypeVar("T")
LISTENERS = "__listeners"
GROUPS = "__groups"
DEADLINE_MS_DEFAULT = 10_000
_AGAIN_MS = 20
_ASK_MS = 2_000  # one try: a node that died without a word must not use up the whole deadline
_LOOK_AGAIN_S = 1.0  # how often the metadata are asked for a cache that is not known here
_OPTIONS = {
    "format": "bytes",
    "bytes_keys": True,
    "route_by_prefix": True,
    "before": False,
    "retain_bytes": 16 * MIB,
    "retain_time_ms": 3_600_000,
}
Expected = Mapping[bytes, int | None]


class InnerGround(Protocol):
    """What this module needs of the node."""

    number: int
    core: Replication
    caches: Caches
    segments: int
    entries: EntryThread
    freshness: Freshness
    is_stopping: bool
    forwarding: Forwarding
    own_writes: OwnWrites
    cache_changes: CacheChanges

    def now_2020(self) -> int: ...


class Inner:
    """The cluster's own caches, as one node reaches them."""

    def __init__(self, node: InnerGround) -> None:
        self._node = node
        self._looked_at: dict[str, float] = {}

    # ------------------------------------------------------------ places

    def segment(self, key: bytes) -> int:
        """Return the segment of a key, or of a route alone."""
        return segment_of(hash_key(route_bytes(key, by_prefix=True)), self._node.segments)

    def leads(self, route: bytes) -> bool:
        """Whether this node takes the requests about a route now."""
        return self._node.forwarding.leads(self.segment(route))

    def term(self, route: bytes) -> int:
        """Return the epoch in which this node takes the requests about a route, 0 where it does not."""
        segment = self.segment(route)
        return int(self._node.core.epochs[segment]) if self._node.forwarding.leads(segment) else 0

    def mark(self, route: bytes) -> tuple[int, int] | None:
        """Return what changes with every commit to the segment of a route, None where this node does not lead it.

        A commit is one step on the loop: as long as the mark is the same, so are the entries.
        """
        term = self.term(route)
        return (term, int(self._node.core.watermark[self.segment(route)])) if term else None

    async def stands(self, route: bytes, mark: tuple[int, int]) -> bool:
        """Return whether a mark is that of the route now, and this node was confirmed as its primary within a second."""
        if self.mark(route) != mark:
            return False
        try:
            await self.check_led(self.segment(route))
        except Unavailable:
            return False
        return True

    async def ask(self, route: bytes, message: Message, *, deadline_ms: int = DEADLINE_MS_DEFAULT) -> Reply:
        """Return what the primary of a route answers; while there is none that answers, ask again. Not for a route that is led here.

        The request is `forwarded`: a node that is not the primary refuses it with NOT_PRIMARY. It may be received twice.

        Raises:
            NotPrimary: it is led here by now; or nobody led it until the deadline.
        """
        segment = self.segment(route)

        async def once() -> Reply:
            if self._node.forwarding.leads(segment):
                raise _LedHere
            return await self._send(segment, message)

        try:
            return await self._insist(once, deadline_ms=deadline_ms)
        except _LedHere:
            raise NotPrimary(segment=segment) from None

    async def _send(self, segment: int, message: Message) -> Reply:
        try:
            connection = self._node.forwarding.connection_to(segment, forwarded=False)
            return await connection.request(forwarded(message), timeout_ms=message.timeout_ms or _ASK_MS)
        except EventLogError as error:
            raise translated(error, segment) from error

    # ------------------------------------------------------------ reading

    async def entry(self, cache: str, key: bytes, *, deadline_ms: int = DEADLINE_MS_DEFAULT) -> StoredEntry | None:
        """Return the entry of a key as its primary has it, None where there is none, or no such cache yet."""
        found = await self._known(cache)
        if found is None:
            return None
        segment = self.segment(key)

        async def once() -> StoredEntry | None:
            if self._node.forwarding.leads(segment):
                await self.check_led(segment)
                data = await self._node.entries.get(entry_key(segment, found.cache_id, key))
                return visible(data, now=self._node.now_2020(), cache=found)
            answer = (await self._send(segment, Message(get=pb.Get(cache_id=found.cache_id, key=key)))).message.get_answer
            return StoredEntry(version=answer.version, expiry=0, schema_id=None, value=answer.value) if answer.found else None

        return await self._insist(once, deadline_ms=deadline_ms)

    async def scan(self, cache: str, prefix: bytes, *, deadline_ms: int = DEADLINE_MS_DEFAULT) -> list[tuple[bytes, StoredEntry]]:
        """Return the entries of one route whose keys begin with `prefix`, which begins with the whole route and its zero byte."""
        return await self._scan(cache, prefix, [self.segment(prefix)], deadline_ms=deadline_ms)

    async def scan_all(
        self, cache: str, *, segments: Iterable[int] | None = None, deadline_ms: int = DEADLINE_MS_DEFAULT
    ) -> list[tuple[bytes, StoredEntry]]:
        """Return all entries, or those of some segments; segment by segment, keys rising."""
        return await self._scan(cache, b"", range(self._node.segments) if segments is None else segments, deadline_ms=deadline_ms)

    async def _scan(self, cache: str, prefix: bytes, segments: Iterable[int], *, deadline_ms: int) -> list[tuple[bytes, StoredEntry]]:
        found = await self._known(cache)
        rows: list[tuple[bytes, StoredEntry]] = []
        left = list(segments) if found is not None else []
        while left and found is not None:
            leader = self._node.forwarding.leader_of(left[0])
            same = [segment for segment in left if self._node.forwarding.leader_of(segment) == leader]
            if leader in {self._node.number, 0}:
                same = same[:1]
            rows += await self._insist(partial(self._page_through, found, prefix, same), deadline_ms=deadline_ms)
            left = [segment for segment in left if segment not in set(same)]
        return rows

    async def _page_through(self, cache: CacheState, prefix: bytes, segments: list[int]) -> list[tuple[bytes, StoredEntry]]:
        """Return entries of segments with one leader, read from it."""
        if self._node.forwarding.leads(segments[0]):
            return await self._own_entries(cache, prefix, segments[0])
        connection = self._node.forwarding.connection_to(segments[0], forwarded=False)
        request = Message(keys=pb.Keys(cache_id=cache.cache_id, prefix=prefix, values=True, segments=segments), forwarded=True)
        rows: list[tuple[bytes, StoredEntry]] = []
        try:
            async with connection.stream(request) as stream, asyncio.timeout(_ASK_MS / 1000 + 5):
                async for item in stream:
                    rows += [
                        (row.key, StoredEntry(version=row.version, expiry=0, schema_id=None, value=row.value)) for row in read_rows(item)
                    ]
        except TimeoutError:
            raise NotPrimary(segment=segments[0]) from None
        except EventLogError as error:
            raise translated(error, segments[0]) from error
        return rows

    async def _own_entries(self, cache: CacheState, prefix: bytes, segment: int) -> list[tuple[bytes, StoredEntry]]:
        await self.check_led(segment)
        rows: list[tuple[bytes, StoredEntry]] = []
        after: bytes | None = None
        pace = PageRows()
        while cache.live[segment] > 0:
            page, after = await self._node.entries.page(
                cache, Page(segment=segment, after=after, prefix=prefix, rows=pace.rows), now=self._node.now_2020()
            )
            pace.saw(len(page), sum(len(entry.value) for _, entry in page))
            rows += page
            if after is None:
                break
        if not self._node.forwarding.leads(segment):
            raise NotPrimary(segment=segment)  # what was read may be of a copy that is no more
        return rows

    async def check_led(self, segment: int) -> None:
        """Raise NotPrimary unless another member of the in-sync set has confirmed within a second that this node leads a segment."""
        if not self._node.freshness.is_fresh(segment):
            await self._node.freshness.refresh(segment)

    # ------------------------------------------------------------ writing

    async def write(
        self,
        cache: str,
        route: bytes,
        *,
        puts: Mapping[bytes, bytes],
        removes: Iterable[bytes] = (),
        expect: Expected | None = None,
        term: int | None = None,
        lifespan_ms: int = 0,
        deadline_ms: int = DEADLINE_MS_DEFAULT,
    ) -> dict[bytes, int]:
        """Put and remove entries of one route, all or none of them; return the version of each key.

        What is put goes after `lifespan_ms`, unless that is 0.

        For a removed one that is the id of its removal, 0 where there was nothing to remove.

        `expect` says which version an entry must have, None for there being none. The cache is made if need be. A write of which
        nobody knows what became is written again, under the same conditions; where they do not hold any more because they had been
        met the first time, that counts as done. So one without conditions may be there twice, one behind the other. With a `term` it is
        written here alone, and only as long as that goes on: the next leader of the route reads what there is, and must not be written
        to behind his back.

        Raises:
            NotPrimary: the term is over; a write that had been sent then is seen by the current leader of the route, or is not there:
                its `outcome` is unknown.
            VersionMismatch: an entry has another version than expected; nothing was written. Where its `outcome` is unknown, an earlier
                try may have been written, and another write behind it.
            OutcomeUnknown: it was sent, and nobody could say until the deadline what became of it.
            Unavailable: the route had no primary until the deadline; nothing was written.
        """
        found = await self.cache(cache)
        trying = _Trying(cache=found, expect=expect or {}, puts=puts, removes=tuple(removes), lifespan_ms=lifespan_ms)
        assert trying.keys, "nothing to write"
        assert all(self.segment(key) == self.segment(route) for key in trying.keys), "keys of other routes"

        async def once() -> list[int]:
            if term is not None and self.term(route) != term:
                raise _TermOver
            return await self._write_once(trying)

        try:
            ids = await self._insist(once, deadline_ms=deadline_ms)
        except _TermOver:
            raise NotPrimary(outcome="unknown" if trying.is_unknown else "none", segment=self.segment(route)) from None
        except Unavailable as error:
            if trying.is_unknown and not isinstance(error, OutcomeUnknown):
                raise OutcomeUnknown(outcome="unknown", why=str(error)) from error
            raise
        return dict(zip(trying.keys, ids, strict=True))

    async def _write_once(self, trying: "_Trying") -> list[int]:
        try:
            result = await self._submit(trying)
        except OutcomeUnknown:
            trying.is_unknown = True
            raise
        refusal = result.refusals.get(0)
        if isinstance(refusal, KeyExists):
            refusal = VersionMismatch(key=refusal.key, expected=0, found=refusal.version)
        if isinstance(refusal, OutcomeUnknown):
            trying.is_unknown = True
        if isinstance(refusal, VersionMismatch) and trying.is_unknown:
            versions = await self._is_done(trying)
            if versions is not None:
                return versions
            refusal = VersionMismatch(outcome="unknown", **refusal.facts())
        if refusal is not None:
            raise refusal
        ids: list[int] = result.ids.tolist()
        return ids

    async def _is_done(self, trying: "_Trying") -> list[int] | None:
        """Return the versions when what is to be written is there, word for word: an earlier try did it."""
        found = [await self.entry(trying.cache.name, key) for key in trying.puts]
        gone = [await self.entry(trying.cache.name, key) for key in trying.removes]
        if any(entry is None or entry.value != value for entry, value in zip(found, trying.puts.values(), strict=True)) or any(gone):
            return None
        return [0 if entry is None else entry.version for entry in (*found, *gone)]

    async def _submit(self, trying: "_Trying") -> WriteResult:
        """Have the primary of the route write a frame, here or elsewhere."""
        conditions = [KeyCondition(block=0, key=key, version=version or 0) for key, version in trying.expect.items()]
        frame = build_write(trying.columns(), segments=self._node.segments, by_prefix=True)
        return await self._node.own_writes.write(trying.cache, frame, timeout_ms=_ASK_MS, conditions=conditions)

    # ------------------------------------------------------------ caches

    async def cache(self, name: str) -> CacheState:
        """Return one of the cluster's own caches, made just now if need be."""
        return await self._known(name) or await self._create(name)

    async def _known(self, name: str) -> CacheState | None:
        """Return a cache, None when nobody has made it; another node may have just now."""
        now = asyncio.get_running_loop().time()
        found = self._find(name)
        if found is None and now >= self._looked_at.get(name, 0.0):
            await self._node.cache_changes.follow()
            self._looked_at[name] = now + _LOOK_AGAIN_S  # others that come meanwhile look as well: what failed has said nothing
            found = self._find(name)
        return found

    def _find(self, name: str) -> CacheState | None:
        try:
            return self._node.caches.named(name)
        except CacheNotFound:
            return None

    async def _create(self, name: str) -> CacheState:
        assert name.startswith(INTERNAL_PREFIX), name
        return await self._node.cache_changes.create_internal(name, _OPTIONS)

    # ------------------------------------------------------------ trying again

    async def _insist(self, once: Callable[[], Awaitable[T]], *, deadline_ms: int) -> T:
        """Return what `once` does, tried again while a primary is missing, until the deadline."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + deadline_ms / 1000
        while True:
            try:
                return await once()
            except (Unavailable, CacheNotFound) as error:  # the other node may not know of the cache yet
                if self._node.is_stopping:
                    raise Stopping from error
                if loop.time() + _AGAIN_MS / 1000 >= deadline:
                    raise
            await asyncio.sleep(_AGAIN_MS / 1000)


@dataclass(slots=True, kw_only=True)
class _Trying:
    """A write until its end is known. `is_unknown`: an earlier try may have been written."""

    cache: CacheState
    expect: Expected
    puts: Mapping[bytes, bytes]
    removes: tuple[bytes, ...]
    lifespan_ms: int = 0
    is_unknown: bool = False

    @property
    def keys(self) -> list[bytes]:
        return [*self.puts, *self.removes]

    def columns(self) -> Columns:
        kinds = np.array([Kind.CREATED] * len(self.puts) + [Kind.REMOVED] * len(self.removes), np.uint8)
        expiry = np.full(len(kinds), self.lifespan_ms, np.int64) if self.lifespan_ms else None
        return Columns(kinds=kinds, keys=self.keys, values=[*self.puts.values(), *(b"" for _ in self.removes)], expiry=expiry)


class _TermOver(Exception):
    """A word between `write` and its tries."""


class _LedHere(Exception):
    """A word between `ask` and its tries."""
