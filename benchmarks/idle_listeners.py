"""Ten thousand durable listeners that nobody polls for: what one node pays for them in memory, while nothing happens, and at a put."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.figures import MILLION, Row, bounded, note
from benchmarks.processes import Address, cpu_seconds, in_child, resident_bytes

LISTENERS = 10_000
AT_ONCE = 100
IDLE_SECONDS = 21  # retention looks at what listeners hold back every ten
PUTS = 20_000
ROUNDS = 3
KIB_EACH_MAX = 8.0
IDLE_CORES_MAX = 0.02
PUT_RATIO_MAX = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a node used: cores while nothing was asked of it, CPU of a put in microseconds."""

    idle_cores: float
    put_us: float


def rows(address: Address, *, listeners: int, idle_seconds: int, puts: int) -> Iterator[Row]:
    """Register them at a node and yield what that changes."""
    before, after, grown_bytes = in_child(_measure, address, listeners, idle_seconds, puts)
    name = f"{listeners:,} idle listeners"
    yield bounded(f"{name}, memory of each", value=grown_bytes / listeners / 1_024, unit="KiB", at_most=KIB_EACH_MAX)
    yield bounded(f"{name}, CPU while idle", value=max(after.idle_cores - before.idle_cores, 0.0), unit="cores", at_most=IDLE_CORES_MAX)
    ratio = after.put_us / before.put_us
    yield Row(
        case=f"{name}, a put",
        measured=f"{after.put_us:.0f} us of the node",
        bare=f"{before.put_us:.0f} us without",
        ratio=ratio,
        target=f"<= {PUT_RATIO_MAX:g}x",
        reached=ratio <= PUT_RATIO_MAX,
    )
    yield note("idle node without them", f"{before.idle_cores:.3f} cores")


def _measure(address: Address, listeners: int, idle_seconds: int, puts: int) -> tuple[Cost, Cost, int]:
    import eventlog

    async def cost(cache: eventlog.Cache) -> Cost:
        each = []
        for _ in range(ROUNDS):
            used = cpu_seconds(address.pid)
            for _ in range(puts // AT_ONCE):
                await asyncio.gather(*(cache.put(f"key-{number}", {"number": number}) for number in range(AT_ONCE)))
            each.append((cpu_seconds(address.pid) - used) / puts * MILLION)
        used = cpu_seconds(address.pid)
        await asyncio.sleep(idle_seconds)
        idle = (cpu_seconds(address.pid) - used) / idle_seconds
        return Cost(idle_cores=idle, put_us=min(each))

    async def story() -> tuple[Cost, Cost, int]:
        async with eventlog.connect(address.text) as client:
            cache = await client.create_cache("listened")
            await cache.register(id="first", durable=True)
            before = await cost(cache)
            resident = resident_bytes(address.pid)
            for low in range(0, listeners, AT_ONCE):
                await asyncio.gather(*(cache.register(id=f"listener-{number}", durable=True) for number in range(low, low + AT_ONCE)))
            grown_bytes = resident_bytes(address.pid) - resident
            return before, await cost(cache), grown_bytes

    return asyncio.run(story())
