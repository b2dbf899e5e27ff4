"""Readers with a filter while things go wrong: what they got is the filter applied to the log, each event once and in order.

One reads on through everything, one has only a gateway, which holds nothing itself, one is a client that dies again and again and goes
on from the position that it stored, also where nothing matched.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

import eventlog
from eventlog.errors import BadPredicate, EventLogError, FilterNotFound, Unavailable
from tests.process.clusters import ClusterProcesses
from tests.process.nodes import NodeProcess

WHERE, PARAMETERS = "value.group = :group AND key NOT LIKE 'x%'", {"group": 3}
GATEWAY = 3
BUSY_S = 60


def is_wanted(event: eventlog.Event) -> bool:
    return event.value["group"] == 3 and not event.key.startswith("x")


class Writing:
    """Three writers that go on until told to end; what was acknowledged."""

    def __init__(self, cache: eventlog.Cache) -> None:
        self._cache = cache
        self._is_ended = asyncio.Event()
        self._news = asyncio.Event()
        self.acknowledged: list[int] = []

    async def run(self) -> None:
        await asyncio.gather(*map(self._write, range(3)))

    async def _write(self, writer: int) -> None:
        number = 0
        while not self._is_ended.is_set():
            rows = [(f"{'kx'[key % 2]}{writer}-{number}-{key}", {"group": (number + key) % 10, "number": number}) for key in range(7)]
            number += 1
            try:
                stored = await self._cache.put_many(rows)
            except EventLogError:
                continue
            self.acknowledged += stored.ids
            self._news.set()
            await asyncio.sleep(0.01)

    async def more(self, count: int = 200) -> None:
        """Wait for further writes."""
        wanted = len(self.acknowledged) + count
        async with asyncio.timeout(BUSY_S):
            while len(self.acknowledged) < wanted:
                self._news.clear()
                await self._news.wait()

    def end(self) -> None:
        self._is_ended.set()


class Reader:
    """Collects ids of matching events. A client lives for so many batches, if given: then a new one goes on from the stored position."""

    def __init__(self, *addresses: str, lives: int = 0, **options: str) -> None:
        self._addresses = addresses
        self._options = options
        self._lives = lives
        self.ids: list[int] = []
        self.last_id = 0
        self.position: str | None = None
        self.clients = 0
        self.error: BaseException | None = None
        self._news = asyncio.Event()

    async def run(self) -> None:
        while True:
            self.clients += 1
            try:
                await self._read()
            except Unavailable as error:
                self.error = error
                await asyncio.sleep(0.05)  # nobody may be there to connect to

    async def _read(self) -> None:
        async with eventlog.connect(*self._addresses, **self._options) as client:
            batches = client.cache("c").event_batches(
                position=self.position, follow=True, where=WHERE, parameters=PARAMETERS, select="value.number"
            )
            left = self._lives
            async with aclosing(batches):
                async for batch in batches:
                    self.ids += batch.ids.tolist()
                    assert all(list(event.value) == ["number"] for event in batch)
                    self.position, self.last_id = batch.position, batch.last_id
                    self._news.set()
                    left -= 1
                    if left == 0:
                        return

    async def until(self, last_id: int) -> None:
        deadline = time.monotonic() + BUSY_S
        while self.last_id < last_id:
            left = deadline - time.monotonic()
            assert left > 0, f"{self} is at {self.last_id} and not at {last_id}, client {self.clients}, {self.error!r}"
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)


def faults(cluster: ClusterProcesses) -> list[Callable[[], object]]:
    def most_primaries() -> int:
        found = cluster.primaries(GATEWAY)
        return max(set(found), key=found.count)

    def restart() -> None:
        cluster.start()
        cluster.settle()

    return [
        lambda: cluster.kill(0),  # whom clients reach first
        restart,
        lambda: cluster.kill(most_primaries()),
        restart,
        lambda: cluster.command("admin", "drain", "n2", node=GATEWAY),
        lambda: cluster.command("admin", "drain", "n2", "--cancel", node=GATEWAY),
    ]


def test_what_readers_get_is_the_filter_applied_to_the_log(tmp_path: Path):
    async def run(cluster: ClusterProcesses) -> None:
        async with eventlog.connect(*cluster.addresses) as client:
            cache = await client.create_cache("c", format="json")
            writing = Writing(cache)
            readers = [
                Reader(*cluster.addresses[:3]),
                Reader(cluster[GATEWAY].address, routing="any"),
                Reader(*cluster.addresses[:3], lives=10),
            ]
            tasks = [asyncio.create_task(reader.run()) for reader in readers]
            writers = asyncio.create_task(writing.run())
            await writing.more()
            for fault in faults(cluster):
                await asyncio.to_thread(fault)
                await writing.more()
            writing.end()
            await writers
            for reader, task in zip(readers, tasks, strict=True):
                await reader.until(max(writing.acknowledged))
                assert not task.done(), task.exception()
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            log = [event async for event in cache.events()]
            assert not set(writing.acknowledged) - {event.id for event in log}
            expected = [event.id for event in log if is_wanted(event)]
            for reader in readers:
                assert reader.ids == expected
            assert readers[2].clients > 3
            assert len(expected) > 50

    with ClusterProcesses(tmp_path, count=3) as cluster:
        cluster.add("--gateway")
        cluster.start()
        asyncio.run(run(cluster))
        for node in cluster:
            assert "Traceback" not in node.log_text()


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
            assert [(found.node, found.version) for found in await client.list_filters() if found.name == "holding"] == [("n2", 2)]
            params = {"text": "OjQ="}  # base64 of `:4`
            events = [event async for event in cache.events(filter="holding", params=params)]
            assert sorted(event.value["total"] for event in events) == [4, *range(40, 50)]
            answer = await cache.poll(filter="holding@2", params=params)
            assert len(answer.events) == 11
            with pytest.raises(FilterNotFound):
                await cache.poll(filter="holding@1", params=params)

    with ClusterProcesses(tmp_path, count=1) as cluster:
        directory = tmp_path / "n2"
        cluster.nodes.append(NodeProcess(directory, "--node-name", "n2", environment=installed(tmp_path / "package")))
        cluster.start()
        cluster.settle()
        asyncio.run(run(cluster))
