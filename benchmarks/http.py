"""What the ways by HTTP cost beside those of a client: all events of a cache, single puts, and a write while many streams follow the cache.

All events are read by a program that only counts bytes, and by `eventlog consume --json`, which prints the same to nowhere: the CPU of
node and reader together. Puts go one after the other over one connection, then over 64 at once. For the streams one connection writes, one
put after the other; another process reads all of them. Streams that nobody reads are beside a writer of batches. The ways go by turns, and
the middle round counts.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from multiprocessing import Process
from statistics import median

from benchmarks.figures import MILLION, Row, Scale, against, note, rate
from benchmarks.processes import Address, Node, cpu_seconds, in_child, scratch

EVENTS = 500_000
BATCH = 10_000
CPU_AT_MOST = 0.5
PER_CPU_SECOND_MIN = 400_000
ALONE = 2_000
ALONE_AT_MOST = 3.0
CONNECTIONS = 64
PUTS = 300
FOLLOWERS = 100
ROUNDS = 3
PAUSE_S = 0.02
BESIDE_AT_MOST = 2.0
UNREAD = 1_000
UNREAD_BYTES = 4_096
WRITTEN = 200_000
KEPT_MIN = 0.9
QUIET_CPU_S = 0.1
QUIET_WITHIN_S = 120
CACHE = "/v1/caches/followed"


def run(scale: Scale) -> Iterator[Row]:
    """Yield rows for events, for puts, and for a write beside streams."""
    with scratch() as directory, Node(directory / "data") as node:
        yield from _events(scale, node.address)
        yield from _puts(scale, node.address)
        yield from _streams(scale, node.address)
        yield from _unread(scale, node.address)


# ---------------------------------------------------------------- all events of a cache


def _events(scale: Scale, address: Address) -> Iterator[Row]:
    events = scale.of(EVENTS)
    in_child(_fill, address, events)
    found: dict[str, list[tuple[float, float]]] = {"http": [], "consume": []}
    for turn in range(1 + scale.of(ROUNDS, quick=1)):
        for way, read in (("http", _read_all), ("consume", _consume_all)):
            before = cpu_seconds(address.pid)
            reader = read(address, events)
            node = cpu_seconds(address.pid) - before
            if turn:  # the first reads from disk
                found[way].append(((node + reader) / events, node / events))
    ours, bare = (median(both for both, _ in found[way]) for way in ("http", "consume"))
    case = "events as NDJSON, node and reader, beside consume --json"
    yield against(case, ours=MILLION * ours, bare=MILLION * bare, unit="us CPU", at_most=CPU_AT_MOST)
    yield rate(
        "events as NDJSON, a second of the node's CPU",
        per_second=1 / median(node for _, node in found["http"]),
        bare=1 / median(node for _, node in found["consume"]),
        unit="events",
        at_least=PER_CPU_SECOND_MIN,
    )


def _fill(address: Address, events: int) -> None:
    from eventlog import blocking

    with blocking.connect(address.text) as client:
        cache = client.create_cache("filled")
        for low in range(0, events, BATCH):
            cache.put_many([(f"key-{number}", {"n": number, "text": "x" * 80}) for number in range(low, min(low + BATCH, events))])


def _read_all(address: Address, events: int) -> float:
    """Read all events over one connection and return the CPU of the reader."""
    return in_child(_count_lines, address, events)


def _count_lines(address: Address, events: int) -> float:
    host, _, port = address.http.rpartition(":")
    connection = HTTPConnection(host, int(port))
    began = time.process_time()
    connection.request("GET", "/v1/caches/filled/events?after=0", headers={"Accept": "application/x-ndjson"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    lines = 0
    while piece := answer.read1(1 << 20):
        lines += piece.count(b"\n")
    assert lines >= events, lines
    return time.process_time() - began


def _consume_all(address: Address, _events: int) -> float:
    words = [sys.executable, "-m", "eventlog_cli", "consume", "filled", "--json", "--server", address.text]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


# ---------------------------------------------------------------- single puts


def _puts(scale: Scale, address: Address) -> Iterator[Row]:
    puts = scale.of(ALONE)
    found: dict[str, list[float]] = {"http": [], "client": []}
    for _ in range(scale.of(ROUNDS, quick=1)):
        found["client"].append(in_child(_by_client, address, puts))
        found["http"].append(in_child(_by_http, address, puts))
    yield against(
        "put, one in flight, p50, beside a client's",
        ours=MILLION * median(found["http"]),
        bare=MILLION * median(found["client"]),
        unit="us",
        at_most=ALONE_AT_MOST,
    )
    before = cpu_seconds(address.pid)
    middle, per_second = in_child(_at_once, address, scale.of(20 * ALONE))
    cpu = (cpu_seconds(address.pid) - before) / scale.of(20 * ALONE)
    yield note(
        f"put, over {CONNECTIONS} connections",
        f"{per_second:,.0f} a second, p50 {1000 * middle:.1f} ms, {MILLION * cpu:.0f} us of the node's CPU",
    )


def _by_client(address: Address, puts: int) -> float:
    import eventlog

    async def story() -> float:
        async with eventlog.connect(address.text) as client:
            cache = await client.create_cache("singles", if_exists="use")
            taken = []
            for number in range(puts):
                began = time.perf_counter()
                await cache.put(f"k{number % 50}", {"n": number, "text": "x" * 80})
                taken.append(time.perf_counter() - began)
            return median(taken)

    return asyncio.run(story())


def _by_http(address: Address, puts: int) -> float:
    async def story() -> float:
        taken = await _Putting(address).run(puts)
        return median(taken)

    return asyncio.run(story())


def _at_once(address: Address, puts: int) -> tuple[float, float]:
    """Return the middle of how long puts take that go over many connections at once, and how many there are a second."""

    async def story() -> tuple[float, float]:
        began = time.perf_counter()
        taken = await asyncio.gather(*(_Putting(address).run(puts // CONNECTIONS) for _ in range(CONNECTIONS)))
        seconds = time.perf_counter() - began
        every = [one for some in taken for one in some]
        return median(every), len(every) / seconds

    return asyncio.run(story())


class _Putting:
    """A connection over which one put goes after the other. It reads no more of an answer than it must."""

    def __init__(self, address: Address) -> None:
        self._host, _, port = address.http.rpartition(":")
        self._port = int(port)

    async def run(self, puts: int) -> list[float]:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        taken = []
        for number in range(puts):
            body = b'{"n": %d, "text": "%s"}' % (number, b"x" * 80)
            head = f"PUT /v1/caches/singles/entries/k{number % 50} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            began = time.perf_counter()
            writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 20"), answer
            await reader.readexactly(int(answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]))
            taken.append(time.perf_counter() - began)
        writer.close()
        return taken


# ---------------------------------------------------------------- a write beside streams


def _streams(scale: Scale, address: Address) -> Iterator[Row]:
    puts = scale.of(PUTS, quick=100)
    alone: list[float] = []
    beside: list[float] = []
    work: list[float] = []
    host, _, port = address.http.rpartition(":")
    connection = HTTPConnection(host, int(port))
    _ask(connection, "POST", "/v1/caches", {"name": "followed"})
    for _ in range(scale.of(ROUNDS, quick=1)):
        seconds, cpu_alone = _writing(connection, address.pid, puts)
        alone.append(seconds)
        reading = Process(target=_follow, args=(address.http, FOLLOWERS), daemon=True)
        reading.start()
        time.sleep(2)  # all of them have asked by then
        seconds, cpu_beside = _writing(connection, address.pid, puts)
        beside.append(seconds)
        work.append((cpu_beside - cpu_alone) / puts / FOLLOWERS)
        reading.kill()
        reading.join()
    yield against(
        f"put, p50, beside {FOLLOWERS} streams",
        ours=MILLION * median(beside),
        bare=MILLION * median(alone),
        unit="us",
        at_most=BESIDE_AT_MOST,
    )
    yield note("an event to a stream", f"{MILLION * median(work):.0f} us of the node's CPU")


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


# ---------------------------------------------------------------- writers beside streams that nobody reads


def _unread(scale: Scale, address: Address) -> Iterator[Row]:
    streams, events = scale.of(UNREAD, quick=100), scale.of(WRITTEN)
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(scale.of(ROUNDS, quick=1)):
        alone.append(in_child(_write_batches, address, events))
        silent = Process(target=_ask_and_leave, args=(address.http, streams), daemon=True)
        silent.start()
        _until_quiet(address.pid)
        beside.append(in_child(_write_batches, address, events))
        silent.kill()
        silent.join()
    yield against(
        f"an event of a batch, beside {streams:,} streams that nobody reads",
        ours=MILLION * median(beside) / events,
        bare=MILLION * median(alone) / events,
        unit="us",
        at_most=round(1 / KEPT_MIN, 2),
    )


def _write_batches(address: Address, events: int) -> float:
    """Write events and return how many seconds it took."""
    from eventlog import blocking

    with blocking.connect(address.text) as client:
        cache = client.cache("filled")
        began = time.perf_counter()
        for low in range(0, events, BATCH):
            cache.put_many([(f"key-{number}", {"n": number, "text": "x" * 80}) for number in range(low, min(low + BATCH, events))])
        return time.perf_counter() - began


def _ask_and_leave(address: str, streams: int) -> None:
    """Ask for so many streams of all events and what follows, and read nothing of them to the end of this process."""
    host, _, port = address.rpartition(":")
    held = []
    for _ in range(streams):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UNREAD_BYTES)
        connection.connect((host, int(port)))
        connection.sendall(f"GET /v1/caches/filled/events?follow=true&after=0 HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        held.append(connection)
    signal.pause()


def _until_quiet(pid: int) -> None:
    """Wait until a node has filled what it may, and does nothing for a second."""
    deadline = time.monotonic() + QUIET_WITHIN_S
    time.sleep(1)
    before = cpu_seconds(pid)
    while time.monotonic() < deadline:
        time.sleep(1)
        now = cpu_seconds(pid)
        if now - before < QUIET_CPU_S:
            return
        before = now
    raise TimeoutError(f"the node still works after {QUIET_WITHIN_S} s")
