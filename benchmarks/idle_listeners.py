"""Ten thousand durable listeners that nobody polls for: what a node pays for them in memory, while nothing happens, and at a put.

Beside it a node with one such listener, and puts to both by turns: what a put takes changes from one minute to the next.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.figures import MILLION, Row, bounded, note
from benchmarks.processes import Address, cpu_seconds, in_child, resident_bytes

LISTENERS = 10_000
AT_ONCE = 100
IDLE_SECONDS = 21  # retention looks at what listeners hold back every ten
PUTS = 20_000
ROUNDS = 5
KIB_EACH_MAX = 8.0
IDLE_CORES_MAX = 0.02
PUT_RATIO_MAX = 1.1


@dataclass(slots=True, kw_only=True)
class Cost:
    """What a node used: cores while nothing was asked of it, CPU of a put in microseconds."""

    idle_cores: float = 0.0
    put_us: float = float("inf")


def rows(address: Address, bare: Address, *, listeners: int, idle_seconds: int, puts: int) -> Iterator[Row]:
    """Register them at one of two nodes and yield what that changes."""
    own, without, grown_bytes = in_child(_measure, (address, bare), listeners, idle_seconds, puts)
    name = f"{listeners:,} idle listeners"
    yield bounded(f"{name}, memory of each", value=grown_bytes / listeners / 1_024, unit="KiB", at_most=KIB_EACH_MAX)
    yield bounded(f"{name}, CPU while idle", value=max(own.idle_cores - without.idle_cores, 0.0), unit="cores", at_most=IDLE_CORES_MAX)
    ratio = own.put_us / without.put_us
    yield Row(
        case=f"{name}, a put",
        measured=f"{own.put_us:.1f} us of the node",
        bare=f"{without.put_us:.1f} us without",
        ratio=ratio,
        target=f"<= {PUT_RATIO_MAX:g}x",
        reached=ratio <= PUT_RATIO_MAX,
    )
    yield note("idle node without them", f"{without.idle_cores:.3f} cores")


def _measure(addresses: tuple[Address, Address], listeners: int, idle_seconds: int, puts: int) -> tuple[Cost, Cost, int]:
    import eventlog

    costs = Cost(), Cost()
    pid = addresses[0].pid

    async def puts_of(cache: eventlog.Cache, address: Address) -> float:
        used = cpu_seconds(address.pid)
        for _ in range(puts // AT_ONCE):
            await asyncio.gather(*(cache.put(f"key-{number}", {"number": number}) for number in range(AT_ONCE)))
        return (cpu_seconds(address.pid) - used) / puts * MILLION

    async def story() -> int:
        async with eventlog.connect(addresses[0].text) as client, eventlog.connect(addresses[1].text) as other:
            caches = [await each.create_cache("listened") for each in (client, other)]
            for cache, address in zip(caches, addresses, strict=True):
                await cache.register(id="first", durable=True)
                await puts_of(cache, address)
            resident = resident_bytes(pid)
            for low in range(0, listeners, AT_ONCE):
                await asyncio.gather(*(caches[0].register(id=f"listener-{number}", durable=True) for number in range(low, low + AT_ONCE)))
            grown_bytes = resident_bytes(pid) - resident
            for _ in range(ROUNDS):
                for cost, cache, address in zip(costs, caches, addresses, strict=True):
                    cost.put_us = min(cost.put_us, await puts_of(cache, address))
            used = [cpu_seconds(address.pid) for address in addresses]
            await asyncio.sleep(idle_seconds)
            for cost, before, address in zip(costs, used, addresses, strict=True):
                cost.idle_cores = (cpu_seconds(address.pid) - before) / idle_seconds
            return grown_bytes

    grown_bytes = asyncio.run(story())
    return *costs, grown_bytes
