"""A proxy before a broker that knows what it is asked, and holds one request, or the answer to one, so that a fault happens just there."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from types import TracebackType
from typing import Self

from eventlog.client.loop_thread import LoopThread

WITHIN_S = 60
_SIZE, _REQUEST, _NUMBER, _END_ANSWER = Struct(">i"), Struct(">hhi"), Struct(">i"), Struct(">iih")
_HEAD_BYTES = 300  # a transactional id stands within them, in each of the requests below


class Asked(IntEnum):
    """What a producer of transactions asks for, by Kafka's numbers (Kafka protocol, "API Keys")."""

    DATA = 0
    PRODUCER = 22
    PARTITIONS = 24  # the first that a broker hears of a transaction
    END = 26


@dataclass(slots=True, kw_only=True, eq=False)
class Held:
    """What a gate waits for, and holds when it comes, until it is let go."""

    asked: Asked
    is_answer: bool
    who: bytes
    passing: int = 0
    answer: bytes = b""
    has_come: threading.Event = field(default_factory=threading.Event)
    is_answered: threading.Event = field(default_factory=threading.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def wait(self) -> None:
        """Return when it has come."""
        assert self.has_come.wait(WITHIN_S), f"{self.asked.name} is not asked for"

    def error(self) -> int:
        """Return Kafka's error in the answer to the end of a transaction, once there is one."""
        assert self.asked is Asked.END
        assert self.is_answered.wait(WITHIN_S), "the broker does not answer"
        return int(_END_ANSWER.unpack(self.answer)[2])


class Gate:
    """Open inside `with`; `address` is where the broker is reached."""

    def __init__(self) -> None:
        self._thread = LoopThread("gate")
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: list[Held] = []
        self.address = ""
        self.broker = ""

    def __enter__(self) -> Self:
        self._thread.run(self._open())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._thread.run(self._close())
        self._thread.stop()

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def hold(self, asked: Asked, *, who: str, is_answer: bool = False, passing: int = 0) -> Held:
        """Hold the next request of a kind that names a transactional id before the broker hears of it, or its answer once it was done.

        So many of the kind are let through before.
        """
        held = Held(asked=asked, is_answer=is_answer, who=who.encode(), passing=passing)
        self._held.append(held)
        return held

    def release(self, held: Held) -> None:
        """Let go what is held, however late it comes."""
        self._thread.run(_set(held.released))

    def _found(self, frame: bytes) -> tuple[int, Held | None]:
        key, _, number = _REQUEST.unpack_from(frame)
        head = frame[:_HEAD_BYTES]
        found = next((held for held in self._held if not held.has_come.is_set() and held.asked == key and held.who in head), None)
        if found is not None and found.passing:
            found.passing -= 1
            return number, None
        return number, found

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        ends = [writer]
        try:
            host, _, port = self.broker.rpartition(":")
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            ends.append(far_writer)
            watched: dict[int, Held] = {}
            await asyncio.gather(self._there(reader, far_writer, watched), _back(far_reader, writer, watched))
        except OSError:
            pass  # the broker does not run
        finally:
            for end in ends:
                end.transport.abort()
            self._tasks.discard(task)

    async def _there(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, watched: dict[int, Held]) -> None:
        async for frame in _frames(reader):
            number, held = self._found(frame)
            if held is not None:
                watched[number] = held
                if not held.is_answer:
                    held.has_come.set()
                    await held.released.wait()
            _write(writer, frame)
        if not writer.transport.is_closing():
            writer.write_eof()


async def _back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, watched: dict[int, Held]) -> None:
    async for frame in _frames(reader):
        held = watched.pop(*_NUMBER.unpack_from(frame), None)
        if held is not None:
            held.answer = frame
            held.is_answered.set()
            if held.is_answer:
                held.has_come.set()
                await held.released.wait()
        _write(writer, frame)
    writer.transport.abort()


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield requests or answers, each without its length, until the other end is gone."""
    with suppress(OSError, asyncio.IncompleteReadError):
        while True:
            (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
            yield await reader.readexactly(size)


def _write(writer: asyncio.StreamWriter, frame: bytes) -> None:
    if not writer.transport.is_closing():
        writer.write(_SIZE.pack(len(frame)) + frame)


async def _set(event: asyncio.Event) -> None:
    event.set()
