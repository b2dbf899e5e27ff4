"""Calls that run out of time, one soon after the other, while no node is there."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from eventlog.client.options import ClientOptions
from eventlog.client.writing.calls import Changes
from eventlog.client.writing.writer import Writer
from eventlog.errors import TimedOut
from tests import loops

CALLS = 1_000


class Counting(Writer):
    """A writer without a connection that counts its `looks` at what is out of time."""

    looks = 0

    def __init__(self) -> None:
        nobody: Any = SimpleNamespace()
        super().__init__(nobody, ClientOptions())

    def _on_timer(self) -> None:
        self.looks += 1
        super()._on_timer()


def changes() -> Changes:
    return Changes(cache_id=1, by_prefix=False, keys=[b"k"], values=[b"v"])


def test_many_deadlines_are_looked_at_together() -> None:
    async def main() -> None:
        loop, writer = asyncio.get_running_loop(), Counting()
        began, ended = loop.time(), []
        for number in range(CALLS):
            call = await writer.write(changes(), is_many=False, deadline=began + (number + 1) / 1_000)
            call.add_done_callback(lambda call: ended.append((loop.time(), call.exception())))
        while len(ended) < CALLS:  # noqa: ASYNC110 -- timers move the time of this loop
            await asyncio.sleep(0.001)
        assert writer.looks <= 2 + CALLS / 20
        assert {type(error) for _, error in ended} == {TimedOut}
        assert min(at - began - (number + 1) / 1_000 for number, (at, _) in enumerate(ended)) > -0.000_1, "none is told too early"
        writer.close()

    with asyncio.Runner(loop_factory=loops.CoarseLoop) as runner:
        runner.run(main())


def test_one_deadline_is_kept_to() -> None:
    async def main() -> None:
        loop, writer = asyncio.get_running_loop(), Counting()
        began = loop.time()
        with pytest.raises(TimedOut):
            await (await writer.write(changes(), is_many=False, timeout_ms=100))
        assert 0.1 <= loop.time() - began < 0.11
        assert writer.looks == 1
        writer.close()

    with asyncio.Runner(loop_factory=loops.CoarseLoop) as runner:
        runner.run(main())
