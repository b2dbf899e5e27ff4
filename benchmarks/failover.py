"""A node with primaries is killed, or falls silent, under single puts to every segment: how long writes to its segments stop."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from benchmarks.clusters import cluster
from benchmarks.figures import Row, Scale, bounded, note
from benchmarks.inputs import key_of
from benchmarks.processes import Address, in_child, scratch

TRIALS = 10
SEGMENTS = 32
WRITERS_A_SIDE = 6  # for the victim's segments, and for all others
BEFORE_S, AFTER_S = 1.0, 5.0
SILENT_S = 4.0
SPREAD_SECONDS_MAX = 30
CASES = (("kill -9", signal.SIGKILL, 500.0), ("SIGSTOP", signal.SIGSTOP, 2_000.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The longest silence between acknowledgements in milliseconds, at the victim's segments and at the others; and what went wrong."""

    victim_ms: float
    others_ms: float
    errors: tuple[str, ...]
    lost: int
    acknowledged: int


def run(scale: Scale) -> Iterator[Row]:
    trials = scale.of(TRIALS, quick=1)
    for name, number, at_most in CASES:
        gaps = []
        for _ in range(trials):
            with scratch() as directory, cluster(directory, segments=SEGMENTS) as nodes:
                gaps.append(in_child(_trial, [node.address for node in nodes], number))
        stops, others = sorted(gap.victim_ms for gap in gaps), sorted(gap.others_ms for gap in gaps)
        yield bounded(f"{name}: writes to its segments stop, worst of {trials}", value=stops[-1], unit="ms", at_most=at_most)
        yield note(f"{name}: min / median / max", f"{stops[0]:.0f} / {median(stops):.0f} / {stops[-1]:.0f} ms")
        yield note(f"{name}: writes to the others", f"{others[0]:.0f} / {median(others):.0f} / {others[-1]:.0f} ms")
        yield bounded(f"{name}: errors that the writer saw", value=sum(len(gap.errors) for gap in gaps), unit="", at_most=0)
        yield bounded(f"{name}: acknowledged events lost", value=sum(gap.lost for gap in gaps), unit="", at_most=0)
        yield note(f"{name}: acknowledged in all trials", f"{sum(gap.acknowledged for gap in gaps):,}")


def _trial(addresses: Sequence[Address], number: signal.Signals) -> Gap:
    import eventlog
    from eventlog.hashing import hash_key, segment_of

    async def story() -> Gap:
        async with eventlog.connect(*[address.text for address in addresses]) as client:
            cache = await client.create_cache("w", format="bytes", key_format="bytes", state=False)
            primaries = await _spread(client, nodes=len(addresses))
            counts = [sum(primary == f"n{at}" for primary in primaries.values()) for at in range(1, len(addresses) + 1)]
            victim = max(range(len(addresses)), key=counts.__getitem__)
            keys: dict[bool, list[bytes]] = {True: [], False: []}
            for at in range(10_000):
                own = primaries[segment_of(hash_key(key_of(at)), SEGMENTS)] == f"n{victim + 1}"
                if len(keys[own]) < WRITERS_A_SIDE:
                    keys[own].append(key_of(at))
            acked: dict[bool, list[float]] = {True: [], False: []}
            ids: list[int | None] = []
            errors: list[str] = []
            end = time.monotonic() + BEFORE_S + AFTER_S

            async def write(own: bool, key: bytes) -> None:
                while time.monotonic() < end:
                    try:
                        ids.append((await cache.put(key, b"x" * 100)).id)
                        acked[own].append(time.monotonic())
                    except eventlog.EventLogError as error:
                        errors.append(f"{error.code}: {error}")

            writers = [asyncio.create_task(write(own, key)) for own, found in keys.items() for key in found]
            await asyncio.sleep(BEFORE_S)
            begun = time.monotonic()
            os.kill(addresses[victim].pid, number)
            if number == signal.SIGSTOP:
                await asyncio.sleep(SILENT_S)
                os.kill(addresses[victim].pid, signal.SIGCONT)
            await asyncio.gather(*writers)
            there = {event.id async for event in cache.events(from_id=0)}
            return Gap(
                victim_ms=_gap(acked[True], begun, end) * 1e3,
                others_ms=_gap(acked[False], begun, end) * 1e3,
                errors=tuple(errors),
                lost=len(set(ids) - there),
                acknowledged=len(ids),
            )

    return asyncio.run(story())


async def _spread(client: Any, *, nodes: int) -> dict[int, str]:
    """Return the primary of each segment once every node leads some: they are spread a moment after the cluster is whole."""
    async with asyncio.timeout(SPREAD_SECONDS_MAX):
        while True:
            found = {segment.segment: segment.primary for segment in await client.segments()}
            if len(set(found.values())) == nodes:
                return found
            await asyncio.sleep(0.2)


def _gap(acked: Sequence[float], begun: float, end: float) -> float:
    instants = [begun, *(at for at in acked if at > begun), end]
    return max(later - earlier for earlier, later in pairwise(instants))
