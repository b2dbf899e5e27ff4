"""One read over an archive and the nodes with an event loop: the batches that code without one gets."""

import asyncio
import json
import shutil
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import eventlog
from eventlog import blocking
from eventlog.errors import ArchiveRefused, BadPredicate, EventsTrimmed, InvalidArgument
from eventlog.integrations import archive as archives
from tests.archive.test_noted import filled
from tests.archive.test_over_both import seen
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def orders(client: blocking.Client, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[tuple[Any, ...]], Path]:
    path = tmp_path_factory.mktemp("archive") / "orders"
    return filled(client, "orders", path)[1], path


def read(node: NodeProcess, archive: Any, *words: Any, cache: str = "orders", **options: Any) -> list[Any]:
    async def main() -> list[Any]:
        async with eventlog.connect(node.address) as client:
            return [batch async for batch in archives.event_batches_async(archive, client, cache, *words, **options)]

    return asyncio.run(main())


@pytest.mark.parametrize(
    "options",
    [{}, {"where": "value.n < 20"}, {"segments": [1, 3]}, {"select": "value.n", "where": "key LIKE 'k1%'"}, {"order": "segment"}],
    ids=str,
)
def test_it_is_what_code_without_a_loop_gets(client: blocking.Client, node: NodeProcess, orders: Any, options: dict[str, Any]) -> None:
    every, path = orders
    found = archives.open(path)
    for at in (None, every[20][0], found.upto, every[-3][0]):
        for until in (None, every[100][0], every[-2][0]):
            here = list(archives.event_batches(found, client, "orders", at, until_id=until, **options))
            there = read(node, found, at, until_id=until, **options)
            assert seen(there) == seen(here)
            places = [[batch.last_id for batch in batches if batch.last_id <= found.upto] for batches in (here, there)]
            assert places[0] == places[1]  # behind it the end of the log moves on
    assert options or seen(read(node, found)) == every


def test_columns_and_a_noted_archive(client: blocking.Client, node: NodeProcess, orders: Any, tmp_path: Path) -> None:
    every, path = orders
    kept = [event.id for event in client.cache("orders").events()]
    assert [row[0] for row in seen(read(node, None))] == kept
    shutil.copytree(path, tmp_path / "moved")
    client.alter_cache("orders", archive=tmp_path / "moved")
    assert seen(read(node, None)) == every
    table = pa.Table.from_batches([batch.arrow() for batch in read(node, None, columns=["id", "key"])])
    assert table.to_pylist() == [{"id": row[0], "key": row[4]} for row in every]
    assert seen(read(node, None, every[30][0])) == every[31:]
    shutil.rmtree(tmp_path / "moved")
    assert seen(read(node, None, every[-4][0])) == every[-3:]  # nobody looks for it where the nodes have everything
    with pytest.raises(ArchiveRefused, match="it is noted with cache 'orders', until"):
        read(node, None)
    client.alter_cache("orders", archive="")


def test_an_archive_that_begins_later_than_what_the_nodes_keep_hides_nothing(
    client: blocking.Client, node: NodeProcess, tmp_path: Path
) -> None:
    cache = client.create_cache("late")
    cache.put_many([(f"k{key}", {"n": key}) for key in range(100)])
    every = seen(cache.event_batches())
    archives.archive(client, "late", tmp_path / "a", after=every[59][0])
    client.alter_cache("late", archive=tmp_path / "a")
    for found in (None, archives.open(tmp_path / "a")):
        assert seen(archives.event_batches(found, client, "late")) == every
        assert seen(read(node, found, cache="late")) == every
        assert seen(archives.event_batches(found, client, "late", every[80][0])) == every[81:]
    done = node.command("consume", "late", "--json")
    assert [json.loads(line)["id"] for line in done.stdout.decode().splitlines()] == [event[0] for event in every]
    client.alter_cache("late", retain_time_ms=1)
    while cache.log_ends().first_id is not None:
        client.run_retention("late")
        time.sleep(0.01)
    for found in (None, archives.open(tmp_path / "a")):
        assert seen(archives.event_batches(found, client, "late")) == every[60:]
        assert seen(read(node, found, cache="late")) == every[60:]


def test_what_cannot_be_is_said(client: blocking.Client, node: NodeProcess, orders: Any, tmp_path: Path) -> None:
    _, path = orders
    found = archives.open(path)
    client.create_cache("another")
    for error, options in (
        (ArchiveRefused, {"cache": "another"}),
        (BadPredicate, {"where": "value.n >"}),
        (InvalidArgument, {"filter": "x"}),
    ):
        with pytest.raises(error):
            read(node, found, **options)
    cache, _ = filled(client, "gap", tmp_path / "gap")
    cache.put_many([(f"k{key}", {"n": key}) for key in range(200)])
    client.run_retention("gap")
    with pytest.raises(EventsTrimmed):
        read(node, archives.open(tmp_path / "gap"), cache="gap")


def test_it_follows_and_ends_when_it_is_left(client: blocking.Client, node: NodeProcess, orders: Any) -> None:
    every, path = orders

    def follow(own: eventlog.Client) -> Any:
        return archives.event_batches_async(archives.open(path), own, "orders", follow=True)

    async def main() -> list[int]:
        ids: list[int] = []
        async with eventlog.connect(node.address) as own, aclosing(follow(own)) as batches:
            async for batch in batches:
                ids += batch.ids.tolist()
                if len(ids) == len(every):
                    await own.cache("orders").put("last", {"n": 0})
                if len(ids) > len(every):
                    return ids
        return ids

    found = asyncio.run(main())
    assert found[:-1] == [row[0] for row in every]
