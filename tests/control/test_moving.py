"""Moving records to another metadata store: whole or not at all, once, and never from under running nodes."""

import asyncio

import pytest

from eventlog.control.cluster import ClusterRecords
from eventlog.control.metastores.memory import MemoryMetaStore
from eventlog.control.moving import ITEMS_PER_COMMIT, move_records
from eventlog.control.records import IDENTITY_KEY, ClusterIdentity, decode
from eventlog.errors import EventLogError, InvalidArgument, MetadataLost, MetadataMoved, MetadataUnavailable
from eventlog.testing.clocks import SeededEntropy

NAMES = ("sqlite:old", "etcd://new:1")


async def nobody_runs(ms: int) -> None:
    assert ms > 0


def records_of(store) -> ClusterRecords:
    return ClusterRecords(store, incarnation="i", entropy=SeededEntropy(1), where="here")


async def old_store() -> MemoryMetaStore:
    store = MemoryMetaStore()
    await records_of(store).open_or_create(segments=4, now_ms=1, remembered=None)
    for number in range(2 * ITEMS_PER_COMMIT + 3):
        await store.commit({}, puts={f"cache/{number}": str(number).encode(), "writer/x": b"nonce"})
    await store.commit({}, puts={"cache/large": bytes(900_000), "cache/larger": bytes(900_000)})
    return store


async def move(source, target, *, names=NAMES, wait=nobody_runs):
    seen: list[tuple[int, int]] = []

    async def open_target():
        assert target is not None, "it must not be made"
        return target

    done = await move_records(source, open_target, names=names, wait=wait, on_progress=lambda *step: seen.append(step))
    assert seen[-1] == (done.records, done.records)
    return done


def contents(listing) -> dict[str, bytes]:
    return {item.key: item.value for item in listing.items if item.key not in {IDENTITY_KEY, "moved", "writer/x"}}


def test_all_records_arrive_and_the_old_store_is_refused_from_then_on():
    async def story():
        source, target = await old_store(), MemoryMetaStore()
        remembered = records_of(source)
        await remembered.open_or_create(segments=4, now_ms=1, remembered=None)
        await move(source, target)
        assert contents(await target.list("")) == contents(await source.list(""))
        identity = await records_of(target).open_or_create(segments=4, now_ms=2, remembered=remembered.remember())
        assert identity.copies == 1
        with pytest.raises(MetadataMoved, match="start every node with --meta etcd://new:1"):
            await records_of(source).open_or_create(segments=4, now_ms=2, remembered=None)

    asyncio.run(story())


def test_a_copy_of_the_old_store_is_known_as_such_by_who_has_seen_the_new_one():
    async def story():
        source, target, copy = await old_store(), MemoryMetaStore(), MemoryMetaStore()
        await copy.commit({}, puts={item.key: item.value for item in (await source.list("identity")).items})
        await move(source, target)
        seen = records_of(target)
        await seen.open_or_create(segments=4, now_ms=2, remembered=None)
        with pytest.raises(MetadataLost, match="older copy"):
            await records_of(copy).open_or_create(segments=4, now_ms=2, remembered=seen.remember())

    asyncio.run(story())


def test_a_running_node_keeps_the_records_where_they_are():
    async def story():
        source = await old_store()

        async def renew(_ms: int) -> None:
            await source.commit({}, puts={"node/1": b"{}"})

        with pytest.raises(InvalidArgument, match="stop them all first"):
            await move(source, None, wait=renew)

    asyncio.run(story())


def test_a_target_with_records_of_its_own_is_refused():
    async def story():
        target = MemoryMetaStore()
        await target.commit({}, puts={"cache/other": b""})
        with pytest.raises(InvalidArgument, match="cache/other already"):
            await move(await old_store(), target)

    asyncio.run(story())


def test_a_store_without_a_cluster_or_left_for_another_is_refused():
    async def story():
        with pytest.raises(MetadataLost, match="no cluster"):
            await move(MemoryMetaStore(), None)
        source = await old_store()
        await move(source, MemoryMetaStore())
        with pytest.raises(MetadataMoved, match="moved to etcd://new:1"):
            await move(source, None, names=("sqlite:old", "etcd://third:1"))

    asyncio.run(story())


class BreakingStore(MemoryMetaStore):
    """Takes so many commits, and none after."""

    commits_left = 1_000

    async def commit(self, expect, *, puts, deletes=(), lease=0):
        if not self.commits_left:
            raise MetadataUnavailable(why="broken")
        self.commits_left -= 1
        return await super().commit(expect, puts=puts, deletes=deletes, lease=lease)


@pytest.mark.parametrize("commits", range(5))
def test_a_move_that_broke_off_is_no_cluster_and_is_finished_by_the_same_command(commits):
    async def story():
        source, target = await old_store(), BreakingStore()
        target.commits_left = commits
        with pytest.raises(MetadataUnavailable):
            await move(source, target)
        assert await target.get(IDENTITY_KEY) is None
        target.commits_left = 1_000
        await move(source, target)
        found = await target.get(IDENTITY_KEY)
        assert found is not None
        assert decode(found.value, ClusterIdentity, where="").copies == 1
        assert contents(await target.list("")) == contents(await source.list(""))
        with pytest.raises(EventLogError):
            await move(source, target)  # once more: the cluster is there

    asyncio.run(story())
