"""Some segments lack in-sync replicas: their writes wait or fail, and the same client's writes to all others go on."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import eventlog
from eventlog.errors import EventLogError, NotEnoughReplicas, NotPrimary, PartlyWritten
from eventlog.routing.routes import Routes
from tests.process.clusters import ClusterProcesses

SEGMENTS = 16
ROUTES = Routes(segments=SEGMENTS)
PATIENT_MS = 60_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    """Four nodes, three copies."""
    with ClusterProcesses(tmp_path, count=4, segments=SEGMENTS) as started:
        started.balance()
        yield started


def keys_of(segment: int, *, name: str = "k") -> Iterator[str]:
    """Yield keys of one segment."""
    number = 0
    while True:
        number += 1
        if ROUTES.segment(f"{name}{number}".encode()) == segment:
            yield f"{name}{number}"


def short_of(cluster: ClusterProcesses, *gone: str) -> set[int]:
    """Return the segments that cannot be written without these two nodes: of their three copies one is left."""
    return {segment.segment for segment in cluster.segments_of() if len(set(segment.owners) - set(gone)) < 2}


def check_health(cluster: ClusterProcesses, short: set[int]) -> None:
    """Demand that both nodes say the same of the segments, and name those that are counted."""
    found = [cluster.status(node) for node in (0, 1)]
    assert [(one.health, one.unwritable, one.unreadable, one.without_primary) for one in found] == [
        ("unavailable", len(short), len(short), found[0].without_primary)
    ] * 2
    for node in (0, 1):
        listed = {str(row["segment"]) for row in cluster.rows("admin", "segments", "--unwritable", node=node)}
        assert listed == {str(segment) for segment in short}
        assert len(cluster.rows("admin", "segments", "--without-primary", node=node)) == found[0].without_primary


async def until_written(cache: eventlog.Cache, segments: set[int]) -> None:
    """Return when every one of some segments has taken a write: failovers are over."""
    await asyncio.gather(*(cache.put(next(keys_of(segment)), "first", timeout_ms=PATIENT_MS) for segment in segments))


async def until_acknowledged(keys: set[str], count: int) -> None:
    """Return when so many keys are acknowledged."""
    while len(keys) < count:  # noqa: ASYNC110 -- theirs to say
        await asyncio.sleep(0.01)


async def once_each(cache: eventlog.Cache) -> dict[str, object]:
    """Return every key's value; demand that each key has one event."""
    events = [event async for event in cache.events()]
    found = {str(event.key): event.value for event in events}
    assert len(events) == len(found), "a write took effect twice"
    return found


def test_writes_to_other_segments_end_while_those_of_a_short_one_wait(cluster: ClusterProcesses) -> None:
    async def main() -> None:
        async with eventlog.connect(*cluster.addresses[:2], timeout_ms=PATIENT_MS) as client:
            cache = await client.create_cache("c", format="json")
            short = await asyncio.to_thread(short_of, cluster, "n3", "n4")
            assert short, "the copies are not spread over the nodes"
            healthy = set(range(SEGMENTS)) - short
            await asyncio.to_thread(cluster.kill, 2, 3)
            await until_written(cache, healthy)
            health = await client.health()
            share = len(healthy) / SEGMENTS
            assert (health.writable, health.readable, set(health.missing)) == (share, share, {"n3", "n4"})
            await asyncio.to_thread(check_health, cluster, short)
            names = {segment: keys_of(segment, name="w") for segment in range(SEGMENTS)}
            waiting = [asyncio.create_task(cache.put(next(names[segment]), number)) for number in range(3) for segment in short]
            for number in range(20):
                await asyncio.gather(*(cache.put(next(names[segment]), number) for segment in healthy))
            await cache.put_many([(next(names[segment]), "many") for segment in healthy])
            rows = [(next(names[segment]), "mixed") for segment in range(SEGMENTS)]
            with pytest.raises(PartlyWritten) as caught:
                await cache.put_many(rows, timeout_ms=1_000)
            assert set(caught.value.ok) == healthy
            assert set(caught.value.none) == short
            with pytest.raises(NotEnoughReplicas) as one:
                await cache.put(next(names[min(short)]), "one", timeout_ms=500)
            assert (one.value.segment, one.value.have, one.value.need, one.value.outcome) == (min(short), 1, 2, "none")
            assert set(one.value.missing) <= {"n3", "n4"}
            assert one.value.missing
            async with eventlog.connect(*cluster.addresses[:2], timeout_ms=1_000) as hasty:
                key = next(keys_of(min(short), name="w"))
                with pytest.raises(NotPrimary) as read:
                    await hasty.cache("c").get(key)
                assert read.value.copy_upto > 0
                assert await hasty.cache("c").get(key, consistency="any") is None
            assert not any(task.done() for task in waiting)
            await asyncio.to_thread(cluster.start)
            await asyncio.gather(*waiting)
            found = await once_each(cache)
            assert {"many", "first", "mixed"} <= set(found.values())
            assert {key for key, value in found.items() if value == "mixed"} == {rows[segment][0] for segment in healthy}
            assert "one" not in found.values()
            order = [event.value async for event in cache.events() if event.segment == min(short) and isinstance(event.value, int)]
            assert order == [0, 1, 2]

    asyncio.run(main())


def test_what_was_on_its_way_when_replicas_died_holds_up_no_other_segment_and_its_outcome_is_true(cluster: ClusterProcesses) -> None:
    ok: set[str] = set()
    none: set[str] = set()

    async def write_many(cache: eventlog.Cache, writer: int, over: asyncio.Event) -> None:
        number = 0
        while not over.is_set():
            number += 1
            keys = [f"{writer}-{number}-{row}" for row in range(40)]
            try:
                await cache.put_many([(key, number) for key in keys], timeout_ms=2_500)
            except PartlyWritten as error:
                ok.update(keys[row] for row in error.ok)
                none.update(keys[row] for row in error.none)
            except EventLogError as error:
                none.update(keys if error.outcome == "none" else ())
            else:
                ok.update(keys)

    async def main() -> None:
        async with eventlog.connect(*cluster.addresses[:2], timeout_ms=PATIENT_MS) as client:
            cache = await client.create_cache("c", format="json")
            healthy = set(range(SEGMENTS)) - await asyncio.to_thread(short_of, cluster, "n3", "n4")
            over = asyncio.Event()
            writers = [asyncio.create_task(write_many(cache, writer, over)) for writer in range(4)]
            await until_acknowledged(ok, 2_000)
            await asyncio.to_thread(cluster.kill, 2, 3)
            await until_written(cache, healthy)
            await until_acknowledged(ok, len(ok) + 400)
            over.set()
            await asyncio.gather(*writers)
            await asyncio.to_thread(cluster.start)
            await until_written(cache, set(range(SEGMENTS)) - healthy)
            found = set(await once_each(cache))
            assert ok <= found, "an acknowledged row is missing"
            assert not none & found, "a row is there that was said not to be written"
            assert none

    asyncio.run(main())
