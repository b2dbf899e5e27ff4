"""1,000 followers that long-poll one cache, each on its own connection, at 100 single puts/s; 10,000 idle listeners; one node, fsync."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import eventlog
from benchmarks import idle_listeners
from benchmarks.figures import MILLION, Row, Scale, bounded, note
from benchmarks.followers import following
from benchmarks.processes import Address, Node, cpu_seconds, in_child, resident_bytes, scratch

FOLLOWERS = 1_000
PER_SECOND = 100
SECONDS = 20
WARM_SECONDS = 2
P99_MS_MAX = 100.0
CORES_MAX = 0.6
GROWTH_MIB_MAX = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Milliseconds from the call of a put to its delivery, of every event at every follower; and what it cost."""

    delivered: npt.NDArray[np.float64]
    acknowledged: npt.NDArray[np.float64]
    answers: int
    seconds: float
    server_cores: float
    client_cores: float
    grown_bytes: int


def run(scale: Scale) -> Iterator[Row]:
    with scratch() as directory, Node(directory / "data", "--segments", "64") as node:
        found = in_child(_measure, node.address, scale.of(FOLLOWERS, quick=100), scale.of(SECONDS, quick=3))
    p50, p99 = np.percentile(found.delivered, [50, 99]).tolist()
    yield bounded("put to delivery, p99", value=p99, unit="ms", at_most=P99_MS_MAX)
    yield note("put to delivery, p50", f"{p50:.1f} ms; to acknowledgement {np.percentile(found.acknowledged, 50):.1f} ms")
    yield bounded("CPU of the node", value=found.server_cores, unit="cores", at_most=CORES_MAX)
    yield bounded("memory of the node grew by", value=found.grown_bytes / (1 << 20), unit="MiB", at_most=GROWTH_MIB_MAX)
    per_answer = found.server_cores * found.seconds / found.answers * MILLION
    yield note(
        "answers",
        f"{found.answers / found.seconds:,.0f}/s, {per_answer:.0f} us of the node each; the followers {found.client_cores:.2f} cores",
    )
    segments = ("--segments", "64")
    with scratch() as directory, Node(directory / "own", *segments) as node, Node(directory / "bare", *segments) as bare:
        yield from idle_listeners.rows(
            node.address,
            bare.address,
            listeners=scale.of(idle_listeners.LISTENERS, quick=200),
            idle_seconds=scale.of(idle_listeners.IDLE_SECONDS, quick=1),
            puts=scale.of(idle_listeners.PUTS, quick=1_000),
        )


@dataclass(frozen=True, slots=True)
class Puts:
    """When each put was called, and when it was acknowledged, by the id of its event."""

    began: dict[int, float]
    acknowledged: dict[int, float]

    async def pace(self, cache: "eventlog.Cache", count: int) -> None:
        """Put PER_SECOND a second."""
        tasks, start = set(), time.perf_counter()
        for number in range(count):
            await asyncio.sleep(max(start + number / PER_SECOND - time.perf_counter(), 0))
            task = asyncio.ensure_future(self._put(cache, number))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)

    async def _put(self, cache: "eventlog.Cache", number: int) -> None:
        called = time.perf_counter()
        stored = await cache.put(f"key-{number % 500}", {"number": number, "more": "x" * 80})
        assert stored.id is not None
        self.began[stored.id], self.acknowledged[stored.id] = called, time.perf_counter()


def _measure(address: Address, followers: int, seconds: int) -> Found:
    puts = Puts({}, {})
    began, acknowledged, pace = puts.began, puts.acknowledged, puts.pace

    async def story() -> Found:
        async with eventlog.connect(address.text) as client:
            cache = await client.create_cache("fan-out")
            before = resident_bytes(address.pid)
            with following(address, (await cache.info()).id, followers) as all_of_them:
                await pace(cache, WARM_SECONDS * PER_SECOND)
                warm = max(began)
                answers_before, own = all_of_them.used()
                start, used = time.perf_counter(), cpu_seconds(address.pid)
                await pace(cache, seconds * PER_SECOND)
                took = time.perf_counter() - start
                cores = (cpu_seconds(address.pid) - used) / took
                answers, own_after = all_of_them.used()
                grown = resident_bytes(address.pid) - before
                seen = all_of_them.end(max(began))
        counted = np.array(sorted(id_ for id_ in began if id_ > warm))
        called = np.array([began[id_] for id_ in counted.tolist()])
        return Found(
            delivered=(seen.delivered(counted) - np.tile(called, followers)) * 1_000,
            acknowledged=(np.array([acknowledged[id_] for id_ in counted.tolist()]) - called) * 1_000,
            answers=answers - answers_before,
            seconds=took,
            server_cores=cores,
            client_cores=(own_after - own) / took,
            grown_bytes=grown,
        )

    return asyncio.run(story())
