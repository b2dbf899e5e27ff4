"""The registry at nodes: known everywhere when it is answered, in one order, whoever decides."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import pytest

from eventlog.batch.entries import StoredEntry
from eventlog.errors import NotPrimary, OutcomeUnknown, VersionMismatch
from eventlog.limits import SCHEMA_TEXTS_BYTES_MAX, SCHEMAS_MAX
from eventlog.node.node import Node
from eventlog.node.schemas import SCHEMAS, RouteStore, Schemas, SchemasOptions
from eventlog.schema.registry import RECENT_MAX, Registry
from eventlog.schema.requests import Refusal, delete_subject, register, schema_by_id, set_level
from tests.node.nodes import with_node
from tests.schema.registries import offered, record


def adding(subject: str, *names: str, record_name: str = "R"):
    return partial(register, subject=subject, given=offered(record(*names, name=record_name)))


class Disturbed:
    """A store in which something happens between a registry's steps."""

    def __init__(self, store: RouteStore) -> None:
        self.store = store
        self.lose_answers = 0
        self.meanwhile: Callable[[], Awaitable[object]] | None = None  # what happens behind a write whose answer is lost
        self.scans = 0
        self.entries = 0

    def segment(self, key: bytes) -> int:
        return self.store.segment(key)

    def mark(self, route: bytes) -> tuple[int, int] | None:
        return self.store.mark(route)

    async def stands(self, route: bytes, mark: tuple[int, int]) -> bool:
        return await self.store.stands(route, mark)

    async def entry(self, cache: str, key: bytes, *, deadline_ms: int) -> StoredEntry | None:
        self.entries += 1
        await asyncio.sleep(0)
        return await self.store.entry(cache, key, deadline_ms=deadline_ms)

    async def scan(self, cache: str, prefix: bytes, *, deadline_ms: int) -> list[tuple[bytes, StoredEntry]]:
        self.scans += 1
        return await self.store.scan(cache, prefix, deadline_ms=deadline_ms)

    async def write(
        self,
        cache: str,
        route: bytes,
        *,
        puts: Mapping[bytes, bytes],
        removes: Iterable[bytes] = (),
        expect: Mapping[bytes, int | None] | None = None,
        deadline_ms: int,
    ) -> dict[bytes, int]:
        found = await self.store.write(cache, route, puts=puts, removes=removes, expect=expect, deadline_ms=deadline_ms)
        if self.lose_answers:
            self.lose_answers -= 1
            if self.meanwhile is not None:
                await self.meanwhile()
            raise VersionMismatch(outcome="unknown", key="head", expected=0, found=1)
        return found


def test_what_is_answered_is_known_wherever_it_is_asked_for(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        here, there = Schemas(node.inner), Schemas(node.inner)
        assert await there.read() == Registry()
        for number in range(1, 6):
            writer, reader = (here, there) if number % 2 else (there, here)
            assert (await writer.change(adding(f"s{number}", "a", record_name=f"R{number}")))["id"] == number
            assert schema_by_id(await reader.read(), number)["subject"] == f"s{number}"
        assert await writer.change(partial(delete_subject, subject="s1")) == [1]
        assert (await reader.read()).subjects["s1"][1].is_deleted
        assert await Schemas(node.inner).read() == await here.read() == await there.read()

    with_node(tmp_path, act)


def test_who_is_far_behind_reads_everything_and_who_is_near_what_changed(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        near, far = Disturbed(node.inner), Disturbed(node.inner)
        here, behind = Schemas(near), Schemas(far)
        await here.change(adding("first", "a"))
        assert len((await behind.read()).subjects) == 1
        for number in range(RECENT_MAX):
            await here.change(partial(set_level, subject=f"s{number}", level="NONE"))
        assert await behind.read() == await here.read()
        assert (near.scans, far.scans) == (0, 0)
        for number in range(RECENT_MAX + 1):
            await here.change(partial(set_level, subject=f"s{number}", level="FULL"))
        assert await behind.read() == await here.read()
        assert (near.scans, far.scans) == (0, 1)

    with_node(tmp_path, act)


def test_the_primary_reads_the_head_when_something_was_committed_beside_it(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        store = Disturbed(node.inner)
        schemas = Schemas(store)
        await schemas.change(adding("s", "a"))
        await schemas.read()
        before = store.entries
        for _ in range(5):
            await schemas.read()
        assert store.entries == before
        await Schemas(node.inner).change(adding("t", "b"))
        assert set((await schemas.read()).subjects) == {"s", "t"}
        before = store.entries
        await node.inner.write(SCHEMAS, b"registry", puts={b"registry\0other": b"1"})
        await schemas.read()
        assert store.entries == before + 1

    with_node(tmp_path, act)


def test_changes_at_once_have_one_order_and_no_gaps(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        hands = [Schemas(Disturbed(node.inner)) for _ in range(4)]
        calls = [hand.change(adding("s", "a", record_name=f"R{number}")) for number in range(4) for hand in hands]
        await hands[0].change(partial(set_level, subject="s", level="NONE"))
        answers = await asyncio.gather(*calls)
        by_schema = {answer["schema"]: (answer["id"], answer["version"]) for answer in answers}
        assert len(by_schema) == 4
        assert all(by_schema[answer["schema"]] == (answer["id"], answer["version"]) for answer in answers), "the same schema has one id"
        assert sorted(by_schema.values()) == [(1, 1), (2, 2), (3, 3), (4, 4)]
        registry = await hands[1].read()
        assert list(registry.subjects["s"]) == [1, 2, 3, 4]

    with_node(tmp_path, act)


def test_a_change_whose_answer_was_lost_is_not_made_again(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        store = Disturbed(node.inner)
        schemas = Schemas(store)
        await schemas.change(adding("s", "a"))
        store.lose_answers = 1
        assert await schemas.change(partial(delete_subject, subject="s")) == [1]
        with pytest.raises(Refusal):
            await schemas.change(partial(delete_subject, subject="s"))
        revision = (await schemas.read()).head.revision
        store.lose_answers = 1
        assert (await schemas.change(adding("s", "b")))["version"] == 2
        assert (await schemas.read()).head.revision == revision + 1

    with_node(tmp_path, act)


@pytest.mark.parametrize("others", [RECENT_MAX - 2, RECENT_MAX])
def test_a_change_whose_answer_was_lost_is_not_made_again_behind_many_others(tmp_path: Path, others: int) -> None:
    async def act(node: Node) -> None:
        here = Schemas(node.inner)

        async def meanwhile() -> None:
            await here.change(partial(delete_subject, subject="s"))
            for number in range(others):
                await here.change(partial(set_level, subject=f"t{number}", level="NONE"))

        store = Disturbed(node.inner)
        store.lose_answers, store.meanwhile = 1, meanwhile
        if others < RECENT_MAX - 1:
            assert (await Schemas(store).change(adding("s", "a")))["version"] == 1
        else:
            with pytest.raises(OutcomeUnknown, match="revision 1 of the registry"):
                await Schemas(store).change(adding("s", "a"))
        assert list((await here.read()).subjects["s"]) == [1], "and none beside it"

    with_node(tmp_path, act)


def test_who_is_never_first_gives_up_and_says_so(tmp_path: Path) -> None:
    class Overtaken(Disturbed):
        async def write(self, *_: object, **__: object) -> dict[bytes, int]:
            raise VersionMismatch(key="head", expected=0, found=1)

    async def act(node: Node) -> None:
        once = SchemasOptions(tries_max=1)
        with pytest.raises(NotPrimary):
            await Schemas(Overtaken(node.inner), once).change(adding("s", "a"))
        store = Disturbed(node.inner)
        store.lose_answers = 1
        with pytest.raises(OutcomeUnknown):
            await Schemas(store, once).change(adding("s", "a"))

    with_node(tmp_path, act)


def test_many_records_are_folded_beside_the_loop(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        await node.schemas.change(adding("s", "a"))
        assert await Schemas(node.inner, SchemasOptions(folded_on_loop_max=0)).read() == node.schemas.copy
        assert "s" in node.schemas.copy.subjects

    with_node(tmp_path, act)


def test_a_refusal_writes_nothing(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        schemas = Schemas(node.inner)
        with pytest.raises(Refusal):
            await schemas.change(partial(delete_subject, subject="s"))
        assert await node.inner.scan(SCHEMAS, b"registry\0") == []

    with_node(tmp_path, act)


def test_without_a_primary_nothing_is_answered_from_a_copy(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        schemas = Schemas(node.inner, SchemasOptions(deadline_ms=50))
        await schemas.change(adding("s", "a"))
        node.replicas.serving[:] = False
        node.replicas.shortage.mark()
        with pytest.raises(NotPrimary):
            await schemas.read()
        assert "s" in schemas.copy.subjects
        node.replicas.serving[:] = True
        node.replicas.shortage.mark()
        assert "s" in (await schemas.read()).subjects

    with_node(tmp_path, act)


def test_what_is_bounded_is_counted(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        await node.schemas.change(adding("s", "a"))
        (versions, _, _), (size, _, _) = node.schemas.figures().values()
        assert (versions, size) == (1, len(offered(record("a")).schema))
        await node.schemas.change(partial(delete_subject, subject="s"))
        await node.schemas.change(partial(delete_subject, subject="s", permanent=True))
        assert node.schemas.figures() == {"schema_versions": (0, SCHEMAS_MAX, 1), "schema_texts_bytes": (0, SCHEMA_TEXTS_BYTES_MAX, size)}

    with_node(tmp_path, act)


def test_a_registry_outlives_its_node(tmp_path: Path) -> None:
    async def write(node: Node) -> Registry:
        await node.schemas.change(adding("s", "a"))
        await node.schemas.change(partial(set_level, subject="", level="FULL"))
        return node.schemas.copy

    async def read(node: Node) -> Registry:
        return await node.schemas.read()

    before = with_node(tmp_path, write, storage="rocksdb")
    assert with_node(tmp_path, read, storage="rocksdb") == before
