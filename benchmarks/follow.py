"""Three nodes, fsync: single puts at 1,000 a second, and when each is printed by `eventlog consume --follow`."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any

from benchmarks.clusters import cluster
from benchmarks.figures import Row, Scale, bounded, note
from benchmarks.processes import Address, cpu_seconds, in_child, scratch

PER_SECOND = 1_000
PER_SECOND_CALM = 100  # what leaves two cores time
SECONDS = 20
SECONDS_CALM = 10
WARM_SECONDS = 2
P99_MS_MAX = 20.0
LATE_SECONDS_MAX = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Milliseconds from the call of a put to its acknowledgement, to its line, and from the one to the other."""

    acknowledged: list[float]
    printed: list[float]
    between: list[float]
    rate: float


def run(scale: Scale) -> Iterator[Row]:
    with scratch() as directory, cluster(directory) as nodes:
        addresses = [node.address for node in nodes]
        calm = in_child(_measure, addresses, "calm", PER_SECOND_CALM, scale.of(SECONDS_CALM, quick=3))
        before = sum(cpu_seconds(node.address.pid) for node in nodes)
        found = in_child(_measure, addresses, "follow", PER_SECOND, scale.of(SECONDS, quick=3))
        used = sum(cpu_seconds(node.address.pid) for node in nodes) - before
    printed = quantiles(found.printed, n=100)
    yield note("put to line, p50", f"{printed[49]:.2f} ms at {found.rate:,.0f} events/s")
    yield bounded("put to line, p99", value=printed[98], unit="ms", at_most=P99_MS_MAX)
    for name, times in (("put to acknowledgement", found.acknowledged), ("acknowledgement to line", found.between)):
        cuts = quantiles(times, n=100)
        yield note(name, f"p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms")
    yield note("CPU of the three nodes", f"{used / (scale.of(SECONDS, quick=3) + WARM_SECONDS):.2f} cores")
    cuts = quantiles(calm.printed, n=100)
    yield note("put to line, when there is time", f"p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms at {calm.rate:,.0f} events/s")


@dataclass(slots=True)
class Lines:
    """Reads what the command prints, in a thread: when each event's line came."""

    process: "subprocess.Popen[bytes]"
    at: dict[int, float] = field(default_factory=dict)

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            now = time.perf_counter()
            self.at[json.loads(line)["value"]["number"]] = now


def _started(command: list[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, stdout=subprocess.PIPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Puts:
    """When each put was called and when it was acknowledged."""

    began: dict[int, float] = field(default_factory=dict)
    acknowledged: dict[int, float] = field(default_factory=dict)

    async def pace(self, cache: Any, count: int, per_second: int) -> float:
        """Put `count` times, at even distances whatever they take; return the seconds."""
        tasks, start = set(), time.perf_counter()
        for number in range(count):
            wait = start + number / per_second - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            task = asyncio.ensure_future(self._put(cache, number))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
        return time.perf_counter() - start

    async def _put(self, cache: Any, number: int) -> None:
        self.began[number] = time.perf_counter()
        await cache.put(f"key-{number % 5_000}", {"number": number, "more": "x" * 80})
        self.acknowledged[number] = time.perf_counter()


def _measure(addresses: Sequence[Address], name: str, per_second: int, seconds: int) -> Found:
    import eventlog

    first = WARM_SECONDS * per_second
    count = first + seconds * per_second
    puts = Puts()

    async def story() -> tuple[float, dict[int, float]]:
        async with eventlog.connect(*[address.text for address in addresses]) as client:
            cache = await client.create_cache(name, format="json", before=False)
            words = ["consume", name, "--from-id", "earliest", "--follow", "--server", addresses[-1].text]
            lines = Lines(_started([sys.executable, "-m", "eventlog_cli", *words]))
            reader = threading.Thread(target=lines.read, daemon=True)
            reader.start()
            try:
                took = await puts.pace(cache, count, per_second)
                async with asyncio.timeout(LATE_SECONDS_MAX):
                    while len(lines.at) < count:  # noqa: ASYNC110 -- a thread fills them
                        await asyncio.sleep(0.05)
            finally:
                lines.process.terminate()
                await asyncio.to_thread(lines.process.wait)
                reader.join()
            return took, lines.at

    took, printed = asyncio.run(story())
    began, acknowledged = puts.began, puts.acknowledged
    counted = range(first, count)
    return Found(
        acknowledged=[(acknowledged[number] - began[number]) * 1_000 for number in counted],
        printed=[(printed[number] - began[number]) * 1_000 for number in counted],
        between=[(printed[number] - acknowledged[number]) * 1_000 for number in counted],
        rate=count / took,
    )
