"""Filters on real nodes: refused with the place, kept beside the values, installed on some nodes alone.

`test_consumers_faults` has readers with a filter while things go wrong.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import eventlog
from eventlog.errors import BadPredicate, FilterNotFound
from tests.process.clusters import ClusterProcesses
from tests.process.nodes import NodeProcess


def using(tmp_path: Path, test: Callable[[eventlog.Client, NodeProcess], Awaitable[None]]) -> None:
    async def main(node: NodeProcess) -> None:
        async with eventlog.connect(node.address) as client:
            await test(client, node)

    with NodeProcess(tmp_path / "data") as node:
        asyncio.run(main(node))


def test_filters_are_refused_with_the_place_and_named_ones_are_listed(tmp_path: Path):
    async def test(client: eventlog.Client, node: NodeProcess) -> None:
        cache = await client.create_cache("c", format="json")
        await cache.put_many([(f"k{number}", {"total": number, "name": f"n{number}"}) for number in range(100)])
        with pytest.raises(BadPredicate) as refused:
            await cache.poll(where="valeu.total = 1")
        assert refused.value.column == 1
        with pytest.raises(FilterNotFound):
            await cache.poll(filter="nobody-has-this")
        names = {found.name for found in await client.list_filters()}
        assert "sample" in names
        some = [event async for event in cache.events(filter="sample", params={"fraction": 0.5})]
        assert 20 < len(some) < 80
        assert "sample" in node.command("filter", "list").stdout.decode()
        printed = node.command("consume", "c", "--where", "value.total >= 97", "--select", "value.total", "--json").stdout.decode()
        assert [line.count("total") for line in printed.splitlines()] == [1, 1, 1]
        assert "name" not in printed
        half = node.command("consume", "c", "--filter", "sample", "--param", "fraction=0.5").stdout.splitlines()
        assert len(half) == len(some)
        answer = await cache.poll(where="value.total = 1000")
        assert (answer.events, answer.is_end) == ([], True)
        assert answer.last_id >= (await cache.log_ends()).last_id - (1 << 32)

    using(tmp_path, test)


def test_a_promoted_field_is_used_after_a_restart_too(tmp_path: Path):
    with NodeProcess(tmp_path / "data") as node:
        node.command("cache", "create", "c", "--no-state")
        node.command("put", "c", "a", '{"customer": {"name": "x"}}')
        node.command("cache", "alter", "c", "--promote", "value.customer.name")
        for key, name in (("b", "x"), ("c", "y"), ("d", "x")):
            node.command("put", "c", key, f'{{"customer": {{"name": "{name}"}}}}')
        where = ("consume", "c", "--where", "value.customer.name = 'x'", "--format", "raw")
        expected = node.command(*where).stdout
        assert len(expected.splitlines()) == 3
        node.kill()
        node.start()
        assert node.command(*where).stdout == expected


HOLDING = """
from dataclasses import dataclass


@dataclass(frozen=True)
class Parameters:
    text: bytes


@dataclass(frozen=True)
class Holding:
    text: bytes

    def mask(self, events):
        return [self.text in value for value in events.values.to_list()]


class Factory:
    name, version, description, parameters = "holding", 2, "values with a text in them", Parameters

    def build(self, parameters, context):
        return Holding(parameters.text)


factory = Factory()
"""


def installed(directory: Path) -> dict[str, str]:
    """Return the environment of a node that has one more package with a filter."""
    about = directory / "holding-1.dist-info"
    about.mkdir(parents=True)
    (directory / "holding_filter.py").write_text(HOLDING)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: holding\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[eventlog.filters]\nholding = holding_filter:factory\n")
    return {"PYTHONPATH": str(directory)}


def test_a_reader_whose_node_lacks_a_filter_goes_to_one_that_has_it(tmp_path: Path):
    async def run(cluster: ClusterProcesses) -> None:
        async with eventlog.connect(cluster[0].address) as client:
            cache = await client.create_cache("c", format="json")
            await cache.put_many([(f"k{number}", {"total": number}) for number in range(50)])
            listed: list[tuple[str, int]] = []
            while not listed:  # of a node that does not answer soon nothing is
                listed = [(found.node, found.version) for found in await client.list_filters() if found.name == "holding"]
            assert listed == [("n2", 2)]
            params = {"text": "OjQ="}  # base64 of `:4`
            events = [event async for event in cache.events(filter="holding", params=params)]
            assert sorted(event.value["total"] for event in events) == [4, *range(40, 50)]
            answer = await cache.poll(filter="holding@2", params=params)
            assert len(answer.events) == 11
            with pytest.raises(FilterNotFound):
                await cache.poll(filter="holding@1", params=params)
        async with eventlog.connect(cluster[1].address) as client:
            with pytest.raises(FilterNotFound, match="on node n1: "):
                await client.cache("c").register(filter="holding", params=params)
            assert await client.listeners.list() == []

    with ClusterProcesses(tmp_path, count=1) as cluster:
        directory = tmp_path / "n2"
        cluster.nodes.append(NodeProcess(directory, "--node-name", "n2", environment=installed(tmp_path / "package")))
        cluster.start()
        cluster.settle()
        asyncio.run(asyncio.wait_for(run(cluster), 60))
