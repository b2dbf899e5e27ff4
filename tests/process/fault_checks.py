"""What a client wrote through faults, and whether the node has it: once what was acknowledged, at most once the rest."""

import asyncio
from collections import Counter

import msgspec

import eventlog
from tests.client.fake_node import FakeNode

BATCHES, ROWS = 12, 5


async def write_all(client: eventlog.Client) -> list[int]:
    cache = await client.create_cache("c", if_exists="use")
    pairs = [[(f"k{(7 * batch + row) % 20}", [batch, row]) for row in range(ROWS)] for batch in range(BATCHES)]
    futures = [asyncio.ensure_future(cache.put_many(part)) for part in pairs]
    singles = [asyncio.ensure_future(cache.put(f"s{number}", number)) for number in range(5)]
    stored = [id_ for future in futures for id_ in (await future).ids]
    stored += [(await single).id for single in singles]
    usage = client.usage
    assert (usage.bytes_unanswered, usage.frames_undecided) == (0, 0), "something is kept that is done"
    return stored


def check_written(node: FakeNode, acknowledged: list[int]) -> None:
    written = Counter((event.key, event.value) for event in node.log)
    assert set(written.values()) == {1}, "written twice"
    assert len(node.log) == BATCHES * ROWS + 5
    assert sorted(acknowledged) == [event.id for event in node.log]
    for key in {event.key for event in node.log}:
        values = [msgspec.json.decode(event.value) for event in node.log if event.key == key]
        assert values == sorted(values), "writes of one key changed places"
