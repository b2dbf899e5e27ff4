"""Members of groups while the whole cluster is away for longer than a request may take."""

import asyncio
from pathlib import Path

import eventlog
from eventlog.errors import EventLogError
from tests.process.nodes import NodeProcess

SHORT_MS = 1_000


class Heard:
    """What `on_outage` was called with, and when it was."""

    def __init__(self) -> None:
        self.errors: list[EventLogError | None] = []
        self.changed = asyncio.Event()

    def __call__(self, error: EventLogError | None) -> None:
        self.errors.append(error)
        self.changed.set()


def test_a_commit_outlives_an_outage_that_is_longer_than_a_request(tmp_path: Path) -> None:
    async def main(node: NodeProcess) -> None:
        heard = Heard()
        async with eventlog.connect(node.address, timeout_ms=SHORT_MS, reconnect_ms_max=60_000) as client:
            cache = await client.create_cache("c", format="json")
            await cache.put_many([(f"k{number}", number) for number in range(10)])
            async with cache.consumer("g", auto_commit=False, session_timeout_ms=60_000, on_outage=heard) as member:
                events = member.events()
                got = [await anext(events) for _ in range(5)]
                await asyncio.to_thread(node.kill)
                commit = asyncio.create_task(member.commit())
                await heard.changed.wait()
                assert not commit.done()
                await asyncio.to_thread(node.start)
                await commit
                seen = {event.id async for event in _first(events, 5)}
                assert seen
                assert isinstance(heard.errors[0], EventLogError)
                assert heard.errors[-1] is None or len(heard.errors) == 1
            async with cache.consumer("g", auto_commit=False) as other:
                rest = [await anext(other.events())]
                assert rest[0].id not in {event.id for event in got}, "what was committed is not given out again"

    with NodeProcess(tmp_path / "n", "--segments", "1") as node:
        asyncio.run(main(node))


async def _first(events, count):
    for _ in range(count):
        yield await anext(events)


def test_an_acknowledgement_outlives_an_outage(tmp_path: Path) -> None:
    async def main(node: NodeProcess) -> None:
        heard = Heard()
        async with eventlog.connect(node.address, timeout_ms=SHORT_MS, reconnect_ms_max=60_000) as client:
            cache = await client.create_cache("c", format="json")
            await cache.put_many([(f"k{number}", number) for number in range(3)])
            async with cache.consumer("w", mode="work", session_timeout_ms=60_000, on_outage=heard) as member:
                task = await anext(member.tasks())
                await asyncio.to_thread(node.kill)
                done = asyncio.create_task(task.ack())
                await heard.changed.wait()
                assert not done.done()
                await asyncio.to_thread(node.start)
                await done

    with NodeProcess(tmp_path / "n", "--segments", "1") as node:
        asyncio.run(main(node))
