"""Batches of 1,000 events of 100 B written while 1,000 followers read 1 kB a second or nothing; the same writer without them.

The followers are clients of ours, and after those as many streams over HTTP.
"""

import asyncio
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.figures import Row, Scale, bounded, many, note
from benchmarks.processes import Address, Node, PeakMemory, cpu_seconds, in_child, scratch
from eventlog.transport.connect import connect
from eventlog.transport.greeting import GreetingOptions
from eventlog.wire.eventlog_pb2 import Message, Poll, Watch

FOLLOWERS = 1_000
SECONDS = 10
ROUNDS = 3
SHARE_MIN = 0.9
GROWTH_MIB_MAX = 150.0
BYTES_A_SECOND = 1_000
SOCKET_BYTES = 4_096
BATCH = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Events a second of each round without and with followers, and by how much the node grew because of them."""

    alone: list[float]
    beside: list[float]
    cores_alone: float
    cores_beside: float
    grown_bytes: int


def run(scale: Scale) -> Iterator[Row]:
    for way in ("clients", "HTTP"):
        with scratch() as directory, Node(directory / "data", "--segments", "64") as node:
            sizes = (scale.of(FOLLOWERS, quick=99), scale.of(SECONDS, quick=1), scale.of(ROUNDS, quick=1))
            found = in_child(_measure, node.address, way, sizes)
        alone, beside = _middle(found.alone), _middle(found.beside)
        yield Row(
            case=f"{way}: events written beside them",
            measured=f"{many(beside)}/s",
            bare=f"{many(alone)}/s",
            ratio=beside / alone,
            target=f">= {SHARE_MIN:g}x",
            reached=beside >= SHARE_MIN * alone,
        )
        yield bounded(f"{way}: memory of the node grew by", value=found.grown_bytes / (1 << 20), unit="MiB", at_most=GROWTH_MIB_MAX)
        yield note(f"{way}: CPU of the node", f"{found.cores_beside:.2f} cores beside them, {found.cores_alone:.2f} alone")


def _middle(rates: list[float]) -> float:
    return sorted(rates)[len(rates) // 2]


class Follower:
    """Follows a cache; its socket is read from a little now and then, or never."""

    def __init__(self, transport: asyncio.Transport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
        self._transport = transport
        transport.pause_reading()

    async def trickle(self) -> None:
        """Read what the socket holds, and wait as long as that may take."""
        while not self._transport.is_closing():
            self._transport.resume_reading()
            await asyncio.sleep(0)
            self._transport.pause_reading()
            await asyncio.sleep(SOCKET_BYTES / BYTES_A_SECOND)

    def abort(self) -> None:
        """Go away without a word."""
        self._transport.abort()


async def _client(address: Address, cache_id: int) -> Follower:
    connection = await connect(address.host, address.port, options=GreetingOptions(client="slow follower"))
    connection.stream(Message(watch=Watch(poll=Poll(cache_id=cache_id, latest=True), follow=True)))
    connection.flush()
    assert connection._transport is not None
    return Follower(connection._transport)


async def _http(address: Address, _cache_id: int) -> Follower:
    host, _, port = address.http.rpartition(":")
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, host, int(port))
    transport.write(f"GET /v1/caches/slow/events?follow=true&after=latest HTTP/1.1\r\nHost: {address.http}\r\n\r\n".encode())
    return Follower(transport)


def _measure(address: Address, way: str, sizes: tuple[int, int, int]) -> Found:
    import eventlog

    followers, seconds, rounds = sizes
    follow = _client if way == "clients" else _http
    values = {f"key-{number}": "x" * 84 for number in range(BATCH)}

    async def write(cache: eventlog.Cache) -> tuple[float, float]:
        """Return events a second, and the cores that the node used."""
        start, used, events = time.perf_counter(), cpu_seconds(address.pid), 0
        while time.perf_counter() - start < seconds:
            await asyncio.gather(*(cache.put_many(values) for _ in range(4)))
            events += 4 * BATCH
        took = time.perf_counter() - start
        return events / took, (cpu_seconds(address.pid) - used) / took

    async def story() -> Found:
        alone: list[tuple[float, float]] = []
        beside: list[tuple[float, float]] = []
        grown = 0
        async with eventlog.connect(address.text) as client:
            cache = await client.create_cache("slow", format="json", state=False, retain_bytes=1 << 30)
            cache_id = (await cache.info()).id
            await write(cache)
            for _ in range(rounds):
                with PeakMemory(address.pid) as peak_alone:
                    await write(cache)
                    alone.append(await write(cache))
                readers = [await follow(address, cache_id) for _ in range(followers)]
                tasks = [asyncio.ensure_future(reader.trickle()) for reader in readers[::2]]
                with PeakMemory(address.pid) as peak:
                    await write(cache)  # fills what lies between the node and a reader who does not read
                    beside.append(await write(cache))
                grown = max(grown, peak.bytes - peak_alone.bytes)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                for reader in readers:
                    reader.abort()
                await asyncio.sleep(1)
        return Found(
            alone=[rate for rate, _ in alone],
            beside=[rate for rate, _ in beside],
            cores_alone=_middle([cores for _, cores in alone]),
            cores_beside=_middle([cores for _, cores in beside]),
            grown_bytes=grown,
        )

    return asyncio.run(story())
