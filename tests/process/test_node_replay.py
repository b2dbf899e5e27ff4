"""A node that lost its state at any moment, and replayed the log, is the node that it was."""

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eventlog.batch.build import Columns, build_write, read_table
from eventlog.errors import EventLogError
from eventlog.hashing import hash_key
from eventlog.node.config import NodeConfig
from eventlog.node.node import Node
from eventlog.node.start import Started, open_node
from eventlog.node.state.entries import Page
from eventlog.segment.keys import cache_range
from eventlog.state.caches import CacheState
from eventlog.write.groups import Pending, WriteResult
from eventlog.write.share import KeyCondition
from tests.node.nodes import SEGMENTS

KEYS = [b"key-%d" % number for number in range(40)]
PRODUCERS = (5, 6)
Result = WriteResult | EventLogError


async def opened(directory: Path) -> Started:
    config = NodeConfig(data=directory / "data", segments=SEGMENTS, storage="rocksdb", disk_reserve_bytes=0)
    started = await open_node(config, on_fatal=lambda error: pytest.fail(str(error)))
    for task in asyncio.all_tasks():
        if task.get_name() == "expiry":
            task.cancel()  # what is past its lifespan is to be met by the writes alone
    return started


class Writer:
    """Writes at random from a seed; remembers the last frames of each producer and their answers."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.sequences: dict[tuple[str, int, int], int] = {}
        self.sent: dict[tuple[str, int], tuple[bytes, int, tuple[KeyCondition, ...], Result]] = {}

    async def write(self, node: Node, cache: CacheState) -> None:
        chance = self.chance
        keys = [chance.choice(KEYS) for _ in range(chance.choice((1, 1, 3, 20)))]
        kinds = np.array([2 if chance.random() < 0.3 else 0 for _ in keys], np.uint8)
        expiry = np.array([chance.choice((0, 1, 600_000)) for _ in keys]) if chance.random() < 0.3 and cache.options.state else None
        columns = Columns(kinds=kinds, keys=keys, values=[b"%d" % chance.randrange(999) for _ in keys], expiry=expiry)
        frame = build_write(columns, segments=SEGMENTS)
        producer = chance.choice((0, *PRODUCERS))
        if producer:
            for row in frame.table:
                place = (cache.name, producer, int(row["segment"]))
                row["sequence"] = self.sequences[place] = self.sequences.get(place, -1) + 1
        is_conditional = len(keys) == 1 and chance.random() < 0.3
        conditions = (KeyCondition(block=0, key=keys[0], version=chance.choice((0, None, 9))),) if is_conditional else ()
        body = b"".join(frame.buffers)
        result = await send(node, cache, body, blocks=len(frame.table), producer=producer, conditions=conditions)
        if producer:
            self.sent[cache.name, producer] = (body, len(frame.table), conditions, result)

    async def repeat(self, node: Node) -> dict[tuple[str, int], Any]:
        """Return what the last frame of each producer is answered when it comes again."""
        answers = {}
        for (name, producer), (body, blocks, conditions, first) in self.sent.items():
            cache = node.caches.named(name)
            again = await send(node, cache, body, blocks=blocks, producer=producer, conditions=conditions)
            assert plain(again) == plain(first), (name, producer)
            answers[name, producer] = plain(again)
        return answers


async def send(node: Node, cache: CacheState, body: bytes, *, blocks: int, producer: int, conditions: tuple[KeyCondition, ...]) -> Result:
    table, data = read_table(memoryview(body), blocks)
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    node.writer.submit(
        Pending(
            cache=cache,
            table=table,
            blocks=data,
            producer=producer,
            conditions=conditions,
            previous=False,
            internal=False,
            done=done.set_result,
        )
    )
    return await done


def plain(result: Result) -> tuple[Any, ...]:
    assert isinstance(result, WriteResult), result
    return result.ids.tolist(), result.kinds.tolist(), {block: error.code for block, error in result.refusals.items()}


async def picture(node: Node) -> dict[str, Any]:
    """Return all that writes and reads of the caches depend on."""
    found: dict[str, Any] = {}
    for cache in node.caches:
        while cache.keys is None and cache.options.state:  # noqa: ASYNC110 -- it is built beside everything else, and nobody is told
            await asyncio.sleep(0.001)
        entries = []
        for segment in range(SEGMENTS):
            rows, after = await node.entries.page(cache, Page(segment=segment), now=0)
            assert after is None
            assert not cache.options.state or len(rows) == cache.live[segment]
            entries += [(segment, key, entry.version, entry.expiry, entry.value) for key, entry in rows]
        hashes = np.array([hash_key(key) for key in KEYS], np.uint64)
        found[cache.name] = {
            "entries": entries,
            "live": cache.live.tolist(),
            "next": cache.next_offsets.tolist(),
            "may_expire": cache.may_expire,
            "keys": None if cache.keys is None else (cache.keys.size, cache.keys.contains(hashes).tolist()),
            "steps": node.steps.now(cache.cache_id),
        }
    return found


def tables(data: Path) -> set[tuple[str, int]]:
    """Return the names and sizes of RocksDB's tables in a data directory."""
    return {(file.name, file.stat().st_size) for file in data.rglob("*.sst")}


async def crash(started: Started, directory: Path, copy: Path) -> None:
    """Leave what the disk holds at this moment in `copy`; the node goes on."""

    def leave() -> None:
        shutil.copytree(directory / "data.meta", copy / "data.meta")  # first: it may know less of the log than is there, never more
        while not is_left_whole():  # tables are merged in RocksDB's own threads; nothing is written meanwhile, so that comes to its end
            shutil.rmtree(copy / "data", ignore_errors=True)

    def is_left_whole() -> bool:
        try:
            before = tables(directory / "data")
            shutil.copytree(directory / "data", copy / "data", ignore=shutil.ignore_patterns("*.new"))  # what is being replaced just now
            return before == tables(directory / "data") == tables(copy / "data")
        except (shutil.Error, FileNotFoundError):  # a table that was merged with others, and removed
            return False

    await started.node.storage.run(leave)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_part_of_the_state_is_lost_replay_brings_it_back(tmp_path, seed):
    async def reopen(directory: Path, writer: Writer) -> tuple[dict[str, Any], dict[str, Any]]:
        started = await opened(directory)
        found = await picture(started.node)
        await writer.repeat(started.node)
        again = await picture(started.node)
        await started.close(clean=True)
        return found, again

    async def run() -> None:
        writer, before = await history(tmp_path / "one", tmp_path / "crashed", seed=seed)
        for directory in (tmp_path / "crashed", tmp_path / "one", tmp_path / "crashed"):
            found, again = await reopen(directory, writer)
            assert again == found, "a repeated frame changes nothing"
            assert found == before

    asyncio.run(run())


async def history(directory: Path, copy: Path, *, seed: int) -> tuple[Writer, dict[str, Any]]:
    """Write at random, now and then with a checkpoint or a flush; crash into `copy`, stop cleanly in `directory`."""
    chance, writer = random.Random(seed), Writer(seed)
    started = await opened(directory)
    node = started.node
    await node.cache_changes.create("keyed", {"format": "bytes"}, use_existing=False)
    await node.cache_changes.create("imaged", {"format": "json", "lifespan_ms": 500_000}, use_existing=False)
    await node.cache_changes.create("log", {"format": "bytes", "state": False}, use_existing=False)
    await node.cache_changes.create("gone", {"format": "bytes"}, use_existing=False)
    for number in range(120):
        for cache in list(node.caches):
            await writer.write(node, cache)
        if number == 60:
            await node.cache_changes.drop("gone")
            writer.sent = {place: sent for place, sent in writer.sent.items() if place[0] != "gone"}
        if chance.random() < 0.1:
            await node.checkpoints.write()
        if chance.random() < 0.1:
            await node.storage.run(node.store.flush_state)
    await crash(started, directory, copy)
    before = await picture(node)
    await writer.repeat(node)
    await started.close(clean=True)
    return writer, before


def test_the_state_of_a_cache_that_was_dropped_right_before_a_crash_goes_at_the_next_start(tmp_path):
    async def main() -> None:
        started = await opened(tmp_path / "one")
        node, writer = started.node, Writer(1)
        cache, _ = await node.cache_changes.create("gone", {"format": "bytes"}, use_existing=False)
        for _ in range(10):
            await writer.write(node, cache)
        await node.checkpoints.write()
        await node.storage.run(node.store.flush_state)
        await node.cache_changes.drop("gone")
        await crash(started, tmp_path / "one", tmp_path / "crashed")
        await started.close(clean=True)
        again = await opened(tmp_path / "crashed")
        found = [again.node.store.read_state(*cache_range(segment, cache.cache_id), limit=1) for segment in range(SEGMENTS)]
        await again.close(clean=True)
        assert found == [[]] * SEGMENTS

    asyncio.run(main())


@pytest.mark.parametrize("value", [None, b"new"])
def test_a_write_that_met_an_expired_entry_is_answered_alike_after_a_crash(tmp_path, value):
    """A removal then makes one event, EXPIRED, of one item that made none: the numbers do not tell."""

    def columns_of(value: bytes | None, expiry: int) -> Columns:
        kinds = np.array([2 if value is None else 0], np.uint8)
        return Columns(kinds=kinds, keys=[b"k"], values=[value or b""], expiry=np.array([expiry]) if expiry else None)

    async def main() -> None:
        started = await opened(tmp_path / "one")
        node = started.node
        cache, _ = await node.cache_changes.create("c", {"format": "bytes"}, use_existing=False)
        mortal, body = (b"".join(build_write(columns_of(*row), segments=SEGMENTS).buffers) for row in ((b"v", 1), (value, 0)))
        await send(node, cache, mortal, blocks=1, producer=0, conditions=())
        met = node.now_2020() + 1
        while node.now_2020() <= met:  # noqa: ASYNC110 -- the clock's next millisecond
            await asyncio.sleep(0.001)
        first = await send(node, cache, body, blocks=1, producer=5, conditions=())
        assert plain(first)[1] == [255 if value is None else 0]
        await crash(started, tmp_path / "one", tmp_path / "crashed")
        await started.close(clean=False)
        again = await opened(tmp_path / "crashed")
        assert plain(await send(again.node, again.node.caches.named("c"), body, blocks=1, producer=5, conditions=())) == plain(first)
        await again.close(clean=True)

    asyncio.run(main())


def test_replay_is_the_same_from_every_earlier_mark(tmp_path):
    """Entries may be ahead of the mark: applying the log to them once more must change nothing."""

    async def main() -> None:
        started = await opened(tmp_path / "one")
        node = started.node
        writer = Writer(11)
        await node.cache_changes.create("c", {"format": "bytes"}, use_existing=False)
        marks = []
        for number in range(60):
            await writer.write(node, node.caches.named("c"))
            if number % 10 == 0:
                await node.checkpoints.write()
                await crash(started, tmp_path / "one", tmp_path / f"at-{number}")
                marks.append((number, await picture(node)))
        await started.close(clean=False)
        for number, wanted in marks:
            again = await opened(tmp_path / f"at-{number}")
            found = await picture(again.node)
            await again.close(clean=True)
            assert found["c"]["entries"] == wanted["c"]["entries"]
            assert found["c"]["live"] == wanted["c"]["live"]

    asyncio.run(main())
