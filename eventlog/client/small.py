"""A client without an event loop for calls of single keys: what a short command needs, and for that it imports no arrays.

Its calls are those of `eventlog.blocking` of the same names, and mean the same; there are fewer. A write is one request, sent again under
its number until it is answered. Writes with a lifespan are the other's.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Self

from eventlog.batch.one import build_one
from eventlog.client.loop_thread import LoopThread
from eventlog.client.options import ClientOptions
from eventlog.client.reading.getting import CacheGetting
from eventlog.client.small_core import SmallCore
from eventlog.client.values import CacheInfo, Entry, Stored, kind_name
from eventlog.client.wording import cache_info
from eventlog.client.writing.acknowledging import Expecting
from eventlog.client.writing.singles import CacheSingles, Condition, condition_of
from eventlog.errors import BadMessage, ConnectionLost, InvalidArgument, OutcomeUnknown
from eventlog.events import Kind
from eventlog.routing.addresses import parse_addresses
from eventlog.transport.connection import Connection
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message


class Numbers:
    """By what nodes know a write again that is sent again: one producer, and for each cache and segment the number that is next.

    After a write that failed nobody knows what the next number is, so those behind it have none, and are sent once.
    """

    def __init__(self) -> None:
        self.producer = 0  # 0: none is known yet
        self._next: dict[tuple[int, int], int | None] = {}

    def learn(self, connection: Connection) -> None:
        """Take the producer that the first connection was given."""
        self.producer = self.producer or connection.producer_id

    def take(self, cache: int, segment: int) -> int | None:
        """Return the number of a write, None where it can have none. It counts as failed until `written`."""
        number = self._next.get((cache, segment), 0) if self.producer else None
        self._next[cache, segment] = None
        return number

    def written(self, cache: int, segment: int, number: int | None) -> None:
        """Note that a write was answered."""
        self._next[cache, segment] = None if number is None else number + 1


class OneByOne(CacheSingles, CacheGetting):
    """A cache of a small client."""

    def __init__(self, core: SmallCore, name: str, numbers: Numbers) -> None:
        super().__init__(core, name)
        self._numbers = numbers

    async def _write_one(
        self,
        key: bytes,
        value: bytes,
        *,
        condition: Condition | None,
        headers: bytes,
        wants_previous: bool,
        timeout_ms: int | None,
        lifespan_ms: int = 0,
        is_removal: bool = False,
        expecting: Expecting | None = None,
    ) -> Stored:
        info, form = await self._found()
        if lifespan_ms:
            raise InvalidArgument(why="a small client writes no lifespans: use eventlog.blocking.connect")
        segment = self._core.routes.segment(key, by_prefix=info.route_by_prefix)
        number = self._numbers.take(info.id, segment)
        kind = Kind.REMOVED if is_removal else Kind.CREATED
        block = build_one(key, value, kind=kind, segment=segment, sequence=number or 0, headers=headers)
        producer = self._numbers.producer if number is not None else 0
        write = pb.Write(cache_id=info.id, producer_id=producer, blocks=1, previous=wants_previous)
        if condition is not None:
            write.conditions.append(condition_of(condition))
        try:
            reply = await self._core.requests.ask(
                Message(write=write),
                block,
                segment=segment,
                repeatable=number is not None,
                timeout_ms=self._core.options.limit_ms(timeout_ms),
            )
        except ConnectionLost as error:
            if error.outcome != "unknown":
                raise
            raise OutcomeUnknown(outcome="unknown", why="the connection was lost before the answer came") from error
        self._numbers.written(info.id, segment, number)
        answer = reply.message.write_answer
        if answer.events != 1:
            raise BadMessage(outcome="unknown", why=f"an answer for {answer.events} events to a write of one")
        stored_id = answer.id or None
        if expecting is not None:
            await self._acknowledged(expecting, (key,), (stored_id,))
        return Stored(stored_id, kind_name(answer.kind), form.read_value(answer.previous) if answer.has_previous else None)


class SmallClient:
    """Connected while it is entered."""

    def __init__(self, addresses: Sequence[str], options: ClientOptions) -> None:
        self._core = SmallCore([address for given in addresses for address in parse_addresses(given)], options)
        self._numbers = Numbers()
        self._core.nodes.choose_producer = lambda: self._numbers.producer
        self._core.nodes.on_connection = self._numbers.learn
        self._thread: LoopThread | None = None
        self._keeper: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._thread = LoopThread("eventlog-client", last=self._close)
        try:
            self.run(self._open())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        thread = self._thread
        assert thread is not None, "it was entered"
        try:
            thread.run(self._close())
        finally:
            thread.stop()

    async def _open(self) -> None:
        self._keeper = asyncio.create_task(self._core.run(), name="eventlog-client")
        await self._core.open()

    async def _close(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await self._core.close(keeper)

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine in the client's loop and return its result."""
        assert self._thread is not None, "it was entered"
        return self._thread.run(coroutine)

    def cache(self, name: str) -> "SmallCache":
        """Return the cache `name`, looked up by its first call."""
        return SmallCache(self, OneByOne(self._core, name, self._numbers))

    def list_caches(self, *, internal: bool = False) -> list[CacheInfo]:
        """Return all caches, with `internal` the cluster's own as well."""
        reply = self.run(self._core.requests.ask(Message(list_caches=pb.ListCaches(internal=internal))))
        return [cache_info(cache) for cache in reply.message.list_caches_answer.caches]


class SmallCache:
    """One cache of it."""

    def __init__(self, client: SmallClient, cache: OneByOne) -> None:
        self._client = client
        self._cache = cache

    def info(self) -> CacheInfo:
        """Return the cache's options as they were when it was looked up."""
        found: CacheInfo = self._client.run(self._cache.info())
        return found

    def get(self, key: str | bytes, *, consistency: str = "primary") -> Entry | None:
        """Return the entry of `key`, None if there is none."""
        found: Entry | None = self._client.run(self._cache.get(key, consistency=consistency))
        return found

    def put(self, key: str | bytes, value: Any, **options: Any) -> Stored:
        """Store `value` under `key`; `options` are those of `CacheSingles.put` but for a lifespan."""
        stored: Stored = self._client.run(self._cache.put(key, value, **options))
        return stored

    def remove(self, key: str | bytes, **options: Any) -> Stored:
        """Remove the entry of `key`; `options` are those of `CacheSingles.remove`."""
        stored: Stored = self._client.run(self._cache.remove(key, **options))
        return stored


def connect(*addresses: str, **options: Any) -> SmallClient:
    """Return a small client, to be entered; `options` are those of `eventlog.connect`."""
    return SmallClient(addresses, ClientOptions(**options))
