"""kill -9 in a loop, with writers that never stop: what was acknowledged is there once, what is unknown at most once."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import eventlog
from eventlog.errors import EventLogError
from tests.process.nodes import NodeProcess

ROUNDS = 20
WRITERS = 4
KEYS = 50


@dataclass
class History:
    """What the writers saw: value -> id for acknowledged writes, values of unknown outcome, values refused for sure."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)


async def write_on(address: str, history: History, *, name: str, idempotent: bool, stop: asyncio.Event) -> None:
    """Put value after value until told to stop; an idempotent writer rides over restarts, the other one starts anew."""
    number = 0
    while not stop.is_set():
        try:
            async with eventlog.connect(address, idempotent=idempotent) as client:
                cache = client.cache("history")
                while not stop.is_set():
                    number += 1
                    value = f"{name}-{number}"
                    try:
                        stored = await cache.put(f"key-{random.randrange(KEYS)}", value)
                        history.acknowledged[value] = stored.id
                    except EventLogError as error:
                        (history.unknown if error.outcome == "unknown" else history.refused).add(value)
        except EventLogError:
            await asyncio.sleep(0.02)  # the node is down: try to connect again


async def run(directory: Path, seed: int) -> tuple[History, list[eventlog.Event], dict[str, str], int]:
    random.seed(seed)
    history = History()
    hits = 0
    with NodeProcess(directory) as node:
        async with eventlog.connect(node.address) as client:
            await client.create_cache("history", format="json")
        stop = asyncio.Event()
        writers = [
            asyncio.create_task(write_on(node.address, history, name=f"w{number}", idempotent=number % 2 == 0, stop=stop))
            for number in range(WRITERS)
        ]
        for _ in range(ROUNDS):
            before = len(history.acknowledged)
            while len(history.acknowledged) < before + 40:  # noqa: ASYNC110 -- until the writers are at it again
                await asyncio.sleep(0.005)
            await asyncio.sleep(random.random() / 50)
            known = len(history.unknown)
            await asyncio.to_thread(node.kill)
            await asyncio.to_thread(node.start)
            hits += len(history.unknown) > known
        stop.set()
        await asyncio.gather(*writers)
        async with eventlog.connect(node.address) as client:
            cache = client.cache("history")
            events = [event async for event in cache.events(from_id=0)]
            state = {}
            async for key in cache.keys():
                entry = await cache.get(key)
                state[key] = entry.value
        assert node.stop() == 0
    return history, events, state, hits


@pytest.mark.timeout(300)
def test_acknowledged_writes_survive_twenty_kills(tmp_path):
    history, events, state, hits = asyncio.run(run(tmp_path, seed=11))
    times = Counter(event.value for event in events)
    by_value = {event.value: event.id for event in events}
    assert not [value for value in history.acknowledged if times[value] != 1]
    assert not [value for value, id_ in history.acknowledged.items() if by_value[value] != id_]
    assert not [value for value in history.unknown if times[value] > 1]
    assert not [value for value in history.refused if times[value]]
    assert set(times) <= set(history.acknowledged) | history.unknown
    ids = [event.id for event in events]
    assert ids == sorted(set(ids))
    replayed = {event.key: event.value for event in events}
    assert state == replayed
    offsets: dict[int, list[int]] = {}
    for event in events:
        offsets.setdefault(event.segment, []).append(event.offset)
    assert all(own == list(range(len(own))) for own in offsets.values())
    print(f"{len(history.acknowledged)} acknowledged, {len(history.unknown)} unknown, {hits} of {ROUNDS} kills hit a write in flight")
    assert hits > 0, "no kill hit a write in flight: the test tests nothing"
