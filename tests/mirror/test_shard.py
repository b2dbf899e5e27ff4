"""What a shard shows of what nobody expected."""

import asyncio
from types import SimpleNamespace
from typing import Any

from eventlog.integrations.kafka.shard import Shard
from eventlog.mirror.shards import Report
from tests.loops import until
from tests.mirror.making import mirror


def test_a_shard_that_meets_a_bug_says_so_and_tries_again():
    async def telling(_mirror: Any) -> Any:
        raise ZeroDivisionError

    async def story():
        report = Report(shard=0, term=1)
        ground: Any = SimpleNamespace(wall_ms=lambda: 1, telling=telling)
        running = asyncio.create_task(Shard(ground, lambda _: ground, mirror=mirror(), report=report).run())
        await until(lambda: report.state != "starting" or running.done())
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return report.state, report.why

    state, why = asyncio.run(story())
    assert state == "waiting"
    assert "ZeroDivisionError" in why
