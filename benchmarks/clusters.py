"""Several nodes as one cluster, and a client that writes to it through the library, as an application would."""

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.inputs import KEYS_LIVE, Load, random_keys, random_values
from benchmarks.processes import Address, Node, cpu_seconds

READY_SECONDS_MAX = 120
BATCHES_IN_FLIGHT = 8


@contextlib.contextmanager
def cluster(directory: Path, *, nodes: int = 3, replicas: int = 3, segments: int = 256) -> Iterator[list[Node]]:
    """Give running nodes that share one metadata file, with every segment at its full number of replicas, each leading its share."""
    with contextlib.ExitStack() as stack:
        meta = ("--meta", f"sqlite:{directory / 'meta' / 'meta.db'}", "--segments", str(segments), "--replicas", str(replicas))
        found: list[Node] = []
        for number in range(1, nodes + 1):
            where = ("--join", found[0].address.text) if found else meta
            found.append(stack.enter_context(Node(directory / f"n{number}", "--node-name", f"n{number}", *where)))
        asyncio.run(_wait_until_even(found[0].address, nodes=nodes, replicas=replicas))
        yield found


async def _wait_until_even(address: Address, *, nodes: int, replicas: int) -> None:
    import eventlog

    async with eventlog.connect(address.text) as client, asyncio.timeout(READY_SECONDS_MAX):
        while True:
            status = await client.status()
            if status.health == "ok" and status.nodes_live == nodes:
                led = Counter(segment.primary for segment in await client.segments())
                if len(led) == min(nodes, replicas) and max(led.values()) - min(led.values()) <= 1:
                    return
            await asyncio.sleep(0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Acknowledged events, and what they took at the client and at all nodes together."""

    events: int
    seconds: float
    client_cpu: float
    nodes_cpu: float

    @property
    def us_per_event(self) -> float:
        """CPU of everything together in microseconds an event."""
        return (self.client_cpu + self.nodes_cpu) / self.events * 1e6


def write_batches(addresses: Sequence[Address], load: Load, *, events: int, state: bool) -> Written:
    """Write with `put_many`, batches in flight at once; keys random over a million."""
    import eventlog

    async def run() -> Written:
        async with eventlog.connect(*[address.text for address in addresses]) as client:
            cache = await client.create_cache("w", format="bytes", state=state, before=False, key_format="bytes", if_exists="use")
            values = random_values(load.batch, load.value_bytes)
            batches = [random_keys(load.batch, seed=number, live=KEYS_LIVE) for number in range(max(2, min(64, 640_000 // load.batch)))]

            async def write(count: int) -> None:
                waiting: deque[asyncio.Task[Any]] = deque()
                for number in range(count):
                    if len(waiting) >= BATCHES_IN_FLIGHT:
                        await waiting.popleft()
                    pairs = zip(batches[number % len(batches)], values, strict=True)
                    waiting.append(asyncio.ensure_future(cache.put_many(pairs)))
                await asyncio.gather(*waiting)

            count = max(events // load.batch, 2)
            await write(max(count // 10, 2))  # everything is warm
            pids = [address.pid for address in addresses]
            nodes, client_cpu, began = sum(map(cpu_seconds, pids)), time.process_time(), time.monotonic()
            await write(count)
            return Written(
                events=count * load.batch,
                seconds=time.monotonic() - began,
                client_cpu=time.process_time() - client_cpu,
                nodes_cpu=sum(map(cpu_seconds, pids)) - nodes,
            )

    return uvloop.run(run())
