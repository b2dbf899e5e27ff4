"""What a cluster costs beside its work: a third copy, an idle node, 4,096 segments, a segment handed over."""

import asyncio
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.clusters import cluster, write_batches
from benchmarks.figures import MILLION, Row, Scale, against, bounded, note, rate
from benchmarks.inputs import Load, random_values
from benchmarks.processes import Address, Node, cpu_seconds, in_child, resident_bytes, scratch
from benchmarks.traffic import settle

REPLICATION_AT_MOST = 3.3
TURNS = 5
IDLE_SECONDS = 20.0
IDLE_NODES = 5
IDLE_PERCENT_AT_MOST = 2.0
MANY_SEGMENTS = 4_096
MANY_RSS_MIB_AT_MOST = 800
APPOINTED_SECONDS_AT_MOST = 2.0
APPOINTED_LOOK_SECONDS = 0.05
APPOINTED_SECONDS_MAX = 60
HANDOVER_BYTES = 1 << 30
HANDOVER_AT_LEAST = 0.4
MIB = 1 << 20


def run(scale: Scale) -> Iterator[Row]:
    yield from _copies(scale)
    yield from _idle(scale)
    yield from _many_segments(scale)
    yield from _handover(scale)


def _copies(scale: Scale) -> Iterator[Row]:
    """Three nodes with three copies against the same nodes with one: client batches spread over all segments, append-only."""
    load, events = Load(batch=1_000), scale.of(MILLION)
    costs: dict[int, list[float]] = {1: [], 3: []}
    for replicas in (1, 3) * scale.of(TURNS, quick=1):  # by turns: the machine is not the same from one minute to the next
        with scratch() as directory, cluster(directory, replicas=replicas) as nodes:
            written = in_child(write_batches, [node.address for node in nodes], load, events=events, state=False)
        costs[replicas].append(written.us_per_event)
    yield against(
        "3 copies against 1, 1,000 x 100 B",
        ours=median(costs[3]),
        bare=median(costs[1]),
        unit="us/event",
        at_most=REPLICATION_AT_MOST,
    )
    for replicas, name in ((3, "3 copies"), (1, "1 copy")):
        own = sorted(costs[replicas])
        yield note(f"{name}, each round", f"{', '.join(f'{cost:.2f}' for cost in own)} us/event")


def _idle(scale: Scale) -> Iterator[Row]:
    seconds = IDLE_SECONDS if not scale.quick else 4.0
    with scratch() as directory, cluster(directory, nodes=IDLE_NODES) as nodes:
        time.sleep(seconds / 4)  # what starting left to do is done
        before = [cpu_seconds(node.address.pid) for node in nodes]
        time.sleep(seconds)
        used = [100 * (cpu_seconds(node.address.pid) - was) / seconds for node, was in zip(nodes, before, strict=True)]
    yield bounded(f"idle, {IDLE_NODES} nodes, 256 segments, the busiest", value=max(used), unit="% of a core", at_most=IDLE_PERCENT_AT_MOST)


def _many_segments(scale: Scale) -> Iterator[Row]:
    rates: dict[tuple[int, str], float] = {}
    for segments in (256, MANY_SEGMENTS):
        with scratch() as directory, cluster(directory, segments=segments) as nodes:
            addresses = [node.address for node in nodes]
            rates[segments, "single puts"] = in_child(_puts, addresses, seconds=5.0 if not scale.quick else 1.0)
            for batch, events in ((100_000, scale.of(2 * MILLION, quick=400_000)), (1_000, scale.of(300_000))):
                for address in addresses:
                    settle(address)
                written = in_child(write_batches, addresses, Load(batch=batch), events=events, state=False)
                rates[segments, f"batches of {batch:,}"] = written.events / written.seconds
            if segments == MANY_SEGMENTS:
                rss = max(resident_bytes(address.pid) for address in addresses) / MIB
                yield bounded("4,096 segments, memory of the largest node", value=rss, unit="MiB", at_most=MANY_RSS_MIB_AT_MOST)
                led, seconds = _appointed(nodes)
                name = f"4,096 segments, {led:,} primaries of a dead node appointed"
                yield bounded(name, value=seconds, unit="s", at_most=APPOINTED_SECONDS_AT_MOST)
    for case, share in (("single puts", 0.8), ("batches of 100,000", 0.8), ("batches of 1,000", 0.3)):
        many, few = rates[MANY_SEGMENTS, case], rates[256, case]
        yield rate(f"4,096 segments, {case}", per_second=many, unit="events/s", at_least=share * few, bare=few)


def _appointed(nodes: Sequence[Node]) -> tuple[int, float]:
    """Kill a node with SIGKILL; return how many segments it led, and the seconds until the others lead them all, as one of them says."""
    import eventlog

    async def run() -> tuple[int, float]:
        victim = f"n{len(nodes)}"
        async with eventlog.connect(nodes[0].address.text) as client, asyncio.timeout(APPOINTED_SECONDS_MAX):
            led = {node.name: node.primaries for node in await client.admin.nodes()}
            began = time.monotonic()
            nodes[-1].kill()
            while sum(node.primaries for node in await client.admin.nodes() if node.name != victim) < sum(led.values()):  # noqa: ASYNC110
                await asyncio.sleep(APPOINTED_LOOK_SECONDS)
            return led[victim], time.monotonic() - began

    return asyncio.run(run())


def _puts(addresses: Sequence[Address], *, seconds: float) -> float:
    """Return single puts a second, 64 in flight."""
    import eventlog

    async def run() -> float:
        async with eventlog.connect(*[address.text for address in addresses]) as client:
            cache = await client.create_cache("p", format="bytes", key_format="bytes", state=False, if_exists="use")
            end, done = time.monotonic() + seconds, 0

            async def write(number: int) -> None:
                nonlocal done
                turn = 0
                while time.monotonic() < end:
                    turn += 1
                    await cache.put(b"%d-%d" % (number, turn), b"x" * 100)
                    done += 1

            began = time.monotonic()
            await asyncio.gather(*map(write, range(64)))
            return done / (time.monotonic() - began)

    return asyncio.run(run())


def _handover(scale: Scale) -> Iterator[Row]:
    """One segment's log moves to a node that has nothing; against the same bytes copied from file to file through loopback."""
    size = HANDOVER_BYTES if not scale.quick else 64 * MIB
    with scratch() as directory, cluster(directory, nodes=1, replicas=1, segments=1) as nodes:
        in_child(_fill, nodes[0].address, size=size)
        seconds = in_child(_move, directory, nodes[0].address)
        copied = _copy_through_loopback(directory, size)
    yield rate(
        f"hand-over of a segment of {size // MIB} MiB",
        per_second=size / seconds / MIB,
        unit="MiB/s",
        at_least=HANDOVER_AT_LEAST * size / copied / MIB,
        bare=size / copied / MIB,
    )
    yield note("hand-over, in all", f"{seconds:.1f} s, from the start of the node that takes it until it is in sync")


def _fill(address: Address, *, size: int) -> None:
    import eventlog

    async def run() -> None:
        values = random_values(64, 64 * 1024)
        async with eventlog.connect(address.text) as client:
            cache = await client.create_cache("h", format="bytes", key_format="bytes", state=False)
            for number in range(size // (64 * 64 * 1024)):
                await cache.put_many([(b"%d-%d" % (number, at), value) for at, value in enumerate(values)])

    asyncio.run(run())


def _move(directory: Path, address: Address) -> float:
    """Start a second node and keep two copies from now on; return the seconds until the segment has both."""
    import eventlog
    from benchmarks.processes import Node

    async def until_whole() -> None:
        async with eventlog.connect(address.text) as client:
            await client.admin.set_replicas(2)
            while True:
                [segment] = await client.segments()
                if len(segment.in_sync) == 2:
                    return
                await asyncio.sleep(0.02)

    with Node(directory / "n2", "--node-name", "n2", "--join", address.text):
        began = time.monotonic()
        asyncio.run(until_whole())
        return time.monotonic() - began


def _copy_through_loopback(directory: Path, size: int) -> float:
    """Return the seconds that a file takes to another one through a socket, synced at the end."""
    source, target = directory / "source", directory / "target"
    with source.open("wb") as file:
        for _ in range(size // MIB):
            file.write(random_values(1, MIB)[0])
    server = socket.create_server(("127.0.0.1", 0))

    def receive() -> None:
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as incoming, target.open("wb") as file:
            shutil.copyfileobj(incoming, file, MIB)

    thread = threading.Thread(target=receive)
    thread.start()
    began = time.monotonic()
    with socket.create_connection(server.getsockname()[:2]) as connection, source.open("rb") as sent:
        connection.sendfile(sent)
    thread.join()
    server.close()
    return time.monotonic() - began
