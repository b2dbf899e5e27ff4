"""What every metadata store must do.

Derive a test class from `MetaStoreContract` and say how your store is opened:

    class TestMyStore(MetaStoreContract):
        async def open_store(self, path): ...         # empty at first; within one test, later calls open the same store
        async def pass_time(self, ms): ...            # let leases grow older
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path

import pytest

from eventlog.control.metastore import OPERATIONS_MAX, VALUE_BYTES_MAX, Item, ItemChange, Lease, Listing, MetaStore, RevisionChanges
from eventlog.control.metastores.resolving import ResolvingStore, RetryOptions
from eventlog.errors import InvalidArgument, MetadataConflict, MetadataUnavailable, TooLarge
from eventlog.testing.clocks import SeededEntropy

REVISIONS_KEPT = 20  # open your store so that it keeps as many, where that can be chosen
STORY_S_MAX = 60


class MetaStoreContract(ABC):
    """The tests. A story gets an opened store, empty in the beginning; what it opens is closed at its end."""

    revisions_kept = REVISIONS_KEPT

    @abstractmethod
    async def open_store(self, path: Path) -> MetaStore:
        """Open the store of this test as another process would; `path` is a directory for it alone."""

    @abstractmethod
    async def pass_time(self, ms: int) -> None:
        """Make every lease older by `ms`."""

    @abstractmethod
    async def forget(self, upto: int) -> None:
        """Make the store forget revisions up to `upto`. Nothing to do for one that was opened to keep `revisions_kept`."""

    @pytest.fixture(autouse=True)
    def _here(self, tmp_path: Path) -> None:
        self._path = tmp_path
        self._opened = AsyncExitStack()

    async def another(self) -> MetaStore:
        """Open the store once more."""
        store = await self.open_store(self._path)
        self._opened.push_async_callback(store.close)
        return store

    def tell(self, story: Callable[[MetaStore], Awaitable[None]]) -> None:
        """Run a story."""

        async def run() -> None:
            async with asyncio.timeout(STORY_S_MAX), self._opened:
                await story(await self.another())

        asyncio.run(run())

    # ------------------------------------------------------------ commits and reads

    def test_what_is_not_there_is_none_and_an_empty_store_lists_nothing(self) -> None:
        async def story(store: MetaStore) -> None:
            assert await store.get("k") is None
            assert (await store.list("")).items == ()

        self.tell(story)

    def test_a_put_is_read_back_with_the_revision_of_its_commit(self) -> None:
        async def story(store: MetaStore) -> None:
            first = await store.commit({}, puts={"k": b"1", "other": b""})
            second = await store.commit({}, puts={"k": b"2"})
            assert first < second
            assert await store.get("k") == Item(key="k", value=b"2", revision=second)
            assert await store.get("other") == Item(key="other", value=b"", revision=first)

        self.tell(story)

    def test_a_listing_has_the_prefix_alone_in_order_and_the_latest_revision(self) -> None:
        async def story(store: MetaStore) -> None:
            await store.commit({}, puts={"b/2": b"", "b/1": b"", "b/10": b"", "b": b"", "c": b"", "a/z": b"", "b0": b"", "b/~": b""})
            latest = await store.commit({}, puts={"z": b""})
            listing = await store.list("b/")
            assert [item.key for item in listing.items] == ["b/1", "b/10", "b/2", "b/~"]
            assert listing.revision == latest
            assert len((await store.list("")).items) == 9

        self.tell(story)

    def test_a_commit_needs_the_revisions_it_expects(self) -> None:
        async def story(store: MetaStore) -> None:
            first = await store.commit({"k": 0}, puts={"k": b"1"})
            with pytest.raises(MetadataConflict) as caught:
                await store.commit({"k": 0}, puts={"k": b"2"})
            assert caught.value.key == "k"
            second = await store.commit({"k": first}, puts={"k": b"3"})
            with pytest.raises(MetadataConflict):
                await store.commit({"k": first}, puts={"k": b"4"})
            await store.commit({"k": second}, puts={"other": b""}, deletes=["k"])
            with pytest.raises(MetadataConflict):
                await store.commit({"k": second}, puts={"k": b"5"})
            await store.commit({"k": 0}, puts={"k": b"6"})

        self.tell(story)

    def test_a_conflict_on_one_key_changes_none(self) -> None:
        async def story(store: MetaStore) -> None:
            first = await store.commit({}, puts={"a": b"1", "b": b"1"})
            with pytest.raises(MetadataConflict) as caught:
                await store.commit({"a": first, "c": 0, "b": first + 7}, puts={"a": b"2", "c": b"2"}, deletes=["b"])
            assert caught.value.key == "b"
            listing = await store.list("")
            assert [(item.key, item.value) for item in listing.items] == [("a", b"1"), ("b", b"1")]
            assert listing.revision == first

        self.tell(story)

    def test_an_expected_key_need_not_be_changed(self) -> None:
        async def story(store: MetaStore) -> None:
            first = await store.commit({}, puts={"guard": b""})
            await store.commit({"guard": first, "none": 0}, puts={"k": b""})
            found = await store.get("guard")
            assert found is not None
            assert found.revision == first

        self.tell(story)

    def test_of_many_that_race_for_a_revision_one_wins(self) -> None:
        async def story(store: MetaStore) -> None:
            stores = [store, await self.another(), await self.another()]
            tries = [each.commit({"k": 0}, puts={"k": str(number).encode()}) for number, each in enumerate(stores * 4)]
            answers = await asyncio.gather(*tries, return_exceptions=True)
            won = [number for number, answer in enumerate(answers) if isinstance(answer, int)]
            assert len(won) == 1
            assert all(isinstance(answer, MetadataConflict) for number, answer in enumerate(answers) if number not in won)
            found = await store.get("k")
            assert found is not None
            assert found.value == str(won[0]).encode()

        self.tell(story)

    def test_counting_up_by_compare_and_set_loses_no_step(self) -> None:
        async def count(store: MetaStore, steps: int) -> None:
            while steps:
                found = await store.get("n")
                value = int(found.value) if found else 0
                try:
                    await store.commit({"n": found.revision if found else 0}, puts={"n": str(value + 1).encode()})
                except MetadataConflict:
                    continue
                steps -= 1

        async def story(store: MetaStore) -> None:
            await asyncio.gather(*(count(each, 15) for each in (store, await self.another(), await self.another())))
            found = await store.get("n")
            assert found is not None
            assert found.value == b"45"

        self.tell(story)

    def test_another_client_sees_a_commit_at_once_and_after_all_have_gone(self) -> None:
        async def story(store: MetaStore) -> None:
            revision = await store.commit({}, puts={"k": b"\x00\xff"})
            other = await self.another()
            assert await other.get("k") == Item(key="k", value=b"\x00\xff", revision=revision)
            assert await store.commit({"k": revision}, puts={"k": b"2"}) > revision

        self.tell(story)

    @pytest.mark.parametrize("key", ["", "ä", "a\nb", "x" * 513])
    def test_a_key_that_some_store_would_refuse_is_refused(self, key: str) -> None:
        async def story(store: MetaStore) -> None:
            with pytest.raises(InvalidArgument):
                await store.commit({}, puts={key: b""})

        self.tell(story)

    def test_limits_of_a_commit_hold(self) -> None:
        async def story(store: MetaStore) -> None:
            most = {f"k{number}": b"" for number in range(OPERATIONS_MAX)}
            await store.commit(dict.fromkeys(most, 0), puts=most)
            with pytest.raises(InvalidArgument):
                await store.commit({}, puts=most, deletes=["one more"])
            with pytest.raises(InvalidArgument):
                await store.commit({}, puts={})
            with pytest.raises(InvalidArgument):
                await store.commit({}, puts={"k": b""}, deletes=["k"])
            await store.commit({}, puts={"large": bytes(VALUE_BYTES_MAX)})
            with pytest.raises(TooLarge):
                await store.commit({}, puts={"large": bytes(VALUE_BYTES_MAX + 1)})

        self.tell(story)

    # ------------------------------------------------------------ watches

    def test_a_watch_tells_every_change_once_in_order_one_revision_at_a_time(self) -> None:
        async def story(store: MetaStore) -> None:
            before = await store.commit({}, puts={"w/a": b"0"})
            other = await self.another()
            async with aclosing(store.watch("w/", before + 1)) as watch:
                first = await other.commit({}, puts={"w/a": b"1", "w/b": b"1", "x": b"1"})
                await other.commit({}, puts={"x": b"2"})
                assert await anext(watch) == RevisionChanges(
                    revision=first, changes=(ItemChange(key="w/a", value=b"1"), ItemChange(key="w/b", value=b"1"))
                )
                waiting = asyncio.ensure_future(anext(watch))
                second = await store.commit({}, puts={}, deletes=["w/a", "w/none"])
                assert await waiting == RevisionChanges(revision=second, changes=(ItemChange(key="w/a", value=None),))

        self.tell(story)

    def test_a_watch_resumes_after_the_last_revision_it_saw(self) -> None:
        async def story(store: MetaStore) -> None:
            revisions = [await store.commit({}, puts={"w": str(number).encode()}) for number in range(6)]
            seen: list[RevisionChanges] = []
            for _ in range(3):
                async with aclosing(store.watch("w", seen[-1].revision + 1 if seen else revisions[0])) as watch:
                    seen += [await anext(watch), await anext(watch)]
            assert [entry.revision for entry in seen] == revisions
            assert [entry.changes[0].value for entry in seen] == [b"0", b"1", b"2", b"3", b"4", b"5"]

        self.tell(story)

    def test_a_listing_and_a_watch_from_the_next_revision_miss_nothing(self) -> None:
        async def story(store: MetaStore) -> None:
            other = await self.another()

            async def write() -> None:
                for number in range(15):
                    await other.commit({}, puts={f"w/{number % 4}": str(number).encode()})
                await other.commit({}, puts={"w/end": b""})

            writing = asyncio.ensure_future(write())
            listing = await store.list("w/")
            state = {item.key: item.value for item in listing.items}
            async with aclosing(store.watch("w/", listing.revision + 1)) as watch:
                while "w/end" not in state:
                    state |= {change.key: change.value or b"" for change in (await anext(watch)).changes}
            await writing
            assert state == {item.key: item.value for item in (await store.list("w/")).items}

        self.tell(story)

    def test_a_watch_from_a_forgotten_revision_says_so(self) -> None:
        async def story(store: MetaStore) -> None:
            first = await store.commit({}, puts={"w": b""})
            latest = first
            for _ in range(self.revisions_kept + 5):
                latest = await store.commit({}, puts={"w": b""})
            await self.forget(latest - self.revisions_kept)
            async with aclosing(store.watch("w", first)) as watch:
                with pytest.raises(LookupError):
                    await anext(watch)
            async with aclosing(store.watch("w", latest)) as watch:
                assert (await anext(watch)).revision == latest

        self.tell(story)

    def test_closing_the_store_ends_its_watches_and_refuses_the_rest(self) -> None:
        async def story(store: MetaStore) -> None:
            first = await store.commit({}, puts={"w": b""})
            watch = store.watch("w", first)
            await anext(watch)
            waiting = asyncio.ensure_future(anext(watch, None))
            await asyncio.sleep(0)
            await store.close()
            with suppress(MetadataUnavailable):  # as good an end
                assert await waiting is None
            with pytest.raises(MetadataUnavailable):
                await store.get("w")
            await store.close()

        self.tell(story)

    # ------------------------------------------------------------ leases

    def test_keys_of_a_lease_go_when_it_is_not_renewed_and_a_watch_hears_it(self) -> None:
        async def story(store: MetaStore) -> None:
            lease = await store.lease(6)  # a store that lives by its own clock may stand still for a second or two in between
            put = await store.commit({}, puts={"alive/1": b""}, lease=lease.number)
            await store.commit({}, puts={"alive/kept": b""})
            await self.pass_time(3_500)
            await lease.renew()
            await self.pass_time(3_500)
            assert await store.get("alive/1") is not None
            while await store.get("alive/1") is not None:
                await self.pass_time(500)
            assert [item.key for item in (await store.list("")).items] == ["alive/kept"]
            assert await store.get("alive/1") is None
            await store.commit({"alive/1": 0}, puts={"z": b""})
            async with aclosing(store.watch("alive/1", put + 1)) as watch:
                assert (await anext(watch)).changes == (ItemChange(key="alive/1", value=None),)
            with pytest.raises(LookupError):
                await lease.renew()
            with pytest.raises(LookupError):
                await store.commit({}, puts={"k": b""}, lease=lease.number)
            assert await store.get("k") is None

        self.tell(story)

    def test_ending_a_lease_deletes_its_keys_at_once(self) -> None:
        async def story(store: MetaStore) -> None:
            lease = await store.lease(60)
            other = await store.lease(60)
            await store.commit({}, puts={"a": b""}, lease=lease.number)
            await store.commit({}, puts={"b": b""}, lease=other.number)
            await lease.end()
            await lease.end()
            assert [item.key for item in (await store.list("")).items] == ["b"]

        self.tell(story)

    def test_a_key_put_again_without_the_lease_outlives_it(self) -> None:
        async def story(store: MetaStore) -> None:
            lease = await store.lease(4)
            await store.commit({}, puts={"k": b"1"}, lease=lease.number)
            await store.commit({}, puts={"k": b"2"})
            await store.commit({}, puts={"beside": b""}, lease=lease.number)
            while await store.get("beside") is not None:
                await self.pass_time(500)
            assert await store.get("k") is not None

        self.tell(story)

    # ------------------------------------------------------------ unknown outcomes

    @pytest.mark.parametrize("expect", [{"k": 0}, {}], ids=["expecting", "blind"])
    @pytest.mark.parametrize("faults", ["after", "before", "after after", "before after before", "before before"])
    def test_a_commit_without_an_answer_is_resolved_by_making_it_again(self, faults: str, expect: dict[str, int]) -> None:
        async def story(store: MetaStore) -> None:
            before = (await store.list("")).revision
            unsure = UnsureStore(store, faults.split())
            resolving = ResolvingStore(unsure, writer="w", entropy=SeededEntropy(1), retry=RetryOptions(pause_ms=0))
            revision = await resolving.commit(expect, puts={"k": b"1"}, deletes=["none"])
            assert not unsure.faults
            assert await store.get("k") == Item(key="k", value=b"1", revision=revision)
            assert (await store.list("")).revision == revision == before + 1  # carried out once
            assert await resolving.commit({"k": revision}, puts={"k": b"2"}) == revision + 1

        self.tell(story)

    def test_a_commit_without_an_answer_is_found_though_its_values_were_overwritten_since(self) -> None:
        async def story(store: MetaStore) -> None:
            async def overwrite() -> None:
                await store.commit({}, puts={"k": b"theirs"}, deletes=["d"])

            await store.commit({}, puts={"d": b""})
            unsure = UnsureStore(store, ["after"], then=overwrite)
            resolving = ResolvingStore(unsure, writer="w", entropy=SeededEntropy(1), retry=RetryOptions(pause_ms=0))
            revision = await resolving.commit({"k": 0}, puts={"k": b"ours"})
            assert revision == (await store.list("")).revision - 1
            found = await store.get("k")
            assert found is not None
            assert found.value == b"theirs"

        self.tell(story)

    def test_a_commit_that_never_happened_conflicts_if_somebody_came_before_the_second_try(self) -> None:
        async def story(store: MetaStore) -> None:
            async def overtake() -> None:
                await store.commit({}, puts={"k": b"theirs"})

            unsure = UnsureStore(store, ["before"], then=overtake)
            await ResolvingStore(store, writer="w", entropy=SeededEntropy(0)).commit({}, puts={"other": b""})
            resolving = ResolvingStore(unsure, writer="w", entropy=SeededEntropy(1), retry=RetryOptions(pause_ms=0))
            with pytest.raises(MetadataConflict):
                await resolving.commit({"k": 0}, puts={"k": b"ours"})
            await resolving.commit({}, puts={"k": b"ours"})

        self.tell(story)

    def test_an_outcome_that_stays_unknown_is_said_to_be(self) -> None:
        async def story(store: MetaStore) -> None:
            unsure = UnsureStore(store, ["after", "before", "before"])
            resolving = ResolvingStore(unsure, writer="w", entropy=SeededEntropy(1), retry=RetryOptions(attempts=2, pause_ms=0))
            with pytest.raises(MetadataUnavailable) as caught:
                await resolving.commit({}, puts={"k": b"1"})
            assert caught.value.outcome == "unknown"
            await resolving.commit({}, puts={"k": b"2"})  # one more fault on the way

        self.tell(story)

    def test_a_writer_that_starts_again_goes_on_from_its_last_nonce(self) -> None:
        async def story(store: MetaStore) -> None:
            for seed in range(3):
                resolving = ResolvingStore(store, writer="w", entropy=SeededEntropy(seed))
                await resolving.commit({}, puts={"k": str(seed).encode()})
            assert len((await store.list("writer/")).items) == 1

        self.tell(story)


class UnsureStore:
    """A store that loses the answers of its next commits: "before" they are carried out, or "after".

    `then` happens once, right after the first lost answer.
    """

    def __init__(self, store: MetaStore, faults: Sequence[str], *, then: Callable[[], Awaitable[None]] | None = None) -> None:
        self.store = store
        self._then = then
        self.faults = list(faults)

    async def commit(self, expect: Mapping[str, int], *, puts: Mapping[str, bytes], deletes: Sequence[str] = (), lease: int = 0) -> int:
        fault = self.faults.pop(0) if self.faults else None
        if fault == "before":
            await self._lose()
        try:
            revision = await self.store.commit(expect, puts=puts, deletes=deletes, lease=lease)
        except MetadataConflict:
            if fault == "after":
                await self._lose()
            raise
        if fault == "after":
            await self._lose()
        return revision

    async def _lose(self) -> None:
        then, self._then = self._then, None
        if then is not None:
            await then()
        raise MetadataUnavailable(outcome="unknown", why="the answer was lost")

    async def get(self, key: str) -> Item | None:
        return await self.store.get(key)

    async def list(self, prefix: str) -> Listing:
        return await self.store.list(prefix)

    def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[RevisionChanges, None]:
        return self.store.watch(prefix, from_revision)

    async def lease(self, ttl_s: int) -> Lease:
        return await self.store.lease(ttl_s)

    async def close(self) -> None:
        await self.store.close()
