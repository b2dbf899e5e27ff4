"""What the machine and the bare libraries do at best, measured in the run whose figures they stand beside.

Each is called in a process of its own by `processes.in_child`, so that nobody else's CPU is in it.
"""

import asyncio
import gc
import os
import socket
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

import orjson
import xxhash

from benchmarks.inputs import key_of, random_values
from eventlog.events import Event, EventSource

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes through a loopback connection: seconds, and the CPU of both ends."""

    nbytes: int
    seconds: float
    sender_cpu: float
    receiver_cpu: float


def loopback(nbytes: int, *, write_bytes: int = MIB) -> Transfer:
    """Return what it costs to send `nbytes` in writes of `write_bytes` to another process of this machine."""
    listener = socket.create_server(("127.0.0.1", 0))
    child = get_context("spawn").Process(target=_send, args=(listener.getsockname()[1], nbytes, write_bytes))
    child.start()
    connection, _ = listener.accept()
    buffer = bytearray(write_bytes)
    connection.recv_into(buffer, 1)  # the sender is up
    begun, cpu = time.monotonic(), time.process_time()
    connection.sendall(b"g")
    left = nbytes
    while left:
        left -= connection.recv_into(buffer)
    seconds, cpu = time.monotonic() - begun, time.process_time() - cpu
    sender_cpu = float(connection.recv(64))
    child.join()
    connection.close()
    listener.close()
    return Transfer(nbytes, seconds, sender_cpu, cpu)


def _send(port: int, nbytes: int, write_bytes: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        data = memoryview(os.urandom(write_bytes))
        connection.sendall(b"u")
        connection.recv(1)
        cpu = time.process_time()
        left = nbytes
        while left:
            sent = min(left, write_bytes)
            connection.sendall(data[:sent])
            left -= sent
        cpu = time.process_time() - cpu
        time.sleep(0.05)  # so that the figure does not arrive with the last bytes
        connection.sendall(repr(cpu).encode())


def round_trips(count: int, *, request_bytes: int, answer_bytes: int) -> list[float]:
    """Return the seconds of round trips between two processes over loopback, one in flight, blocking sockets on both sides."""
    listener = socket.create_server(("127.0.0.1", 0))
    child = get_context("spawn").Process(target=_echo, args=(listener.getsockname()[1], request_bytes, answer_bytes))
    child.start()
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request = bytes(request_bytes)
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        connection.sendall(request)
        _receive(connection, answer_bytes)
        found.append(time.perf_counter() - begun)
    connection.close()
    child.join()
    listener.close()
    return found


def _echo(port: int, request_bytes: int, answer_bytes: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answer = bytes(answer_bytes)
        while _receive(connection, request_bytes):
            connection.sendall(answer)


def _receive(connection: socket.socket, size: int) -> bool:
    while size:
        data = connection.recv(size)
        if not data:
            return False
        size -= len(data)
    return True


def syncs(count: int, *, size: int, directory: Path) -> list[float]:
    """Return the seconds of appending `size` bytes to a file and making them durable, one after the other."""
    path = directory / "fdatasync"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    data = os.urandom(size)
    found = []
    try:
        for _ in range(count):
            begun = time.perf_counter()
            os.write(handle, data)
            os.fdatasync(handle)
            found.append(time.perf_counter() - begun)
    finally:
        os.close(handle)
        path.unlink()
    return found


def objects(count: int, *, value_bytes: int = 100, chunk: int = 10_000) -> float:
    """Return the CPU seconds an event of building the objects that applications see from ready lists, chunk by chunk."""
    lists = _lists(chunk, value_bytes)
    source = EventSource(cache="c", cache_id=1, cluster="c", text_keys=False, json_values=False)
    gc.collect()
    begun = time.process_time()
    for _ in range(count // chunk):
        for _event in map(Event, *lists, repeat(source)):
            pass
    return (time.process_time() - begun) / (count // chunk * chunk)


def stepped_objects(count: int, *, value_bytes: int = 100, chunk: int = 10_000) -> float:
    """Return the CPU seconds an event of the same, taken one by one with `async for`: what that way of reading costs at least."""
    lists = _lists(chunk, value_bytes)
    source = EventSource(cache="c", cache_id=1, cluster="c", text_keys=False, json_values=False)

    async def build() -> AsyncIterator[Event]:
        for _ in range(count // chunk):
            for event in map(Event, *lists, repeat(source)):
                yield event

    async def take() -> None:
        async for _event in build():
            pass

    gc.collect()
    begun = time.process_time()
    asyncio.run(take())
    return (time.process_time() - begun) / (count // chunk * chunk)


def _lists(chunk: int, value_bytes: int) -> list[list[int] | list[bytes]]:
    ids = [(number + 1) << 10 for number in range(chunk)]
    keys = [key_of(number) for number in range(chunk)]
    return [ids, [0] * chunk, keys, random_values(chunk, value_bytes), [1] * chunk, list(range(chunk))]


def json_lines(path: Path) -> tuple[int, float]:
    """Return lines, and the CPU seconds of parsing each and hashing its key: the least that loading them can cost."""
    begun = time.process_time()
    with path.open("rb") as file:
        lines = sum(1 for _ in map(_parse, file))
    return lines, time.process_time() - begun


def _parse(line: bytes) -> int:
    return xxhash.xxh3_64_intdigest(orjson.loads(line)["key"].encode())


def spin(seconds: float) -> float:
    """Return rounds of a fixed loop per CPU second: how fast this core is now, to compare runs."""
    begun = time.process_time()
    rounds = 0
    while time.process_time() - begun < seconds:
        deque(range(10_000), 0)
        rounds += 1
    return rounds / (time.process_time() - begun)
