"""Reading through a near cache: a hit against a look into a dictionary, a miss against a get, and how soon a write is heard of."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median, quantiles

from benchmarks.figures import Row, Scale, bounded, note
from benchmarks.processes import Address, Node, in_child, scratch

ENTRIES = 10_000
LOOKUPS = 200_000
ROUNDS = 7
GETS = 2_000
WRITES = 500
HIT_US_MAX = 2.0
STALENESS_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Microseconds: of one lookup each, of gets, and from the beginning of a write until the near cache has dropped the value."""

    dictionary: float
    get: float
    peek: float
    misses: list[float]
    plain: list[float]
    dropped: list[float]


def run(scale: Scale) -> Iterator[Row]:
    with scratch() as directory, Node(directory / "data") as node:
        found = in_child(_measure, node.address, scale.of(LOOKUPS), scale.of(GETS), scale.of(WRITES))
    for name, value in (("await near.get, hit", found.get), ("near.peek, hit", found.peek)):
        row = bounded(name, value=value, unit="us", at_most=HIT_US_MAX)
        yield Row(
            case=row.case,
            measured=row.measured,
            bare=f"{found.dictionary:.3f} us",
            ratio=value / found.dictionary,
            target=row.target,
            reached=row.reached,
        )
    notes = {"near.get, miss": found.misses, "cache.get": found.plain, "a write by another, until it is dropped": found.dropped}
    for name, times in notes.items():
        cuts = quantiles(times, n=100)
        yield note(name, f"p50 {cuts[49]:.0f} us, p99 {cuts[98]:.0f} us")


def _measure(address: Address, lookups: int, gets: int, writes: int) -> Found:
    import eventlog

    async def story() -> Found:
        async with eventlog.connect(address.text) as client, eventlog.connect(address.text) as other:
            cache = await client.create_cache("near", format="json")
            keys = [f"key-{number}" for number in range(ENTRIES)]
            await cache.put_many([(key, {"total": number, "name": "x" * 60}) for number, key in enumerate(keys)])
            async with cache.near(max_entries=2 * ENTRIES, max_staleness_ms=STALENESS_MS) as near:
                misses = []
                for key in keys[:gets]:
                    began = time.perf_counter()
                    await near.get(key)
                    misses.append((time.perf_counter() - began) * 1e6)
                plain = []
                for key in keys[:gets]:
                    began = time.perf_counter()
                    await cache.get(key)
                    plain.append((time.perf_counter() - began) * 1e6)
                await _fill(near, keys)
                asked = [keys[number * 7_919 % ENTRIES] for number in range(lookups)]
                dictionary, get, peek = await _rounds(near, asked, {key: near.peek(key) for key in keys})
                dropped = [await _dropped_after(near, other.cache("near"), key) for key in keys[:writes]]
        return Found(dictionary=dictionary, get=get, peek=peek, misses=misses, plain=plain, dropped=dropped)

    return asyncio.run(story())


async def _fill(near: "object", keys: list[str]) -> None:
    from eventlog.client.near.near_cache import NearCache

    assert isinstance(near, NearCache)
    async with asyncio.timeout(60):
        while near.statistics.entries < len(keys):
            await near.get_many(keys)
            await asyncio.sleep(0.01)


async def _rounds(near: "object", asked: list[str], plain: dict[str, object]) -> tuple[float, float, float]:
    """Return the microseconds of one lookup: dictionary, `get`, `peek`; the middle one of some rounds, in turn."""
    from eventlog.client.near.near_cache import NearCache

    assert isinstance(near, NearCache)
    times: tuple[list[float], list[float], list[float]] = ([], [], [])
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for key in asked:
            plain[key]
        times[0].append(time.perf_counter() - began)
        hits, began = near.statistics.hits, time.perf_counter()
        for key in asked:
            await near.get(key)
        times[1].append(time.perf_counter() - began)
        assert near.statistics.hits == hits + len(asked), "all of them are hits"
        began = time.perf_counter()
        for key in asked:
            near.peek(key)
        times[2].append(time.perf_counter() - began)
    dictionary, get, peek = (median(own) / len(asked) * 1e6 for own in times)
    return dictionary, get, peek


async def _dropped_after(near: "object", cache: "object", key: str) -> float:
    from eventlog.client.cache import Cache
    from eventlog.client.near.near_cache import NearCache

    assert isinstance(near, NearCache)
    assert isinstance(cache, Cache)
    began = time.perf_counter()
    writing = asyncio.ensure_future(cache.put(key, {"total": 0}))
    while near.peek(key) is not None:  # noqa: ASYNC110 -- it has no event
        await asyncio.sleep(0)
    took = time.perf_counter() - began
    await writing
    return took * 1e6
