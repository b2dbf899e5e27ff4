"""The driver of caches: reads the book, lets `caches` plan, commits, and on a conflict does so again. Any task may use it."""

from collections.abc import Mapping
from typing import Any

from eventlog.control.caches import CacheBook, check_alike, plan_alter, plan_create, plan_drop, read_book
from eventlog.control.metastore import MetaStore
from eventlog.control.records import CACHES_SCOPE, CacheRecord, CommitPlan
from eventlog.errors import CacheExists, MetadataConflict

CONFLICTS_MAX = 32  # more hands do not change caches in one moment


class CacheRecords:
    """The caches in a metadata store."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    async def read(self) -> CacheBook:
        """Return all caches as they are now."""
        return read_book(await self._store.list(CACHES_SCOPE))

    async def create(
        self, name: str, given: Mapping[str, Any], *, from_id: int, use_existing: bool = False, is_internal: bool = False
    ) -> tuple[CacheRecord, bool]:
        """Return the cache, and whether it was made just now; with `use_existing` one that is there already will do if it is alike.

        Raises:
            BadName, InvalidArgument, TooLarge: the name or an option cannot be used; says which.
            CacheExists: there is one of this name.
            CacheDiffers: there is one, `use_existing`, and an option that is given is another there.
            Overloaded: there are too many caches.
        """
        for _ in range(CONFLICTS_MAX):
            book = await self.read()
            try:
                record, plan = plan_create(book, name, given, from_id=from_id, is_internal=is_internal)
                await self._commit(plan)
            except CacheExists:
                if not use_existing:
                    raise
                record = book.caches[name].record
                if not is_internal:  # what those keep may change with a version
                    check_alike(record, given)
                return record, False
            except MetadataConflict:
                continue
            return record, True
        raise MetadataConflict(key=CACHES_SCOPE)

    async def alter(self, name: str, given: Mapping[str, Any], *, from_id: int) -> CacheRecord:
        """Change the given options from `from_id` on; return the cache with all its options.

        Raises:
            CacheNotFound: there is none of this name.
            Unalterable: an option that is fixed at creation would change.
            InvalidArgument, TooLarge: an option cannot be used; says which.
        """
        for _ in range(CONFLICTS_MAX):
            record, plan = plan_alter(await self.read(), name, given, from_id=from_id)
            try:
                if plan is not None:
                    await self._commit(plan)
            except MetadataConflict:
                continue
            return record
        raise MetadataConflict(key=CACHES_SCOPE)

    async def drop(self, name: str) -> CacheRecord:
        """Drop the cache; return what it was. Its name is free at once, its id is never used again.

        Raises:
            CacheNotFound: there is none of this name.
        """
        for _ in range(CONFLICTS_MAX):
            record, plan = plan_drop(await self.read(), name)
            try:
                await self._commit(plan)
            except MetadataConflict:
                continue
            return record
        raise MetadataConflict(key=CACHES_SCOPE)

    async def _commit(self, plan: CommitPlan) -> None:
        await self._store.commit(plan.expect, puts=plan.puts, deletes=plan.deletes)
