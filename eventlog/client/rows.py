"""Keys and entries as they stream in: many a message, held only until they are taken."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import aclosing
from typing import Any, Generic, TypeVar

import numpy as np

from eventlog.batch.views import decode_block
from eventlog.client.formats import CacheFormat
from eventlog.client.nodes import Nodes
from eventlog.client.options import ClientOptions
from eventlog.client.uplink import chance
from eventlog.client.values import Entry
from eventlog.errors import CorruptData, EventLogError
from eventlog.routing.retry import decide
from eventlog.routing.routes import NOBODY
from eventlog.transport.connection import Connection
from eventlog.wire.eventlog_pb2 import Consistency, GetMany, Keys, Message

Row = TypeVar("Row")
RawEntry = tuple[bytes, bytes, int]  # key, value, version (0: no entry)
KEYS_PER_REQUEST_MAX = 10_000


class Rows(Generic[Row]):
    """Rows of an answer. Iterate with `async for`, which keeps a bounded part in memory; or `await` them all as a list."""

    def __init__(self, rows: AsyncGenerator[Row, None]) -> None:
        self.generator = rows

    def __aiter__(self) -> AsyncIterator[Row]:
        return self.generator

    def __await__(self) -> Generator[Any, None, list[Row]]:
        return self._all().__await__()

    async def _all(self) -> list[Row]:
        return [row async for row in self.generator]

    async def aclose(self) -> None:
        """End the answer before its end."""
        await self.generator.aclose()


class RowReader:
    """Asks for rows of one cache."""

    def __init__(self, nodes: Nodes, options: ClientOptions, *, cache_id: int, form: CacheFormat) -> None:
        self._nodes = nodes
        self._options = options
        self._cache_id = cache_id
        self._form = form

    async def entries_of(self, keys: Sequence[bytes], *, consistency: Consistency) -> AsyncGenerator[Entry | None, None]:
        """Yield the entries of keys in their order, None where there is none. A lost connection is made good."""
        done = attempt = 0
        while done < len(keys):
            part = keys[done : done + KEYS_PER_REQUEST_MAX]
            request = Message(get_many=GetMany(cache_id=self._cache_id, count=len(part), consistency=consistency))
            connection: Connection | None = None
            try:
                connection = await self._nodes.connection(NOBODY, self._deadline())
                async with aclosing(self._stream(connection, request, *_key_column(part))) as rows:
                    async for row in rows:
                        done, attempt = done + 1, 0
                        yield self._entry(row)
            except EventLogError as error:
                decision = decide(
                    self._options.retry, error, attempt=attempt, left_ms=self._options.timeout_ms, repeatable=True, chance=chance()
                )
                if not decision.again or attempt >= ATTEMPTS_MAX:
                    raise
                if decision.reconnect and connection is not None:
                    self._nodes.drop(connection)
                await asyncio.sleep(decision.wait_ms / 1000)
                attempt += 1

    def _entry(self, row: RawEntry) -> Entry | None:
        _, value, version = row
        return Entry(value=self._form.read_value(value), value_bytes=value, version=version) if version else None

    async def keys(self, *, prefix: bytes, limit: int) -> AsyncGenerator[str | bytes, None]:
        """Yield keys, segment by segment, ascending in each. A lost connection ends it with ConnectionLost."""
        async with aclosing(self._scan(prefix, limit, values=False)) as rows:
            async for key, _, _ in rows:
                yield self._form.read_key(key)

    async def entries(self, *, prefix: bytes, limit: int) -> AsyncGenerator[tuple[str | bytes, Entry], None]:
        """Yield keys and entries likewise."""
        async with aclosing(self._scan(prefix, limit, values=True)) as rows:
            async for key, value, version in rows:
                yield self._form.read_key(key), Entry(value=self._form.read_value(value), value_bytes=value, version=version)

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._options.timeout_ms / 1000

    async def _scan(self, prefix: bytes, limit: int, *, values: bool) -> AsyncGenerator[RawEntry, None]:
        request = Message(keys=Keys(cache_id=self._cache_id, prefix=prefix, limit=limit, values=values))
        connection = await self._nodes.connection(NOBODY, self._deadline())
        async with aclosing(self._stream(connection, request)) as rows:
            async for row in rows:
                yield row

    async def _stream(self, connection: Connection, request: Message, *buffers: bytes) -> AsyncGenerator[RawEntry, None]:
        stream = connection.stream(request, *buffers, credit_bytes=self._options.read_ahead_bytes)
        try:
            async for item in stream:
                for row in read_rows(item.body, count=item.message.stream_item.entries.count):
                    yield row
        finally:
            stream.stop()


ATTEMPTS_MAX = 10  # without a row in between


def _key_column(keys: Sequence[bytes]) -> tuple[bytes, bytes]:
    offsets = np.zeros(len(keys) + 1, "<i4")
    np.cumsum([len(key) for key in keys], out=offsets[1:])
    return offsets.tobytes(), b"".join(keys)


def read_rows(body: memoryview, *, count: int) -> list[RawEntry]:
    """Return key, value and version (0: no entry) of each row of an item.

    Raises:
        CorruptData: lengths contradict each other.
    """
    if len(body) < 8 * count:
        raise CorruptData(where="answer", why=f"{count} rows do not fit {len(body)} bytes")
    block = decode_block(body[8 * count :], where="answer")
    if block.count != count:
        raise CorruptData(where="answer", why=f"{block.count} rows in an item of {count}")
    versions = np.frombuffer(body[: 8 * count], "<i8").tolist()
    return list(zip(block.keys.to_list(), block.values.to_list(), versions, strict=True))
