"""Keeping a copy of the cluster's records in the data directory, from which a lost metadata store can be made again."""

import asyncio
from collections import Counter
from contextlib import suppress
from functools import partial

from eventlog.control.metastore import MetaStore
from eventlog.control.rebuilding import encode_kept
from eventlog.control.records import IDENTITY_KEY
from eventlog.errors import Unavailable
from eventlog.node.cluster.metadata import Metadata
from eventlog.node.home import Home
from eventlog.node.repeated import attempt

PAUSE_MS = 1_000  # changes come in crowds
LEASES_MS = 10_000  # how old a lease may be in the copy: it is renewed all the time, and a rebuilt one is raised above any id


async def keep_records(store: MetaStore, metadata: Metadata, home: Home, failures: Counter[str]) -> None:
    """Write a copy a moment after each change, and now and then for leases. A disk that takes nothing costs the copy, not the node."""
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(LEASES_MS / 1000):
                await metadata.changed.wait()
        metadata.changed.clear()
        if not await attempt(partial(keep_now, store, home), name="records", failures=failures):
            metadata.changed.set()
        await asyncio.sleep(PAUSE_MS / 1000)


async def keep_now(store: MetaStore, home: Home) -> None:
    """Write a copy. Raises Unavailable where there is nothing to be copied, or the disk takes nothing."""
    listing = await store.list("")
    if all(item.key != IDENTITY_KEY for item in listing.items):
        raise Unavailable(why="the copy of the metadata stays as it is: their store was emptied")
    copy = await asyncio.to_thread(encode_kept, listing)  # 100 ms for 4,096 segments
    try:
        await asyncio.to_thread(home.keep_records, copy)
    except OSError as error:
        raise Unavailable(why=f"the copy of the metadata was not written: {error}") from error
