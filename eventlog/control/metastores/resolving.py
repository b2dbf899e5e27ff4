"""A metadata store whose commits have a known outcome: what every process puts between itself and an adapter.

Every commit also puts the writer's own key with a fresh nonce and expects that key's last revision. So no attempt can be carried out
twice, and an attempt whose answer was lost is simply made again: if it had gone through, it now conflicts on that key, which holds
its nonce. Comparing the values that were to be put could not tell: they may have been overwritten since.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from eventlog.clock import Entropy
from eventlog.control.metastore import OPERATIONS_MAX, Item, Lease, Listing, MetaStore, RevisionChanges
from eventlog.errors import InvalidArgument, MetadataConflict, MetadataLost, MetadataUnavailable

NONCE_BYTES = 16
WRITER_PREFIX = "writer/"  # of nonces: they say nothing about the cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOptions:
    """How often an attempt without a known outcome is made in all, and the pause before the next."""

    attempts: int = 20
    pause_ms: int = 20


class ResolvingStore:
    """A `MetaStore` over a `MetaStore`; one commit at a time.

    `writer` is this process's alone while it runs; using the same again after a restart keeps the number of such keys small.
    `on_commit`, if set, is called with the revision of each commit and the keys that it put or deleted. `where` names the store in
    errors.
    """

    def __init__(
        self, store: MetaStore, *, writer: str, entropy: Entropy, retry: RetryOptions | None = None, where: str = "the store"
    ) -> None:
        self._store = store
        self._where = where
        self._key = WRITER_PREFIX + writer
        self._entropy = entropy
        self._retry = retry or RetryOptions()
        self._revision: int | None = None  # of the own key, None when it must be read
        self._seen = 0  # the highest revision of the store that was seen
        self._turn = asyncio.Lock()
        self.on_commit: Callable[[int, Collection[str]], None] | None = None

    async def get(self, key: str) -> Item | None:
        return await self._store.get(key)

    async def list(self, prefix: str) -> Listing:
        """List as the port says.

        Raises:
            MetadataLost: the store is not the one that it was: its revision fell.
        """
        seen = self._seen
        listing = await self._store.list(prefix)
        if listing.revision < seen:
            why = f"it is at revision {listing.revision} and was at {seen} before: it was emptied, or an older copy was put in its place"
            raise MetadataLost(where=self._where, why=why)
        self._seen = max(self._seen, listing.revision)
        return listing

    async def commit(self, expect: Mapping[str, int], *, puts: Mapping[str, bytes], deletes: Sequence[str] = (), lease: int = 0) -> int:
        """Commit as the port says, with one operation fewer.

        Raises:
            MetadataUnavailable: with `outcome` "unknown" only if no attempt found out within the options' bounds.
        """
        if not puts and not deletes:
            raise InvalidArgument(why="a commit needs something to put or delete")
        if len(puts) + len(deletes) >= OPERATIONS_MAX or len(expect) >= OPERATIONS_MAX:
            raise InvalidArgument(why=f"a commit of more than {OPERATIONS_MAX - 1} operations")
        async with self._turn:
            if self._revision is None:
                self._revision = await self._read_revision()
            nonce = self._entropy.token(NONCE_BYTES)
            expected, put = {self._key: self._revision, **expect}, {**puts, self._key: nonce}
            self._revision = None  # until it is known again; a cancelled commit leaves it so
            revision = self._revision = await self._attempt(expected, put, deletes, lease)
            self._seen = max(self._seen, revision)
        if self.on_commit is not None:
            self.on_commit(revision, [*puts, *deletes])
        return revision

    async def _read_revision(self) -> int:
        found = await self._store.get(self._key)
        return found.revision if found else 0

    async def _attempt(self, expect: Mapping[str, int], puts: Mapping[str, bytes], deletes: Sequence[str], lease: int) -> int:
        may_have_happened = False
        why = ""
        for _ in range(self._retry.attempts):
            try:
                return await self._store.commit(expect, puts=puts, deletes=deletes, lease=lease)
            except MetadataConflict as conflict:
                if not may_have_happened:
                    raise
                refused = conflict
            except MetadataUnavailable as error:
                may_have_happened = may_have_happened or error.outcome == "unknown"
                if not may_have_happened:
                    raise
                why = error.why
                await asyncio.sleep(self._retry.pause_ms / 1000)
                continue
            try:
                found = await self._store.get(self._key)
            except MetadataUnavailable as error:
                why = error.why
                await asyncio.sleep(self._retry.pause_ms / 1000)
                continue
            if found is None or found.value != puts[self._key]:
                raise refused
            return found.revision
        raise MetadataUnavailable(outcome="unknown", why=why)

    def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[RevisionChanges, None]:
        return self._store.watch(prefix, from_revision)

    async def lease(self, ttl_s: int) -> Lease:
        return await self._store.lease(ttl_s)

    async def close(self) -> None:
        await self._store.close()
