"""Writes to healthy segments while some 40 % of the segments lack replicas and the same client writes to those, too.

Five nodes, three copies, two nodes killed. Each way of writing goes by turns alone and beside writes to the other segments. A commit of a
group and an acknowledgement of work are writes to the segment that keeps the group; events and tasks are handed out before the nodes are
killed, and beside them go single puts to the other segments.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import pyarrow as pa
import uvloop

from benchmarks.clusters import cluster
from benchmarks.figures import Row, Scale, many, note
from benchmarks.processes import Address, in_child, scratch
from eventlog.groups.record import route_of
from eventlog.routing.routes import Routes

NODES = 5
SEGMENTS = 64
GONE = ("n4", "n5")
SECONDS = 3
ROUNDS = 5
SHARE_MIN = 0.9
BATCH = 1_000
KEYS = 20 * BATCH
TASKS = 12 * BATCH  # a work group has no more than 256 of a segment handed out
SINGLES = 64
BULKS = 4
WAIT_MS = 1_000  # of writes to segments that cannot be written

EVERY_OUTAGE_MS = 3_600_000  # members go on through all of it
SESSION_MS = 60_000  # what was handed out stays so through the failover

Rates = dict[str, tuple[list[float], list[float]]]
Act = Callable[[list[str], int], Awaitable[int]]
Ways = dict[str, tuple[Act, int]]


def run(scale: Scale) -> Iterator[Row]:
    """Yield a row for each way of writing."""
    with scratch() as directory, cluster(directory, nodes=NODES, segments=SEGMENTS) as nodes:
        addresses = [node.address for node in nodes]
        short = in_child(_balance, addresses)
        found = in_child(_measure, addresses, short, scale.of(SECONDS, quick=1), scale.of(ROUNDS, quick=1))
    for name, (alone, beside) in found.items():
        ours, bare = _middle(beside), _middle(alone)
        yield Row(
            case=name,
            measured=f"{many(ours)}/s",
            bare=f"{many(bare)}/s",
            ratio=ours / bare,
            target=f">= {SHARE_MIN:g}x",
            reached=ours >= SHARE_MIN * bare,
        )
    yield note("segments that cannot be written", f"{len(short)} of {SEGMENTS}")


def _middle(rates: list[float]) -> float:
    return sorted(rates)[len(rates) // 2]


def _balance(addresses: list[Address]) -> set[int]:
    """Spread all copies over all nodes; return the segments that have two of their three on those that will be gone."""
    import eventlog

    async def story() -> set[int]:
        async with eventlog.connect(addresses[0].text) as client, asyncio.timeout(120):
            await client.admin.start_rebalance()
            while (await client.admin.rebalance_status()).state != "done" or (await client.status()).health != "ok":  # noqa: ASYNC110 -- a poll
                await asyncio.sleep(0.2)
            return {segment.segment for segment in await client.segments() if set(GONE) <= set(segment.owners)}

    return uvloop.run(story())


def _measure(addresses: list[Address], short: set[int], seconds: int, rounds: int) -> Rates:
    import eventlog

    routes = Routes(segments=SEGMENTS)
    keys: dict[bool, list[str]] = {True: [], False: []}
    for number in range(KEYS):
        key = f"key-{number}"
        keys[routes.segment(key.encode()) in short].append(key)
    healthy, sick = keys[False], keys[True]

    async def story() -> Rates:
        async with (
            eventlog.connect(*[address.text for address in addresses[: -len(GONE)]]) as client,
            AsyncExitStack() as members,
        ):
            cache = await client.create_cache("short", format="json")
            await cache.put_many([(key, 0) for key in healthy + sick])
            names = (
                name for name in map("group-{}".format, range(SEGMENTS)) if routes.segment(route_of(name), by_prefix=True) not in short
            )
            groups = await _groups(cache, members, names)
            for address in addresses[-len(GONE) :]:
                os.kill(address.pid, signal.SIGKILL)
            await asyncio.gather(*(cache.put(key, 0, timeout_ms=60_000) for key in healthy[:BATCH]))  # failovers are over
            ways, hasty = _ways(cache, None) | groups, _ways(cache, WAIT_MS)
            hasty |= dict.fromkeys(groups, hasty["put"])
            found: Rates = {}
            for name, (act, count) in ways.items():
                rates: tuple[list[float], list[float]] = ([], [])
                for turn in range(2 * rounds):
                    insist, number_of = hasty[name]
                    others = [
                        asyncio.ensure_future(_insist(insist, sick, number)) for number in range(max(number_of // 2, 1) if turn % 2 else 0)
                    ]
                    rates[turn % 2].append(await _rate(act, healthy, count=count, seconds=seconds))
                    for other in others:
                        other.cancel()
                    await asyncio.gather(*others, return_exceptions=True)
                found[name] = rates
            return found

    return uvloop.run(story())


def _ways(cache: Any, timeout_ms: int | None) -> Ways:
    """Return ways of writing, and how many writers each has."""

    async def single(keys: list[str], number: int) -> int:
        await cache.put(keys[number % len(keys)], number, timeout_ms=timeout_ms)
        return 1

    def rows(keys: list[str], number: int) -> list[str]:
        start = number * BATCH % max(len(keys) - BATCH, 1)
        return keys[start : start + BATCH]

    async def pairs(keys: list[str], number: int) -> int:
        own = rows(keys, number)
        await cache.put_many([(key, number) for key in own], timeout_ms=timeout_ms)
        return len(own)

    async def arrow(keys: list[str], number: int) -> int:
        own = rows(keys, number)
        await cache.put_arrow(pa.table({"key": own, "value": [str(number)] * len(own)}), timeout_ms=timeout_ms)
        return len(own)

    async def columns(keys: list[str], number: int) -> int:
        own = rows(keys, number)
        await (await cache.send_columns([key.encode() for key in own], [b"%d" % number] * len(own), timeout_ms=timeout_ms))
        return len(own)

    return {"put": (single, SINGLES), "put_many": (pairs, BULKS), "put_arrow": (arrow, BULKS), "send_columns, as load": (columns, BULKS)}


async def _groups(cache: Any, members: AsyncExitStack, names: Iterator[str]) -> Ways:
    """Return commits of one group and acknowledgements in another, one after the other."""
    options: Any = {"outage_ms": EVERY_OUTAGE_MS, "session_timeout_ms": SESSION_MS}
    reader = await members.enter_async_context(cache.consumer(next(names), auto_commit=False, **options))
    worker = await members.enter_async_context(cache.consumer(next(names), mode="work", from_id="earliest", prefetch=TASKS, **options))
    event = await anext(aiter(reader))
    tasks: list[Any] = []
    async for task in worker:
        tasks.append(task)
        if len(tasks) == TASKS:
            break

    async def commit(_: list[str], number: int) -> int:
        await reader.commit(event, metadata=str(number))  # kept anew, though the place is the same
        return 1

    async def acknowledge(_: list[str], number: int) -> int:
        if number == TASKS // (2 * ROUNDS):
            return 0  # the others are for the turns to come
        await tasks.pop().ack()
        return 1

    return {"commit of a group": (commit, 1), "acknowledgement of work": (acknowledge, 1)}


async def _insist(act: Act, keys: list[str], number: int) -> None:
    """Write what cannot be written, again and again."""
    from eventlog.errors import EventLogError

    while True:
        with suppress(EventLogError):
            await act(keys, number)
        await asyncio.sleep(0)
        number += 1


async def _rate(act: Act, keys: list[str], *, count: int, seconds: int) -> float:
    """Return how many rows a second `count` writers write, until there is nothing more to write."""
    began, rows = time.perf_counter(), 0

    async def write(number: int) -> None:
        nonlocal rows
        while time.perf_counter() - began < seconds:
            written = await act(keys, number)  # first: the sum is others' too
            if not written:
                return
            rows += written
            number += count

    await asyncio.gather(*(write(number) for number in range(count)))
    return rows / (time.perf_counter() - began)
