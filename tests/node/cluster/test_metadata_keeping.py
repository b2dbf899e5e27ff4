"""The copy of the records in the data directory: when it is made, and that it holds what the store does."""

import asyncio
import contextlib
from collections import Counter

from eventlog.control.metastores.memory import MemoryMetaStore
from eventlog.control.rebuilding import decode_kept
from eventlog.control.records import IDENTITY_KEY, ClusterIdentity, encode
from eventlog.node.cluster.metadata import KEEPING_TIMES, KeepingTimes, keep_records
from eventlog.node.home import RECORDS, Home
from tests.loops import until


class Changes:
    """What stands in for a node's metadata: the word that more than a lease changed."""

    def __init__(self):
        self.changed = asyncio.Event()


async def kept_revision(path):
    """Return the revision of the first copy that is made."""
    await until((path / RECORDS).exists)
    return decode_kept((path / RECORDS).read_bytes(), where="copy").revision


@contextlib.asynccontextmanager
async def keeping_a_store(path, *, tell=True, times=KEEPING_TIMES):
    """Give a store with a cluster that is kept, where its changes are told, and how often that failed."""
    store, changes, home, failures = MemoryMetaStore(), Changes(), Home.open(path), Counter()
    await store.commit({}, puts={IDENTITY_KEY: encode(ClusterIdentity(cluster="c", segments=4, created_ms=1))})
    if tell:
        changes.changed.set()
    running = asyncio.create_task(keep_records(store, changes, home, failures, times=times))
    try:
        yield store, changes, failures
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        home.close()


def kept(path, *, tell, times=KEEPING_TIMES):
    async def run():
        async with keeping_a_store(path, tell=tell, times=times) as (store, _, _):
            assert await kept_revision(path) == (await store.list("")).revision

    asyncio.run(run())


def test_a_change_is_kept(tmp_path):
    kept(tmp_path, tell=True)


def test_leases_are_kept_although_nobody_tells_of_them(tmp_path):
    kept(tmp_path, tell=False, times=KeepingTimes(leases_ms=1))


def test_the_copy_stays_when_the_store_is_emptied(tmp_path):
    async def run():
        async with keeping_a_store(tmp_path, times=KeepingTimes(pause_ms=1)) as (store, changes, failures):
            revision = await kept_revision(tmp_path)
            await store.commit({}, puts={}, deletes=[IDENTITY_KEY])
            changes.changed.set()
            await until(lambda: failures["records"] or decode_kept((tmp_path / RECORDS).read_bytes(), where="copy").revision > revision)
            assert await kept_revision(tmp_path) == revision

    asyncio.run(run())
