"""The cluster's own caches at a node that leads all of it; more nodes are in tests/process/one_loop."""

from pathlib import Path
from typing import Any

import pytest

from eventlog.errors import NotPrimary, OutcomeUnknown, VersionMismatch
from eventlog.node.consumers.inner import LISTENERS
from eventlog.node.node import Node
from tests.node.nodes import with_node


def test_a_cache_is_made_by_whoever_writes_first(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        assert await node.inner.entry(LISTENERS, b"r\0") is None
        assert await node.inner.scan(LISTENERS, b"r\0") == []
        versions = await node.inner.write(LISTENERS, b"r", puts={b"r\0a": b"1", b"r\0b": b"2"})
        found = await node.inner.scan(LISTENERS, b"r\0")
        assert [(key, entry.value) for key, entry in found] == [(b"r\0a", b"1"), (b"r\0b", b"2")]
        assert {key: entry.version for key, entry in found} == versions
        later = await node.inner.write(LISTENERS, b"r", puts={b"r\0c": b"3"}, removes=[b"r\0a", b"r\0none"])
        assert (later[b"r\0c"] < later[b"r\0a"], later[b"r\0none"]) == (True, 0)
        assert [key for key, _ in await node.inner.scan_all(LISTENERS)] == [b"r\0b", b"r\0c"]

    with_node(tmp_path, act)


def test_conditions_hold_for_all_of_a_write_or_nothing_is_written(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        [version] = (await node.inner.write(LISTENERS, b"r", puts={b"r\0a": b"1"}, expect={b"r\0a": None})).values()
        for expect in ({b"r\0a": None}, {b"r\0a": version + 1}, {b"r\0a": version, b"r\0b": 7}):
            with pytest.raises(VersionMismatch):
                await node.inner.write(LISTENERS, b"r", puts={b"r\0a": b"2", b"r\0c": b"2"}, expect=expect)
        assert [entry.value for _, entry in await node.inner.scan(LISTENERS, b"r\0")] == [b"1"]
        await node.inner.write(LISTENERS, b"r", puts={b"r\0c": b"2"}, expect={b"r\0a": version, b"r\0b": None})
        assert [entry.value for _, entry in await node.inner.scan(LISTENERS, b"r\0")] == [b"1", b"2"]

    with_node(tmp_path, act)


def test_a_write_in_doubt_that_another_one_followed_is_still_in_doubt(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        [version] = (await node.inner.write(LISTENERS, b"r", puts={b"r\0a": b"1"})).values()
        writes = node.own_writes

        class LosesOne:
            is_lost = False

            async def write(self, *frame: Any, **options: Any) -> Any:
                result = await writes.write(*frame, **options)
                if not self.is_lost:
                    self.is_lost = True
                    await node.inner.write(LISTENERS, b"r", puts={b"r\0a": b"3"})
                    raise OutcomeUnknown(outcome="unknown", why="nobody heard the answer")
                return result

        node.own_writes = LosesOne()  # type: ignore[assignment]
        with pytest.raises(VersionMismatch) as raised:
            await node.inner.write(LISTENERS, b"r", puts={b"r\0a": b"2"}, expect={b"r\0a": version})
        assert raised.value.outcome == "unknown"
        with pytest.raises(VersionMismatch) as raised:
            await node.inner.write(LISTENERS, b"r", puts={b"r\0a": b"4"}, expect={b"r\0a": version})
        assert raised.value.outcome == "none"

    with_node(tmp_path, act)


@pytest.mark.parametrize(("is_lost", "outcome"), [(True, "unknown"), (False, "none")])
def test_a_write_whose_term_is_over_says_whether_it_may_be_there(tmp_path: Path, is_lost: bool, outcome: str) -> None:
    async def act(node: Node) -> None:
        await node.inner.write(LISTENERS, b"r", puts={b"r\0": b"1"})
        term, writes = node.inner.term(b"r"), node.own_writes

        class LosesItsTerm:
            async def write(self, *frame: Any, **options: Any) -> Any:
                node.replicas.serving[:] = False
                if is_lost:
                    await writes.write(*frame, **options)
                    raise OutcomeUnknown(outcome="unknown", why="nobody heard the answer")
                raise NotPrimary(segment=0)

        node.own_writes = LosesItsTerm()  # type: ignore[assignment]
        with pytest.raises(NotPrimary) as raised:
            await node.inner.write(LISTENERS, b"r", puts={b"r\0": b"2"}, term=term)
        assert raised.value.outcome == outcome

    with_node(tmp_path, act)


def test_without_a_primary_the_deadline_ends_it(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        await node.inner.write(LISTENERS, b"r", puts={b"r\0": b"1"})
        node.replicas.serving[:] = False
        node.replicas.shortage.mark()
        with pytest.raises(NotPrimary):
            await node.inner.write(LISTENERS, b"r", puts={b"r\0": b"2"}, deadline_ms=50)
        with pytest.raises(NotPrimary):
            await node.inner.entry(LISTENERS, b"r\0", deadline_ms=50)
        node.replicas.serving[:] = True
        node.replicas.shortage.mark()
        found = await node.inner.entry(LISTENERS, b"r\0")
        assert found is not None
        assert found.value == b"1"

    with_node(tmp_path, act)
