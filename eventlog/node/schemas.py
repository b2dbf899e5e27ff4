"""The schema registry as one node reaches it: folded from the cluster's own cache `__schemas`, and changed there.

All of it is one route, so that a change is one write, whole or not at all. Nobody leads it but the primary of that route's segment:
any node decides a request on the registry that it has, and writes the records on the condition that the head is the one it knows. Where
that does not hold, another change came first, and the request is decided again.

What is answered is never older than what was answered before, at any node: before a question the head is read from its primary, and if
it moved, what was written since is read too. The head says which keys those are. The primary of the head sees without reading it whether
anything was committed to its segment.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from eventlog.batch.entries import StoredEntry
from eventlog.control.caches import INTERNAL_PREFIX
from eventlog.errors import NotPrimary, OutcomeUnknown, VersionMismatch
from eventlog.limits import SCHEMA_TEXTS_BYTES_MAX, SCHEMAS_MAX
from eventlog.node.consumers.inner import DEADLINE_MS_DEFAULT
from eventlog.schema.registry import ROUTE, Head, Registry, encoded
from eventlog.schema.requests import Decided

SCHEMAS = f"{INTERNAL_PREFIX}schemas"
_PREFIX = ROUTE + b"\0"
_HEAD = _PREFIX + b"head"
_read_head = msgspec.json.Decoder(Head).decode


class RouteStore(Protocol):
    """Entries of one route, wherever they are led; `consumers.inner.Inner` is one."""

    def segment(self, key: bytes) -> int: ...

    def mark(self, route: bytes) -> tuple[int, int] | None: ...

    async def stands(self, route: bytes, mark: tuple[int, int]) -> bool: ...

    async def entry(self, cache: str, key: bytes, *, deadline_ms: int) -> StoredEntry | None: ...

    async def scan(self, cache: str, prefix: bytes, *, deadline_ms: int) -> list[tuple[bytes, StoredEntry]]: ...

    async def write(
        self,
        cache: str,
        route: bytes,
        *,
        puts: Mapping[bytes, bytes],
        removes: Iterable[bytes] = (),
        expect: Mapping[bytes, int | None] | None = None,
        deadline_ms: int,
    ) -> dict[bytes, int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemasOptions:
    """How patient a registry is.

    `deadline_ms` is how long each read and write waits for a primary; `tries_max` how many changes of others may come first, and how often
    the head may move while the rest is read. More records than `folded_on_loop_max` are folded in a thread: each takes some microseconds.
    """

    deadline_ms: int = DEADLINE_MS_DEFAULT
    tries_max: int = 64
    folded_on_loop_max: int = 500


class Schemas:
    """The registry at one node. What it holds is a copy, as of the version of the head."""

    def __init__(self, store: RouteStore, options: SchemasOptions = SchemasOptions()) -> None:
        self._store = store
        self._options = options
        self._registry = Registry()
        self._version = 0
        self._mark: tuple[int, int] | None = None  # of the store, when the copy was as new as it
        self._peaks = (0, 0)
        self._deciding = asyncio.Semaphore(1)  # a large schema takes a thread, and the interpreter, for hundreds of milliseconds

    @property
    def copy(self) -> Registry:
        """The registry as this node knew it last: what was registered is there as it is, what is newer may be missing."""
        return self._registry

    async def read(self) -> Registry:
        """Return the registry with everything in it that was answered before this was called, at any node.

        Raises:
            Unavailable: the route had no primary until the deadline.
            CorruptData: an entry is not what this version writes.
        """
        return (await self._current())[0]

    async def change(self, decide: Callable[[Registry], Decided]) -> Any:
        """Return the answer of a decision whose records are written; it may be taken again, on a newer registry.

        Raises:
            Refusal: as `decide` does.
            OutcomeUnknown: the records were sent, and nobody could say what became of them; or so many changes came behind them that the
                head does not remember them.
            Unavailable: the route had no primary until the deadline, or too many changes came first; nothing was written.
        """
        token = secrets.token_hex(8)
        decided, doubted = Decided(answer=None), 0
        for _ in range(self._options.tries_max):
            registry, version = await self._current()
            if registry.head.has(token):  # the last try was written, and its answer lost
                return decided.answer
            if doubted and not registry.head.remembers(doubted):
                raise OutcomeUnknown(outcome="unknown", why=f"revision {doubted} of the registry may be this change, and is forgotten")
            doubted = 0
            decided = await self.judge(decide, registry)
            if not decided.records:
                return decided.answer
            head = registry.head.after(decided.records, token=token, next_id=decided.next_id or registry.head.next_id)
            records = encoded({**decided.records, "head": head})
            try:
                versions = await self._store.write(
                    SCHEMAS,
                    ROUTE,
                    puts={_stored(key): value for key, value in records.items() if value is not None},
                    removes=[_stored(key) for key, value in records.items() if value is None],
                    expect={_HEAD: version or None},
                    deadline_ms=self._options.deadline_ms,
                )
            except VersionMismatch as mismatch:
                doubted = head.revision if mismatch.outcome == "unknown" else 0
                continue
            self._keep(await self._folded(registry, records), versions[_HEAD])
            return decided.answer
        if doubted:
            raise OutcomeUnknown(outcome="unknown", why=f"revision {doubted} of the registry may be this change")
        raise NotPrimary(segment=self._store.segment(ROUTE))

    async def judge(self, decide: Callable[[Registry], Any], registry: Registry) -> Any:
        """Return what `decide` says, which may take its time over large schemas."""
        async with self._deciding:
            return await asyncio.to_thread(decide, registry)

    async def _current(self) -> tuple[Registry, int]:
        registry, version = self._registry, self._version
        if self._mark is not None and await self._store.stands(ROUTE, self._mark):
            return registry, version  # reading the head may take a thread, which costs more than all the rest
        mark = self._store.mark(ROUTE)
        found = await self._store.entry(SCHEMAS, _HEAD, deadline_ms=self._options.deadline_ms)
        if found is None:
            return Registry(), 0
        if found.version > self._version:
            await self._catch_up(found)
        if found.version == self._version and mark == self._store.mark(ROUTE):
            self._mark = mark
        return self._registry, self._version

    async def _catch_up(self, found: StoredEntry) -> None:
        """Bring the copy up to a head, or to a later one. What is read while the head moves is read again."""
        base = self._registry
        records: dict[str, bytes | None] = {}
        revision = base.head.revision
        for _ in range(self._options.tries_max):
            head = _read_head(found.value)
            keys = head.keys_since(revision)
            if keys is None:
                base = Registry()
                rows = await self._store.scan(SCHEMAS, _PREFIX, deadline_ms=self._options.deadline_ms)
                records = {key.removeprefix(_PREFIX).decode(): entry.value for key, entry in rows}
            else:
                for key in sorted(keys):
                    entry = await self._store.entry(SCHEMAS, _stored(key), deadline_ms=self._options.deadline_ms)
                    records[key] = None if entry is None else entry.value
            revision = head.revision
            records["head"] = found.value
            again = await self._store.entry(SCHEMAS, _HEAD, deadline_ms=self._options.deadline_ms)
            if again is None or again.version == found.version:
                self._keep(await self._folded(base, records), found.version)
                return
            found = again
        raise NotPrimary(segment=self._store.segment(ROUTE))

    async def _folded(self, registry: Registry, records: Mapping[str, bytes | None]) -> Registry:
        if len(records) <= self._options.folded_on_loop_max:
            return registry.folded(records)
        return await asyncio.to_thread(registry.folded, records)

    def _keep(self, registry: Registry, version: int) -> None:
        """Keep a copy, unless a newer one was read meanwhile."""
        if version > self._version:
            self._registry, self._version = registry, version
            self._peaks = max(self._peaks[0], registry.versions_count), max(self._peaks[1], registry.texts_bytes)

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here, as of the copy."""
        return {
            "schema_versions": (self._registry.versions_count, SCHEMAS_MAX, self._peaks[0]),
            "schema_texts_bytes": (self._registry.texts_bytes, SCHEMA_TEXTS_BYTES_MAX, self._peaks[1]),
        }


def _stored(key: str) -> bytes:
    return _PREFIX + key.encode()
