"""What a mirror adds while it follows: how late an event is in Kafka, what single puts wait beside it, and what idle mirrors cost.

An event is late by the time from its id to its arrival at a reader of committed records, at 1,000 events a second; the interval of a
mirror's transactions is the measure. Puts go one after the other, with a mirror that copies them and without, by turns. Idle mirrors are
of as many caches, each read to its end.
"""

import asyncio
import time
from collections.abc import Iterator
from statistics import median

from aiokafka import AIOKafkaConsumer, TopicPartition

from benchmarks.figures import Row, Scale, against, bounded, note
from benchmarks.latency import percentiles
from benchmarks.mirror import until_ready
from benchmarks.peers.kafka import KafkaBrokers
from benchmarks.processes import Address, Node, cpu_seconds, in_child, resident_bytes, scratch
from eventlog.limits import MIRROR_INTERVAL_MS_DEFAULT

SECONDS = 20
PER_SECOND = 1_000
STEP_S = 0.01
PARTITIONS = 16
PUTS = 3_000
ROUNDS = 3
IDLE = 256
IDLE_SECONDS = 30
SETTLING_SECONDS = 60  # by then a shard with nothing to do has let go of the log
LATE_AT_MOST = 3.0
PUTS_AT_MOST = 1.5
IDLE_CORES_MAX = 0.01
IDLE_GROWTH_MIB_MAX = 1
IDLE_EACH_MIB_MAX = 1


def run(scale: Scale) -> Iterator[Row]:
    """Yield rows for events, for puts and for mirrors that have nothing to do."""
    with scratch() as directory, KafkaBrokers(directory, 1) as brokers, Node(directory / "data") as node:
        asyncio.run(until_ready(brokers.addresses))
        late = in_child(_lateness, node.address, brokers.addresses, scale.of(SECONDS, quick=3))
        for share in (50, 99):
            yield against(
                f"in Kafka, p{share}, beside the interval",
                ours=late[share] / 1_000,
                bare=MIRROR_INTERVAL_MS_DEFAULT,
                unit="ms",
                at_most=LATE_AT_MOST if share == 99 else None,
            )
        puts, rounds = scale.of(PUTS, quick=200), scale.of(ROUNDS, quick=1)
        alone, beside = in_child(_puts, node.address, brokers.addresses, puts, rounds)
        for share in (50, 99):
            yield against(
                f"put, p{share}, beside a mirror of it",
                ours=beside[share],
                bare=alone[share],
                unit="us",
                at_most=PUTS_AT_MOST if share == 99 else None,
            )
        mirrors = scale.of(IDLE, quick=8)
        seconds, settling = scale.of(IDLE_SECONDS, quick=2), scale.of(SETTLING_SECONDS, quick=1)
        in_child(_add_idle_caches, node.address, mirrors)
        bare = _cores(node, seconds, after=settling)
        memory = resident_bytes(node.address.pid)
        in_child(_add_idle, node.address, brokers.addresses, mirrors)
        time.sleep(settling)
        each = (resident_bytes(node.address.pid) - memory) / mirrors / (1 << 20)
        yield bounded(f"{mirrors} mirrors with nothing to do, memory of each", value=each, unit="MiB", at_most=IDLE_EACH_MIB_MAX)
        memory = resident_bytes(node.address.pid)
        cores = _cores(node, seconds)
        yield bounded(f"{mirrors} mirrors with nothing to do", value=max(0.0, cores - bare), unit="cores", at_most=IDLE_CORES_MAX)
        yield note("the node without them", f"{bare:.4f} cores, with as many caches")
        grown = (resident_bytes(node.address.pid) - memory) / (1 << 20)
        yield bounded(f"{mirrors} mirrors, memory grown meanwhile", value=grown, unit="MiB", at_most=IDLE_GROWTH_MIB_MAX)


def _cores(node: Node, seconds: int, *, after: int = 0) -> float:
    """Return how much of a core a node uses for a while, which begins a while from now."""
    time.sleep(after)
    before = cpu_seconds(node.address.pid)
    time.sleep(seconds)
    return (cpu_seconds(node.address.pid) - before) / seconds


def _lateness(address: Address, brokers: str, seconds: int) -> dict[int, float]:
    """Return percentiles, in microseconds, of how long after its id an event is read in Kafka."""
    import eventlog

    async def story() -> dict[int, float]:
        late: list[float] = []
        async with eventlog.connect(address.text) as client:
            cache = await client.create_cache("late")
            await cache.put("first", 0)
            added = await client.mirrors.add("late", kafka=brokers, partitions=PARTITIONS)
            assert not (await client.mirrors.status("late", wait_ms=60_000)).is_behind
            wanted = seconds * PER_SECOND
            reading = asyncio.ensure_future(_read(brokers, added.mirror.topic, wanted, late))
            await asyncio.sleep(1)
            began, step = time.monotonic(), int(PER_SECOND * STEP_S)
            for number in range(wanted // step):
                await cache.put_many([(f"key-{number}-{item}", {"n": item, "text": "x" * 80}) for item in range(step)])
                await asyncio.sleep(max(0.0, began + (number + 1) * STEP_S - time.monotonic()))
            await reading
            await client.mirrors.remove("late")
        return percentiles(late)

    return asyncio.run(story())


async def _read(brokers: str, topic: str, wanted: int, late: list[float]) -> None:
    """Read as many records as they come, and note how late each is by its timestamp, which is the time of its event's id."""
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    async with AIOKafkaConsumer(
        bootstrap_servers=brokers,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="latest",
        fetch_max_wait_ms=10,
    ) as consumer:
        consumer.assign(places)
        await consumer.seek_to_end(*places)
        while len(late) < wanted:
            found = await consumer.getmany(timeout_ms=1_000)
            now_ms = 1000 * time.time()
            late += [(now_ms - one.timestamp) / 1000 for records in found.values() for one in records]


def _puts(address: Address, brokers: str, puts: int, rounds: int) -> tuple[dict[int, float], dict[int, float]]:
    """Return percentiles of single puts without and with a mirror of their cache; of the rounds the middle."""
    import eventlog

    async def story() -> tuple[dict[int, float], dict[int, float]]:
        found: dict[str, list[dict[int, float]]] = {"alone": [], "beside": []}
        async with eventlog.connect(address.text) as client:
            caches = {way: await client.create_cache(way) for way in found}
            await client.mirrors.add("beside", kafka=brokers, partitions=PARTITIONS)
            for _ in range(rounds):
                for way, cache in caches.items():
                    taken = []
                    for number in range(puts):
                        began = time.perf_counter()
                        await cache.put(f"k{number % 500}", {"n": number, "text": "x" * 80})
                        taken.append(time.perf_counter() - began)
                    found[way].append(percentiles(taken))
                    assert not (await client.mirrors.status("beside", wait_ms=60_000)).is_behind
            await client.mirrors.remove("beside")
        alone, beside = ({share: median(one[share] for one in found[way]) for share in (50, 99)} for way in ("alone", "beside"))
        return alone, beside

    return asyncio.run(story())


def _add_idle_caches(address: Address, mirrors: int) -> None:
    """Make caches, each of one event."""
    from eventlog import blocking

    with blocking.connect(address.text) as client:
        for number in range(mirrors):
            client.create_cache(f"idle-{number}").put("k", number)


def _add_idle(address: Address, brokers: str, mirrors: int) -> None:
    """Add mirrors of as many caches, and return when all of them are at their ends."""
    from eventlog import blocking

    with blocking.connect(address.text) as client:
        for number in range(mirrors):
            client.mirrors.add(f"idle-{number}", kafka=brokers, partitions=1)
        for number in range(mirrors):
            assert not client.mirrors.status(f"idle-{number}", wait_ms=120_000).is_behind
