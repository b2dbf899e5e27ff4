"""State, then tail, while things go wrong in the middle of the state: no gap, nothing twice, whoever serves and whoever reads.

Three readers are among the entries when it happens: one that is connected all the time, one that has one node for everything, and one
that dies after some batches and goes on from the position that it stored.
"""

import asyncio
from collections import defaultdict
from contextlib import aclosing
from pathlib import Path

import pytest

import eventlog
from eventlog.client.batches import EventBatch
from eventlog.consume import token
from eventlog.errors import EventsTrimmed, Unavailable
from tests.process.clusters import ClusterProcesses
from tests.process.nodes import NodeProcess
from tests.process.rows_at_risk import ENTRIES, Changing, faults

IN_THE_MIDDLE = 15


class Reader:
    """Reads entries, then events. Notes what was seen of each key, in the order in which it came."""

    def __init__(self, *addresses: str, lives: int = 0, **options: str) -> None:
        self._addresses = addresses
        self._options = options
        self._lives = lives
        self.position: str | None = None
        self.seen: dict[str, list[int]] = defaultdict(list)
        self.states = 0
        self.batches = 0
        self.last_id = 0
        self.go_on = asyncio.Event()
        self.is_waiting = asyncio.Event()
        self._news = asyncio.Event()

    async def run(self) -> None:
        while True:
            try:
                await self._read()
            except Unavailable:
                await asyncio.sleep(0.05)  # nobody may be there to connect to

    async def _read(self) -> None:
        async with eventlog.connect(*self._addresses, read_ahead_bytes=2_000, **self._options) as client:
            batches = client.cache("c").event_batches(position=self.position, state_first=self.position is None, follow=True, max_bytes=600)
            left = self._lives
            async with aclosing(batches):
                async for batch in batches:
                    self._take(batch)
                    left -= 1
                    if self.batches == IN_THE_MIDDLE:
                        self.is_waiting.set()
                        await self.go_on.wait()
                    if left == 0:
                        return

    def _take(self, batch: EventBatch) -> None:
        for event in batch.events():
            assert not self.seen[str(event.key)] or event.id > self.seen[str(event.key)][-1], f"{event} after {self.seen[str(event.key)]}"
            self.seen[str(event.key)].append(event.id)
            self.states += event.kind == "STATE"
            self.last_id = max(self.last_id, event.id)
        self.position = batch.position
        self.batches += 1
        self._news.set()

    async def until(self, last_id: int) -> None:
        async with asyncio.timeout(60):
            while self.last_id < last_id:
                self._news.clear()
                await self._news.wait()


def check(reader: Reader, log: dict[str, list[int]]) -> None:
    """What was seen of each key is the end of what happened to it; what was never seen was gone when the state was read."""
    for key, ids in reader.seen.items():
        assert ids == log[key][-len(ids) :], key
    for key in log.keys() - reader.seen.keys():
        assert key.startswith("c"), key
    assert sum(key.startswith("s") for key in reader.seen) == ENTRIES


async def trial(cluster: ClusterProcesses) -> None:
    async with eventlog.connect(*cluster.addresses) as client:
        cache = await client.create_cache("c", format="json")
        changing = Changing(cache)
        await changing.fill()
        writing = asyncio.create_task(changing.run())
        for name, fault, repair in faults(cluster):
            readers = [Reader(*cluster.addresses), Reader(cluster[2].address, routing="any"), Reader(*cluster.addresses, lives=7)]
            tasks = [asyncio.create_task(reader.run()) for reader in readers]
            async with asyncio.timeout(60):
                await asyncio.gather(*(reader.is_waiting.wait() for reader in readers))
            assert all(token.from_text(reader.position or "").unread for reader in readers), "the fault comes in the middle"
            await asyncio.to_thread(fault)
            await changing.more()
            for reader in readers:
                reader.go_on.set()
            await changing.more()
            await asyncio.to_thread(repair)
            await changing.more()
            reached = changing.last_id
            for reader, task in zip(readers, tasks, strict=True):
                try:
                    await reader.until(reached)
                except TimeoutError:
                    raise AssertionError(f"{name}: at {reader.last_id}, not {reached}; {reader.states} entries, {task}") from None
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            log: dict[str, list[int]] = defaultdict(list)
            async for event in cache.events():
                log[str(event.key)].append(event.id)
            for reader in readers:
                own = {key: [id_ for id_ in ids if id_ <= reader.last_id] for key, ids in log.items()}
                check(reader, {key: ids for key, ids in own.items() if ids})
        changing.end()
        await writing


def test_a_fault_in_the_middle_of_the_state_costs_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        asyncio.run(trial(cluster))
        for node in cluster:
            assert "Traceback" not in node.log_text()


def test_retention_that_passes_a_place_in_the_state_is_told_when_the_tail_begins(tmp_path: Path) -> None:
    async def run(node: NodeProcess) -> None:
        async with eventlog.connect(node.address) as client:
            cache = await client.create_cache("c", format="json", retain_events=100)
            await cache.put_many([(f"k{number}", {"n": number}) for number in range(300)])
            answer = await cache.poll(state_first=True, max_events=150)
            for turn in range(10):
                await cache.put_many([(f"k{number}", {"n": turn}) for number in range(300)])
            async with asyncio.timeout(60):
                while (await cache.log_ends()).events > 2_000:
                    await asyncio.to_thread(node.command, "admin", "retention", "run", "c")
            with pytest.raises(EventsTrimmed):
                async for _ in cache.events(position=answer.position):
                    pass

    with NodeProcess(tmp_path / "data") as node:
        asyncio.run(run(node))
