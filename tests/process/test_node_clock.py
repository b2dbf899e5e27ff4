"""Clocks that jump back an hour, while a node runs and between two runs: ids go on rising, nothing is refused."""

import asyncio
import sys
from pathlib import Path

import pytest

import eventlog
from eventlog.ids import time_of
from tests.process.nodes import NodeProcess

HOUR_MS = 3_600_000


class JumpingNode(NodeProcess):
    """A node whose wall clock stands in a file."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        directory.mkdir(parents=True, exist_ok=True)
        self.offset = directory / "offset"
        self.offset.write_text("0")

    def command_line(self) -> list[str]:
        return [sys.executable, "-m", "tests.process.jumping_node", str(self.offset), *super().command_line()[2:]]


@pytest.mark.source
def test_ids_rise_whatever_the_wall_clock_does(tmp_path):
    async def write(address: str, count: int) -> list[int]:
        async with eventlog.connect(address) as client:
            cache = await client.create_cache("c", format="json", if_exists="use")
            return [(await cache.put("k", number)).id for number in range(count)]

    with JumpingNode(tmp_path) as node:
        ids = asyncio.run(write(node.address, 20))
        node.offset.write_text(str(-HOUR_MS))
        ids += asyncio.run(write(node.address, 20))
        node.kill()
        node.start()
        ids += asyncio.run(write(node.address, 20))
        node.offset.write_text("0")
        node.stop()
        node.offset.write_text(str(-2 * HOUR_MS))
        node.start()
        ids += asyncio.run(write(node.address, 20))
        assert ids == sorted(set(ids))
        assert time_of(ids[-1]) - time_of(ids[0]) < HOUR_MS // 10, "time goes on from where it was, not from the wall clock"
