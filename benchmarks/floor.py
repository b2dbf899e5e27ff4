"""The least that a server costs: it receives, verifies, stores, syncs and answers the same bytes, and does nothing else with them.

The bare baseline is handed its values ready-made. A server cannot be: the bytes come through a socket, are summed up to be believed,
are gathered by segment, are summed up again for the disk, and are answered. Here that is one blocking loop over prepared bytes: no
protocol, no check of a block, no ids, no second connection, no reader. What the node costs above this is the price of being one.
For single puts there is also the least with an event loop and a thread that writes, as every server has that must not block.

Each function is called in a process of its own by `processes.in_child`; whoever talks to the server is a further process.
"""

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from queue import SimpleQueue
from typing import Any

import uvloop
from crc32c import crc32c
from rocksdict import WriteBatch

from benchmarks.baseline import WARM_BYTES, Cost, Stopwatch, keys_of, opened, write_options
from benchmarks.inputs import Load, distinct_frames, frames_of
from benchmarks.machine import warm_memory
from eventlog.batch.build import WriteFrame
from eventlog.limits import PRODUCER_RESULTS_KEPT
from eventlog.segment.rocks.opening import Database

_HEAD = struct.Struct("<II")  # length and checksum of what follows
_ANSWER_BYTES = 9  # an event: id and kind
_FRAMES = 16  # different ones that are sent in turn


def append(load: Load, *, events: int, frames_per_group: float) -> Cost:
    """Receive `events` in batches of `load`, store those of a group as one value a segment, sync, answer."""
    per_group = max(round(frames_per_group), 1)
    groups = max(round(events / (load.batch * per_group)), 1)
    frames = _frames(load)
    cuts = [_cuts(frame) for frame in frames]
    buffers = [bytearray(max(len(frame.blocks) for frame in frames)) for _ in range(per_group)]
    keys = [
        keys_of(_shape([cuts[(group * per_group + at) % len(cuts)] for at in range(per_group)]), group * load.batch * per_group)
        for group in range(groups)
    ]
    answers = bytes(_ANSWER_BYTES * load.batch * per_group)
    with opened() as database, _peer(_send_frames, load, groups * per_group) as connection:
        log, options = database.root.get_column_family_handle("log"), write_options(journalled=True)
        connection.sendall(b"g")
        warm_memory(WARM_BYTES)
        watch = Stopwatch()
        for group in range(groups):
            pieces: dict[int, list[memoryview]] = {}
            for at, buffer in enumerate(buffers):
                body = _receive_frame(connection, buffer)
                for segment, _, low, high in cuts[(group * per_group + at) % len(cuts)]:
                    pieces.setdefault(segment, []).append(body[low:high])
            batch = WriteBatch(raw_mode=True)
            batch.set_default_column_family(log)
            for key, segment in zip(keys[group], sorted(pieces), strict=True):
                value = b"".join(pieces[segment])
                crc32c(value)
                batch.put(key, value)
            database.root.write(batch, options)
            database.root.flush_wal(sync=True)
            connection.sendall(answers)
        cost = watch.cost(events=groups * load.batch * per_group, groups=groups)
        del log
    return cost


def _frames(load: Load) -> list[WriteFrame]:
    return frames_of(load, min(distinct_frames(load), _FRAMES))


def _cuts(frame: WriteFrame) -> list[tuple[int, int, int, int]]:
    """Return (segment, events, low, high) of each block of a frame."""
    found, at = [], 0
    for segment, _, count, length, _ in frame.table.tolist():
        found.append((segment, count, at, at + length))
        at += length
    return found


def _shape(frames: Sequence[Sequence[tuple[int, int, int, int]]]) -> list[tuple[int, int, bytes]]:
    """Return (segment, events, nothing) of the values that the frames of a group make."""
    counts: dict[int, int] = {}
    for cuts in frames:
        for segment, count, _, _ in cuts:
            counts[segment] = counts.get(segment, 0) + count
    return [(segment, counts[segment], b"") for segment in sorted(counts)]


def _receive_frame(connection: socket.socket, buffer: bytearray) -> memoryview:
    length, checksum = _HEAD.unpack(connection.recv(_HEAD.size, socket.MSG_WAITALL))
    body = memoryview(buffer)[:length]
    connection.recv_into(body, length, socket.MSG_WAITALL)
    assert crc32c(body) == checksum, "loopback keeps bytes"
    return body


@contextmanager
def _peer(function: Any, *args: Any) -> Iterator[socket.socket]:
    """Give a connection to `function(port, *args)`, which runs in a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = get_context("spawn").Process(target=function, args=(listener.getsockname()[1], *args))
        child.start()
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield connection
        child.join()


def _send_frames(port: int, load: Load, count: int) -> None:
    """Send `count` frames, at most as many unanswered as a client has."""
    ready = [_HEAD.pack(len(frame.blocks), crc32c(frame.blocks)) + frame.blocks for frame in _frames(load)]
    answer = bytearray(_ANSWER_BYTES * load.batch)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.recv(1)
        for number in range(count):
            if number >= PRODUCER_RESULTS_KEPT:
                connection.recv_into(answer, len(answer), socket.MSG_WAITALL)
            connection.sendall(ready[number % len(ready)])
        for _ in range(min(count, PRODUCER_RESULTS_KEPT)):
            connection.recv_into(answer, len(answer), socket.MSG_WAITALL)


# ---------------------------------------------------------------- single puts


def put_trips(count: int, *, request_bytes: int, answer_bytes: int, in_thread: bool) -> list[float]:
    """Return the seconds of puts to a server that only stores and syncs, one in flight, seen by a blocking client.

    The server is one blocking loop, or, `in_thread`, an event loop that hands every put to a thread and hears of it.
    """
    with _peer(_serve_in_thread if in_thread else _serve, request_bytes, answer_bytes) as connection:
        request, found = bytes(request_bytes), []
        for _ in range(count):
            begun = time.perf_counter()
            connection.sendall(request)
            connection.recv(answer_bytes, socket.MSG_WAITALL)
            found.append(time.perf_counter() - begun)
    return found


class _Puts:
    """Stores puts, one group each."""

    def __init__(self, database: Database) -> None:
        self._root = database.root
        self._log = database.root.get_column_family_handle("log")
        self._options = write_options(journalled=True)
        self._number = 0

    def store(self, request: bytes) -> None:
        batch = WriteBatch(raw_mode=True)
        batch.put(self._number.to_bytes(14), request, self._log)
        self._number += 1
        self._root.write(batch, self._options)
        self._root.flush_wal(sync=True)

    def close(self) -> None:
        """Let go of the family: the database does not close before."""
        del self._log, self._root


def _serve(port: int, request_bytes: int, answer_bytes: int) -> None:
    with opened() as database, socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        puts, answer = _Puts(database), bytes(answer_bytes)
        while request := connection.recv(request_bytes, socket.MSG_WAITALL):
            puts.store(request)
            connection.sendall(answer)
        puts.close()


def _serve_in_thread(port: int, request_bytes: int, answer_bytes: int) -> None:  # noqa: ARG001 -- as `_serve`
    """Requests are small and one is in flight, so what arrives is one."""
    with opened() as database:
        puts, answer = _Puts(database), bytes(answer_bytes)
        queue: SimpleQueue[bytes | None] = SimpleQueue()

        async def run() -> None:
            loop = asyncio.get_running_loop()
            over = loop.create_future()

            class Protocol(asyncio.Protocol):
                def data_received(self, data: bytes) -> None:
                    queue.put(data)

                def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's
                    over.set_result(None)

            transport, _ = await loop.create_connection(Protocol, "127.0.0.1", port)

            def store() -> None:
                while (request := queue.get()) is not None:
                    puts.store(request)
                    loop.call_soon_threadsafe(transport.write, answer)

            thread = threading.Thread(target=store)
            thread.start()
            await over
            queue.put(None)
            thread.join()

        uvloop.run(run())
        puts.close()
