"""A write over HTTP while many streams follow the cache, beside the same write while nobody does.

One connection writes, one put after the other; another process reads all streams. The ways go by turns, and the middle round counts. The
CPU is the node's, for one event to one stream.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from multiprocessing import Process
from statistics import median

from benchmarks.figures import Row, Scale, against, note
from benchmarks.processes import Node, cpu_seconds, scratch

PUTS = 300
FOLLOWERS = 100
ROUNDS = 3
PAUSE_S = 0.02
BESIDE_AT_MOST = 2.0
CACHE = "/v1/caches/followed"


def run(scale: Scale) -> Iterator[Row]:
    """Yield a row for the write, and one for the node's work."""
    puts = scale.of(PUTS, quick=100)
    alone: list[float] = []
    beside: list[float] = []
    work: list[float] = []
    with scratch() as directory, Node(directory / "data") as node:
        host, _, port = node.address.http.rpartition(":")
        connection = HTTPConnection(host, int(port))
        _ask(connection, "POST", "/v1/caches", {"name": "followed"})
        for _ in range(scale.of(ROUNDS, quick=1)):
            seconds, cpu_alone = _writing(connection, node.address.pid, puts)
            alone.append(seconds)
            reading = Process(target=_follow, args=(node.address.http, FOLLOWERS), daemon=True)
            reading.start()
            time.sleep(2)  # all of them have asked by then
            seconds, cpu_beside = _writing(connection, node.address.pid, puts)
            beside.append(seconds)
            work.append((cpu_beside - cpu_alone) / puts / FOLLOWERS)
            reading.kill()
            reading.join()
    yield against(
        f"put, p50, beside {FOLLOWERS} streams", ours=1e6 * median(beside), bare=1e6 * median(alone), unit="us", at_most=BESIDE_AT_MOST
    )
    yield note("an event to a stream", f"{1e6 * median(work):.0f} us of the node's CPU")


def _ask(connection: HTTPConnection, method: str, path: str, body: object = None) -> None:
    connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found = answer.read()
    assert answer.status < 300, found


def _writing(connection: HTTPConnection, pid: int, puts: int) -> tuple[float, float]:
    """Return the middle of how long puts take, in seconds, and the node's CPU for all of them."""
    taken: list[float] = []
    before = cpu_seconds(pid)
    for number in range(puts):
        began = time.perf_counter()
        _ask(connection, "PUT", f"{CACHE}/entries/k{number % 50}", {"n": number, "text": "x" * 80})
        taken.append(time.perf_counter() - began)
        time.sleep(PAUSE_S)
    return median(taken), cpu_seconds(pid) - before


def _follow(address: str, streams: int) -> None:
    """Read so many streams to the end of this process."""

    async def one() -> None:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET {CACHE}/events?follow=true&after=0 HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        while await reader.read(1 << 16):
            pass

    async def every() -> None:
        await asyncio.gather(*(one() for _ in range(streams)))

    asyncio.run(every())
