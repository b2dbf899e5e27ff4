"""One read over an archive and the nodes for code with an event loop: files are read in a thread, and nothing but one batch at a time."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterator
from contextlib import aclosing
from typing import Any

from eventlog.client.client import Client
from eventlog.client.reading.batches import EventBatch
from eventlog.errors import EventsTrimmed
from eventlog.integrations.archive.events import ArchivePart, check_options, facts_of
from eventlog.integrations.archive.noting import opened_for
from eventlog.integrations.archive.reading import Archive
from eventlog.integrations.archive.table import TableIdentity


async def event_batches_async(
    archive: Archive | None, client: Client, cache: str, from_id: int | None = None, *, until_id: int | None = None, **options: Any
) -> AsyncGenerator[EventBatch, None]:
    """Yield what `event_batches` yields, by a client with an event loop. Options and errors are those."""
    check_options(options)
    source, info = client.cache(cache), await client.describe_cache(cache)
    identity = TableIdentity(cluster=client.cluster, cache=cache, cache_id=info.id)
    if archive is None and info.archive and not (from_id and await _is_kept(client, cache, from_id, segments=options.get("segments"))):
        archive = await asyncio.to_thread(opened_for, info.archive, identity)
    at = from_id
    if archive is not None:
        archive.check(identity)
        part = await asyncio.to_thread(ArchivePart, archive, facts_of(client, info), from_id, until_id=until_id, **options)
        batches = part.batches()
        while (batch := await asyncio.to_thread(_next_of, batches)) is not None:
            yield batch
        if not part.goes_on:
            return
        at = part.end
    async with aclosing(source.event_batches(at, until_id=until_id, **options)) as found:
        async for batch in found:
            yield batch


async def _is_kept(client: Client, cache: str, after: int, *, segments: Collection[int] | None) -> bool:
    try:
        await client.cache(cache).poll(after, max_events=0, segments=segments)
    except EventsTrimmed:
        return False
    return True


def _next_of(batches: Iterator[EventBatch]) -> EventBatch | None:
    return next(batches, None)
