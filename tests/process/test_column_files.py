"""History laid out for filters while the node is killed, its files rot and its disk fills up: readers are told what is right."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import pytest

import eventlog
from tests.process.disks import MIB, fill_up, memory_disk
from tests.process.nodes import NodeProcess
from tests.process.waiting import until

KEYS = 40
TEXT = "x" * 1_000
EVENTS = 24_000  # of a KiB: more than a file holds
WHERES = ("key = 'key-7'", "key LIKE 'key-7%'", "value.group = 7", "kind = 'CREATED' AND value.group = 7", "value.number % 40 = 7")


def write(node: NodeProcess) -> None:
    """Write more than a file holds, of which each of `WHERES` chooses the same; the field came to be promoted when half was there."""

    async def run() -> None:
        async with eventlog.connect(node.address) as client:
            cache = await client.create_cache("c", format="json", state=False)
            for half in (range(0, EVENTS, 2), range(1, EVENTS, 2)):
                await cache.put_many(
                    [(f"key-{number % KEYS}", {"number": number, "group": number % KEYS, "text": TEXT}) for number in half]
                )
                await client.alter_cache("c", promote="value.group")

    asyncio.run(run())


def read(node: NodeProcess) -> None:
    """Read with every filter, each spelled as never before, so that no answer is one that was kept."""

    async def run() -> None:
        async with eventlog.connect(node.address) as client:
            cache = client.cache("c")
            for where in WHERES:
                numbers = sorted([event.value["number"] async for event in cache.events(where=where + " " * next(_spaces))])
                assert numbers == list(range(7, EVENTS, KEYS)), where

    asyncio.run(run())


_spaces = iter(range(1_000))


def files_of(node: NodeProcess) -> list[Path]:
    return sorted((node.data / "columns").glob("*"))


def laid_out(node: NodeProcess) -> bool:
    """Return whether the files hold all that was written."""
    return sum(map(size_of, files_of(node))) > EVENTS * 1_000


def size_of(file: Path) -> int:
    """Return the size of a file, 0 where it was taken away just now."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def rot(file: Path) -> None:
    """Flip bits all over a file, if it is still there."""
    with suppress(FileNotFoundError), file.open("r+b") as content:
        data = bytearray(content.read())
        data[::512] = bytes(byte ^ 4 for byte in data[::512])
        content.seek(0)
        content.write(data)


def test_a_node_killed_while_it_lays_history_out_begins_anew_and_files_that_rot_are_not_read(tmp_path):
    with NodeProcess(tmp_path) as node:
        write(node)
        for rest_s in (0.0, 0.03):
            node.kill()
            node.start()  # what was in memory is history now
            assert not files_of(node)
            read(node)
            until(lambda: bool(files_of(node)), "nothing is laid out")
            time.sleep(rest_s)  # somewhere within the making of the next file
        node.kill()
        torn = files_of(node)
        assert torn
        torn[0].write_bytes(torn[0].read_bytes()[:1_000])
        node.start()
        assert not files_of(node)
        read(node)
        until(lambda: laid_out(node), "not all is laid out")
        read(node)
        for file in files_of(node):
            rot(file)
        read(node)
        assert "column_file_dropped" in node.log_text()
        assert node.stop() == 0


@pytest.mark.needs_root("a file system of its own has to be mounted to be filled")
def test_files_go_when_the_disk_is_full_and_one_that_does_not_fit_is_given_up(tmp_path):
    with memory_disk(tmp_path, nbytes=400 * MIB) as disk, NodeProcess(disk / "node", "--disk-reserve", "32MiB") as node:
        write(node)
        node.kill()
        (node.data / "columns").mkdir(exist_ok=True)
        with memory_disk(node.data / "columns", nbytes=4 * MIB):  # less than one takes, and the node cannot know
            node.start()
            read(node)
            until(lambda: "column_file_not_made" in node.log_text(), "nothing was tried")
            assert not files_of(node)
            read(node)
            assert node.stop() == 0
        node.start()
        read(node)
        until(lambda: laid_out(node), "not all is laid out")
        fill_up(disk / "others")
        until(lambda: not files_of(node), "the files are still there")
        read(node)
        assert node.stop() == 0
