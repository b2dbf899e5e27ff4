"""The client for code without an event loop: the same calls, and they return when the work is done.

    with eventlog.blocking.connect("127.0.0.1:7400") as client:
        cache = client.cache("orders")
        cache.put("k", {"total": 3})
        for event in cache.events(): ...

Every call runs the asynchronous client in a thread of its own. Any thread may call, an iterator is one thread's at a time; an interrupt
(Ctrl-C) while waiting cancels the call. What the calls mean is said where they are made: `eventlog.client.client`, `.writes`, `.reads`.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import cached_property, update_wrapper
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, Unpack, overload

from eventlog.client.cache import Cache as AsyncCache
from eventlog.client.client import Client as AsyncClient
from eventlog.client.client import connect as connect_async
from eventlog.client.cluster import ClusterAdmin as AsyncClusterAdmin
from eventlog.client.groups import GroupAdmin as AsyncGroupAdmin
from eventlog.client.listeners import ListenerAdmin as AsyncListenerAdmin
from eventlog.client.loop_thread import Flat, LoopThread, Pulled, Steps, in_lists
from eventlog.client.members.consumer import Consumer as AsyncConsumer
from eventlog.client.members.consuming import ConsumerOptions, WorkOptions
from eventlog.client.members.work import Task as AsyncTask
from eventlog.client.members.work import WorkConsumer as AsyncWorkConsumer
from eventlog.client.mirrors import MirrorAdmin as AsyncMirrorAdmin
from eventlog.client.near.near_cache import NearCache as AsyncNearCache
from eventlog.client.near.table import MISS, NearStatistics
from eventlog.client.options import ConnectOptions
from eventlog.client.reading.batches import EventBatch, Order
from eventlog.client.reading.continuous import QueryChange
from eventlog.client.reading.entries import Entries as AsyncEntries
from eventlog.client.reading.entries import EntryRows as AsyncEntryRows
from eventlog.client.reading.filtering import Parameters, Select
from eventlog.client.reading.iterating import EntryBatch, Key
from eventlog.client.reading.rows import Rows
from eventlog.client.reading.scanning import Scan as AsyncScan
from eventlog.client.reading.wanted import OnTrimmed, ReadOptions
from eventlog.client.values import CacheInfo, ClientUsage, Entry, Shown, StoredMany
from eventlog.client.writing.staging import Stage as AsyncStage
from eventlog.errors import ClientClosed, InvalidArgument
from eventlog.events import Event
from eventlog.groups.record import Mode

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Cache", "Client", "Consumer", "NearCache", "Scan", "Task", "WorkConsumer", "connect"]

P = ParamSpec("P")
T = TypeVar("T")
Own = TypeVar("Own")
Wrapped_co = TypeVar("Wrapped_co", covariant=True)
ROWS_PER_HOP = 1_000


def connect(*addresses: str, **options: Unpack[ConnectOptions]) -> "Client":
    """Return a client, connected to the first of `addresses` that answers; close it, or use it in a `with` statement.

    `options` are those of `eventlog.connect`.

    Raises:
        ConnectionLost, TimedOut: none answers.
    """
    client = connect_async(*addresses, **options)
    thread = LoopThread("eventlog-client", last=client.close)
    try:
        thread.run(client.open())
    except BaseException:
        thread.stop()
        raise
    return Client(thread, client)


class _Facade(Shown, Generic[Wrapped_co]):
    """Something asynchronous, and the thread in which it runs."""

    def __init__(self, thread: LoopThread, wrapped: Wrapped_co) -> None:
        self._thread = thread
        self._async = wrapped

    def __repr__(self) -> str:
        return repr(self._async).replace("<eventlog.", "<eventlog.blocking.", 1)


def _call(function: Callable[Concatenate[Wrapped_co, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[_Facade[Wrapped_co], P], T]:
    def call(self: _Facade[Wrapped_co], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(function(self._async, *args, **kwargs))

    update_wrapper(call, function)
    return call


def _rows(function: Callable[Concatenate[Wrapped_co, P], Rows[T]]) -> Callable[Concatenate[_Facade[Wrapped_co], P], Flat[T]]:
    def call(self: _Facade[Wrapped_co], /, *args: P.args, **kwargs: P.kwargs) -> Flat[T]:
        rows = function(self._async, *args, **kwargs)
        return Flat(Pulled(self._thread, in_lists(rows.generator, size=ROWS_PER_HOP)))

    update_wrapper(call, function)
    return call


def _made(
    function: Callable[Concatenate[Wrapped_co, P], T], wrap: Callable[[LoopThread, T], Own]
) -> Callable[Concatenate[_Facade[Wrapped_co], P], Own]:
    """Return a call that returns what `function` does, for code without an event loop."""

    def call(self: _Facade[Wrapped_co], /, *args: P.args, **kwargs: P.kwargs) -> Own:
        return wrap(self._thread, function(self._async, *args, **kwargs))

    update_wrapper(call, function)
    return call


def _same(name: str) -> Any:
    """Return a property that is one of the same name."""
    return property(attrgetter(f"_async.{name}"))


class Entries(_Facade[AsyncEntries]):
    """Iterate it for keys with entries; in a `with` statement it gives keys with values, or columns: `eventlog.client.reading.entries`."""

    def __iter__(self) -> Iterator[tuple[Key, Entry]]:
        return iter(self._rows)

    @cached_property
    def _rows(self) -> Flat[tuple[Key, Entry]]:  # one, so that a loop that is left and entered again goes on
        return Flat(Pulled(self._thread, in_lists(self._async.generator, size=ROWS_PER_HOP)))

    def __enter__(self) -> "EntryRows":
        self._entered = EntryRows(self._thread, self._thread.run(self._async.__aenter__()))
        return self._entered

    def __exit__(self, *_: object) -> None:
        if not self._thread.is_stopped:
            self._entered.close()


class EntryRows(_Facade[AsyncEntryRows]):
    """Iterate it for keys with their values (with `metadata`, their entries), or its `batches()` for columns: one of the two, once."""

    _pulled: tuple[Pulled[Any], ...] = ()

    def __iter__(self) -> Iterator[tuple[Key, Any]]:
        return iter(self._rows)

    def batches(self) -> Iterator[EntryBatch]:
        """Yield the entries as columns."""
        return self._batches

    @cached_property
    def _rows(self) -> Flat[tuple[Key, Any]]:  # one, as above
        return Flat(self._pull(in_lists(self._async.rows, size=ROWS_PER_HOP)))

    @cached_property
    def _batches(self) -> Pulled[EntryBatch]:
        return self._pull(self._async.batches())

    def _pull(self, items: AsyncGenerator[T, None]) -> Pulled[T]:
        pulled = Pulled(self._thread, items)
        self._pulled += (pulled,)
        return pulled

    def close(self) -> None:
        """End the reading."""
        for pulled in self._pulled:
            pulled.join()  # before what it reads is ended: that cannot be while it is read
        self._thread.run(self._async.aclose())


class Scan(_Facade[AsyncScan]):
    """A read as a table, as `eventlog.client.reading.scanning.Scan`; pyarrow, polars and DuckDB take it as it is, by its Arrow C stream."""

    to_arrow = _call(AsyncScan.to_arrow)
    to_pandas = _call(AsyncScan.to_pandas)
    to_polars = _call(AsyncScan.to_polars)

    @property
    def schema(self) -> "pa.Schema":
        """The schema of the table; with `value_schema="infer"` the first values are read for it, once."""
        return self._thread.run(self._async.schema())

    def __iter__(self) -> "Iterator[pa.RecordBatch]":
        return Pulled(self._thread, self._async.batches())

    def reader(self) -> "pa.RecordBatchReader":
        """Return a reader of the table from its beginning, which holds two batches at most; one thread's at a time."""
        return self._thread.run(self._async.frame()).stream(iter(self))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)


class NearCache(_Facade[AsyncNearCache]):
    """A near cache, as `eventlog.client.near.near_cache.NearCache`. What it holds is read in the calling thread."""

    def __enter__(self) -> Self:
        self._thread.run(self._async.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        if not self._thread.is_stopped:
            self._thread.run(self._async.__aexit__())

    def get(self, key: str | bytes) -> Entry | None:
        """Return the entry of `key`, None if there is none: from memory where that may be, else from its primary."""
        found = self._async.peek(key, MISS)
        return self._thread.run(self._async.get(key)) if found is MISS else found

    def peek(self, key: str | bytes, default: Any = None) -> Any:
        """Return what `get` would return without asking anybody, else `default`."""
        return self._async.peek(key, default)

    def get_many(self, keys: Iterable[str | bytes]) -> list[Entry | None]:
        """Return the entries of many keys, in their order."""
        given = list(keys)
        found = [self._async.peek(key, MISS) for key in given]
        missing = [row for row, entry in enumerate(found) if entry is MISS]
        if missing:
            read = self._thread.run(self._async.get_many([given[row] for row in missing]))
            for row, entry in zip(missing, read, strict=True):
                found[row] = entry
        return found

    put = _call(AsyncNearCache.put)
    replace = _call(AsyncNearCache.replace)
    remove = _call(AsyncNearCache.remove)
    put_many = _call(AsyncNearCache.put_many)
    remove_many = _call(AsyncNearCache.remove_many)
    clear = _call(AsyncNearCache.clear)

    @property
    def statistics(self) -> NearStatistics:
        """Hits, misses, invalidations and how full it is."""
        return self._async.statistics

    @property
    def is_fresh(self) -> bool:
        """Whether it serves from memory: the log was heard of within the last `max_staleness_ms`."""
        return self._async.is_fresh


class Stage(_Facade[AsyncStage]):
    """One attempt at a part of a batch, as `eventlog.client.writing.staging.Stage`."""

    put_columns = _call(AsyncStage.put_columns)
    put_many = _call(AsyncStage.put_many)
    put_arrow = _call(AsyncStage.put_arrow)
    events = _same("events")

    def staged(self) -> bytes:
        """Return what `publish` is to be given."""
        return self._async.staged()


class Cache(_Facade[AsyncCache]):
    """A cache, as `eventlog.client.cache.Cache`."""

    @property
    def name(self) -> str:
        """The cache's name."""
        return self._async.name

    def segments_by_primary(self, segments: Collection[int] | None = None) -> list[tuple[int, ...]]:
        """Return segments in groups that one node leads each, as `eventlog.client.cache.Cache.segments_by_primary`."""
        return self._async.segments_by_primary(segments)

    info = _call(AsyncCache.info)
    put = _call(AsyncCache.put)
    replace = _call(AsyncCache.replace)
    remove = _call(AsyncCache.remove)
    put_many = _call(AsyncCache.put_many)
    remove_many = _call(AsyncCache.remove_many)
    put_arrow = _call(AsyncCache.put_arrow)
    stage = _made(AsyncCache.stage, Stage)
    publish = _call(AsyncCache.publish)
    clear = _call(AsyncCache.clear)
    get = _call(AsyncCache.get)
    size = _call(AsyncCache.size)
    for_each = _call(AsyncCache.for_each)
    log_ends = _call(AsyncCache.log_ends)
    plan = _call(AsyncCache.plan)
    poll = _call(AsyncCache.poll)
    register = _call(AsyncCache.register)
    get_many = _rows(AsyncCache.get_many)
    keys = _rows(AsyncCache.keys)

    entries = _made(AsyncCache.entries, Entries)
    scan = _made(AsyncCache.scan, Scan)
    scan_events = _made(AsyncCache.scan_events, Scan)
    near = _made(AsyncCache.near, NearCache)

    def event_batches(
        self,
        from_id: int | str | None = None,
        *,
        order: Order = "id",
        max_bytes: int = 0,
        columns: Sequence[str] | None = None,
        **options: Unpack[ReadOptions],
    ) -> Pulled[EventBatch]:
        """Yield events as columns; what the options mean is said at `eventlog.client.reading.reads.CacheReads.event_batches`.

        The next batch is fetched while one is used, but not for a listener: that would acknowledge what is not done yet.
        """
        batches = self._async.event_batches(from_id, order=order, max_bytes=max_bytes, columns=columns, **options)
        return Pulled(self._thread, batches, ahead=options.get("listener") is None)

    def events(self, from_id: int | str | None = None, **options: Unpack[ReadOptions]) -> Flat[Event]:
        """Yield events as objects; what the options mean is said at `eventlog.client.reading.reads.CacheReads.events`."""
        return Flat(self.event_batches(from_id, **options))

    @overload
    def consumer(self, group: str, *, mode: Literal["read"] = "read", **options: Unpack[ConsumerOptions]) -> "Consumer": ...

    @overload
    def consumer(self, group: str, *, mode: Literal["work"], **options: Unpack[WorkOptions]) -> "WorkConsumer": ...

    def consumer(self, group: str, *, mode: Mode = "read", **options: Any) -> "Consumer | WorkConsumer":
        """Return a `Consumer`, or with `mode="work"` a `WorkConsumer`, to be used in a `with` statement.

        `options` are those of `CacheConsumers.new_consumer` and `.new_worker`.
        """
        if mode == "work":
            return WorkConsumer(self._thread, self._thread.run(self._async.new_worker(group, **options)))
        if mode != "read":
            raise InvalidArgument(why=f"mode is {mode!r}: use read or work")
        return Consumer(self._thread, self._thread.run(self._async.new_consumer(group, **options)))

    def send_columns(
        self, keys: Sequence[bytes], values: Sequence[bytes], *, removed: Sequence[bool] | None = None, timeout_ms: int | None = None
    ) -> "Future[StoredMany]":
        """Return the future of the result as soon as there is room among the bytes unanswered."""
        sent = self._thread.run(self._async.send_columns(keys, values, removed=removed, timeout_ms=timeout_ms))
        return self._thread.submit(_result_of(sent))

    def continuous_query(
        self,
        where: str | None = None,
        *,
        parameters: Parameters | None = None,
        select: Select | None = None,
        position: str | None = None,
        initial: bool = True,
        on_trimmed: OnTrimmed = "error",
    ) -> "QueryChanges":
        """Return the changes of what matches, to be iterated in a `with` statement.

        What the options mean is said at `eventlog.client.reading.continuous.CacheQueries.continuous_query`.
        """
        begin = self._thread.run(self._async.query_begin(position=position, initial=initial))
        lists = self._async.query_lists(where, begin=begin, parameters=parameters, select=select, on_trimmed=on_trimmed)
        return QueryChanges(Flat(Pulled(self._thread, lists)))


class QueryChanges(Shown):
    """The changes of a continuous query, without end."""

    _place = "eventlog.blocking"

    def __init__(self, changes: Flat[QueryChange]) -> None:
        self._changes = changes

    def __iter__(self) -> Iterator[QueryChange]:
        return iter(self._changes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._changes.close()


async def _result_of(future: "asyncio.Future[T]") -> T:
    return await future


class Consumer(_Facade[AsyncConsumer]):
    """A member of a consumer group, as `eventlog.client.members.consumer.Consumer`; from entering it to leaving it."""

    def __init__(self, thread: LoopThread, wrapped: AsyncConsumer) -> None:
        super().__init__(thread, wrapped)
        self._steps: Steps[EventBatch] = Steps(thread)

    def __enter__(self) -> Self:
        self._thread.run(self._async.open())
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._async.finish()
        if not self._thread.is_stopped:
            self._thread.run(self._async.close())

    member_id: str = _same("member_id")
    generation: int = _same("generation")
    assignment: frozenset[int] = _same("assignment")

    @property
    def position(self) -> str | None:
        """The token of where it goes on behind what it has handed out; None while it has no segments."""
        return self._thread.run(_position_of(self._async))

    def __iter__(self) -> Iterator[Event]:
        lists = self._async.event_lists()
        while (found := self._thread.run(_next_of(lists))) is not None:
            fetched, events = found
            for event in events:
                if not self._async.may_hand(fetched):
                    break
                self._async.hand(event)
                yield event

    def batches(self, max_events: int = 0, *, until_id: int | None = None) -> Iterator[EventBatch]:
        """Yield events as columns, up to `until_id`, inclusive, if given; a batch is done when the next one is asked for."""
        batches = self._async.batches(max_events, until_id=until_id)
        while (batch := self._steps.next_of(batches)) is not None:
            yield batch

    commit = _call(AsyncConsumer.commit)


class ListenerAdmin(_Facade[AsyncListenerAdmin]):
    """Listeners of all caches, as `eventlog.client.listeners.ListenerAdmin`."""

    describe = _call(AsyncListenerAdmin.describe)
    alter = _call(AsyncListenerAdmin.alter)
    acknowledge = _call(AsyncListenerAdmin.acknowledge)
    remove = _call(AsyncListenerAdmin.remove)
    list = _call(AsyncListenerAdmin.list)


class MirrorAdmin(_Facade[AsyncMirrorAdmin]):
    """The mirrors of a cluster, as `eventlog.client.mirrors.MirrorAdmin`."""

    add = _call(AsyncMirrorAdmin.add)
    describe = _call(AsyncMirrorAdmin.describe)
    status = _call(AsyncMirrorAdmin.status)
    verify = _call(AsyncMirrorAdmin.verify)
    pause = _call(AsyncMirrorAdmin.pause)
    resume = _call(AsyncMirrorAdmin.resume)
    reset = _call(AsyncMirrorAdmin.reset)
    alter = _call(AsyncMirrorAdmin.alter)
    remove = _call(AsyncMirrorAdmin.remove)
    list = _call(AsyncMirrorAdmin.list)


class Task(_Facade[AsyncTask]):
    """An event that nobody else works on, as `eventlog.client.members.work.Task`."""

    event: Event = _same("event")
    id: int = _same("id")
    key: str | bytes = _same("key")
    value: Any = _same("value")
    kind: str = _same("kind")
    headers: dict[str, bytes] = _same("headers")
    deliveries: int = _same("deliveries")
    maybe_repeated: bool = _same("maybe_repeated")

    ack = _call(AsyncTask.ack)
    retry = _call(AsyncTask.retry)
    reject = _call(AsyncTask.reject)


class WorkConsumer(_Facade[AsyncWorkConsumer]):
    """A member of a work group, as `eventlog.client.members.work.WorkConsumer`; from entering it to leaving it."""

    def __init__(self, thread: LoopThread, wrapped: AsyncWorkConsumer) -> None:
        super().__init__(thread, wrapped)
        self._steps: Steps[AsyncTask] = Steps(thread)

    member_id: str = _same("member_id")
    in_hand: frozenset[int] = _same("in_hand")

    def __enter__(self) -> Self:
        self._thread.run(self._async.open())
        return self

    def __exit__(self, *_: object) -> None:
        if not self._thread.is_stopped:
            self._thread.run(self._async.close())

    def __iter__(self) -> Iterator[Task]:
        tasks = self._async.tasks()
        while (task := self._steps.next_of(tasks)) is not None:
            yield Task(self._thread, task)


async def _position_of(consumer: AsyncConsumer) -> str | None:
    return consumer.position


class GroupAdmin(_Facade[AsyncGroupAdmin]):
    """What operators ask about consumer groups, as `eventlog.client.groups.GroupAdmin`."""

    describe = _call(AsyncGroupAdmin.describe)
    reset = _call(AsyncGroupAdmin.reset)
    delete = _call(AsyncGroupAdmin.delete)
    list = _call(AsyncGroupAdmin.list)


async def _next_of(items: AsyncGenerator[T, None]) -> T | None:
    return await anext(items, None)


class ClusterAdmin(_Facade[AsyncClusterAdmin]):
    """What operators ask, as `eventlog.client.cluster.ClusterAdmin`."""

    nodes = _call(AsyncClusterAdmin.nodes)
    drain = _call(AsyncClusterAdmin.drain)
    remove = _call(AsyncClusterAdmin.remove)
    replace = _call(AsyncClusterAdmin.replace)
    set_replicas = _call(AsyncClusterAdmin.set_replicas)
    rotate_key = _call(AsyncClusterAdmin.rotate_key)
    plan_rebalance = _call(AsyncClusterAdmin.plan_rebalance)
    start_rebalance = _call(AsyncClusterAdmin.start_rebalance)
    cancel_rebalance = _call(AsyncClusterAdmin.cancel_rebalance)
    rebalance_status = _call(AsyncClusterAdmin.rebalance_status)
    compare_copies = _call(AsyncClusterAdmin.compare_copies)
    force_primary = _call(AsyncClusterAdmin.force_primary)


class Client(_Facade[AsyncClient]):
    """A connected client, as `eventlog.client.client.Client`. Leaving a `with` statement waits for writes under way."""

    def close(self) -> None:
        """Close the connection and end the thread. Iterators of this client end with ClientClosed."""
        try:
            if not self._thread.is_stopped:
                self._thread.run(self._async.close())
        except ClientClosed:  # another thread was quicker
            pass
        finally:
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None and not self._thread.is_stopped:
                self.flush()
        finally:
            self.close()

    @property
    def cluster(self) -> str:
        """The id of the cluster."""
        return self._async.cluster

    @property
    def segments_count(self) -> int:
        """How many segments the cluster has."""
        return self._async.segments_count

    @property
    def usage(self) -> ClientUsage:
        """What it holds now: connections, and writes that are not answered."""
        return self._async.usage

    @property
    def admin(self) -> ClusterAdmin:
        """What operators ask: members, moving segments, comparing copies."""
        return ClusterAdmin(self._thread, self._async.admin)

    @property
    def groups(self) -> GroupAdmin:
        """What operators ask about consumer groups."""
        return GroupAdmin(self._thread, self._async.groups)

    def cache(self, name: str) -> Cache:
        """Return the cache `name`. It is looked up by its first call, which raises CacheNotFound if there is none."""
        return Cache(self._thread, self._async.cache(name))

    create_cache = _made(AsyncClient.create_cache, lambda thread, created: Cache(thread, thread.run(created)))

    def alter_cache(self, name: str, **options: object) -> CacheInfo:
        """Change options of a cache and return all of them."""
        return self._thread.run(self._async.alter_cache(name, **options))

    def wait_for(self, cache: Cache | str, id: int, *, timeout_ms: int | None = None) -> None:
        """Return once readers of `cache`, or the cache of this name, see everything up to `id`, wherever they read."""
        self._thread.run(self._async.wait_for(cache.name if isinstance(cache, Cache) else cache, id, timeout_ms=timeout_ms))

    describe_cache = _call(AsyncClient.describe_cache)
    drop_cache = _call(AsyncClient.drop_cache)
    list_caches = _call(AsyncClient.list_caches)
    list_filters = _call(AsyncClient.list_filters)

    @property
    def mirrors(self) -> MirrorAdmin:
        """The mirrors of caches in Kafka."""
        return MirrorAdmin(self._thread, self._async.mirrors)

    @property
    def listeners(self) -> ListenerAdmin:
        """The listeners of all caches."""
        return ListenerAdmin(self._thread, self._async.listeners)

    flush = _call(AsyncClient.flush)
    ping = _call(AsyncClient.ping)
    status = _call(AsyncClient.status)
    health = _call(AsyncClient.health)
    segments = _call(AsyncClient.segments)
    run_retention = _call(AsyncClient.run_retention)
    check = _call(AsyncClient.check)
