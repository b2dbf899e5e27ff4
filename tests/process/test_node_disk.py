"""A disk that is full, and a sync that fails: writes are refused or the node stops; nothing acknowledged is lost."""

import asyncio
import contextlib
import json
import os
import shutil
import time
from pathlib import Path

import pytest

import eventlog
from eventlog.errors import DiskFull, EventLogError
from tests.process.disks import MIB, fill_up, memory_disk, slow_syncs
from tests.process.nodes import RETENTION_WHEN_TOLD, NodeProcess

pytestmark = pytest.mark.timeout(240)
WAIT_S = 60


def until_it_has(path: Path, nbytes: int) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() or path.stat().st_size < nbytes:
        assert time.monotonic() < deadline, f"{path} has no {nbytes} bytes after a minute"
        time.sleep(0.05)  # a poll of the disk; nothing else tells


def fill_to_the_last_block(ballast: Path) -> None:
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


async def until_writable(cache, *, wanted: bool, value: object = 1) -> None:
    """Put until a put is accepted (or refused with DISK_FULL), within a bound."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            await cache.put("probe", value)
            if wanted:
                return
        except DiskFull:
            if not wanted:
                return
        await asyncio.sleep(0.05)
    raise AssertionError(f"writes are {'still refused' if wanted else 'still taken'} after {WAIT_S} s")


@pytest.mark.needs_root("a file system of its own has to be mounted to be filled")
def test_a_full_disk_refuses_writes_serves_reads_and_recovers_by_itself(tmp_path):
    async def run(node: NodeProcess, ballast: Path) -> None:
        async with eventlog.connect(node.address, idempotent=False) as client:
            cache = await client.create_cache("c", format="json", retain_events=50)
            await cache.put_many([(f"key-{number}", number) for number in range(500)])
            await asyncio.to_thread(fill_up, ballast)
            await until_writable(cache, wanted=False)
            assert (await cache.get("key-7")).value == 7
            assert len([event async for event in cache.events(from_id=0)]) >= 500
            removed = await asyncio.to_thread(node.command, "admin", "retention", "run", "c", "--json")
            assert json.loads(removed.stdout.splitlines()[-1])["removed"] > 0
            with pytest.raises(DiskFull) as caught:
                await cache.put("key-7", 8)
            assert caught.value.outcome == "none"
            assert caught.value.reserve_bytes == 32 * MIB
            await asyncio.to_thread(ballast.unlink)
            await until_writable(cache, wanted=True)
            assert (await cache.get("key-7")).value == 7

    with (
        memory_disk(tmp_path / "disk", nbytes=200 * MIB) as disk,
        NodeProcess(disk / "node", "--disk-reserve", "32MiB", environment=RETENTION_WHEN_TOLD) as node,
    ):
        asyncio.run(run(node, disk / "ballast"))
        node.kill()
        node.start()
        assert json.loads(node.command("get", "c", "key-7", "--json").stdout)["value"] == 7
        assert node.stop() == 0


@pytest.mark.needs_root("a file system of its own has to be mounted to be filled")
def test_an_engine_that_ran_out_of_space_itself_is_waited_for(tmp_path):
    async def run(node: NodeProcess, ballast: Path) -> None:
        async with eventlog.connect(node.address, idempotent=False) as client:
            cache = await client.create_cache("c", format="json", retain_events=50)
            await cache.put_many([(f"key-{number}", "v" * 2_000) for number in range(500)])
            fill_to_the_last_block(ballast)
            await until_writable(cache, wanted=False)
            fill_to_the_last_block(ballast)
            with pytest.raises(DiskFull):  # it writes the state out first, and there the engine meets the full disk
                await client.run_retention("c")
            await asyncio.to_thread(ballast.unlink)
            await until_writable(cache, wanted=True)
            assert await cache.size() >= 500

    with (
        memory_disk(tmp_path / "disk", nbytes=200 * MIB) as disk,
        NodeProcess(disk / "node", "--disk-reserve", "32MiB", environment=RETENTION_WHEN_TOLD) as node,
    ):
        asyncio.run(run(node, disk / "ballast"))
        assert node.stop() == 0


@pytest.mark.needs_root("a file system of its own has to be mounted to be filled")
def test_retention_and_dropping_make_room_on_a_disk_that_the_node_itself_has_filled(tmp_path):
    async def fill(cache) -> None:
        """Write until nothing was taken for some seconds: before that the node finds room by itself again and again."""
        number, taken_at = 0, time.monotonic()
        while time.monotonic() - taken_at < 5:
            try:
                await cache.put_many([(f"key-{number + index}", os.urandom(100_000)) for index in range(20)])
            except DiskFull:
                await asyncio.sleep(0.2)
            else:
                number, taken_at = number + 20, time.monotonic()

    async def run(node: NodeProcess) -> None:
        async with eventlog.connect(node.address, idempotent=False, timeout_ms=20_000) as client:
            cache = await client.create_cache("c", format="bytes")
            await fill(cache)
            assert (node.data / "ballast").stat().st_size < 64 * MIB  # the journal is written out: a start needs no more
            await client.alter_cache("c", retain_events=300)
            assert (await client.run_retention("c")).removed > 1_000
            await until_writable(cache, wanted=True, value=b"1")
            await fill(cache)
            await client.drop_cache("c")
            await until_writable(await client.create_cache("d", format="bytes"), wanted=True, value=b"1")

    with (
        memory_disk(tmp_path / "disk", nbytes=1_600 * MIB) as disk,
        NodeProcess(disk / "node", "--disk-reserve", "700MiB", environment=RETENTION_WHEN_TOLD) as node,
    ):
        asyncio.run(run(node))
        assert node.stop() == 0


@pytest.mark.needs_root("a file system of its own has to be mounted to be filled")
def test_a_node_starts_on_a_disk_that_is_full_to_the_last_block_and_serves_reads(tmp_path):
    async def run(node: NodeProcess, ballast: Path) -> None:
        async with eventlog.connect(node.address, idempotent=False) as client:
            cache = client.cache("c")
            assert (await cache.get("key-7")).value["value"] == 7
            assert len([event async for event in cache.events(from_id=0)]) >= 500
            await asyncio.to_thread(fill_to_the_last_block, ballast)  # what the start was given back
            await until_writable(cache, wanted=False)
            await asyncio.to_thread(ballast.unlink)
            await until_writable(cache, wanted=True)
            await asyncio.to_thread(until_it_has, node.data / "ballast", 16 * MIB)

    with memory_disk(tmp_path / "disk", nbytes=400 * MIB) as disk, NodeProcess(disk / "node", "--disk-reserve", "32MiB") as node:
        node.command("cache", "create", "c")
        rows = b"".join(b'{"key":"key-%d","value":%d}\n' % (number, number) for number in range(500))
        large = b"".join(b'{"key":"large-%d","value":"%s"}\n' % (number, b"x" * 1_000_000) for number in range(40))
        node.command("load", "c", "-", "--format", "jsonl", "--key", "key", stdin=rows + large)
        until_it_has(node.data / "ballast", 40 * MIB)  # a start after a kill writes the journal out
        for end in (node.kill, node.stop):
            end()
            ballast = disk / "others"
            fill_to_the_last_block(ballast)
            node.start()
            asyncio.run(run(node, ballast))


@pytest.mark.needs_root("a file system of its own has to be mounted to be filled")
def test_metadata_on_a_full_disk_stop_writes_say_so_and_go_on_with_the_space(tmp_path):
    with memory_disk(tmp_path / "disk", nbytes=8 * MIB) as disk, NodeProcess(tmp_path, "--meta", f"sqlite:{disk}/meta.db") as node:
        node.command("cache", "create", "c")
        node.command("put", "c", "a", "1")
        ballast = disk / "others"
        fill_to_the_last_block(ballast)
        deadline = time.monotonic() + WAIT_S
        while b"writes have stopped" not in (said := node.command("admin", "status").stdout):
            assert time.monotonic() < deadline, said
        assert b"does not answer (" in said
        assert b"disk is full)" in said
        assert node.command("get", "c", "a").stdout == b"1"
        ballast.unlink()
        node.command("admin", "status", "--wait", "60s")
        node.command("put", "c", "a", "2")
        fill_to_the_last_block(ballast)
        assert node.stop() == 0
        node.spawn()
        assert node.wait() == 3
        assert "disk is full" in node.log_text().splitlines()[-1]
        ballast.unlink()
        node.start()
        assert node.command("get", "c", "a").stdout == b"2"
        node.command("put", "c", "a", "3")


def test_a_failed_sync_stops_the_node_and_nothing_is_acknowledged_after_it(tmp_path):
    assert shutil.which("strace"), "strace is needed to make a sync fail: install the package strace"

    async def write(address: str) -> tuple[list[str], list[EventLogError]]:
        acknowledged: list[str] = []
        errors: list[EventLogError] = []
        async with eventlog.connect(address, idempotent=False) as client:
            cache = await client.create_cache("c", format="json")
            for number in range(5_000):
                try:
                    await cache.put(f"key-{number}", number)
                    acknowledged.append(f"key-{number}")
                    assert not errors, "acknowledged after a failed sync"
                except EventLogError as error:
                    errors.append(error)
                    if len(errors) == 3:
                        break
        return acknowledged, errors

    wrapper = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync:error=EIO:when=300+")
    with NodeProcess(tmp_path, wrapper=wrapper) as node:
        acknowledged, errors = asyncio.run(asyncio.wait_for(write(node.address), 60))
        assert acknowledged
        assert errors[0].outcome == "unknown"
        assert node.wait() != 0
        assert "error: STORE_FENCED" in node.log_text()
    with NodeProcess(tmp_path) as node:
        keys = {json.loads(line)["key"] for line in node.command("keys", "c", "--json").stdout.splitlines()}
        assert set(acknowledged) <= keys
        assert len(keys) <= len(acknowledged) + 3


def test_a_slow_disk_holds_up_who_waits_for_it_and_nobody_else(tmp_path):
    assert shutil.which("strace"), "strace is needed to make a sync slow: install the package strace"

    async def run(node: NodeProcess) -> None:
        async with eventlog.connect(node.address) as writer, eventlog.connect(node.address) as reader:
            cache = await writer.create_cache("c", format="json")
            await cache.put_many([(f"key-{number}", number) for number in range(500)])
            follower = aiter(reader.cache("c").events(from_id="latest", follow=True))
            coming = asyncio.create_task(anext(follower))
            with slow_syncs(node.pid, ms=1_000):
                was_served, turn = 0, 0
                while was_served < 3:  # not every time: the machine may stand still for as long as a sync takes
                    turn += 1
                    assert turn <= 20, "a loop that waited for the disk would have answered once each time"
                    put = asyncio.create_task(cache.put("slow", turn))
                    answered = 0
                    while not put.done():
                        assert (await reader.cache("c").get("key-7")).value == 7
                        assert len((await reader.cache("c").poll(after=0, max_events=10)).events) == 10
                        await reader.status()
                        await asyncio.to_thread(node.page, "/health/live")
                        answered += 1
                    was_served += answered >= 10
                    assert (await coming).id == (await put).id
                    coming = asyncio.create_task(anext(follower))
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
            await follower.aclose()

    with NodeProcess(tmp_path) as node:
        asyncio.run(asyncio.wait_for(run(node), 180))
        assert node.stop() == 0
