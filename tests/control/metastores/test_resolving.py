"""What the contract does not tell of resolving outcomes: bounds, reads that fail as well, cancellation, passing on."""

import asyncio

import pytest

from eventlog.control.metastore import OPERATIONS_MAX
from eventlog.control.metastores.memory import MemoryMetaStore
from eventlog.control.metastores.resolving import ResolvingStore, RetryOptions
from eventlog.errors import InvalidArgument, MetadataLost, MetadataUnavailable
from eventlog.testing.clocks import SeededEntropy
from eventlog.testing.metastore_contract import UnsureStore


def resolving(store, *, attempts=20):
    return ResolvingStore(store, writer="w", entropy=SeededEntropy(1), retry=RetryOptions(attempts=attempts, pause_ms=0))


class Flaky(UnsureStore):
    """Loses answers of commits, and then refuses some reads."""

    reads_to_fail = 0

    async def get(self, key):
        if self.reads_to_fail:
            self.reads_to_fail -= 1
            raise MetadataUnavailable(why="not now")
        return await super().get(key)


def test_one_operation_less_than_the_store_takes_is_taken():
    async def story():
        store = resolving(MemoryMetaStore())
        most = {f"k{number}": b"" for number in range(OPERATIONS_MAX - 1)}
        await store.commit(dict.fromkeys(most, 0), puts=most)
        with pytest.raises(InvalidArgument):
            await store.commit({}, puts={**most, "more": b""})
        with pytest.raises(InvalidArgument):
            await store.commit(dict.fromkeys({**most, "more": b""}, 0), puts={"k": b""})
        with pytest.raises(InvalidArgument):
            await store.commit({}, puts={})

    asyncio.run(story())


def test_an_outcome_is_found_out_though_reads_fail_for_a_while():
    async def story():
        memory = MemoryMetaStore()
        flaky = Flaky(memory, [])
        store = resolving(flaky)
        await store.commit({}, puts={"other": b""})
        flaky.faults, flaky.reads_to_fail = ["after"], 3
        revision = await store.commit({"k": 0}, puts={"k": b"1"})
        assert revision == 2 == (await memory.list("")).revision

    asyncio.run(story())


def test_an_outcome_that_reads_cannot_tell_is_unknown():
    async def story():
        flaky = Flaky(MemoryMetaStore(), [])
        store = resolving(flaky, attempts=3)
        await store.commit({}, puts={"other": b""})
        flaky.faults, flaky.reads_to_fail = ["after"], 100
        with pytest.raises(MetadataUnavailable) as caught:
            await store.commit({"k": 0}, puts={"k": b"1"})
        assert caught.value.outcome == "unknown"

    asyncio.run(story())


def test_a_store_that_surely_did_nothing_is_not_asked_again():
    async def story():
        memory = MemoryMetaStore()
        store = resolving(memory)
        await memory.close()
        with pytest.raises(MetadataUnavailable) as caught:
            await store.commit({}, puts={"k": b""})
        assert caught.value.outcome == "none"

    asyncio.run(story())


def test_after_a_cancelled_commit_the_next_one_finds_its_way():
    class Slow(UnsureStore):
        async def commit(self, expect, *, puts, deletes=(), lease=0):
            revision = await super().commit(expect, puts=puts, deletes=deletes, lease=lease)
            await asyncio.sleep(0.001)
            return revision

    async def story():
        memory = MemoryMetaStore()
        store = resolving(Slow(memory, []))
        cancelled = asyncio.ensure_future(store.commit({}, puts={"k": b"1"}))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert await store.commit({}, puts={"k": b"2"}) == 2

    asyncio.run(story())


def test_commits_of_many_tasks_go_one_at_a_time():
    async def story():
        store = resolving(MemoryMetaStore())
        revisions = await asyncio.gather(*(store.commit({}, puts={f"k{number}": b""}) for number in range(20)))
        assert sorted(revisions) == list(range(1, 21))

    asyncio.run(story())


def test_a_store_that_was_emptied_or_put_back_is_not_taken_for_what_it_was():
    async def story():
        store = UnsureStore(MemoryMetaStore(), [])
        resolved = resolving(store)
        before = await resolved.commit({}, puts={"k": b"1"})
        assert (await resolved.list("")).revision == before
        store.store = MemoryMetaStore()
        with pytest.raises(MetadataLost, match="at revision 0 and was at 1 before"):
            await resolved.list("")
        for _ in range(before):
            await store.store.commit({}, puts={"k": b"2"})
        assert (await resolved.list("")).revision == before

    asyncio.run(story())


def test_all_else_is_passed_on():
    async def story():
        memory = MemoryMetaStore()
        store = resolving(memory)
        lease = await store.lease(5)
        await store.commit({}, puts={"k": b"1"}, lease=lease.number)
        assert await store.get("k") == await memory.get("k")
        assert await store.list("") == await memory.list("")
        watch = store.watch("k", 1)
        assert (await anext(watch)).revision == 1
        await watch.aclose()
        await store.close()
        with pytest.raises(MetadataUnavailable):
            await memory.get("k")

    asyncio.run(story())
