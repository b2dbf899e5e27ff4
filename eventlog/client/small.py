"""A client for what a short command asks: no event loop, no thread, no arrays, so that it is ready when they would be loaded.

Its calls are those of `eventlog.blocking` of the same names, and mean the same; there are fewer. They are the coroutines that every
client has, over roads on which nothing suspends. A write is one request, sent again under its number until it is answered. Writes
with a lifespan are the other's.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any, Self, TypeVar

from eventlog.batch.one import build_one
from eventlog.client.connections.blocking import BlockingNodes
from eventlog.client.connections.requests import Requests
from eventlog.client.options import ClientOptions
from eventlog.client.reading.rows import CacheByKey
from eventlog.client.values import CacheInfo, Entry, Removed, Stored, cache_info, written
from eventlog.client.writing.singles import CacheSingles, Condition, Expecting, Written, condition_of
from eventlog.errors import BadMessage, ClientClosed, ConnectionLost, InvalidArgument, OutcomeUnknown
from eventlog.events import Kind
from eventlog.limits import FIRST_BLOCK_MS_MAX
from eventlog.routing.addresses import parse_addresses
from eventlog.routing.routes import Routes
from eventlog.transport.blocking import finished
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

T = TypeVar("T")


class Numbers:
    """By what nodes know a write again that is sent again: for each cache and segment the number that is next of this producer.

    After a write that failed nobody knows what the next number is, so those behind it have none, and are sent once.
    """

    def __init__(self) -> None:
        self._next: dict[tuple[int, int], int | None] = {}

    def take(self, cache: int, segment: int) -> int | None:
        """Return the number of a write, None where it can have none. It counts as failed until `written`."""
        number = self._next.get((cache, segment), 0)
        self._next[cache, segment] = None
        return number

    def written(self, cache: int, segment: int, number: int | None) -> None:
        """Note that a write was answered."""
        self._next[cache, segment] = None if number is None else number + 1


class SmallCore:
    """What the caches of one small client share."""

    def __init__(self, addresses: Sequence[str], options: ClientOptions) -> None:
        self.options = options
        self.nodes = BlockingNodes([address for given in addresses for address in parse_addresses(given)], options)
        self.requests = Requests(self.nodes, options)
        self.numbers = Numbers()

    @property
    def routes(self) -> Routes:
        """Where requests go.

        Raises:
            ClientClosed: the client was never opened.
        """
        if self.nodes.routes is None:
            raise ClientClosed(what="client")
        return self.nodes.routes


class OneByOne(CacheSingles, CacheByKey):
    """A cache of a small client."""

    _core: SmallCore

    async def _write_one(
        self,
        key: bytes,
        value: bytes,
        *,
        becomes: type[Written],
        condition: Condition | None,
        headers: bytes,
        wants_previous: bool,
        timeout_ms: int | None,
        lifespan_ms: int = 0,
        expecting: Expecting | None = None,
    ) -> Written:
        info, form = await self._found()
        if lifespan_ms:
            raise InvalidArgument(why="a small client writes no lifespans: use eventlog.blocking.connect")
        segment = self._core.routes.segment(key, by_prefix=info.route_by_prefix)
        producer = self._core.nodes.producer
        number = self._core.numbers.take(info.id, segment) if producer else None
        kind = Kind.REMOVED if becomes is Removed else Kind.CREATED
        block = build_one(key, value, kind=kind, segment=segment, sequence=number or 0, headers=headers)
        write = pb.Write(cache_id=info.id, producer_id=0 if number is None else producer, blocks=1, previous=wants_previous)
        if condition is not None:
            write.conditions.append(condition_of(condition))
        try:
            reply = await self._core.requests.ask(
                Message(write=write),
                block,
                segment=segment,
                repeatable=number is not None,
                again_ms_max=0 if number else FIRST_BLOCK_MS_MAX,
                timeout_ms=self._core.options.limit_ms(timeout_ms),
            )
        except ConnectionLost as error:
            if error.outcome != "unknown":
                raise
            raise OutcomeUnknown(outcome="unknown", why="the connection was lost before the answer came") from error
        self._core.numbers.written(info.id, segment, number)
        answer = reply.message.write_answer
        if answer.events != 1:
            raise BadMessage(outcome="unknown", why=f"an answer for {answer.events} events to a write of one")
        found = written(answer.id, answer.kind, form.read_value(answer.previous) if answer.has_previous else None)
        if not isinstance(found, becomes):
            raise BadMessage(outcome="unknown", why=f"an answer of kind {answer.kind} to a {'removal' if becomes is Removed else 'put'}")
        if expecting is not None:
            await self._acknowledged(expecting, (key,), (found.id,))
        return found


class SmallClient:
    """Connected while it is entered. One thread's."""

    def __init__(self, addresses: Sequence[str], options: ClientOptions) -> None:
        self._core = SmallCore(addresses, options)

    def __enter__(self) -> Self:
        try:
            self._core.nodes.open_once()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._core.nodes.close()

    def cache(self, name: str) -> "SmallCache":
        """Return the cache `name`, looked up by its first call."""
        return SmallCache(OneByOne(self._core, name))

    def list_caches(self, *, internal: bool = False) -> list[CacheInfo]:
        """Return all caches, with `internal` the cluster's own as well."""
        reply = finished(self._core.requests.ask(Message(list_caches=pb.ListCaches(internal=internal))))
        return [cache_info(cache) for cache in reply.message.list_caches_answer.caches]


class SmallCache:
    """One cache of it."""

    def __init__(self, cache: OneByOne) -> None:
        self._cache = cache

    def info(self) -> CacheInfo:
        """Return the cache's options as they were when it was looked up."""
        return finished(self._cache.info())

    def get(self, key: str | bytes, *, consistency: str = "primary") -> Entry | None:
        """Return the entry of `key`, None if there is none."""
        return finished(self._cache.get(key, consistency=consistency))

    def put(self, key: str | bytes, value: Any, **options: Any) -> Stored:
        """Store `value` under `key`; `options` are those of `CacheSingles.put` but for a lifespan."""
        return finished(self._cache.put(key, value, **options))

    def remove(self, key: str | bytes, **options: Any) -> Removed:
        """Remove the entry of `key`; `options` are those of `CacheSingles.remove`."""
        return finished(self._cache.remove(key, **options))

    def keys(self, prefix: str | bytes | None = None, *, limit: int | None = None) -> Iterator[str | bytes]:
        """Yield the keys that begin with `prefix`, at most `limit`: segment by segment, ascending in each. Few are held at a time."""
        return _each(self._cache.keys(prefix, limit=limit).generator)


def connect(*addresses: str, **options: Any) -> SmallClient:
    """Return a small client, to be entered; `options` are those of `eventlog.connect`."""
    return SmallClient(addresses, ClientOptions(**options))


def _each(rows: AsyncGenerator[T, None]) -> Iterator[T]:
    """Yield the items of a generator that never suspends."""
    try:
        while True:
            try:
                row = finished(rows.__anext__())
            except StopAsyncIteration:
                return
            yield row
    finally:
        finished(rows.aclose())
