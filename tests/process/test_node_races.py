"""What operators do while writers and readers go on at full speed: options that change, and retention that passes by readers."""

import asyncio

import pytest

import eventlog
from eventlog.errors import EventsTrimmed
from tests.process.nodes import NodeProcess

pytestmark = pytest.mark.timeout(240)
WRITERS, ROUNDS, KEYS = 3, 40, 40
KEPT = 300


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with NodeProcess(tmp_path_factory.mktemp("races"), "--segments", "16") as started:
        yield started


class Gate:
    """Where writers wait before their last round, until what races them has happened often enough."""

    def __init__(self) -> None:
        self.waiting = 0
        self.opened = asyncio.Event()

    async def wait(self) -> None:
        self.waiting += 1
        await self.opened.wait()


async def write(cache, writer: int, acknowledged: dict[int, tuple[str, int]], gate: Gate) -> None:
    """Write every key of a writer once a round; note what was acknowledged under which id."""
    for number in range(ROUNDS):
        if number == ROUNDS - 1:
            await gate.wait()
        keys = [f"{writer}/{key}" for key in range(KEYS)]
        stored = await cache.put_many([(key, {"n": number}) for key in keys])
        acknowledged |= {int(id_): (key, number) for id_, key in zip(stored.ids, keys, strict=True)}


async def until_at(gate: Gate, writers: "asyncio.Future[object]", act, *, times: int) -> None:
    """Do something again and again while writers write, at least so often."""
    done = 0
    while not writers.done() and (done < times or gate.waiting < WRITERS):
        await act(done)
        done += 1


async def followed(cache, writers, last_of: dict[int, int]) -> tuple[list[int], int]:
    """Read from the first event on until nothing comes and nobody writes; return the ids, and how often retention was told of.

    Offsets of a segment rise by one from each event to the next, but where retention was told of in between.
    """
    ids: list[int] = []
    trimmed, position, after = 0, None, 0
    while True:
        is_last = writers.done()
        try:
            answer = await cache.poll(position=position, max_events=97) if position else await cache.poll(after=after, max_events=97)
        except EventsTrimmed as error:
            trimmed, position, after = trimmed + 1, None, max(error.first_id - 1, ids[-1] if ids else 0)
            last_of.clear()
            continue
        for event in answer.events:
            assert event.offset == last_of.get(event.segment, event.offset - 1) + 1, "passed over in silence"
            last_of[event.segment] = event.offset
            ids.append(event.id)
        position = answer.position
        if is_last and not answer.events:
            return ids, trimmed


def test_retention_that_races_readers_and_writers_is_told_and_hides_nothing(node: NodeProcess) -> None:
    async def run() -> None:
        async with eventlog.connect(node.address) as client:
            cache = await client.create_cache("retained", retain_events=KEPT)
            acknowledged: dict[int, tuple[str, int]] = {}
            gate = Gate()
            writers = asyncio.gather(*(write(cache, writer, acknowledged, gate) for writer in range(WRITERS)))
            readers = [asyncio.create_task(followed(cache, writers, {})) for _ in range(2)]
            await until_at(gate, writers, lambda _: client.run_retention("retained"), times=2)
            gate.opened.set()
            found = await asyncio.gather(*readers)
            await writers
            for ids, _ in found:
                assert ids == sorted(set(ids))
                assert set(ids) <= set(acknowledged)
                assert set(sorted(acknowledged)[-KEPT:]) <= set(ids), "what is kept is read"
            assert await cache.size() == WRITERS * KEYS
            assert not (await client.check("retained")).problems

    asyncio.run(run())


def test_options_altered_between_groups_in_flight_hold_for_whole_groups_and_lose_nothing(node: NodeProcess) -> None:
    async def run() -> None:
        async with eventlog.connect(node.address) as client:
            cache = await client.create_cache("altered", before=False)
            acknowledged: dict[int, tuple[str, int]] = {}
            gate = Gate()
            writers = asyncio.gather(*(write(cache, writer, acknowledged, gate) for writer in range(WRITERS)))

            async def alter(turn: int) -> None:
                await client.alter_cache("altered", before=turn % 2 == 0, promote="value.n" if turn % 3 else "")

            await until_at(gate, writers, alter, times=4)
            await alter(0)  # so that the last round has images, as the first has none
            gate.opened.set()
            await writers
            events = [event async for event in cache.events()]
            assert {event.id: (event.key, event.value["n"]) for event in events} == acknowledged
            assert len(events) == len(acknowledged) == WRITERS * ROUNDS * KEYS
            images = [event for event in events if event.before is not None]
            assert 0 < len(images) < len(events), "some groups were written with and some without"
            assert all(event.before == {"n": event.value["n"] - 1} for event in images)
            assert {event.kind for event in events if event.value["n"] == 0} == {"CREATED"}
            asked = [event.id async for event in cache.events(where=f"value.n = {ROUNDS - 1}")]
            assert asked == sorted(id_ for id_, (_, number) in acknowledged.items() if number == ROUNDS - 1)
            assert not (await client.check("altered")).problems

    asyncio.run(run())
